"""Chooses faults, and acts as the operator: adds, promotes, removes and replaces nodes."""

from collections.abc import Callable

from leveret.cluster.commands import PURGE, encode_bare, encode_configure
from leveret.cluster.machine_state import Settings
from leveret.cluster.raft.core import Raft
from leveret.cluster.raft.entry import Members
from leveret.errors import ClusterError
from tests.cluster.simulation.host import Condition, Host
from tests.cluster.simulation.network import SHAPES, Network
from tests.cluster.simulation.stage import Stage

VOTERS_MIN = 3
VOTERS_MAX = 5


class Nemesis:
    """Faults by weight; each is followed by its end, sooner or later."""

    def __init__(self, stage: Stage, hosts: dict[int, Host], network: Network) -> None:
        self.stage = stage
        self.rng = stage.rng
        self.hosts = hosts
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

    def up(self) -> list[Host]:
        return [host for host in self.hosts.values() if host.condition is Condition.UP]

    def leader(self) -> Host | None:
        """The leader of the highest term, as far as one can see from outside."""
        leaders = [host for host in self.up() if host.is_leader()]
        return max(leaders, key=lambda host: host.raft.term if host.raft else 0, default=None)

    # Faults

    def cut(self) -> None:
        nodes = [host.number for host in self.up()]
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
        for host in self.rng.sample(up, min(count, len(up))):
            host.crash()
            self.stage.after(self.rng.choice((1, 20, 150, 400)), self._restart, host)

    def _restart(self, host: Host) -> None:
        if host.condition is Condition.DOWN:
            host.start()

    def pause(self) -> None:
        up = self.up()
        leader = self.leader()
        if up:
            host = leader if leader and self.rng.random() < 0.5 else self.rng.choice(up)
            host.paused_until = self.stage.now + self.rng.choice((30, 150, 400))
            self.stage.note(f"{host} stands still until {host.paused_until}")

    def slow(self) -> None:
        up = self.up()
        if up:
            host = self.rng.choice(up)
            host.sync_slow = self.rng.choice((1, 1, 5, 20))

    def skew(self) -> None:
        """Clocks that go wrong, and at another pace."""
        for host in self.up():
            host.skew_ms = self.rng.choice((0, 0, -500, 700, 3000))
            schedule = self.stage.schedule
            host.tick_every = self.rng.randint(schedule.tick_min, schedule.tick_max)

    def corrupt(self) -> None:
        """Turn a bit on a disk; the node finds out when it starts again."""
        leader = self.leader()
        refused = [h for h in self.hosts.values() if h.disk.is_damaged]
        if (
            leader is None
            or leader.raft is None
            or any(host.condition is not Condition.GONE for host in refused)
        ):
            return
        members = leader.raft.log.members()
        others = [self.hosts[n] for n in members.voters if n != leader.number]
        # With another node down for good a majority must be left.
        others = [host for host in others if host.condition is Condition.UP]
        if len(members.voters) < VOTERS_MIN or not others:
            return
        host = self.rng.choice(others)
        if host.disk.damage(self.rng):
            host.crash()
            self.stage.after(20, self._restart, host)

    # The operator

    def _ask_leader(self, action: Callable[[Raft], object]) -> None:
        leader = self.leader()
        if leader is not None:
            leader.call(lambda raft: _try(raft, action))

    def transfer(self) -> None:
        leader = self.leader()
        if leader is not None and leader.raft is not None:
            target = self.rng.choice(leader.raft.log.members().voters)
            self._ask_leader(lambda raft: raft.transfer(target))

    def member(self) -> None:
        """The next step of replacing nodes one by one; sometimes two steps at once."""
        for _ in range(self.rng.choice((1, 1, 2))):
            leader = self.leader()
            if leader is None or leader.raft is None:
                return
            members = leader.raft.log.members()
            if members.non_voters:
                self._promote(self.rng.choice(members.non_voters))
            elif len(members.voters) >= VOTERS_MAX or (
                len(members.voters) > VOTERS_MIN and self.rng.random() < 0.5
            ):
                self._remove(members)
            else:
                self._add()

    def _add(self) -> None:
        number = max(self.hosts) + 1
        host = Host(self.stage, number, Members([], []))
        self.hosts[number] = host
        host.start()
        self._ask_leader(lambda raft: raft.add_non_voter(number))

    def _promote(self, node: int) -> None:
        self._ask_leader(lambda raft: raft.promote(node))

    def _remove(self, members: Members) -> None:
        """One that does not work any more, if there is one."""
        broken = [n for n in members.voters if self.hosts[n].condition is Condition.REFUSED]
        node = self.rng.choice(broken or members.voters)
        self.stage.note(f"remove {node}")
        self._ask_leader(lambda raft: raft.remove(node))

    def sweep(self) -> None:
        """End nodes that were members and are not any more, once that is committed."""
        leader = self.leader()
        if leader is None or leader.raft is None:
            return
        log = leader.raft.log
        if log.members_index() > leader.raft.commit or not leader.raft.has_committed_own_term():
            return
        for host in self.hosts.values():
            is_known = log.members().has(host.number)
            if host.was_member and not is_known and host.condition is not Condition.GONE:
                host.end()
            host.was_member = host.was_member or is_known

    def purge(self) -> None:
        self._ask_leader(lambda raft: raft.propose([encode_bare(PURGE, 1000 + self.stage.now)]))

    def configure(self) -> None:
        settings = Settings()
        settings.dead_letters = True
        settings.delivery_limit = self.rng.choice((0, 2))
        settings.hold_ms_max = self.rng.choice((0, 300))
        settings.max_length = self.rng.choice((0, 0, 10))
        settings.single_active = self.rng.random() < 0.3
        data = encode_configure(1000 + self.stage.now, settings)
        self._ask_leader(lambda raft: raft.propose([data]))


def _try(raft: Raft, action: Callable[[Raft], object]) -> None:
    """What a node refuses is no fault of it."""
    try:
        action(raft)
    except ClusterError:
        return
