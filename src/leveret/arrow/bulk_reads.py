"""The broker's side of bulk reads: runs the worker processes and passes on their bytes.

A worker serves several reads, over one socket each, and uses one core. The first read starts a
worker. A read that finds all workers busy starts another one, up to one for each core but one. A
worker that has died is replaced. All are stopped after `IDLE_S` without reads. The broker passes
bytes on in pieces and buffers nothing: a slow client blocks its socket, and so its thread in the
worker. The broker's event loop never blocks on a worker.
"""

import asyncio
import logging
import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final

import leveret
from leveret.arrow.queue_chunks import QueueChunk
from leveret.arrow.requests import (
    Request,
    RetentionPassedError,
    encode_request,
    segment_parts,
    stream_chunks,
)
from leveret.arrow.worker_protocol import (
    CHUNK,
    DATA,
    END,
    FAILED,
    FAULT,
    GONE,
    HEAD,
    NOTE_BYTES_MAX,
    NUMBERS,
    REQUEST,
    STATUS,
    decode_fault,
    frame,
)
from leveret.engine.streams.stream import Stream
from leveret.errors import CorruptionError, LeveretError, public_reason

log = logging.getLogger(__name__)

READS_MAX: Final = 8  # concurrent reads; a large one takes up to 90 MB of its worker's memory
WORKERS_MAX: Final = 4  # each takes about 70 MB, and more for large reads
USER_READS_MAX: Final = 6  # of one user, so that others find a place
WAIT_S: Final = 30.0  # wait for a running read to end
BEGIN_S: Final = 120.0  # wait for the first rows: a new worker has to load pyarrow first
ENCODE_S: Final = 30.0  # wait for the next bytes from the worker
STALL_S: Final = 30.0  # wait for a client that takes no bytes
IDLE_S: Final = 60.0
PIECE_BYTES: Final = 256 * 1024
_STOP_WITHIN_S: Final = 5.0


class ReadError(LeveretError):
    """A read cannot begin, or broke off. `why` is a fault kind of `worker_protocol`, or BUSY."""

    def __init__(self, why: str, reason: str) -> None:
        super().__init__(reason)
        self.why = why


BUSY: Final = "busy"


class Read:
    """One read that the worker was asked for."""

    def __init__(self, peer: socket.socket) -> None:
        self._peer = peer
        self._left = 0  # bytes of the current frame that are still to come
        self._loop = asyncio.get_running_loop()
        self.fault: ReadError | None = None  # set if the broker itself has ended the read

    async def ask(self, request: Request) -> None:
        await self._loop.sock_sendall(self._peer, frame(REQUEST, encode_request(request)))

    async def begin(self) -> None:
        """Wait until the first rows arrive; raise ReadError if the read fails."""
        kind, size = await self._head(BEGIN_S)
        if kind != STATUS or size > 0:
            raise await self._failure(kind, size)

    async def piece(self) -> bytes:
        """Return the next bytes of the answer, b"" at its end; raise ReadError if it breaks off."""
        if self._left == 0:
            kind, size = await self._head(ENCODE_S)
            if kind == END:
                return b""
            if kind != DATA:
                raise await self._failure(kind, size)
            self._left = size
        found = await self._receive(min(self._left, PIECE_BYTES), ENCODE_S)
        self._left -= len(found)
        return found

    async def send_chunks(self, chunks: Iterator[bytes]) -> None:
        """Send the worker the chunks of a stream that has no files."""
        try:
            for chunk in chunks:
                await self._send(CHUNK, chunk)
        except (RetentionPassedError, CorruptionError) as fault:
            self._give_up(GONE if isinstance(fault, RetentionPassedError) else FAILED, fault)
        except OSError:
            return  # the worker has died: the reader of its bytes will report it

    async def send_queue_chunks(self, queue_chunks: AsyncIterator[QueueChunk]) -> None:
        """Send the worker messages of a queue."""
        try:
            async for numbers, chunk in queue_chunks:
                await self._send(NUMBERS, numbers)
                await self._send(CHUNK, chunk)
            await self._send(END, b"")
        except LeveretError as fault:
            self._give_up(FAILED, fault)
        except OSError:
            return

    async def _send(self, kind: int, payload: bytes) -> None:
        await self._loop.sock_sendall(self._peer, HEAD.pack(kind, len(payload)))
        await self._loop.sock_sendall(self._peer, payload)

    def _give_up(self, why: str, fault: LeveretError) -> None:
        """End the read, because its data is not available."""
        self.fault = ReadError(why, str(fault))
        with suppress(OSError):
            self._peer.shutdown(socket.SHUT_RDWR)

    async def _head(self, within_s: float) -> tuple[int, int]:
        kind, size = HEAD.unpack(await self._exactly(HEAD.size, within_s))
        return kind, size

    async def _failure(self, kind: int, size: int) -> ReadError:
        assert kind in (STATUS, FAULT)
        assert size <= NOTE_BYTES_MAX
        return ReadError(*decode_fault(await self._exactly(size, ENCODE_S)))

    async def _exactly(self, size: int, within_s: float) -> bytes:
        data = b""
        while len(data) < size:
            data += await self._receive(size - len(data), within_s)
        return data

    async def _receive(self, size: int, within_s: float) -> bytes:
        try:
            async with asyncio.timeout(within_s):
                data = await self._loop.sock_recv(self._peer, size)
        except TimeoutError:
            raise ReadError(FAILED, f"the worker sent nothing for {within_s:.0f} s") from None
        except OSError:
            data = b""
        if not data:
            raise self.fault or ReadError(FAILED, "the worker process has ended")
        return data


