"""One run: a cluster, its clients and its faults, all from one seed; then healing and progress."""

import zlib
from dataclasses import dataclass

from leveret.cluster.commands import (
    SETTLE,
    TIMEOUT,
    encode_bare,
    encode_verdict,
)
from leveret.cluster.machine import (
    CONFIRM,
    DEAD_LETTER,
    DELIVER,
    OUT_OF_SEQUENCE,
    SETTLED,
    WAKE,
    Effect,
)
from leveret.cluster.raft.core import Raft
from leveret.cluster.raft.entry import Entry, Members
from leveret.errors import ClusterError
from tests.cluster.simulation.checks import Violation, mark, require
from tests.cluster.simulation.clients import Publisher, Taker
from tests.cluster.simulation.host import Condition, Host
from tests.cluster.simulation.nemesis import Nemesis
from tests.cluster.simulation.network import Network
from tests.cluster.simulation.schedule import Schedule
from tests.cluster.simulation.stage import Stage

# After healing: an election takes up to 2 timeouts of up to 20 ticks; all else is quick.
HEALING = 1500
ROUNDS_OF_HEALING = 8
FIRST_CONSUMER = 100


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
    digest: int  # of all that was applied
    notes: list[str]

    @property
    def rule(self) -> str:
        """What was broken: a rule of the checker, or an assertion of the core."""
        if self.failure is None:
            return ""
        return self.failure.rule if isinstance(self.failure, Violation) else "assertion"

    def replay(self) -> str:
        return f"python -m tests.cluster.simulation --schedule {self.schedule} --seed {self.seed}"


