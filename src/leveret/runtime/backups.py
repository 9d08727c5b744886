"""Backups of the running node, and queues restored into it: what the HTTP front asks for.

Archives are made in a thread, a piece at a time, while the loop goes on; they hold the state at the
moment at which they began. Restoring publishes into the queue in small turns and waits for the disk
between them, so that neither the loop nor the memory feels the size of a backup.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Final

from leveret.engine.broker import Broker
from leveret.engine.message import PERSISTENT, REDELIVERED, Message
from leveret.engine.queues.queue import Queue
from leveret.engine.restore import define
from leveret.engine.vhosts.vhost import Vhost
from leveret.errors import CorruptionError, PreconditionFailedError, StorageError
from leveret.runtime.sync_barrier import SYNC_WITHIN_S, Syncing
from leveret.runtime.turns import Turns
from leveret.storage.archive import ArchiveReader
from leveret.storage.backup import NodeBackup
from leveret.storage.queue_backup import QUEUE, BackedUpMessage, QueueSnapshot, read_log
from leveret.storage.store import Store
from leveret.wire.tables import Table

MEMBER_BYTES_MAX: Final = 1 << 30
TURN_MESSAGES: Final = 200
TURN_BYTES: Final = 1024 * 1024


class Backups:
    """Makes and takes in backups of one node."""

    def __init__(
        self,
        node: str,
        broker: Broker,
        turns: Turns,
        store: Store | None,
        syncing: Syncing,
        in_flight: Callable[[], list[Message]],
    ) -> None:
        self._node = node
        self._broker = broker
        self._turns = turns
        self._store = store
        self._syncing = syncing
        self._in_flight = in_flight

    # Out

    async def node(self) -> AsyncIterator[bytes]:
        """An archive of everything durable, as of now."""
        store = self._store
        if store is None:
            raise StorageError("this node keeps nothing on disk")
        made: asyncio.Future[NodeBackup | None] = asyncio.get_running_loop().create_future()

        def on_rolled(number: int) -> None:
            if made.done():
                return
            try:
                made.set_result(store.backup(number, {"node": self._node}) if number else None)
            except OSError as fault:
                made.set_exception(fault)

        store.log.roll(on_rolled)
        async with asyncio.timeout(SYNC_WITHIN_S):
            backup = await made
        if backup is None:
            raise StorageError("the log cannot be written")
        return _stream(backup.pieces(), backup.close)

    async def queue(self, vhost: str, name: str) -> AsyncIterator[bytes]:
        """An archive of one queue, as of now."""
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
            await self._syncing.wait()
            snapshot.open_files(store.disk)
        except BaseException:
            close()
            raise
        return _stream(snapshot.pieces(), close)

    # In

    async def restore(self, vhost: str, name: str, pieces: AsyncIterator[bytes]) -> int:
        """Publish the messages of a queue's backup into a queue of this name; how many."""
        restoring = _Restoring(self._broker, self._broker.vhost(vhost), name)
        try:
            async for piece in pieces:
                for kept in restoring.feed(piece):
                    await self._push(restoring, kept)
            restoring.finish()
            await self._push(restoring, [])  # a queue without messages is declared too
        except BaseException:
            self._turns.begin()
            restoring.undo()
            self._turns.end()
            raise
        await self._syncing.wait()
        return restoring.count

    async def _push(self, restoring: "_Restoring", kept: list[BackedUpMessage]) -> None:
        """Messages of one file of the archive, in turns; then wait for the disk."""
        at = -1
        while at < len(kept):
            self._turns.begin()
            try:
                at = restoring.push(kept, max(0, at))
            finally:
                self._turns.end()
            await asyncio.sleep(0)
        await self._syncing.wait()


class _Restoring:
    """A queue that is being restored."""

    def __init__(self, broker: Broker, vhost: Vhost, name: str) -> None:
        self.count = 0
        self._broker = broker
        self._vhost = vhost
        self._name = name
        self._reader = ArchiveReader()
        self._file = b""
        self._queue: Queue | None = None
        self._is_new = False
        self._tables: list[Table] = []
        have = vhost.queues.get(name)
        if have is not None and (have.ready.count or have.unacked or len(have.scheduled)):
            raise PreconditionFailedError(f"queue '{name}' in vhost '{vhost.name}' not empty")

    def feed(self, piece: bytes) -> list[list[BackedUpMessage]]:
        """Messages in a piece of the archive."""
        found: list[list[BackedUpMessage]] = []
        for part in self._reader.feed(piece):
            if self._reader.facts.get("kind") != QUEUE:
                raise CorruptionError("this is not the backup of a queue")
            self._file += part.data
            if len(self._file) > MEMBER_BYTES_MAX:
                raise CorruptionError("a file of the backup is too large")
            if part.is_last:
                tables, kept = read_log(self._file, part.name)
                self._file = b""
                self._tables.extend(tables)
                found.append(kept)
        return found

    def finish(self) -> None:
        self._reader.finish()

    def push(self, kept: list[BackedUpMessage], at: int) -> int:
        """Push as many messages as fit into a turn; where to go on."""
        queue = self._declared()
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
                ttl_ms,
                message.priority,
                flags,
                delay_ms,
            )
            self.count += 1
            at += 1
        return at

    def _declared(self) -> Queue:
        """The queue, declared as it was; its bindings only under its old name."""
        if self._queue is None:
            facts = self._reader.facts
            made = [table for table in self._tables if table["op"].value == "queue"]
            if len(made) != 1:
                raise CorruptionError("the backup does not define its queue")
            self._is_new = self._name not in self._vhost.queues
            arguments = made[0]["arguments"].value
            self._queue = self._vhost.declare_queue(
                self._name,
                facts.get("durable") is True,
                None,
                None,
                made[0]["auto_delete"].value is True,
                arguments if isinstance(arguments, dict) else {},
            )
            if self._name == facts.get("queue"):
                self._bind()
        return self._queue

    def _bind(self) -> None:
        for table in self._tables:
            if table["op"].value == "bind" and table["vhost"].value == self._vhost.name:
                define(self._broker, table)

    def undo(self) -> None:
        """The backup is not whole: a queue that was made for it goes again."""
        if self._queue is not None and self._is_new:
            self._vhost.remove_queue(self._queue)


async def _stream(pieces: Iterator[bytes], close: Callable[[], None]) -> AsyncIterator[bytes]:
    """The pieces of an archive, each made in a thread; whoever stops early waits for that one."""
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
