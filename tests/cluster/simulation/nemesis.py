"""Chooses faults, and acts as the operator: adds, promotes, removes and replaces nodes."""

from leveret.cluster.errors import ClusterError
from leveret.cluster.raft.core import Raft
from leveret.cluster.raft.members import Member, Members
from tests.cluster.simulation.network import SHAPES, Network
from tests.cluster.simulation.node import Condition, Node
from tests.cluster.simulation.stage import Stage

VOTERS_MIN = 3
VOTERS_MAX = 5


class Nemesis:
    """Faults by weight; each is followed by its end, sooner or later."""

    def __init__(self, stage: Stage, nodes: dict[int, Node], network: Network) -> None:
        self.stage = stage
        self.rng = stage.rng
        self.nodes = nodes
        self.network = network
        self.is_over = False

    def strike(self) -> None:
        """One fault, and the next one later."""
        if self.is_over:
            return
        every = self.stage.schedule.fault_every
        self.stage.after(self.rng.randrange(every // 2, every * 2), self.strike)
        names = list(self.stage.schedule.weights)
        weights = list(self.stage.schedule.weights.values())
        getattr(self, self.rng.choices(names, weights)[0])()

    def up(self) -> list[Node]:
        return [node for node in self.nodes.values() if node.condition is Condition.UP]

    def leader(self) -> Node | None:
        """The leader of the highest term, as far as one can see from outside."""
        found: Node | None = None
        term = 0
        for node in self.up():
            if node.raft is not None and node.is_leader and node.raft.term > term:
                found, term = node, node.raft.term
        return found

    def members(self) -> Members | None:
        """The members in force, as the leader has them; None if there is none."""
        leader = self.leader()
        raft = None if leader is None else leader.raft
        return None if raft is None else raft.log.members()

    # Faults

    def cut(self) -> None:
        nodes = [node.number for node in self.up()]
        if len(nodes) < 2:
            return
        leader = self.leader()
        shape = self.rng.choice(SHAPES)
        text = shape(self.network, nodes, leader.number if leader else self.rng.choice(nodes))
        self.stage.note(f"cut: {text}")
        self.stage.after(self.rng.randrange(100, 500), self.heal)

    def heal(self) -> None:
        if self.network.cuts:
            self.stage.note("links are whole again")
        self.network.heal()

    def crash(self) -> None:
        """One node, or all of them at once: a power cut."""
        up = self.up()
        if not up:
            return
        count = self.rng.choice((1, 1, 1, 1, 2, len(up)))
        for node in self.rng.sample(up, min(count, len(up))):
            self._crash(node)
            self.stage.after(self.rng.choice((1, 20, 150, 400)), self._restart, node)

    def _crash(self, node: Node) -> None:
        """Others see their links closed, unless power has failed."""
        node.crash()
        if self.rng.random() < 0.7:
            for other in self.up():
                if (node.number, other.number) not in self.network.cuts:
                    self.stage.after(self.rng.randrange(1, 10), other.lose_link, node.number)

    def _restart(self, node: Node) -> None:
        if node.condition is Condition.DOWN:
            node.start()

    def unlink(self) -> None:
        """A link is closed, and made again at once."""
        up = self.up()
        if len(up) >= 2:
            one, other = self.rng.sample(up, 2)
            one.lose_link(other.number)
            other.lose_link(one.number)

    def _anybody(self) -> Node | None:
        """Half the time the leader, if there is one."""
        up = self.up()
        leader = self.leader()
        if not up:
            return None
        return leader if leader and self.rng.random() < 0.5 else self.rng.choice(up)

    def pause(self) -> None:
        node = self._anybody()
        if node is not None:
            node.paused_until = self.stage.now + self.rng.choice((30, 150, 400))
            self.stage.note(f"{node} stands still until {node.paused_until}")

    def hang(self) -> None:
        """The disk of a node hangs."""
        node = self._anybody()
        if node is not None:
            node.hung_until = self.stage.now + self.rng.choice((30, 150, 400))
            self.stage.note(f"the disk of {node} hangs until {node.hung_until}")

    def slow(self) -> None:
        node = self._anybody()
        if node is not None:
            node.sync_slow = self.rng.choice((1, 1, 5, 20))

    def skew(self) -> None:
        """Clocks at another pace."""
        schedule = self.stage.schedule
        for node in self.up():
            node.tick_every = self.rng.randint(schedule.tick_min, schedule.tick_max)

    def _victim(self) -> Node | None:
        """A voter whose disk may fail: the others must have whole disks, or blocks are lost."""
        members = self.members()
        if members is None or len(members.voters) < VOTERS_MIN:
            return None
        for number in members.everyone():
            node = self.nodes[number]
            if node.condition is Condition.GONE or not node.disk.durable.hard.may_vote:
                return None
            if node.raft is not None and not node.raft.hard.may_vote:
                return None
        # Blocks are on a majority of the members in force, which a change may not have reached.
        leader = self.leader()
        assert leader is not None
        assert leader.raft is not None
        if leader.raft.log.members_index() > leader.raft.commit:
            return None
        found = [self.nodes[number] for number in members.voters]
        up = [node for node in found if node.condition is Condition.UP]
        return self.rng.choice(up) if up else None

    def damage(self) -> None:
        """A disk loses synced blocks, which the node notices when it starts again."""
        node = self._victim()
        if node is None:
            return
        self._crash(node)
        if node.disk.damage(self.rng):
            self.stage.checker.on_damage(node.number)
            self.stage.note(f"the disk of {node} is damaged, {node.disk.durable.last} are left")
        self.stage.after(self.rng.choice((1, 20, 150)), self._restart, node)

    def wipe(self) -> None:
        """A node is lost for good, with its disk; the operator replaces it."""
        node = self._victim()
        if node is not None:
            node.leave()
            self.stage.checker.on_damage(node.number)

    # The operator

    def transfer(self) -> None:
        members = self.members()
        leader = self.leader()
        if members is not None and leader is not None:
            target = self.rng.choice(members.voters)
            leader.call(lambda raft: self._transfer(raft, target))

    def _transfer(self, raft: Raft, target: int) -> None:
        if self.rng.random() < 0.5:
            target = raft.best_successor() or target
        try:
            raft.transfer(target)
        except ClusterError:
            return
        self.stage.note(f"{raft.node} hands over to {target}")

    def member(self) -> None:
        """The next step of replacing nodes one by one; sometimes two steps at once."""
        for _ in range(self.rng.choice((1, 1, 2))):
            members = self.members()
            if members is None:
                return
            broken = [n for n in members.everyone() if self.nodes[n].condition is Condition.GONE]
            if broken:
                self._remove(self.rng.choice(broken))
            elif members.non_voters:
                self._promote(self.rng.choice(members.non_voters))
            elif len(members.voters) >= VOTERS_MAX or (
                len(members.voters) > VOTERS_MIN and self.rng.random() < 0.5
            ):
                self._remove(self.rng.choice(members.voters))
            else:
                self._add()

    def _add(self) -> None:
        """A new node; a number is never given twice."""
        leader = self.leader()
        if leader is None:
            return
        node = Node(self.stage, max(self.nodes) + 1)
        self.nodes[node.number] = node
        node.start()
        added = member(node.number)
        leader.change(lambda raft: raft.plan_add(added))

    def _promote(self, node: int) -> None:
        leader = self.leader()
        if leader is not None:
            leader.change(lambda raft: raft.plan_promote(node))

    def _remove(self, node: int) -> None:
        leader = self.leader()
        if leader is not None:
            leader.change(lambda raft: raft.plan_remove(node))

    def sweep(self) -> None:
        """Nodes that were members and are not any more end, once that is committed."""
        leader = self.leader()
        raft = None if leader is None else leader.raft
        if raft is None or raft.term < max(self.stage.checker.leaders):
            return  # one that another has followed knows nothing of what is committed
        if raft.log.members_index() > raft.commit or not raft.has_committed_own_term():
            return
        for node in self.nodes.values():
            is_known = raft.log.members().has(node.number)
            if node.is_member and not is_known and node.condition is not Condition.GONE:
                node.leave()
            node.is_member = node.is_member or is_known


def member(number: int) -> Member:
    return Member(number, f"n{number}", bytes([number]) * 4, f"host:{number}".encode())