class _Worker:
    """A worker process, and the reads that it serves."""

    def __init__(self, process: subprocess.Popen[bytes], control: socket.socket) -> None:
        self.process = process
        self.control = control  # passes the worker its end of each read
        self.reads = 0

    def take(self, peer: socket.socket) -> None:
        """Pass the worker its end of a read. Raise OSError if the worker has died."""
        socket.send_fds(self.control, [b"+"], [peer.fileno()])
        self.reads += 1


class BulkReads:
    """All reads of a node, and the workers."""

    def __init__(self, folder: Path | None) -> None:
        self.stall_s = STALL_S
        self.idle_s = IDLE_S
        self.workers_max = max(1, min(WORKERS_MAX, (os.cpu_count() or 1) - 1))
        self._folder = folder  # folder of the segment files; None if streams are in memory
        self._workers: list[_Worker] = []
        self._slots = asyncio.Semaphore(READS_MAX)
        # Reads of each user, running and waiting, and the places of that user.
        self._users: dict[str, tuple[int, asyncio.Semaphore]] = {}
        self._open: set[Read] = set()
        self._idle: asyncio.TimerHandle | None = None
        self._ended: list[subprocess.Popen[bytes]] = []  # workers that may still be running
        self._is_stopped = False

    @property
    def worker_pids(self) -> list[int]:
        return [worker.process.pid for worker in self._workers]

    @property
    def open_count(self) -> int:
        return len(self._open)

    @asynccontextmanager
    async def read(self, stream: Stream, request: Request, user: str) -> AsyncIterator[Read]:
        """Ask the worker for a range of a stream; raise ReadError if that fails."""
        async with self._connected(user) as read:
            if request.first < stream.first_offset:  # retention has passed since the request
                raise ReadError(GONE, f"offset {request.first} was removed by retention")
            if self._folder is not None:
                request.segments = segment_parts(stream, self._folder, request.first, request.end)
            await read.ask(request)
            if self._folder is not None:
                yield read
                return
            chunks = stream_chunks(stream, request.first, request.end)
            async with _fed(read.send_chunks(chunks)):
                yield read

    @asynccontextmanager
    async def read_files(self, request: Request, user: str) -> AsyncIterator[Read]:
        """Ask the worker for a range whose segments the request names. Raise ReadError."""
        async with self._connected(user) as read:
            await read.ask(request)
            yield read

    @asynccontextmanager
    async def read_queue(
        self, request: Request, queue_chunks: AsyncIterator[QueueChunk], user: str
    ) -> AsyncIterator[Read]:
        """Ask the worker for messages of a queue, and send them to it; raise ReadError if that
        fails.
        """
        async with self._connected(user) as read:
            request.is_of_queue = True
            await read.ask(request)
            async with _fed(read.send_queue_chunks(queue_chunks)):
                yield read

    @asynccontextmanager
    async def _connected(self, user: str) -> AsyncIterator[Read]:
        """Open the socket of a read, and pass its other end to a worker."""
        async with self._slot(user):
            mine, its = socket.socketpair()
            mine.setblocking(False)
            read = Read(mine)
            self._open.add(read)
            worker: _Worker | None = None
            try:
                with its:
                    worker = self._hand_over(its)
                yield read
            finally:
                if worker is not None:
                    worker.reads -= 1
                self._open.discard(read)
                mine.close()
                self._arm()

    @asynccontextmanager
    async def _slot(self, user: str) -> AsyncIterator[None]:
        """Wait for a place of the user, and then for one of the node."""
        if self._is_stopped:
            raise ReadError(BUSY, "the node is stopping")
        count, places = self._users.get(user, (0, asyncio.Semaphore(USER_READS_MAX)))
        self._users[user] = (count + 1, places)
        try:
            async with AsyncExitStack() as taken:
                await _take(taken, places, f"{USER_READS_MAX} reads of the user are running")
                await _take(taken, self._slots, f"{READS_MAX} reads are running already")
                yield
        finally:
            count, _ = self._users.pop(user)
            if count > 1:
                self._users[user] = (count - 1, places)

    def _hand_over(self, peer: socket.socket) -> _Worker:
        """Pass a worker its end of a read."""
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None
        for _ in range(self.workers_max + 1):  # a worker that has died is noticed only here
            worker = self._choose()
            try:
                worker.take(peer)
                return worker
            except OSError as fault:
                log.warning(
                    "a process that encodes bulk reads has ended, another one starts: %s", fault
                )
                self._end(worker)
        raise ReadError(FAILED, "the worker process cannot be reached")

    def _choose(self) -> _Worker:
        """Return the worker with the fewest reads, or a new one if all have some."""
        chosen = min(self._workers, key=lambda worker: worker.reads, default=None)
        if chosen is None or (chosen.reads and len(self._workers) < self.workers_max):
            chosen = _start_worker()
            self._workers.append(chosen)
        return chosen

    def _arm(self) -> None:
        """Stop the workers after `IDLE_S` without reads."""
        if not self._open and self._workers and self._idle is None:
            self._idle = asyncio.get_running_loop().call_later(self.idle_s, self._end_all)

    def _end_all(self) -> None:
        self._idle = None
        for worker in list(self._workers):
            self._end(worker)

    def _end(self, worker: _Worker) -> None:
        """Close the worker's socket, so that it ends by itself. The next read starts a new one."""
        worker.control.close()
        self._workers.remove(worker)
        self._ended.append(worker.process)
        self._ended = [process for process in self._ended if process.poll() is None]

    async def stop(self) -> None:
        """Break off all reads, and end the workers."""
        self._is_stopped = True
        if self._idle is not None:
            self._idle.cancel()
        for read in self._open:
            read.fault = ReadError(BUSY, "the node is stopping")
        self._end_all()
        for worker in self._ended:
            await asyncio.to_thread(_reap, worker)
        self._ended = []


