"""Chooses faults, and acts as the operator: adds, promotes, removes and replaces nodes."""

from collections.abc import Callable

from leveret.cluster.commands import PURGE, encode_bare, encode_configure
from leveret.cluster.errors import (
    ClusterError,
)
from leveret.cluster.host import Host
from leveret.cluster.machine_state import Settings
from leveret.cluster.raft.entry import Members
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

    def group(self) -> int:
        """Any group."""
        return self.rng.choice(list(self.stage.checkers))

    def leader(self, group: int) -> Node | None:
        """The leader of the highest term, as far as one can see from outside."""
        found: Node | None = None
        term = 0
        for node in self.up():
            raft = node.raft(group)
            if raft is not None and node.is_leader(group) and raft.term > term:
                found, term = node, raft.term
        return found

    def members(self, group: int) -> Members | None:
        """The members in force, as the leader has them; None if there is none."""
        leader = self.leader(group)
        raft = None if leader is None else leader.raft(group)
        return None if raft is None else raft.log.members()

    # Faults

    def cut(self) -> None:
        nodes = [node.number for node in self.up()]
        if len(nodes) < 2:
            return
        leader = self.leader(self.group())
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
            node.crash()
            self.stage.after(self.rng.choice((1, 20, 150, 400)), self._restart, node)

    def _restart(self, node: Node) -> None:
        if node.condition is Condition.DOWN:
            node.start()

    def pause(self) -> None:
        up = self.up()
        leader = self.leader(self.group())
        if up:
            node = leader if leader and self.rng.random() < 0.5 else self.rng.choice(up)
            node.paused_until = self.stage.now + self.rng.choice((30, 150, 400))
            self.stage.note(f"{node} stands still until {node.paused_until}")

    def slow(self) -> None:
        up = self.up()
        if up:
            self.rng.choice(up).sync_slow = self.rng.choice((1, 1, 5, 20))

    def skew(self) -> None:
        """Clocks that go wrong, and at another pace."""
        for node in self.up():
            node.skew_ms = self.rng.choice((0, 0, -500, 700, 3000))
            schedule = self.stage.schedule
            node.tick_every = self.rng.randint(schedule.tick_min, schedule.tick_max)

    def corrupt(self) -> None:
        """Turn a bit on a disk; the node finds out when it starts again."""
        if any(
            n.disk.is_damaged and n.condition is not Condition.GONE for n in self.nodes.values()
        ):
            return
        spared: set[int] = set()
        for group in self.stage.checkers:
            members = self.members(group)
            if members is None:
                return
            # A majority must be left, with another node down for good; non-voters may vote soon.
            leader = self.leader(group)
            spared.update(members.everyone() if len(members.voters) < VOTERS_MIN else [])
            spared.add(leader.number if leader is not None else 0)
        others = [node for node in self.up() if node.number not in spared and node.groups]
        if not others:
            return
        node = self.rng.choice(others)
        if node.disk.damage(self.rng):
            node.crash()
            self.stage.after(20, self._restart, node)

    # The operator

    def _ask_leader(self, group: int, action: Callable[[Host], object]) -> None:
        leader = self.leader(group)
        if leader is not None:
            leader.call(lambda host: _try(host, action))

    def transfer(self) -> None:
        group = self.group()
        members = self.members(group)
        if members is not None:
            target = self.rng.choice(members.voters)
            self._ask_leader(group, lambda host: host.transfer(group, target))

    def member(self) -> None:
        """The next step of replacing nodes one by one; sometimes two steps at once."""
        group = self.group()
        for _ in range(self.rng.choice((1, 1, 2))):
            members = self.members(group)
            if members is None:
                return
            if members.non_voters:
                self._promote(group, self.rng.choice(members.non_voters))
            elif len(members.voters) >= VOTERS_MAX or (
                len(members.voters) > VOTERS_MIN and self.rng.random() < 0.5
            ):
                self._remove(group, members)
            else:
                self._add(group)

    def _add(self, group: int) -> None:
        """A node that never was a member of this group: one of other groups, or a new one."""
        strangers = [n for n in self.up() if group not in n.groups and group not in n.left]
        if strangers and self.rng.random() < 0.5:
            node = self.rng.choice(strangers)
            node.join(group, Members([], []))
        else:
            node = Node(self.stage, max(self.nodes) + 1)
            self.nodes[node.number] = node
            node.join(group, Members([], []))
            node.start()
        number = node.number
        self._ask_leader(group, lambda host: host.add_non_voter(group, number))

    def _promote(self, group: int, node: int) -> None:
        self._ask_leader(group, lambda host: host.promote(group, node))

    def _remove(self, group: int, members: Members) -> None:
        """One that does not work any more, if there is one."""
        broken = [n for n in members.voters if self.nodes[n].condition is Condition.REFUSED]
        node = self.rng.choice(broken or members.voters)
        self.stage.note(f"remove {node} from {group}")
        self._ask_leader(group, lambda host: host.remove(group, node))

    def sweep(self) -> None:
        """Nodes leave groups that they were members of and are not any more, once committed."""
        for group in self.stage.checkers:
            self._sweep(group)

    def _sweep(self, group: int) -> None:
        leader = self.leader(group)
        raft = None if leader is None else leader.raft(group)
        if raft is None or raft.term < max(self.stage.checkers[group].leaders):
            return  # one that another has followed knows nothing of what is committed
        log = raft.log
        if log.members_index() > raft.commit or not raft.has_committed_own_term():
            return
        for node in self.nodes.values():
            is_known = log.members().has(node.number)
            if group in node.member_of and group in node.groups and not is_known:
                node.leave(group)
            if is_known:
                node.member_of.add(group)

    def purge(self) -> None:
        group = self.group()
        data = encode_bare(PURGE, 1000 + self.stage.now)
        self._ask_leader(group, lambda host: host.propose(group, [data]))

    def configure(self) -> None:
        settings = Settings()
        settings.dead_letters = True
        settings.delivery_limit = self.rng.choice((0, 2))
        settings.hold_ms_max = self.rng.choice((0, 300))
        settings.max_length = self.rng.choice((0, 0, 10))
        settings.single_active = self.rng.random() < 0.3
        data = encode_configure(1000 + self.stage.now, settings)
        group = self.group()
        self._ask_leader(group, lambda host: host.propose(group, [data]))


def _try(host: Host, action: Callable[[Host], object]) -> None:
    """What a node refuses is no fault of it."""
    try:
        action(host)
    except ClusterError:
        return
