"""Copy the directory of the leader to a member that cannot be caught up from log files.

    leader    Offer            Begin Data* End        …     Finish
    member          Accept            Ack*                        Done

The leader begins a new log file and copies the directory as of its first block. `Accept` lists the
files that the member has from an earlier attempt; those with the same checksum are not sent again.
The leader waits while `WINDOW_BYTES` are not acknowledged. The member writes all data that has
come in one step of its thread: the busier the machine, the fewer steps. Each side may end the copy
by `Refuse`. Every step has a deadline. A message that cannot be sent, or a lost connection, ends
the copy on both sides at once. Raft is told of every end, and asks for another copy after an
election timeout.

A message is JSON of one of the structs below, or `DATA` and bytes of a file.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, Final, ParamSpec, Protocol, TypeVar

import msgspec

from leveret.checksum import crc32
from leveret.cluster.errors import ClusterError
from leveret.decode_errors import DECODE_ERRORS
from leveret.errors import LeveretError, StorageError, system_reason
from leveret.storage.directory_copy import CopySource, CopyTarget
from leveret.storage.disk import Disk

log = logging.getLogger(__name__)

SLICE_BYTES: Final = 1024 * 1024
WINDOW_BYTES: Final = 8 * 1024 * 1024
STEP_S: Final = 60.0  # deadline for one step of the other side, which may read all its files
FILES_MAX: Final = 100_000
DATA: Final = b"D"

P = ParamSpec("P")
T = TypeVar("T")


class Offer(msgspec.Struct, tag=True):
    """A copy that ends with a committed block, which is the first of a log file."""

    number: int  # of the log file
    index: int  # of the block
    term: int
    names: list[str]


class Accept(msgspec.Struct, tag=True):
    """The member wants the copy, and has these files already: size and checksum by name."""

    had: dict[str, tuple[int, int]]


class Begin(msgspec.Struct, tag=True):
    """The data of a file follows."""

    name: str


class End(msgspec.Struct, tag=True):
    """The file is whole."""

    size: int
    crc: int


class Ack(msgspec.Struct, tag=True):
    """The number of bytes that the member has written since its last Ack."""

    size: int


class Finish(msgspec.Struct, tag=True):
    """All files were sent."""


class Done(msgspec.Struct, tag=True):
    """The copy is the directory of the member now."""


class Refuse(msgspec.Struct, tag=True):
    """The copy is given up."""

    reason: str


Message = Offer | Accept | Begin | End | Ack | Finish | Done | Refuse
_DECODER: Final = msgspec.json.Decoder(Message)


class CopyHost(Protocol):
    """The node of a copier. Its role decides whether it may send or receive a copy."""

    def send_data(self, peer: str, *pieces: bytes) -> bool:
        """Send bytes to the copier of another node; return False if it is not connected."""

    def begin_copy(self, done: Callable[[CopySource | None], None]) -> None:
        """Hold the files of the leader as of a new log file; None if this node does not lead."""

    def end_copy(self, source: CopySource) -> None:
        """Release the files."""

    def term_of(self, index: int) -> int:
        """Return the term of a block."""

    def follows(self, peer: str) -> bool:
        """Return True if this node follows another one as its leader."""

    def may_install(self, index: int, term: int) -> bool:
        """Return True if a copy that ends with this block may replace the log of this node."""

    def install(self, target: CopyTarget, offer: Offer) -> None:
        """Replace the directory by a received copy, and follow with it."""


class DirectoryCopier:
    """All copies from and to one node."""

    def __init__(self, disk: Disk, host: CopyHost) -> None:
        self._disk = disk
        self._host = host
        self._inboxes: dict[str, asyncio.Queue[Message | bytes]] = {}
        self._tasks: dict[str, asyncio.Task[int]] = {}  # one copy for each peer
        # A copy that was given up holds the lock of its peer until its files are closed.
        self._locks: dict[str, asyncio.Lock] = {}
        # All copies to this node use the same file names, so only one is received at a time.
        self._sender = ""  # the node that has sent the last offer
        self._receive_lock = asyncio.Lock()

    def copy_to(self, peer: str, done: Callable[[int], None]) -> None:
        """Begin a copy; call `done` with its last block, or 0 if it failed."""
        task = self._begin(peer, self._send)
        task.add_done_callback(lambda ended: done(_last_block(ended)))

    def on_data(self, peer: str, data: bytes) -> None:
        """Handle a message of the copier of another node."""
        message: Message | bytes = data
        if data[:1] != DATA:
            try:
                message = _DECODER.decode(data)
            except DECODE_ERRORS as fault:
                log.warning("node %s sent a malformed message about a copy: %s", peer, fault)
                self.on_lost(peer)
                return
        if isinstance(message, Offer):
            self._on_offer(peer, message)
            return
        inbox = self._inboxes.get(peer)
        if inbox is None:
            return  # the message belongs to a copy that was given up
        if inbox.qsize() > 4 * WINDOW_BYTES // SLICE_BYTES:
            log.warning("node %s sends a copy faster than agreed: the copy is given up", peer)
            self.on_lost(peer)
            return
        inbox.put_nowait(message)

    def _on_offer(self, peer: str, offer: Offer) -> None:
        """Begin to receive a copy. It replaces one that an earlier leader has not finished."""
        if not self._host.follows(peer):
            # The copy would replace the directory of this node. The leader offers it again.
            log.warning("node %s does not lead, so its copy is refused", peer)
            self._post_refusal(peer, "only the node that leads may send a copy")
            return
        if self._sender not in ("", peer) and self._sender in self._tasks:
            self._post_refusal(self._sender, f"node {peer} leads now, and sends a copy")
            self.on_lost(self._sender)
        self._sender = peer
        task = self._begin(peer, lambda peer: self._receive(peer, offer))
        task.add_done_callback(_last_block)

    def on_writable(self, peer: str) -> None:
        """Do nothing: the window of a copy bounds what waits for a connection."""

    def on_lost(self, peer: str) -> None:
        """Give up the copy from or to a node."""
        self._inboxes.pop(peer, None)
        task = self._tasks.pop(peer, None)
        if task is not None:
            task.cancel()

    def stop(self) -> None:
        """Give up all copies: the role of this node changes, or it stops."""
        for peer in list(self._tasks):
            self.on_lost(peer)

    def _begin(
        self, peer: str, work: Callable[[str], Coroutine[Any, Any, int]]
    ) -> asyncio.Task[int]:
        """Begin a copy when the one before it, which is given up, has closed its files."""
        self.on_lost(peer)
        self._inboxes[peer] = asyncio.Queue()
        lock = self._locks.setdefault(peer, asyncio.Lock())

        async def run() -> int:
            async with lock:
                return await work(peer)

        task = asyncio.get_running_loop().create_task(run(), name=f"copy {peer}")
        self._tasks[peer] = task
        task.add_done_callback(lambda ended: self._forget(peer, ended))
        return task

    def _forget(self, peer: str, task: asyncio.Task[int]) -> None:
        if self._tasks.get(peer) is task:
            del self._tasks[peer]
            self._inboxes.pop(peer, None)

    async def _send(self, peer: str) -> int:
        """Copy the directory to a node; return the last block of the copy, or 0 if it failed."""
        source: CopySource | None = None
        try:
            inbox = self._inboxes[peer]
            source = await self._begin_source()
            log.info("node %s gets a copy of %d bytes", peer, source.total_bytes())
            await _Sending(self, peer, inbox, source).run(self._host.term_of(source.index))
            log.info("node %s has the copy, up to block %d", peer, source.index)
        except (OSError, TimeoutError, LeveretError) as fault:
            reason = system_reason(fault)
            log.warning("the copy for node %s has failed: %s", peer, reason)
            self._post_refusal(peer, reason)
            return 0
        finally:
            if source is not None:
                self._host.end_copy(source)
        return source.index

    async def _begin_source(self) -> CopySource:
        begun: asyncio.Future[CopySource | None]
        begun = asyncio.get_running_loop().create_future()

        def on_begun(found: CopySource | None) -> None:
            if not begun.done():
                begun.set_result(found)
            elif found is not None:
                self._host.end_copy(found)

        self._host.begin_copy(on_begun)
        async with asyncio.timeout(STEP_S):
            source = await begun
        if source is None:
            raise ClusterError("this node does not lead")
        return source

    async def _receive(self, peer: str, offer: Offer) -> int:
        """Receive a copy of the directory, and follow with it; return its last block, or 0."""
        async with self._receive_lock:
            return await self._receive_alone(peer, offer)

    async def _receive_alone(self, peer: str, offer: Offer) -> int:
        target = CopyTarget(self._disk)
        try:
            if len(offer.names) > FILES_MAX:
                raise StorageError(f"the copy has {len(offer.names)} files: too many")
            if not self._host.may_install(offer.index, offer.term):
                raise ClusterError("this node does not need a copy")
            log.info("this node gets a copy of the directory of node %s", peer)
            await _Receiving(self, peer, self._inboxes[peer], target).run(offer)
            if not self._host.may_install(offer.index, offer.term):
                raise ClusterError("this node does not need a copy any more")
            self._host.install(target, offer)
            log.info("this node has a copy of the directory of node %s", peer)
            self.post(peer, Done())
        except (OSError, TimeoutError, LeveretError) as fault:
            reason = system_reason(fault)
            log.warning("the copy from node %s has failed: %s", peer, reason)
            self._post_refusal(peer, reason)
            return 0
        finally:
            target.abandon()
        return offer.index

    def post(self, peer: str, message: Message) -> None:
        """Send a message. Raise ClusterError if it cannot be sent now."""
        self._post(peer, msgspec.json.encode(message))

    def post_data(self, peer: str, data: bytes) -> None:
        """Send bytes of a file. Raise ClusterError if they cannot be sent now."""
        self._post(peer, DATA, data)

    def _post(self, peer: str, *pieces: bytes) -> None:
        if not self._host.send_data(peer, *pieces):
            raise ClusterError("the nodes have no connection for copies")

    def _post_refusal(self, peer: str, reason: str) -> None:
        """Tell the other node that the copy has failed. A lost connection tells it, too."""
        self._host.send_data(peer, msgspec.json.encode(Refuse(reason)))


def _last_block(task: asyncio.Task[int]) -> int:
    """Return the last block of a copy that has ended; 0: it has failed or was given up."""
    if task.cancelled():
        return 0
    fault = task.exception()
    if fault is not None:
        log.error("copying a data directory failed because of a bug", exc_info=fault)
        return 0
    return task.result()


async def _in_thread(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Do work on the disk in a thread.

    A cancelled copy waits for its thread, so that no file is closed while a thread uses it.
    """
    loop = asyncio.get_running_loop()
    task = loop.create_task(asyncio.to_thread(work, *args, **kwargs))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait((task,))
        if not task.cancelled():
            task.exception()  # of a copy that was given up: nobody needs it
        raise


