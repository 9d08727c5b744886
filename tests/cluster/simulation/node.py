"""One node of the world: drives a real `Host`, with a simulated disk, network and clock.

It has the duties that `leveret.cluster.turn` names: write, sync, then send, and report. Besides the
host's machines it keeps its own, to which it applies the same entries by the rules of docs/raft.md:
states and effects must be the same.
"""

from collections.abc import Callable
from enum import Enum
from functools import partial

from leveret.cluster.commands import body_of
from leveret.cluster.errors import (
    BusyError,
    UnknownGroupError,
)
from leveret.cluster.host import Host
from leveret.cluster.host_config import HostConfig
from leveret.cluster.machine import Effect, Machine
from leveret.cluster.raft.codec import decode_frame, encode_frame
from leveret.cluster.raft.config import Config
from leveret.cluster.raft.core import Raft
from leveret.cluster.raft.entry import COMMAND, EMPTY, Entry, Members
from leveret.cluster.raft.messages import NODE_HEARTBEAT, Message
from leveret.cluster.raft.ready import Ready
from leveret.cluster.raft.state import LEADER
from leveret.cluster.store.store import FILE_BYTES
from leveret.cluster.turn import HostTurn
from leveret.errors import (
    CorruptionError,
)
from tests.cluster.simulation.checks import require
from tests.cluster.simulation.disk import Disk
from tests.cluster.simulation.stage import Stage

Rows = list[tuple[int, int, int, int]]


class Condition(Enum):
    """What state a node is in."""

    UP = "up"
    DOWN = "down"
    REFUSED = "refused"  # its disk is damaged: it does not start
    GONE = "gone"  # removed from all its groups, for good


class Mirror:
    """A machine that is driven beside the host's, and the leader's effects as they should be."""

    def __init__(self) -> None:
        self.machine = new_machine()
        self.resumed_term = 0  # in which the machine was told that it leads


