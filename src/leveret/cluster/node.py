"""A running node of a cluster: drives a `Host` with its disk, its links and the time.

Input goes to the host at once, and a turn follows at the end of the event loop's iteration. A
thread writes and syncs one block for all groups. Then the messages are sent, one frame for each
peer. Then the host applies entries, and the owner gets the results. Input that arrives meanwhile
belongs to the next turn, so under load a turn holds everything that came while the disk was busy.

A failed write or sync, or a failed assertion of a member, ends the node: it sends nothing more, and
`ended` raises.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from leveret.cluster.errors import (
    BusyError,
)
from leveret.cluster.host import Host
from leveret.cluster.link import FRAME_BYTES_FULL
from leveret.cluster.links import Links
from leveret.cluster.machine import Machine
from leveret.cluster.raft.codec import FRAME_BYTES_MAX
from leveret.cluster.raft.config import Config
from leveret.cluster.raft.entry import Members
from leveret.cluster.raft.fields import U64_MAX
from leveret.cluster.raft.messages import Message
from leveret.cluster.raft.stored import Stored
from leveret.cluster.store.blocks import Block
from leveret.cluster.store.store import Store
from leveret.cluster.turn import HostTurn, Outcome
from leveret.cluster.writer import Writer
from leveret.errors import (
    ClosedError,
    PreconditionFailedError,
    ProtocolError,
    StorageError,
)

log = logging.getLogger(__name__)

TICK_S: Final = 0.1
# What may come while one turn is under way; then nothing more is read.
RECEIVED_BYTES_MAX: Final = 64 * 1024 * 1024
READS_MAX: Final = 10_000
READ_BITS: Final = 20  # numbers of reads for each incarnation, which is about a millisecond
COMMAND_BYTES_MAX: Final = 32 * 1024 * 1024
assert COMMAND_BYTES_MAX + FRAME_BYTES_FULL < FRAME_BYTES_MAX  # whatever is in a frame before it
# Of old files of the log, looked at in a tick so that they can go.
HOUSEKEEPING_BYTES: Final = 256 * 1024
QUIET_TICKS: Final = 10  # without a write: then the log is brought to a good end


class ClusterNode:
    """One node, from `start` to `stop`."""

    def __init__(
        self,
        host: Host,
        store: Store,
        links: Links,
        on_outcomes: Callable[[list[Outcome]], None],
        *,
        tick_s: float = TICK_S,
    ) -> None:
        self.host = host
        self.links = links
        self.store = store
        self._on_outcomes = on_outcomes
        self._tick_s = tick_s
        self._loop = asyncio.get_running_loop()
        self._writer: Writer[Block] = Writer(store.files.write, self._on_written, self._loop)
        self._timer: asyncio.TimerHandle | None = None
        self._is_soon = False
        self._turn: HostTurn | None = None  # under way
        self._is_writing = False
        self._may_tidy = False  # a tick has passed
        self._quiet_ticks = 0  # since something had to be synced
        self._has_failed = False
        self._received_bytes = 0  # since the last turn was taken
        self._reads: dict[int, asyncio.Future[None]] = {}
        # Answers to reads of the process before may still be under way.
        self._next_read = ((int(host.leases.incarnation) << READ_BITS) & U64_MAX) + 1
        self._has_stopped = False
        self.ended: asyncio.Future[None] = self._loop.create_future()
        self.turns = 0
        self.syncs = 0

    # Life

    def start(self) -> None:
        self._writer.start()
        self._timer = self._loop.call_later(self._tick_s, self._on_tick)
        self.soon()

    async def stop(self) -> None:
        """Take nothing more; what is being written is written."""
        self._end()
        await self.links.stop()
        is_idle = await self._loop.run_in_executor(None, self._writer.stop)
        if not is_idle:
            log.error("the node stops while its disk does not answer")
        elif not self._has_failed:
            await self._loop.run_in_executor(None, self._seal)
        if not self.ended.done():
            self.ended.set_result(None)

    def _seal(self) -> None:
        """Write the last blocks of the log, when no turn is in progress.

        The log is valid without them, so a full or broken disk does not stop the node from ending.
        """
        try:
            while self.store.flush():
                block = self.store.take()
                assert block is not None
                self.store.files.write(block)
                self.store.written(block)
        except StorageError as fault:
            log.warning("the log of the node has no good end: %s", fault)

    def _end(self) -> None:
        self._has_stopped = True
        if self._timer is not None:
            self._timer.cancel()
        for future in self._reads.values():
            if not future.done():
                future.set_exception(ClosedError("the node stops"))
        self._reads.clear()

    def _fail(self, fault: Exception) -> None:
        """Nothing that happened in this turn may become known."""
        if self._has_stopped:
            return
        self._has_failed = True
        log.critical("the node ends: %s", fault, exc_info=fault)
        self._end()
        self.links.abort()
        self.ended.set_exception(fault)
        self.ended.exception()  # it is in the log: an owner that only stops the node need not ask

    # Inputs

    def on_messages(self, messages: list[Message], size_bytes: int) -> None:
        """A frame of another node."""
        if self._has_stopped:
            return
        try:
            self.host.receive(messages)
        except ProtocolError:
            raise  # the link ends, and says why
        except Exception as fault:
            self._fail(fault)
            return
        self._received_bytes += size_bytes
        if self._received_bytes > RECEIVED_BYTES_MAX and not self.links.is_paused:
            self.links.pause()
        self.soon()

    def _on_tick(self) -> None:
        # One tick however late: a node that was stopped must hear what came before it acts.
        self._timer = self._loop.call_later(self._tick_s, self._on_tick)
        try:
            self.host.tick()
        except Exception as fault:
            self._fail(fault)
            return
        self._may_tidy = True
        self._quiet_ticks += 1
        self.soon()

    def propose(self, group: int, commands: list[bytes]) -> int:
        """Take commands into the log of a group; the index of the first."""
        self._require_running()
        if max(map(len, commands), default=0) > COMMAND_BYTES_MAX:
            raise PreconditionFailedError(f"a command of more than {COMMAND_BYTES_MAX} bytes")
        index = self.host.propose(group, commands)
        self.soon()
        return int(index)

    async def read(self, group: int, timeout_s: float) -> None:
        """Return when the machine here has applied all that was committed when this was called."""
        self._require_running()
        if len(self._reads) >= READS_MAX:
            raise BusyError("too many reads wait")
        number = self._next_read
        self._next_read += 1
        future: asyncio.Future[None] = self._loop.create_future()
        self._reads[number] = future
        try:
            self.host.read(group, number)
            self.soon()
            async with asyncio.timeout(timeout_s):
                await future
        finally:
            self._reads.pop(number, None)

    def add_group(
        self, group: int, members: Members, machine: Machine, config: Config | None = None
    ) -> None:
        """Host a group that never was here; with no members, until it is told them."""
        self._require_running()
        self.store.create(group, members)
        self.host.add_group(group, Stored(members), machine, config)
        self.soon()

    def remove_group(self, group: int) -> None:
        """Host it no more, and forget all of it."""
        self._require_running()
        self.host.remove_group(group)
        self.store.delete(group)
        self.soon()

    def _require_running(self) -> None:
        if self._has_stopped:
            raise ClosedError("the node has stopped")

    # Turns

    def soon(self) -> None:
        """There is something to do: at the end of this round of the loop."""
        if not self._is_soon and not self._is_writing and not self._has_stopped:
            self._is_soon = True
            self._loop.call_soon(self._begin)

    def _begin(self) -> None:
        self._is_soon = False
        if self._has_stopped or self._is_writing:
            return
        try:
            self._take_turn()
        except Exception as fault:
            self._fail(fault)

    def _take_turn(self) -> None:
        self._on_taken()
        turn = self._turn = self.host.turn()
        if turn is not None:
            self.turns += 1
            for group, ready in turn.writes:
                self.store.add(group, ready)
        if turn is not None and turn.must_sync:
            self._quiet_ticks = 0
        if self._may_tidy:
            self._tidy()
        block = self.store.take()  # there may be one without a turn: a group was created
        if block is not None:
            self._is_writing = True
            self._writer.put(block)
        elif turn is not None:
            assert not turn.must_sync
            self._finish(turn)

    def _tidy(self) -> None:
        """Once in a tick: a step of giving room back, and in quiet times an end of the log."""
        self._may_tidy = False
        self.store.housekeep(HOUSEKEEPING_BYTES)
        if self._quiet_ticks >= QUIET_TICKS:
            self.store.flush()

    def _on_taken(self) -> None:
        """What has come so far is in this turn."""
        self._received_bytes = 0
        if self.links.is_paused:
            self.links.resume()

    def _on_written(self, block: Block, fault: Exception | None) -> None:
        self._is_writing = False
        if fault is not None:
            if self._has_stopped:
                log.error("the last write of a node that stops has failed: %s", fault)
            self._has_failed = True
            self._fail(fault)
            return
        turn, self._turn = self._turn, None
        try:
            self.store.written(block)
            if self._has_stopped:
                return
            self.syncs += 1
            if turn is not None:
                self._finish(turn)
            self.soon()
        except Exception as broken:
            self._fail(broken)

    def _finish(self, turn: HostTurn) -> None:
        """All of the turn is on disk: now others may know."""
        for target, messages in turn.messages.items():
            self.links.send(target, messages)
        for target, messages in turn.bulk.items():
            self.links.send_bulk(target, messages)
        outcomes = self.host.done(turn)
        if outcomes:
            self._answer(outcomes)
            self._on_outcomes(outcomes)
        self.soon()

    def _answer(self, outcomes: list[Outcome]) -> None:
        for outcome in outcomes:
            for answer in outcome.answers:
                future = self._reads.pop(answer.number, None)
                if future is not None and not future.done():
                    future.set_result(None)
