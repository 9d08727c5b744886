"""Back up the running node or one queue, and restore queues into the running node.

The HTTP front calls this module. Archives are made in a thread, piece by piece, while the loop goes
on; they hold the state at the moment at which they began. A restore publishes into the queue in
small turns and waits for the disk between them, so that a large backup neither blocks the loop nor
fills the memory.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Final

from leveret.engine.broker import Broker
from leveret.engine.message import PERSISTENT, REDELIVERED, Message
from leveret.engine.queues.queue import Queue
from leveret.engine.restore import apply_definition
from leveret.engine.vhosts.vhost import Vhost
from leveret.errors import CorruptionError, PreconditionFailedError, StorageError
from leveret.runtime.sync_barrier import SYNC_WITHIN_S, SyncBarrier
from leveret.runtime.turns import TurnRunner
from leveret.storage.archive import ArchiveReader
from leveret.storage.backup import NodeBackup
from leveret.storage.queue_backup import QUEUE, BackedUpMessage, QueueSnapshot, read_log
from leveret.storage.store import Store
from leveret.wire.tables import Table

MEMBER_BYTES_MAX: Final = 1 << 30
TURN_MESSAGES: Final = 200
TURN_BYTES: Final = 1024 * 1024
ALARM_WITHIN_S: Final = 60.0  # wait of a restore for the end of an alarm


class NodeBackups:
    """Makes backups of one node, and restores queues from backups."""

    def __init__(
        self,
        node: str,
        broker: Broker,
        turns: TurnRunner,
        store: Store | None,
        sync_barrier: SyncBarrier,
        in_flight: Callable[[], list[Message]],
        no_alarm: Callable[[], Awaitable[None]],
    ) -> None:
        self._node = node
        self._broker = broker
        self._turns = turns
        self._store = store
        self._sync_barrier = sync_barrier
        self._in_flight = in_flight
        self._no_alarm = no_alarm

    async def node(self) -> AsyncIterator[bytes]:
        """Return an archive of all durable state at this moment, as a stream of pieces."""
        store = self._store
        if store is None:
            raise StorageError("this node keeps nothing on disk")
        made: asyncio.Future[NodeBackup | None] = asyncio.get_running_loop().create_future()

        def on_rolled(number: int) -> None:
            if made.done():
                return
            try:
                made.set_result(store.backup(number, {"node": self._node}) if number else None)
            except (OSError, CorruptionError) as fault:
                made.set_exception(StorageError(f"a file cannot be backed up: {fault}"))

        store.log.roll(on_rolled)
        try:
            async with asyncio.timeout(SYNC_WITHIN_S):
                backup = await made
        except TimeoutError:
            raise StorageError(f"no new log file within {SYNC_WITHIN_S:.0f} s") from None
        if backup is None:
            raise StorageError(store.why_unsafe())
        return _stream(backup.pieces(), backup.close)

    async def queue(self, vhost: str, name: str) -> AsyncIterator[bytes]:
        """Return an archive of one queue at this moment, as a stream of pieces."""
        found = self._broker.vhost(vhost)
        queue = found.queue(name, None)
        store = self._store
        snapshot = QueueSnapshot(found, queue, self._in_flight())
        if store is None:
            return _stream(snapshot.pieces(), snapshot.close)
        store.log.hold_files()

        def close() -> None:
            snapshot.close()
            store.log.release_files()

        try:
            await self._sync_barrier.wait()
            snapshot.open_files(store.disk)
        except BaseException:
            close()
            raise
        return _stream(snapshot.pieces(), close)

    async def restore(self, vhost: str, name: str, pieces: AsyncIterator[bytes]) -> int:
        """Publish the messages of a backup into a queue of this name. Return their number."""
        restoring = _Restoring(self._broker, self._broker.vhost(vhost), name)
        try:
            async for piece in pieces:
                for kept in restoring.feed(piece):
                    await self._push(restoring, kept)
            restoring.finish()
            await self._push(restoring, [])  # declares the queue even if it had no messages
        except BaseException:
            self._turns.begin()
            restoring.undo()
            self._turns.end()
            raise
        await self._sync_barrier.wait()
        return restoring.count

    async def _push(self, restoring: "_Restoring", kept: list[BackedUpMessage]) -> None:
        """Push the messages of one file of the archive in turns, then wait for the disk."""
        at = -1
        while at < len(kept):
            await self._wait_for_room()
            self._turns.begin()
            try:
                at = restoring.push(kept, max(0, at))
            finally:
                self._turns.end()
            await asyncio.sleep(0)
        await self._sync_barrier.wait()

    async def _wait_for_room(self) -> None:
        """Return when publishers are not blocked. Raises StorageError if that takes too long."""
        try:
            async with asyncio.timeout(ALARM_WITHIN_S):
                await self._no_alarm()
        except TimeoutError:
            raise StorageError("publishers are blocked: memory or disk space is short") from None


class _Restoring:
    """Reads an archive and pushes its messages into one queue."""

    def __init__(self, broker: Broker, vhost: Vhost, name: str) -> None:
        self.count = 0
        self._broker = broker
        self._vhost = vhost
        self._name = name
        self._reader = ArchiveReader()
        self._file = bytearray()
        self._queue: Queue | None = None
        self._is_new = False
        self._tables: list[Table] = []
        have = vhost.queues.get(name)
        if have is not None and (have.ready.count or have.unacked or len(have.scheduled)):
            raise PreconditionFailedError(f"queue '{name}' in vhost '{vhost.name}' not empty")

    def feed(self, piece: bytes) -> list[list[BackedUpMessage]]:
        """Return the messages of each file that this piece completes."""
        found: list[list[BackedUpMessage]] = []
        for part in self._reader.feed(piece):
            if self._reader.facts.get("kind") != QUEUE:
                raise CorruptionError("this is not the backup of a queue")
            self._file += part.data
            if len(self._file) > MEMBER_BYTES_MAX:
                raise CorruptionError("a file of the backup is too large")
            if part.is_last:
                tables, kept = read_log(bytes(self._file), part.name)
                self._file.clear()
                self._tables.extend(tables)
                found.append(kept)
        return found

    def finish(self) -> None:
        self._reader.finish()

    def push(self, kept: list[BackedUpMessage], at: int) -> int:
        """Push as many messages as fit into one turn. Return the index of the next one."""
        try:
            queue = self._declared()
        except KeyError as fault:
            raise CorruptionError(f"a definition of the backup has no {fault}") from fault
        now_ms = self._vhost.turn.now_ms
        size = 0
        end = min(len(kept), at + TURN_MESSAGES)
        while at < end and size < TURN_BYTES:
            message = kept[at].message
            size += len(message.body)
            ttl_ms = max(0, message.expires_ms - now_ms) if message.expires_ms else -1
            flags = message.flags & (PERSISTENT | REDELIVERED)
            delay_ms = max(0, kept[at].due_ms - now_ms)
            queue.push(
                message.address,
                message.header,
                message.body,
                ttl_ms=ttl_ms,
                priority=message.priority,
                flags=flags,
                delay_ms=delay_ms,
            )
            self.count += 1
            at += 1
        return at

    def _declared(self) -> Queue:
        """Return the queue, declared as it was; with its bindings if it has its old name."""
        if self._queue is None:
            facts = self._reader.facts
            made = [table for table in self._tables if table["op"].value == "queue"]
            if len(made) != 1:
                raise CorruptionError("the backup does not define its queue")
            self._is_new = self._name not in self._vhost.queues
            arguments = made[0]["arguments"].value
            self._queue = self._vhost.declare_queue(
                self._name,
                durable=facts.get("durable") is True,
                auto_delete=made[0]["auto_delete"].value is True,
                arguments=arguments if isinstance(arguments, dict) else {},
            )
            if self._name == facts.get("queue"):
                self._bind()
        return self._queue

    def _bind(self) -> None:
        for table in self._tables:
            if table["op"].value == "bind" and table["vhost"].value == self._vhost.name:
                apply_definition(self._broker, table)

    def undo(self) -> None:
        """Delete the queue that an incomplete backup has made."""
        if self._queue is not None and self._is_new:
            self._vhost.remove_queue(self._queue)


async def _stream(pieces: Iterator[bytes], close: Callable[[], None]) -> AsyncIterator[bytes]:
    """Yield the pieces of an archive, each made in a thread. An early end waits for that thread."""
    loop = asyncio.get_running_loop()
    making: asyncio.Future[bytes | None] | None = None
    try:
        while True:
            making = loop.run_in_executor(None, next, pieces, None)
            piece = await asyncio.shield(making)
            if piece is None:
                return
            yield piece
    finally:
        if making is not None and not making.done():
            await asyncio.wait([making])
        close()
