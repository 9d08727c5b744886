"""One run: a cluster, its clients and its faults, all from one seed; then healing and progress."""

import zlib
from collections.abc import Callable
from dataclasses import dataclass

from leveret.cluster.commands import (
    SETTLE,
    TIMEOUT,
    encode_bare,
    encode_verdict,
)
from leveret.cluster.errors import (
    ClusterError,
)
from leveret.cluster.host import Host
from leveret.cluster.machine import (
    CONFIRM,
    DEAD_LETTER,
    DELIVER,
    OUT_OF_SEQUENCE,
    SETTLED,
    WAKE,
    Effect,
)
from leveret.cluster.raft.entry import Entry, Members
from leveret.cluster.turn import Outcome
from tests.cluster.simulation.checks import Checker, ViolationError, mark, require
from tests.cluster.simulation.clients import Publisher, Taker
from tests.cluster.simulation.nemesis import Nemesis
from tests.cluster.simulation.network import Network
from tests.cluster.simulation.node import Condition, Node
from tests.cluster.simulation.schedule import MILD, Schedule
from tests.cluster.simulation.stage import Stage

# After healing: an election takes up to 2 timeouts of up to 20 ticks; all else is quick.
HEALING = 1500
ROUNDS_OF_HEALING = 8
FIRST_CONSUMER = 100
FIRST_GROUP = 71


@dataclass
class Result:
    """What a run was like."""

    seed: int
    schedule: str
    failure: Exception | None
    steps: int
    committed: int
    confirmed: int
    elections: int
    sleeps: int  # of members
    wakes: int
    digest: int  # of all that was applied
    notes: list[str]

    @property
    def rule(self) -> str:
        """What was broken: a rule of the checker, or an assertion of the core."""
        if self.failure is None:
            return ""
        return self.failure.rule if isinstance(self.failure, ViolationError) else "assertion"

    def replay(self) -> str:
        return f"python -m tests.cluster.simulation --schedule {self.schedule} --seed {self.seed}"