class _CopySide:
    """One side of a copy."""

    def __init__(
        self, copier: DirectoryCopier, peer: str, inbox: asyncio.Queue[Message | bytes]
    ) -> None:
        self.copier = copier
        self.peer = peer
        self._inbox = inbox
        self._next: Message | bytes | None = None  # taken from the inbox too early

    def maybe_data(self) -> bytes | None:
        """Return the next message if it has come and is data."""
        # A queue of asyncio does not show its first message, and only this task takes from it.
        if self._next is None and not self._inbox.empty():
            self._next = self._inbox.get_nowait()
        if not isinstance(self._next, bytes):
            return None
        data, self._next = self._next, None
        return data

    async def take(self) -> Message | bytes:
        """Return the next message of the other side; raise if it gives up or is silent."""
        message, self._next = self._next, None
        if message is None:
            async with asyncio.timeout(STEP_S):
                message = await self._inbox.get()
        if isinstance(message, Refuse):
            raise ClusterError(f"node {self.peer} gives up: {message.reason}")
        return message

    def post(self, message: Message) -> None:
        self.copier.post(self.peer, message)


class _Sending(_CopySide):
    """The leader's side of a copy."""

    def __init__(
        self,
        copier: DirectoryCopier,
        peer: str,
        inbox: asyncio.Queue[Message | bytes],
        source: CopySource,
    ) -> None:
        super().__init__(copier, peer, inbox)
        self._source = source
        self._unacked = 0

    async def run(self, term: int) -> None:
        source = self._source
        names = [file.name for file in source.files]
        self.post(Offer(source.number, source.index, term, names))
        accepted = await self.take()
        if not isinstance(accepted, Accept):
            raise ClusterError(f"node {self.peer} sent an unexpected message")
        for place, file in enumerate(source.files):
            had = accepted.had.get(file.name)
            if had is not None and had[0] == file.size:
                if had[1] == await _in_thread(source.checksum, place):
                    continue
            await self._send_file(place, file.name)
        self.post(Finish())
        while not isinstance(await self.take(), Done):
            pass

    async def _send_file(self, place: int, name: str) -> None:
        self.post(Begin(name))
        offset = crc = 0
        while True:
            data = await _in_thread(self._source.read, place, offset, SLICE_BYTES)
            if not data:
                break
            crc = crc32(data, crc)
            offset += len(data)
            self.copier.post_data(self.peer, data)
            self._unacked += len(data)
            while self._unacked > WINDOW_BYTES:
                message = await self.take()
                if isinstance(message, Ack):
                    self._unacked -= message.size
        self.post(End(offset, crc))


