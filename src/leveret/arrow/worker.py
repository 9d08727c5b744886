"""The worker: the process that encodes. `python -m leveret.arrow.worker FD` is started by `reads`.

FD is a socket over which the broker hands in one socket for each read; when it ends the worker
ends, at once. Each read has a thread: it waits most of the time for a client that takes the bytes.
The broker comes first: the worker asks the system for less than its share.
"""

import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any, Final

from leveret.arrow.frames import (
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
    frame,
    note_frame,
)
from leveret.arrow.requests import Request, RetentionPassedError, decode_request
from leveret.errors import LeveretError

NICENESS: Final = 5
CHUNK_BYTES_MAX: Final = (1 << 32) - 1
INSTALL: Final = "reading a stream in bulk needs pyarrow: pip install 'leveret[arrow]'"


class ReadCancelledError(Exception):
    """The broker has given the read up: nobody wants to know any more."""


class Connection:
    """The socket of one read."""

    def __init__(self, peer: socket.socket) -> None:
        self._peer = peer

    def receive(self, kind: int, bytes_max: int) -> bytes:
        """The payload of the next frame, which must be of a kind."""
        found, size = HEAD.unpack(self._exactly(HEAD.size))
        if found != kind or size > bytes_max:
            raise ReadCancelledError
        return bytes(self._exactly(size))

    def receive_chunk(self) -> bytes:
        return self.receive(CHUNK, CHUNK_BYTES_MAX)

    def receive_packs(self) -> Iterator[tuple[bytes, bytes]]:
        """Packs of a queue, until there are no more."""
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


# From a request and the socket over which chunks may come: the pieces of the answer.
Encode = Callable[[Request, Connection], Iterator[Any]]


def answer(peer: socket.socket, encode: Encode | None) -> None:
    """One read, from request to end."""
    connection = Connection(peer)
    try:
        data = connection.receive(REQUEST, NOTE_BYTES_MAX)
        if encode is None:
            connection.send(note_frame(STATUS, MISSING, INSTALL))
        else:
            _answer(connection, encode(decode_request(data), connection))
    except ReadCancelledError:
        return
    finally:
        peer.close()


def _answer(connection: Connection, pieces: Iterator[Any]) -> None:
    """Say that it begins when the first rows are there: what fails before can still be told."""
    kind = STATUS
    try:
        beginning = [next(pieces), next(pieces)]  # the schema; rows, or the end marker
        connection.send(frame(STATUS))
        kind = FAULT
        for piece in chain(beginning, pieces):
            connection.send_data(piece)
        connection.send(frame(END))
    except ReadCancelledError:
        raise
    except RetentionPassedError as fault:
        connection.send(note_frame(kind, GONE, str(fault)))
    except LeveretError as fault:
        connection.send(note_frame(kind, DAMAGED, str(fault)))
    except Exception as fault:  # whatever it is, the broker can say it, and the next read may work
        connection.send(note_frame(kind, FAILED, f"{type(fault).__name__}: {fault}"))


def load() -> Encode | None:
    """The encoder; None where pyarrow is not installed."""
    try:
        from leveret.arrow.encoding import encode, encode_packs
    except ModuleNotFoundError as fault:
        if fault.name != "pyarrow":
            raise
        return None
    from leveret.arrow.segments import Indexes, chunks_of_files, chunks_received

    indexes = Indexes()

    def encode_request(request: Request, connection: Connection) -> Iterator[Any]:
        first, end, parts = request.first, request.end, request.segments
        if request.is_of_queue:
            return encode_packs(request, connection.receive_packs())
        if parts is None:
            chunks = chunks_received(connection.receive_chunk, first, end)
        else:
            chunks = chunks_of_files(parts, request.number, first, end, indexes)
        return encode(request, chunks)

    return encode_request


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl+C is for the broker, which ends us
    os.nice(NICENESS)
    control = socket.socket(fileno=int(sys.argv[1]))
    encode = load()
    while True:
        data, descriptors, _, _ = socket.recv_fds(control, 1, 1)
        if not data:
            break
        for descriptor in descriptors:
            peer = socket.socket(fileno=descriptor)
            threading.Thread(target=answer, args=(peer, encode), daemon=True).start()
    os._exit(0)  # threads may be in the middle of a read that nobody wants


if __name__ == "__main__":
    main()
