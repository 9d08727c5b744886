"""One node of the world: drives a `Raft` and a `Machine` as a real host would.

Its duties are those that `leveret.cluster.raft` names: write, sync, then send, apply and advance.
As leader it performs the effects of entries of its own term only, and begins with `Machine.resume`
when the first of these is applied: whatever came before may have been performed, and settled, long
ago.
"""

from collections.abc import Callable
from enum import Enum
from functools import partial

from leveret.cluster.commands import body_of
from leveret.cluster.machine import Effect, Machine
from leveret.cluster.raft.codec import decode_frame, encode_frame
from leveret.cluster.raft.config import Config
from leveret.cluster.raft.core import Raft
from leveret.cluster.raft.entry import COMMAND, EMPTY, Entry, Members
from leveret.cluster.raft.messages import Message
from leveret.cluster.raft.ready import Ready
from leveret.cluster.raft.state import LEADER
from leveret.cluster.store.store import FILE_BYTES
from leveret.errors import Busy, Corrupt
from tests.cluster.simulation.disk import Disk
from tests.cluster.simulation.stage import Stage

GROUP = 77


class Condition(Enum):
    """What state a node is in."""

    UP = "up"
    DOWN = "down"
    REFUSED = "refused"  # its disk is damaged: it does not start
    GONE = "gone"  # removed from the group, for good