class _Receiving(_CopySide):
    """The member's side of a copy."""

    def __init__(
        self,
        copier: DirectoryCopier,
        peer: str,
        inbox: asyncio.Queue[Message | bytes],
        target: CopyTarget,
    ) -> None:
        super().__init__(copier, peer, inbox)
        self._target = target

    async def run(self, offer: Offer) -> None:
        target = self._target
        had = await _in_thread(target.received)
        wanted = set(offer.names)
        await _in_thread(target.drop, [name for name in had if name not in wanted])
        self.post(Accept({name: found for name, found in had.items() if name in wanted}))
        while True:
            message = await self.take()
            if isinstance(message, bytes):
                pieces = [memoryview(message)[len(DATA) :]]
                while (more := self.maybe_data()) is not None:
                    pieces.append(memoryview(more)[len(DATA) :])
                await _in_thread(target.put, pieces)
                self.post(Ack(sum(map(len, pieces))))
            elif isinstance(message, Begin):
                if message.name not in wanted:
                    raise ClusterError(f"the file {message.name} was not offered")
                await _in_thread(target.begin, message.name)
            elif isinstance(message, End):
                if not await _in_thread(target.end, message.size, message.crc):
                    raise ClusterError("a file arrived damaged")
            elif isinstance(message, Finish):
                return