class World(Stage):
    """All of it."""

    def __init__(self, seed: int, schedule: Schedule) -> None:
        super().__init__(seed, schedule)
        self.seed = seed
        self.digest = 0
        self.network = Network(self.rng, schedule)
        self.nodes: dict[int, Node] = {}
        self.nemesis = Nemesis(self, self.nodes, self.network)
        self.publishers: dict[tuple[int, int], Publisher] = {}
        self.takers: dict[tuple[int, int], Taker] = {}
        self.reads: dict[int, int] = {}  # to what was committed when they began
        self.next_read = 1
        self.applied: dict[int, int] = {}  # what was committed when it was last looked at
        sizes = [self.rng.choice(schedule.sizes) for _ in range(self.rng.choice(schedule.groups))]
        for number in range(1, max(sizes) + 1):
            self.nodes[number] = Node(self, number)
        for at, size in enumerate(sizes):
            self._found(FIRST_GROUP + at, sorted(self.rng.sample(list(self.nodes), size)))

    def _found(self, group: int, voters: list[int]) -> None:
        """A group and its clients."""
        self.checkers[group] = Checker(group)
        for number in voters:
            self.nodes[number].join(group, Members(voters, []))
            self.nodes[number].member_of.add(group)
        for number in range(1, self.schedule.publishers + 1):
            self.publishers[group, number] = Publisher(self, self.nodes, group, number)
        for number in (FIRST_CONSUMER, FIRST_CONSUMER + 1):
            self.takers[group, number] = Taker(self, self.nodes, group, number)

    # What nodes ask for

    def transmit(self, source: int, target: int, frame: bytes) -> None:
        if target in self.nodes:
            for delay in self.network.delays(source, target):
                self.after(delay, self._arrive, source, target, frame)

    def _arrive(self, source: int, target: int, frame: bytes) -> None:
        if (source, target) not in self.network.cuts:
            self.nodes[target].receive(frame)

    def on_applied(self, node: int, group: int, entry: Entry) -> None:
        self.digest = zlib.crc32(
            f"{self.now} {node} {group} {entry.index} {mark(entry)}".encode(), self.digest
        )

    def on_answer(self, group: int, number: int, index: int) -> None:
        if number in self.reads:
            self.checkers[group].on_read(index, self.reads.pop(number))

    def perform(self, node: int, outcome: Outcome, effect: Effect) -> None:
        kind = effect.kind
        client = outcome.group, effect.target
        if kind == CONFIRM:
            self.publishers[client].on_confirm(effect.number)
        elif kind == OUT_OF_SEQUENCE:
            self.after(5, self.publishers[client].resend)
        elif kind == DELIVER:
            self.takers[client].on_deliver(node, outcome, effect.index, effect.number)
        elif kind == SETTLED:
            self.takers[client].on_settled(outcome, effect.index, effect.number)
        elif kind == DEAD_LETTER:
            self.after(10, self._propose_at, node, outcome.group, SETTLE, effect.index)
        elif kind == WAKE:
            delay = max(1, effect.number - self.nodes[node].clock_ms())
            self.after(min(delay, 1000), self._propose_at, node, outcome.group, TIMEOUT, 0)

    def _propose_at(self, node: int, group: int, kind: int, index: int) -> None:
        """What the leader proposes by itself: a dead letter has arrived, something is due."""
        if self.is_silent:
            self.after(50, self._propose_at, node, group, kind, index)
            return
        now_ms = self.nodes[node].clock_ms()
        if kind == SETTLE:
            command = encode_verdict(SETTLE, now_ms, 0, [index])
        else:
            command = encode_bare(kind, now_ms)
        self.nodes[node].call(lambda host: _propose(host, group, command))

    # What goes on by itself

    def _publish(self, publisher: Publisher) -> None:
        publisher.publish()
        every = self.schedule.publish_every
        self.after(self.rng.randrange(1, every * 2), self._publish, publisher)

    def _attach(self, taker: Taker) -> None:
        taker.attach()
        self.after(200, self._attach, taker)

    def _read(self, group: int) -> None:
        """Anywhere, and at whoever believes to lead: an old leader must not answer."""
        self.after(self.rng.randrange(5, 40), self._read, group)
        if self.is_quiet(group):
            return
        up = [node for node in self.nemesis.up() if node.raft(group) is not None]
        leaders = [node for node in up if node.is_leader(group)]
        if up:
            self.rng.choice(leaders or up).call(lambda host: self._begin_read(host, group))
            self.rng.choice(up).call(lambda host: self._begin_read(host, group))

    def _begin_read(self, host: Host, group: int) -> None:
        number = self.next_read
        self.next_read += 1
        self.reads[number] = self.checkers[group].commit_max
        try:
            host.read(group, number)
        except ClusterError:
            del self.reads[number]

    def _snapshot(self, group: int) -> None:
        self.after(self.rng.randrange(1, self.schedule.snapshot_every * 2), self._snapshot, group)
        up = self.nemesis.up()
        if up:
            self.rng.choice(up).compact(group)

    def _quieten(self, group: int) -> None:
        """Clients leave a group alone, so that it falls asleep."""
        schedule = self.schedule
        self.after(self.rng.randrange(1, schedule.quiet_every * 2), self._quieten, group)
        self.quiet_until[group] = self.now + self.rng.randrange(schedule.quiet_max)

    def _sweep(self) -> None:
        self.nemesis.sweep()
        self.after(25, self._sweep)

    # The run

    def run(self) -> Result:
        failure: Exception | None = None
        try:
            self._run()
        except (ViolationError, AssertionError) as found:
            failure = found
        checkers = self.checkers.values()
        hosts = [node.host for node in self.nodes.values() if node.host is not None]
        return Result(
            seed=self.seed,
            schedule=self.schedule.name,
            failure=failure,
            steps=self.steps,
            committed=sum(checker.commit_max for checker in checkers),
            confirmed=sum(len(checker.confirmed) for checker in checkers),
            elections=sum(len(checker.leaders) for checker in checkers),
            sleeps=sum(node.sleeps for node in self.nodes.values()) + sum(h.sleeps for h in hosts),
            wakes=sum(node.wakes for node in self.nodes.values()) + sum(h.wakes for h in hosts),
            digest=self.digest,
            notes=list(self.notes),
        )

    def _run(self) -> None:
        for node in self.nodes.values():
            node.tick_every = self.rng.randint(self.schedule.tick_min, self.schedule.tick_max)
            node.start()
        for publisher in self.publishers.values():
            self.after(self.rng.randrange(100, 300), self._publish, publisher)
        for taker in self.takers.values():
            self.after(self.rng.randrange(100, 300), self._attach, taker)
        for group in self.checkers:
            self.after(100, self._read, group)
            self.after(200, self._snapshot, group)
            self.after(self.rng.randrange(200, 600), self._quieten, group)
        self.after(100, self._sweep)
        self.after(self.schedule.fault_every, self.nemesis.strike)
        self.run_until(self.schedule.duration)
        self._heal()

    def _heal(self) -> None:
        """All faults end. From here on everybody must get on, within a bound."""
        self.note("healing")
        self.nemesis.is_over = True
        self.is_calm = True
        self.network.is_calm = True
        self.network.heal()
        for node in self.nodes.values():
            node.paused_until = 0
            node.sync_slow = 1
            if node.condition is Condition.DOWN:
                node.start()
        # Nobody asks: groups whose leader is lost must notice by themselves.
        self.is_silent = True
        self._within("a leader", self._has_leaders)
        self.is_silent = False
        self._within("progress", self._has_settled)
        # And then there is nothing left to do. A lease of a few ticks cannot outlive clocks of
        # which one is three times as fast as another: groups would be woken again and again.
        for node in self.nodes.values():
            node.tick_every = min(max(node.tick_every, MILD.tick_min), MILD.tick_max)
        self.is_silent = True
        self._within("sleep", self._has_slept)
        for group, checker in self.checkers.items():
            leader = self.nemesis.leader(group)
            assert leader is not None
            checker.check_end(set(leader.machine(group).contents.messages))

    def _within(self, rule: str, is_so: Callable[[int], bool]) -> None:
        """Go on until it is so of every group."""
        for _ in range(ROUNDS_OF_HEALING):
            self.run_until(self.now + HEALING // ROUNDS_OF_HEALING)
            if all(is_so(group) for group in self.checkers):
                return
        raise ViolationError(rule, f"none within {HEALING} after healing")

    def _has_leaders(self, group: int) -> bool:
        """Somebody leads, and all other members know that."""
        leader = self.nemesis.leader(group)
        members = self.nemesis.members(group)
        if leader is None or members is None:
            return False
        for number in members.everyone():
            raft = self.nodes[number].raft(group)
            if raft is not None and raft.leader != leader.number:
                return False
        return True

    def _has_settled(self, group: int) -> bool:
        """Everything published is confirmed, and every member has applied what was committed."""
        members = self.nemesis.members(group)
        if members is None:
            return False
        checker = self.checkers[group]
        applied = self.applied.get(group, checker.commit_max)
        self.applied[group] = checker.commit_max
        for (of, number), publisher in self.publishers.items():
            if of != group:
                continue
            if publisher.unconfirmed:
                return False
            goal = publisher.next_seq
            require(goal - 1 <= checker.last_seq.get(number, 0), "lost", f"of {number}")
        for number in members.everyone():
            node = self.nodes[number]
            if node.condition is Condition.REFUSED:
                continue
            raft = node.raft(group)
            if raft is None or raft.applied < applied:
                return False
        return True

    def _has_slept(self, group: int) -> bool:
        """All members sleep, if all are there; then they have all that is committed."""
        members = self.nemesis.members(group)
        if members is None:
            return False
        rafts = [self.nodes[number].raft(group) for number in members.everyone()]
        if None in rafts:
            return True
        for raft in rafts:
            assert raft is not None
            if not raft.is_asleep or raft.applied < self.checkers[group].commit_max:
                return False
        return True


def _propose(host: Host, group: int, command: bytes) -> None:
    try:
        host.propose(group, [command])
    except ClusterError:
        return
