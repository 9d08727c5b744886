"""One run: a cluster, its clients and its faults, all from one seed; then healing and progress."""

import zlib
from collections.abc import Callable
from dataclasses import dataclass

from leveret.cluster.errors import FalseMessageError
from leveret.cluster.raft.block import NORMAL, ROLL
from leveret.cluster.raft.members import Members
from tests.cluster.simulation.checks import ViolationError, require
from tests.cluster.simulation.nemesis import Nemesis, member
from tests.cluster.simulation.network import Network
from tests.cluster.simulation.node import Condition, Node
from tests.cluster.simulation.schedule import Schedule
from tests.cluster.simulation.stage import Stage

# After healing: an election takes up to 2 timeouts of up to 20 ticks; all else is quick.
HEALING = 2000
ROUNDS_OF_HEALING = 10
LAST_BLOCKS = 5  # published after healing
COPY_DELAY_MAX = 120


@dataclass
class Result:
    """What a run was like."""

    seed: int
    schedule: str
    failure: Exception | None
    steps: int
    committed: int
    elections: int
    reads: int  # from log files
    copies: int
    losses: int  # of disks
    digest: int  # of all that was sent
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
        self.copies = 0
        self.published = 0
        self.network = Network(self.rng, schedule)
        self.nodes: dict[int, Node] = {}
        self.nemesis = Nemesis(self, self.nodes, self.network)
        size = self.rng.choice(schedule.sizes)
        members = Members([member(number) for number in range(1, size + 1)], [])
        for number in members.voters:
            self.nodes[number] = Node(self, number)
            self.nodes[number].found(members)

    # What nodes ask for

    def transmit(self, source: int, target: int, frame: bytes) -> None:
        self.digest = zlib.crc32(frame, self.digest)
        if target in self.nodes:
            for delay in self.network.delays(source, target):
                self.after(delay, self._arrive, source, target, frame)

    def _arrive(self, source: int, target: int, frame: bytes) -> None:
        if (source, target) not in self.network.cuts:
            self.nodes[target].receive(frame)

    def begin_copy(self, source: int, term: int, target: int) -> None:
        self.after(self.rng.randint(5, COPY_DELAY_MAX), self._copy, source, term, target)

    def _copy(self, source: int, term: int, target: int) -> None:
        """The copy is there, if both nodes and their link have stood it."""
        self.copies += 1
        leader = self.nodes[source]
        raft = leader.raft
        last = 0
        is_linked = {(source, target), (target, source)}.isdisjoint(self.network.cuts)
        if raft is not None and raft.term == term and leader.is_leader and is_linked:
            image = leader.disk.durable.copy()
            image.cut(raft.safe_index() + 1)
            image.needs_copy = False
            if target in self.nodes and self.nodes[target].install(image):
                last = image.last
        self.after(self.rng.randint(1, 10), leader.end_copy, term, target, last)

    # What goes on by itself

    def _publish(self) -> None:
        """Clients ask every node that believes to lead, also an old leader."""
        every = self.schedule.publish_every
        self.after(self.rng.randrange(1, every * 2), self._publish)
        for node in self.nemesis.up():
            if node.is_leader:
                for _ in range(self.rng.choice((1, 1, 3))):
                    self._publish_at(node)

    def _publish_at(self, node: Node) -> None:
        self.published += 1
        size = self.rng.choice((0, 5, 40, 100))
        kind = ROLL if self.rng.random() < 0.05 else NORMAL
        node.publish(f"{self.published} ".encode() + bytes(size), kind)

    def _forget(self) -> None:
        """Remove log files of a node."""
        self.after(self.rng.randrange(1, self.schedule.forget_every * 2), self._forget)
        up = self.nemesis.up()
        if up:
            node = self.rng.choice(up)
            node.forget(node.disk.durable.base + self.rng.randint(1, 40))

    def _sweep(self) -> None:
        self.nemesis.sweep()
        self.after(25, self._sweep)

    # The run

    def run(self) -> Result:
        failure: Exception | None = None
        try:
            self._run()
        except (ViolationError, AssertionError, FalseMessageError) as found:
            failure = found
        return Result(
            seed=self.seed,
            schedule=self.schedule.name,
            failure=failure,
            steps=self.steps,
            committed=self.checker.commit_max,
            elections=len(self.checker.leaders),
            reads=sum(node.reads for node in self.nodes.values()),
            copies=self.copies,
            losses=len(self.checker.hurt),
            digest=self.digest,
            notes=list(self.notes),
        )

    def _run(self) -> None:
        for node in self.nodes.values():
            node.tick_every = self.rng.randint(self.schedule.tick_min, self.schedule.tick_max)
            node.start()
        self.after(100, self._publish)
        self.after(200, self._forget)
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
            node.hung_until = 0
            node.sync_slow = 1
            if node.condition is Condition.DOWN:
                node.start()
        self._within("a leader", self._has_leader)
        goal = self.checker.commit_max + LAST_BLOCKS
        self._within("progress", lambda: self.checker.confirmed >= goal)
        self._within("catch-up", lambda: self._have_all(goal))
        leader = self.nemesis.leader()
        assert leader is not None
        self.checker.check_end(leader.disk.written)

    def _within(self, rule: str, is_so: Callable[[], bool]) -> None:
        for _ in range(ROUNDS_OF_HEALING):
            self.run_until(self.now + HEALING // ROUNDS_OF_HEALING)
            if is_so():
                return
        raise ViolationError(rule, f"none within {HEALING} after healing")

    def _has_leader(self) -> bool:
        """Somebody leads, and all other members know that."""
        leader = self.nemesis.leader()
        members = self.nemesis.members()
        if leader is None or members is None:
            return False
        rafts = [self.nodes[number].raft for number in members.everyone()]
        return all(raft is None or raft.leader == leader.number for raft in rafts)

    def _have_all(self, goal: int) -> bool:
        """All members have what is committed, and those that had lost blocks vote again."""
        members = self.nemesis.members()
        if members is None:
            return False
        for number in members.everyone():
            raft = self.nodes[number].raft
            if raft is None:
                require(self.nodes[number].condition is Condition.GONE, "start", f"{number}")
                continue
            if raft.safe_index() < goal or not raft.hard.may_vote:
                return False
        return True