class Node:
    """One node."""

    def __init__(self, stage: Stage, number: int) -> None:
        self.stage = stage
        self.number = number
        self.groups: dict[int, Members] = {}  # that it hosts, with their first members
        self.left: set[int] = set()  # groups that it was removed from
        self.disk = Disk(stage.rng.choice((500, 2000, FILE_BYTES)))
        self.condition = Condition.DOWN
        self.host: Host | None = None
        self.mirrors: dict[int, Mirror] = {}
        self.epoch = 0  # counts starts: what an old one has begun is over
        self.tick_every = 10
        self.skew_ms = 0
        self.sync_slow = 1  # a factor
        self.paused_until = 0
        self.member_of: set[int] = set()  # as far as the operator knows
        self.sleeps = 0  # of hosts that have ended
        self.wakes = 0

    def __str__(self) -> str:
        return str(self.number)

    # Life

    def start(self) -> None:
        assert self.condition is Condition.DOWN
        try:
            self.disk.start()
        except CorruptionError:
            assert self.disk.is_damaged
            self.condition = Condition.REFUSED
            self.stage.note(f"{self} refuses to start: its disk is damaged")
            return
        assert not self.disk.is_damaged, "a damaged disk was taken for a good one"
        self.epoch += 1
        self.condition = Condition.UP
        rng = self.stage.rng
        self.host = Host(self.number, self.epoch, rng.randrange(2**30), self._host_config())
        self.mirrors = {}
        self.stage.note(f"{self} starts")
        for group in self.groups:
            self._open(group)
        self.stage.after(rng.randrange(1, self.tick_every + 1), self._tick, self.epoch)

    def join(self, group: int, members: Members) -> None:
        """Host a group, from the beginning or as one that waits to be added."""
        self.groups[group] = members
        if self.condition is Condition.UP:
            self._open(group)

    def _open(self, group: int) -> None:
        assert self.host is not None
        stored = self.disk.stored(group, self.groups[group])
        mirror = Mirror()
        if stored.snapshot is not None:
            mirror.machine.restore(stored.snapshot.state)
        self.mirrors[group] = mirror
        self.host.add_group(group, stored, new_machine(), self._config(group))
        raft = self.host.groups[group].raft
        self.stage.checkers[group].on_start(raft, self.disk)
        self.stage.note(f"{self} opens {group}: term {raft.term}, {raft.log.last_index()}")

    def _host_config(self) -> HostConfig:
        schedule = self.stage.schedule
        config = HostConfig()
        config.election_ticks = schedule.election_ticks
        config.lease_ticks = schedule.election_ticks
        config.heartbeat_ticks = 1
        config.sleep_ticks = schedule.sleep_ticks
        config.wakes_max = self.stage.rng.choice((1, 2, 250))
        return config

    def _config(self, group: int) -> Config:
        schedule = self.stage.schedule
        config = Config(self.number, group)
        config.append_count_max = schedule.append_count_max
        config.chunk_bytes = schedule.chunk_bytes
        config.inflight_count_max = 4
        config.election_ticks = schedule.election_ticks
        config.heartbeat_ticks = 1
        config.apply_count_max = 5
        config.promote_lag_max = 10
        config.trailing = self.stage.rng.choice((0, 0, 5))
        return config

    def crash(self) -> None:
        """Power fails."""
        self.stage.note(f"{self} crashes")
        self.disk.crash(self.stage.rng)
        self._stop(Condition.DOWN)

    def _stop(self, condition: Condition) -> None:
        if self.host is not None:
            self.sleeps += self.host.sleeps
            self.wakes += self.host.wakes
        self.condition = condition
        self.host = None
        self.epoch += 1

    def leave(self, group: int) -> None:
        """Removed from a group: it never comes back to it. Without any it ends."""
        self.stage.note(f"{self} leaves {group}")
        del self.groups[group]
        self.left.add(group)
        if self.host is not None:
            self.host.remove_group(group)
        if not self.groups:
            self.stage.note(f"{self} is gone")
            self._stop(Condition.GONE)

    def raft(self, group: int) -> Raft | None:
        """Its member of a group, if it is up and has one."""
        found = None if self.host is None else self.host.groups.get(group)
        return None if found is None else found.raft

    def machine(self, group: int) -> Machine:
        assert self.host is not None
        return self.host.groups[group].machine

    def is_leader(self, group: int) -> bool:
        raft = self.raft(group)
        return raft is not None and raft.role == LEADER

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
            assert self.host is not None
            self.host.tick()
            self.pump()

    def receive(self, frame: bytes) -> None:
        if self.condition is Condition.UP:
            self._when_up(self.epoch, lambda: self._step(frame))

    def _step(self, frame: bytes) -> None:
        assert self.host is not None
        for message in decode_frame(frame):
            self.host.receive([message])
            self._look(message.group)

    def call(self, action: Callable[[Host], None]) -> None:
        """Something that a client or an operator wants of this node, if it is up."""
        if self.condition is Condition.UP:
            host = self.host
            assert host is not None
            self._when_up(self.epoch, lambda: action(host))

    def _look(self, group: int) -> None:
        raft = self.raft(group)
        if raft is not None:
            self.stage.checkers[group].on_event(raft)

    # Duties

    def pump(self) -> None:
        """Do what the host asks for, until it waits for the disk or for nothing."""
        host = self.host
        while host is not None and self.host is host:
            for group in host.groups:
                self._look(group)
            turn = host.turn()
            if turn is None:
                return
            for group, ready in turn.readies.items():
                self.stage.checkers[group].on_ready(host.groups[group].raft, ready)
            self.disk.write(turn.writes, turn.must_sync)
            if turn.must_sync:
                delay = self.stage.sync_delay() * self.sync_slow
                self.stage.after(delay, self._when_up, self.epoch, partial(self._synced, turn))
                return
            self._finish(host, turn)

    def _synced(self, turn: HostTurn) -> None:
        assert self.host is not None
        self.disk.sync()
        self._finish(self.host, turn)

    def _finish(self, host: Host, turn: HostTurn) -> None:
        for lists in (turn.messages, turn.bulk):
            for target, messages in lists.items():
                self._send(host, target, messages)
        expected: dict[int, Rows] = {}
        for group, ready in turn.readies.items():
            if group in host.groups:
                expected[group] = self._mirror(host.groups[group].raft, ready)
        outcomes = host.done(turn)
        found = {
            outcome.group: [_row(effect) for effect in outcome.effects] for outcome in outcomes
        }
        for group, rows in expected.items():
            text = f"{self} performs {found.get(group)} instead of {rows}"
            require(found.get(group, []) == rows, "effects", text)
            self._look(group)
        for outcome in outcomes:
            for effect in outcome.effects:
                self.stage.perform(self.number, outcome, effect)
            for answer in outcome.answers:
                self.stage.on_answer(outcome.group, answer.number, answer.index)

    def _send(self, host: Host, target: int, messages: list[Message]) -> None:
        for message in messages:
            if message.kind != NODE_HEARTBEAT and message.group in host.groups:
                raft = host.groups[message.group].raft
                self.stage.checkers[message.group].on_send(raft, message)
        self.stage.transmit(self.number, target, encode_frame(self.number, target, messages))

    def _mirror(self, raft: Raft, ready: Ready) -> Rows:
        """Apply what the host will apply; the effects that it must hand out."""
        mirror = self.mirrors[raft.group]
        if ready.snapshot is not None and ready.is_received:
            mirror.machine.restore(ready.snapshot.state)
            self.stage.note(f"{self} begins {raft.group} from a snapshot at {ready.snapshot.index}")
        rows: Rows = []
        for entry in ready.committed:
            rows += [_row(effect) for effect in self._apply(mirror, raft, entry)]
        return rows

    def _apply(self, mirror: Mirror, raft: Raft, entry: Entry) -> list[Effect]:
        effects: list[Effect] = []
        machine = mirror.machine
        before = set(machine.contents.messages)
        if entry.kind == COMMAND:
            effects = machine.apply(entry.index, entry.data)
        checker = self.stage.checkers[raft.group]
        checker.on_apply(self.number, machine, entry, effects, before)
        self.stage.on_applied(self.number, raft.group, entry)
        if raft.role != LEADER or entry.term != raft.term:
            return []
        if entry.kind == EMPTY and mirror.resumed_term != raft.term:
            mirror.resumed_term = raft.term
            effects = machine.resume()
        return effects

    def body(self, group: int, index: int) -> bytes | None:
        """The body of a message, from the log."""
        assert self.host is not None
        entry = self.host.entry(group, index)
        return None if entry is None else body_of(entry.data)

    def compact(self, group: int) -> None:
        """Make a snapshot of what is applied."""
        self.call(lambda host: self._compact(host, group))

    def _compact(self, host: Host, group: int) -> None:
        raft = self.raft(group)
        if raft is None:
            return
        snapshot = raft.log.snapshot
        if raft.applied > (0 if snapshot is None else snapshot.index):
            same = self.mirrors[group].machine.snapshot() == host.groups[group].machine.snapshot()
            require(same, "determinism", f"{self} has another state of {group} than it should")
            try:
                host.compact(group)
            except (BusyError, UnknownGroupError):
                return
            self.stage.note(f"{self} makes a snapshot of {group} at {raft.applied}")


def new_machine() -> Machine:
    machine = Machine()
    machine.contents.settings.dead_letters = True
    return machine


def _row(effect: Effect) -> tuple[int, int, int, int]:
    return effect.kind, effect.target, effect.index, effect.number
