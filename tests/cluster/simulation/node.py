"""One node of the world: hosts a real `Raft` member, with a simulated disk, network and clock.

It does the work that `leveret.cluster.raft` names: write, sync, advance, send, read, copy.
"""

from collections.abc import Callable
from enum import Enum

from leveret.cluster.errors import ClusterError
from leveret.cluster.raft.block import MEMBERS, NORMAL, TERM, Block
from leveret.cluster.raft.config import Config
from leveret.cluster.raft.core import Raft
from leveret.cluster.raft.members import Members, encode_members
from leveret.cluster.raft.messages import Message
from leveret.cluster.raft.ready import ReadRequest, Ready
from leveret.cluster.raft.state import LEADER
from tests.cluster.simulation.disk import Disk, Image
from tests.cluster.simulation.frames import decode_frame, encode_frame
from tests.cluster.simulation.stage import Stage


class Condition(Enum):
    """What state a node is in."""

    UP = "up"
    DOWN = "down"
    GONE = "gone"  # removed, or its disk is lost, for good


class Node:
    """One node."""

    def __init__(self, stage: Stage, number: int) -> None:
        self.stage = stage
        self.number = number
        self.disk = Disk()
        self.condition = Condition.DOWN
        self.raft: Raft | None = None
        self.epoch = 0  # counts starts: what an old one has begun is over
        self.tick_every = 10
        self.sync_slow = 1  # a factor
        self.hung_until = 0
        self.paused_until = 0
        self.is_member = False  # as far as the operator knows
        self._sync_since = -1  # when the sync under way began
        self._ready: Ready | None = None
        self._ready_at = 0  # how many writes must be synced for it
        self.copies: set[int] = set()  # followers to which it copies
        self.reads = 0  # from log files

    def __str__(self) -> str:
        return str(self.number)

    # Life

    def found(self, members: Members) -> None:
        """Begin with first members, which are the same on all disks."""
        self.disk.durable.base_members = 0, members
        self.disk.lose()
        self.is_member = True

    def start(self) -> None:
        assert self.condition is Condition.DOWN
        self.condition = Condition.UP
        self._begin()
        delay = self.stage.rng.randrange(1, self.tick_every + 1)
        self.stage.after(delay, self._tick, self.epoch)

    def _begin(self, commit: int = 0) -> None:
        self.epoch += 1
        self._sync_since = -1
        self._ready = None
        self.copies = set()
        stored = self.disk.durable.stored(commit)
        self.raft = Raft(self._config(), stored, self.stage.rng.randrange(2**30))
        self.stage.checker.on_start(self.raft, self.disk)
        may = "" if stored.hard.may_vote else ", may not vote"
        self.stage.note(f"{self} starts: term {self.raft.term}, {stored.last_index} blocks{may}")

    def _config(self) -> Config:
        schedule = self.stage.schedule
        config = Config(self.number)
        config.election_ticks = schedule.election_ticks
        config.heartbeat_ticks = schedule.heartbeat_ticks
        config.link_lost_ticks = min(3, schedule.election_ticks)
        config.append_count_max = schedule.append_count_max
        config.append_bytes_max = 150
        config.inflight_count_max = 4
        config.inflight_bytes_max = 600
        config.window_bytes_max = 200
        config.uncommitted_bytes_max = 800
        config.follower_bytes_max = 500
        config.promote_lag_max = 10
        return config

    def crash(self) -> None:
        """Power fails, or the process is killed."""
        self.stage.note(f"{self} crashes")
        self.disk.crash(self.stage.rng)
        self._stop(Condition.DOWN)

    def leave(self) -> None:
        """Removed, or wiped: it never comes back."""
        self.stage.note(f"{self} is gone")
        self._stop(Condition.GONE)

    def _stop(self, condition: Condition) -> None:
        self.condition = condition
        self.raft = None
        self.epoch += 1

    def install(self, image: Image) -> bool:
        """Take a copy of the leader's directory, and begin again from it."""
        raft = self.raft
        term = image.blocks[-1].term if image.blocks else image.base_term
        if raft is None or not raft.may_install(image.last, term):
            return False
        image.hard = raft.hard.copy()
        self.disk.install(image)
        self.stage.note(f"{self} takes a copy up to {image.last}")
        epoch = self.epoch + 1
        self._begin(image.last)
        assert self.epoch == epoch
        self.stage.after(self.tick_every, self._tick, epoch)
        return True

    @property
    def is_leader(self) -> bool:
        return self.raft is not None and self.raft.role == LEADER

    # Inputs

    def _when_up(self, epoch: int, action: Callable[[Raft], None]) -> None:
        """Run something of this node, later if it is paused; never after a crash."""
        if epoch != self.epoch:
            return
        if self.paused_until > self.stage.now:
            self.stage.at(self.paused_until, self._when_up, epoch, action)
            return
        assert self.raft is not None
        action(self.raft)
        self.pump()

    def _tick(self, epoch: int) -> None:
        if epoch != self.epoch:
            return
        self.stage.after(self.tick_every, self._tick, epoch)
        if self.paused_until <= self.stage.now:
            assert self.raft is not None
            self.raft.tick(self.sync_ticks())
            self.stage.checker.on_tick(self.raft, self.sync_ticks())
            self.pump()

    def sync_ticks(self) -> int:
        """For how many ticks the oldest sync is under way."""
        return 0 if self._sync_since < 0 else (self.stage.now - self._sync_since) // self.tick_every

    def receive(self, frame: bytes) -> None:
        if self.condition is Condition.UP:
            self._when_up(self.epoch, lambda raft: self._step(raft, frame))

    def _step(self, raft: Raft, frame: bytes) -> None:
        for message in decode_frame(frame):
            raft.step(message)
            self.stage.checker.on_event(raft)

    def call(self, action: Callable[[Raft], None]) -> None:
        """Something that a client or an operator wants of this node, if it is up."""
        if self.condition is Condition.UP:
            self._when_up(self.epoch, action)

    def lose_link(self, other: int) -> None:
        self.call(lambda raft: raft.on_link_lost(other))

    # Blocks of the leader

    def publish(self, data: bytes, kind: int = NORMAL) -> None:
        self.call(lambda raft: self._publish(raft, kind, data))

    def _publish(self, raft: Raft, kind: int, data: bytes) -> None:
        if raft.may_append() and not raft.needs_term_block() and not raft.is_full():
            self._append(raft, kind, data, None)

    def change(self, plan: Callable[[Raft], Members]) -> None:
        """Change the members, if the node allows it."""
        self.call(lambda raft: self._change(raft, plan))

    def _change(self, raft: Raft, plan: Callable[[Raft], Members]) -> None:
        try:
            members = plan(raft)
        except ClusterError as refusal:
            self.stage.note(f"{self} refuses a change: {refusal}")
            return
        self._append(raft, MEMBERS, encode_members(members), members)
        text = f"{members.voters} and {members.non_voters}"
        self.stage.note(f"{self} changes the members at {raft.log.last_index}: {text}")

    def _append(self, raft: Raft, kind: int, data: bytes, members: Members | None) -> None:
        block = Block(raft.log.last_index + 1, raft.term, kind, data, members)
        raft.append(block)
        self.disk.write(block)
        self.stage.checker.on_block(self.disk.written, block)

    # Duties

    def pump(self) -> None:
        """Do what the member asks for, until it waits for the disk or for nothing."""
        raft = self.raft
        if raft is None:
            return
        checker = self.stage.checker
        checker.on_event(raft)
        if raft.needs_term_block():
            self.stage.note(f"{self} leads term {raft.term}")
            self._append(raft, TERM, f"leader {self} term {raft.term}".encode(), None)
        if self._ready is None:
            ready = raft.ready()
            if ready is not None:
                self._write(raft, ready)
        self._send(raft, raft.take_messages())
        for request in raft.take_reads():
            delay = self.stage.rng.randint(1, 10)
            self.stage.after(
                delay, self._when_up, self.epoch, lambda r, q=request: self._read(r, q)
            )
        for target in raft.take_copies():
            self.stage.note(f"{self} copies its directory to {target}")
            self.copies.add(target)
            self.stage.begin_copy(self.number, raft.term, target)
        checker.on_event(raft)
        self._begin_sync()

    def _write(self, raft: Raft, ready: Ready) -> None:
        self._ready = ready
        if ready.is_hard_changed:
            self.disk.write(ready.hard)
        if ready.cut_from:
            self.stage.note(f"{self} cuts its log from {ready.cut_from} on")
            self.stage.checker.on_cut(raft, ready.cut_from)
            self.disk.write(int(ready.cut_from))
        for block in ready.blocks:
            self.disk.write(block)
            self.stage.checker.on_block(self.disk.written, block)
        self._ready_at = self.disk.issued

    def _begin_sync(self) -> None:
        """Sync everything that is written, if no sync is under way and something waits for it."""
        is_waiting = self.disk.pending or self._ready is not None
        if self._sync_since >= 0 or not is_waiting:
            return
        self._sync_since = self.stage.now
        end = self.stage.now + self.stage.sync_delay() * self.sync_slow
        end = max(end, self.hung_until)
        self.stage.at(end, self._try_sync, self.epoch, self.disk.issued)

    def _try_sync(self, epoch: int, up_to: int) -> None:
        if epoch == self.epoch and self.hung_until > self.stage.now:
            self.stage.at(self.hung_until, self._try_sync, epoch, up_to)
        else:
            self._when_up(epoch, lambda raft: self._synced(raft, up_to))

    def _synced(self, raft: Raft, up_to: int) -> None:
        self.disk.sync(up_to)
        self._sync_since = -1
        last = self.disk.durable.last
        ready = self._ready
        if ready is not None and self._ready_at <= up_to:
            self._ready = None
            raft.advance(ready)
        elif last > self.disk.durable.base:
            block = self.disk.durable.blocks[-1]
            raft.on_synced(last, block.term)
        self.stage.checker.on_synced(raft)

    def _send(self, raft: Raft, messages: list[Message]) -> None:
        by_target: dict[int, list[Message]] = {}
        for message in messages:
            self.stage.checker.on_send(raft, message, self.sync_ticks())
            by_target.setdefault(message.target, []).append(message)
        for target, some in by_target.items():
            self.stage.transmit(self.number, target, encode_frame(self.number, target, some))

    def _read(self, raft: Raft, request: ReadRequest) -> None:
        """Read blocks for a follower, from files."""
        self.reads += 1
        blocks: list[Block] = []
        size = 0
        for index in range(request.first, request.last + 1):
            block = self.disk.durable.block(index)
            if block is None:
                break
            size += block.size_bytes()
            if blocks and size > request.bytes_max:
                break
            blocks.append(block)
        raft.on_read(request, blocks)

    def end_copy(self, term: int, target: int, last: int) -> None:
        """A copy has ended, behind a block, or failed (0)."""
        self.copies.discard(target)
        self.call(lambda raft: _end_copy(raft, term, target, last))

    def forget(self, base: int) -> None:
        """Remove log files whose blocks are committed."""
        self.call(lambda raft: self._forget(raft, base))

    def _forget(self, raft: Raft, base: int) -> None:
        base = min(base, raft.safe_index())
        if base > raft.log.base_index and not self.copies:
            raft.forget(base)
            self.disk.forget(base)


def _end_copy(raft: Raft, term: int, target: int, last: int) -> None:
    if raft.role == LEADER and raft.term == term:
        if last:
            raft.on_copied(target, last)
        else:
            raft.on_copy_failed(target)
