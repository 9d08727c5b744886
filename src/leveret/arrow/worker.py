"""The worker process that encodes. `bulk_reads` starts it as `python -m leveret.arrow.worker FD`.

FD is a socket over which the broker passes one socket for each read. When FD ends, the worker ends
at once. Each read has its own thread, which mostly waits for its client to take bytes. The worker
encodes with a lower priority than the broker.
"""

import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any, Final

from leveret.arrow.requests import Request, RetentionPassedError, decode_request
from leveret.arrow.worker_protocol import (
    CHUNK,
    DAMAGED,
    DATA,
    END,
    FAILED,
    FAULT,
    GONE,
    HEAD,
    MISSING,
    NOTE_BYTES_MAX,
    NUMBERS,
    REQUEST,
    STATUS,
    fault_frame,
    frame,
)
from leveret.errors import LeveretError, public_reason

NICENESS: Final = 5
CHUNK_BYTES_MAX: Final = (1 << 32) - 1
# pyarrow loads these if they are installed. Encoding needs neither, and they take twice the CPU
# time of all other imports of a worker.
UNUSED: Final = ("numpy", "pandas")
INSTALL: Final = "reading a stream in bulk needs pyarrow: pip install 'leveret[arrow]'"


class ReadCancelledError(Exception):
    """The broker has cancelled the read."""


class Connection:
    """The socket of one read."""

    def __init__(self, peer: socket.socket) -> None:
        self._peer = peer

    def receive(self, kind: int, bytes_max: int) -> bytes:
        """Return the payload of the next frame, which must be of this kind."""
        found, size = HEAD.unpack(self._exactly(HEAD.size))
        if found != kind or size > bytes_max:
            raise ReadCancelledError
        return bytes(self._exactly(size))

    def receive_chunk(self) -> bytes:
        return self.receive(CHUNK, CHUNK_BYTES_MAX)

    def receive_queue_chunks(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield the chunks of a queue."""
        while True:
            kind, size = HEAD.unpack(self._exactly(HEAD.size))
            if kind == END:
                return
            if kind != NUMBERS:
                raise ReadCancelledError
            yield bytes(self._exactly(size)), self.receive_chunk()

    def _exactly(self, size: int) -> bytearray:
        data = bytearray(size)
        view = memoryview(data)
        while view:
            try:
                count = self._peer.recv_into(view)
            except OSError as fault:
                raise ReadCancelledError from fault
            if count == 0:
                raise ReadCancelledError
            view = view[count:]
        return data

    def send(self, *pieces: Any) -> None:
        try:
            for piece in pieces:
                self._peer.sendall(piece)
        except OSError as fault:
            raise ReadCancelledError from fault

    def send_data(self, piece: Any) -> None:
        view = memoryview(piece)
        self.send(HEAD.pack(DATA, len(view)), view)


# From a request, and the socket for chunks, to the pieces of the answer.
Encode = Callable[[Request, Connection], Iterator[Any]]


def answer(peer: socket.socket, encode: Encode | None) -> None:
    """Serve one read, from request to end."""
    connection = Connection(peer)
    try:
        data = connection.receive(REQUEST, NOTE_BYTES_MAX)
        if encode is None:
            connection.send(fault_frame(STATUS, MISSING, INSTALL))
        else:
            _answer(connection, encode(decode_request(data), connection))
    except ReadCancelledError:
        return
    finally:
        peer.close()


def _answer(connection: Connection, pieces: Iterator[Any]) -> None:
    """Send the answer. The status waits for the first rows, so that it can report early faults."""
    kind = STATUS
    try:
        beginning = [next(pieces), next(pieces)]  # the schema; then rows, or the end marker
        connection.send(frame(STATUS))
        kind = FAULT
        for piece in chain(beginning, pieces):
            connection.send_data(piece)
        connection.send(frame(END))
    except ReadCancelledError:
        raise
    except RetentionPassedError as fault:
        connection.send(fault_frame(kind, GONE, str(fault)))
    except LeveretError as fault:
        connection.send(fault_frame(kind, DAMAGED, str(fault)))
    except Exception as fault:  # report every error to the broker; the next read may work
        sys.stderr.write(f"a bulk read failed: {fault!r}\n")
        reason = f"{type(fault).__name__}: {public_reason(fault)}"
        connection.send(fault_frame(kind, FAILED, reason))


def load_encoder() -> Encode | None:
    """Return the encoder; None if pyarrow is not installed."""
    for name in UNUSED:
        sys.modules.setdefault(name, None)  # type: ignore[arg-type]  # it cannot be imported now
    try:
        from leveret.arrow.encoding import encode, encode_queue
    except ModuleNotFoundError as fault:
        if fault.name != "pyarrow":
            raise
        return None
    from leveret.arrow.chunk_sources import ChunkPositions, chunks_from_broker, chunks_from_files

    indexes = ChunkPositions()

    def encode_request(request: Request, connection: Connection) -> Iterator[Any]:
        first, end, parts = request.first, request.end, request.segments
        if request.is_of_queue:
            return encode_queue(request, connection.receive_queue_chunks())
        if parts is None:
            chunks = chunks_from_broker(connection.receive_chunk, first, end)
        else:
            chunks = chunks_from_files(parts, request.number, first, end, indexes)
        return encode(request, chunks)

    return encode_request


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl+C is for the broker, which stops the worker
    control = socket.socket(fileno=int(sys.argv[1]))
    encode = load_encoder()
    os.nice(NICENESS)  # not before: a client waits for the first read while pyarrow is loaded
    while True:
        data, descriptors, _, _ = socket.recv_fds(control, 1, 1)
        if not data:
            break
        for descriptor in descriptors:
            peer = socket.socket(fileno=descriptor)
            threading.Thread(target=answer, args=(peer, encode), daemon=True).start()
    os._exit(0)  # threads may be in the middle of a cancelled read


if __name__ == "__main__":
    main()