class World(Stage):
    """All of it."""

    def __init__(self, seed: int, schedule: Schedule) -> None:
        super().__init__(seed, schedule)
        self.seed = seed
        self.digest = 0
        self.network = Network(self.rng, schedule)
        size = self.rng.choice(schedule.sizes)
        members = Members(list(range(1, size + 1)), [])
        self.hosts = {n: Host(self, n, members) for n in members.voters}
        self.nemesis = Nemesis(self, self.hosts, self.network)
        self.publishers = {
            n: Publisher(self, self.hosts, n) for n in range(1, schedule.publishers + 1)
        }
        self.takers = {n: Taker(self, self.hosts, n) for n in (FIRST_CONSUMER, FIRST_CONSUMER + 1)}
        self.reads: dict[int, int] = {}  # to what was committed when they began
        self.next_read = 1

    # What hosts ask for

    def transmit(self, source: int, target: int, frame: bytes) -> None:
        if target in self.hosts:
            for delay in self.network.delays(source, target):
                self.after(delay, self._arrive, source, target, frame)

    def _arrive(self, source: int, target: int, frame: bytes) -> None:
        if (source, target) not in self.network.cuts:
            self.hosts[target].receive(frame)

    def on_applied(self, node: int, entry: Entry) -> None:
        self.digest = zlib.crc32(
            f"{self.now} {node} {entry.index} {mark(entry)}".encode(), self.digest
        )

    def on_answer(self, number: int, index: int) -> None:
        if number in self.reads:
            self.checker.on_read(index, self.reads.pop(number))

    def perform(self, raft: Raft, effect: Effect) -> None:
        kind = effect.kind
        if kind == CONFIRM:
            self.publishers[effect.target].on_confirm(effect.number)
        elif kind == OUT_OF_SEQUENCE:
            publisher = self.publishers[effect.target]
            self.after(5, publisher.resend)
        elif kind == DELIVER:
            self.takers[effect.target].on_deliver(raft, effect.index, effect.number)
        elif kind == SETTLED:
            self.takers[effect.target].on_settled(raft, effect.index, effect.number)
        elif kind == DEAD_LETTER:
            self.after(10, self._dead_letter, raft.node, effect.index)
        elif kind == WAKE:
            delay = max(1, effect.number - self.hosts[raft.node].clock_ms())
            self.after(min(delay, 1000), self._wake, raft.node)

    def _dead_letter(self, node: int, index: int) -> None:
        self._propose_at(node, SETTLE, index)

    def _wake(self, node: int) -> None:
        self._propose_at(node, TIMEOUT, 0)

    def _propose_at(self, node: int, kind: int, index: int) -> None:
        host = self.hosts[node]
        now_ms = host.clock_ms()
        if kind == SETTLE:
            command = encode_verdict(SETTLE, now_ms, 0, [index])
        else:
            command = encode_bare(kind, now_ms)
        host.call(lambda raft: _propose(raft, command))

    # What goes on by itself

    def _publish(self, publisher: Publisher) -> None:
        publisher.publish()
        every = self.schedule.publish_every
        self.after(self.rng.randrange(1, every * 2), self._publish, publisher)

    def _attach(self, taker: Taker) -> None:
        taker.attach()
        self.after(200, self._attach, taker)

    def _read(self) -> None:
        """Anywhere, and at whoever believes to lead: an old leader must not answer."""
        self.after(self.rng.randrange(5, 40), self._read)
        up = self.nemesis.up()
        leaders = [host for host in up if host.is_leader()]
        if up:
            self.rng.choice(leaders or up).call(self._begin_read)
            self.rng.choice(up).call(self._begin_read)

    def _begin_read(self, raft: Raft) -> None:
        number = self.next_read
        self.next_read += 1
        self.reads[number] = self.checker.commit_max
        try:
            raft.read(number)
        except ClusterError:
            del self.reads[number]

    def _snapshot(self) -> None:
        self.after(self.rng.randrange(1, self.schedule.snapshot_every * 2), self._snapshot)
        up = self.nemesis.up()
        if up:
            self.rng.choice(up).compact()

    def _sweep(self) -> None:
        self.nemesis.sweep()
        self.after(25, self._sweep)

    # The run

    def run(self) -> Result:
        failure: Exception | None = None
        try:
            self._run()
        except (Violation, AssertionError) as found:
            failure = found
        return Result(
            seed=self.seed,
            schedule=self.schedule.name,
            failure=failure,
            steps=self.steps,
            committed=self.checker.commit_max,
            confirmed=len(self.checker.confirmed),
            elections=len(self.checker.leaders),
            digest=self.digest,
            notes=list(self.notes),
        )

    def _run(self) -> None:
        for host in self.hosts.values():
            host.was_member = True
            host.tick_every = self.rng.randint(self.schedule.tick_min, self.schedule.tick_max)
            host.start()
        for publisher in self.publishers.values():
            self.after(self.rng.randrange(100, 300), self._publish, publisher)
        for taker in self.takers.values():
            self.after(self.rng.randrange(100, 300), self._attach, taker)
        self.after(100, self._read)
        self.after(200, self._snapshot)
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
        for host in self.hosts.values():
            host.paused_until = 0
            host.sync_slow = 1
            if host.condition is Condition.DOWN:
                host.start()
        goals = {p.number: p.next_seq for p in self.publishers.values()}
        applied = self.checker.commit_max
        for _ in range(ROUNDS_OF_HEALING):
            self.run_until(self.now + HEALING // ROUNDS_OF_HEALING)
            if self._has_settled(goals, applied):
                break
            applied = self.checker.commit_max
        else:
            raise Violation("progress", f"none within {HEALING} after healing")
        leader = self.nemesis.leader()
        assert leader is not None
        self.checker.check_end(set(leader.machine.contents.messages))

    def _has_settled(self, goals: dict[int, int], applied: int) -> bool:
        """Everything published is confirmed, and every member has applied what was committed."""
        leader = self.nemesis.leader()
        if leader is None or leader.raft is None:
            return False
        for number, goal in goals.items():
            if any(seq < goal for seq in self.publishers[number].unconfirmed):
                return False
            require(goal - 1 <= self.checker.last_seq.get(number, 0), "lost", f"of {number}")
        for node in leader.raft.log.members().everyone():
            host = self.hosts[node]
            if host.condition is Condition.REFUSED:
                continue
            if host.raft is None or host.raft.applied < applied:
                return False
        return True


def _propose(raft: Raft, command: bytes) -> None:
    try:
        raft.propose([command])
    except ClusterError:
        return