class Host:
    """One node."""

    def __init__(self, stage: Stage, number: int, members: Members) -> None:
        self.stage = stage
        self.number = number
        self.first_members = members
        self.disk = Disk(GROUP, stage.rng.choice((500, 2000, FILE_BYTES)))
        self.condition = Condition.DOWN
        self.raft: Raft | None = None
        self.machine = Machine()
        self.epoch = 0  # counts starts: what an old one has begun is over
        self.tick_every = 10
        self.skew_ms = 0
        self.sync_slow = 1  # a factor
        self.paused_until = 0
        self.was_member = False  # as far as the operator knows
        self.resumed_term = 0  # in which the machine was told that it leads

    def __str__(self) -> str:
        return str(self.number)

    # Life

    def start(self) -> None:
        assert self.condition is Condition.DOWN
        try:
            stored = self.disk.start(self.first_members)
        except Corrupt:
            assert self.disk.is_damaged
            self.condition = Condition.REFUSED
            self.stage.note(f"{self} refuses to start: its disk is damaged")
            return
        assert not self.disk.is_damaged, "a damaged disk was taken for a good one"
        self.epoch += 1
        self.condition = Condition.UP
        self.machine = Machine()
        self.machine.contents.settings.dead_letters = True
        if stored.snapshot is not None:
            self.machine.restore(stored.snapshot.state)
        self.raft = Raft(self._config(), stored, self.stage.rng.randrange(2**30))
        self.resumed_term = 0
        self.stage.checker.on_start(self.raft, self.disk)
        self.stage.note(f"{self} starts in term {self.raft.term}, {self.raft.log.last_index()}")
        self.stage.after(self.stage.rng.randrange(1, self.tick_every + 1), self._tick, self.epoch)

    def _config(self) -> Config:
        schedule = self.stage.schedule
        config = Config(self.number, GROUP)
        config.append_count_max = schedule.append_count_max
        config.chunk_bytes = schedule.chunk_bytes
        config.inflight_count_max = 4
        config.election_ticks = schedule.election_ticks
        config.beat_ticks = 1
        config.apply_count_max = 5
        config.promote_lag_max = 10
        config.trailing = self.stage.rng.choice((0, 0, 5))
        return config

    def crash(self) -> None:
        """Power fails."""
        self.stage.note(f"{self} crashes")
        self.disk.crash(self.stage.rng)
        self.condition = Condition.DOWN
        self.raft = None
        self.epoch += 1

    def end(self) -> None:
        """Removed from the group: it never comes back under this number."""
        self.stage.note(f"{self} is gone")
        self.condition = Condition.GONE
        self.raft = None
        self.epoch += 1

    def is_leader(self) -> bool:
        return self.raft is not None and self.raft.role == LEADER

    def clock_ms(self) -> int:
        return max(0, 1000 + self.stage.now + self.skew_ms)

    # Inputs

    def _when_up(self, epoch: int, action: Callable[[], None]) -> None:
        """Run something of this node, later if it is paused; never after a crash."""
        if epoch != self.epoch:
            return
        if self.paused_until > self.stage.now:
            self.stage.at(self.paused_until, self._when_up, epoch, action)
            return
        action()
        self.pump()

    def _tick(self, epoch: int) -> None:
        if epoch != self.epoch:
            return
        self.stage.after(self.tick_every, self._tick, epoch)
        if self.paused_until <= self.stage.now:
            assert self.raft is not None
            self.raft.tick()
            self.pump()

    def receive(self, frame: bytes) -> None:
        if self.condition is Condition.UP:
            self._when_up(self.epoch, lambda: self._step(frame))

    def _step(self, frame: bytes) -> None:
        assert self.raft is not None
        for message in decode_frame(frame):
            self.raft.step(message)
            self.stage.checker.on_event(self.raft)

    def call(self, action: Callable[[Raft], None]) -> None:
        """Something that a client or an operator wants of this node, if it is up."""
        if self.condition is Condition.UP:
            raft = self.raft
            assert raft is not None
            self._when_up(self.epoch, lambda: action(raft))

    # Duties

    def pump(self) -> None:
        """Do what the member asks for, until it waits for the disk or for nothing."""
        raft = self.raft
        while raft is not None and self.raft is raft:
            self.stage.checker.on_event(raft)
            ready = raft.ready()
            if ready is None:
                return
            self.stage.checker.on_ready(raft, ready)
            if ready.has_writes():
                self.disk.write(ready)
            if ready.must_sync:
                delay = self.stage.sync_delay() * self.sync_slow
                self.stage.after(delay, self._when_up, self.epoch, partial(self._synced, ready))
                return
            self._finish(raft, ready)

    def _synced(self, ready: Ready) -> None:
        assert self.raft is not None
        self.disk.sync()
        self._finish(self.raft, ready)

    def _finish(self, raft: Raft, ready: Ready) -> None:
        self._send(raft, ready.messages)
        if ready.snapshot is not None and ready.is_received:
            self.machine.restore(ready.snapshot.state)
            self.stage.note(f"{self} begins from a snapshot at {ready.snapshot.index}")
        for entry in ready.committed:
            self._apply(raft, entry)
        for answer in ready.answers:
            self.stage.on_answer(answer.number, answer.index)
        raft.advance(ready)
        self.stage.checker.on_event(raft)

    def _send(self, raft: Raft, messages: list[Message]) -> None:
        by_target: dict[int, list[Message]] = {}
        for message in messages:
            self.stage.checker.on_send(raft, message)
            by_target.setdefault(message.target, []).append(message)
        for target, batch in by_target.items():
            self.stage.transmit(self.number, target, encode_frame(self.number, target, batch))

    def _apply(self, raft: Raft, entry: Entry) -> None:
        effects: list[Effect] = []
        before = set(self.machine.contents.messages)
        if entry.kind == COMMAND:
            effects = self.machine.apply(entry.index, entry.data)
        checker = self.stage.checker
        checker.on_apply(self.number, self.machine, entry, effects, before)
        self.stage.on_applied(self.number, entry)
        if raft.role != LEADER or entry.term != raft.term:
            return
        if entry.kind == EMPTY and self.resumed_term != raft.term:
            self.resumed_term = raft.term
            effects = self.machine.resume()
        for effect in effects:
            self.stage.perform(raft, effect)

    def body(self, index: int) -> bytes | None:
        """The body of a message, from the log."""
        assert self.raft is not None
        entry = self.raft.log.entry(index)
        return None if entry is None else body_of(entry.data)

    def compact(self) -> None:
        """Make a snapshot of what is applied."""
        self.call(self._compact)

    def _compact(self, raft: Raft) -> None:
        snapshot = raft.log.snapshot
        if raft.applied > (0 if snapshot is None else snapshot.index):
            try:
                raft.compact(self.machine.snapshot(), self.machine.live_indexes())
            except Busy:
                return
            self.stage.note(f"{self} makes a snapshot at {raft.applied}")