def _start_worker() -> _Worker:
    mine, its = socket.socketpair()
    with its:
        command = [sys.executable, "-P", "-m", "leveret.arrow.worker", str(its.fileno())]
        try:
            process = subprocess.Popen(
                command,
                pass_fds=[its.fileno()],
                env=_environment(),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
            )
        except OSError as fault:
            mine.close()
            log.error("the worker process of bulk reads cannot be started: %s", fault)
            reason = public_reason(fault)
            raise ReadError(FAILED, f"the worker process cannot be started: {reason}") from fault
    mine.setblocking(False)
    return _Worker(process, mine)


async def _take(taken: AsyncExitStack, places: asyncio.Semaphore, busy: str) -> None:
    """Wait for a place, and hold it until the stack ends. Raise ReadError after `WAIT_S`."""
    try:
        async with asyncio.timeout(WAIT_S):
            await taken.enter_async_context(places)
    except TimeoutError:
        raise ReadError(BUSY, busy) from None


@asynccontextmanager
async def _fed(feeding: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Run a coroutine that feeds the worker during the block."""
    feeder = asyncio.get_running_loop().create_task(feeding)
    try:
        yield
    finally:
        feeder.cancel()
        with suppress(asyncio.CancelledError):
            await feeder


def _environment() -> dict[str, str]:
    """Return the broker's environment, with the same Leveret on the Python path."""
    root = str(Path(leveret.__path__[0]).parent)
    path = os.environ.get("PYTHONPATH", "")
    return {**os.environ, "PYTHONPATH": os.pathsep.join([path, root]) if path else root}


def _reap(worker: subprocess.Popen[bytes]) -> None:
    try:
        worker.wait(_STOP_WITHIN_S)
    except subprocess.TimeoutExpired:
        worker.kill()
        worker.wait()
