"""An answer whose body is read piece by piece from a blocking socket.

It serves bodies that are too large for memory, such as record batches of a stream or a backup.
"""

import io
import socket
from typing import Final

from leveret.errors import system_reason
from leveret.http_client.answers import (
    CHUNKED,
    UNTIL_CLOSE,
    AnswerHead,
    maybe_read_chunk_size,
    maybe_take_head,
)
from leveret.http_client.errors import (
    BadAnswerError,
    CallTimeoutError,
    UnreachableError,
)

READ_BYTES: Final = 256 * 1024


class StreamedAnswer:
    """The head of an answer, and its body as a file for reading.

    Reading raises `UnreachableError` where the connection ends before the body does, and
    `CallTimeoutError` where no byte comes within the timeout of the socket.
    """

    def __init__(self, connected: socket.socket, shown: str) -> None:
        data = bytearray()
        while (head := maybe_take_head(data)) is None:
            data += _receive(connected, shown)
        self.status = head.status
        self.reason = head.reason
        self.headers = head.headers
        self.body = io.BufferedReader(_Body(connected, shown, head, data), READ_BYTES)


class _Body(io.RawIOBase):
    """The bytes of a body, without the frames of its chunks."""

    def __init__(
        self, connected: socket.socket, shown: str, head: AnswerHead, data: bytearray
    ) -> None:
        self._socket = connected
        self._shown = shown
        self._length = head.length
        self._data = data  # received and not yet read
        # Bytes until the end of the body, or of its current chunk.
        self._left = max(head.length, 0)
        self._is_at_end = head.length == 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        if self._length == CHUNKED and not self._left and not self._is_at_end:
            self._begin_chunk()
        if self._is_at_end or not len(buffer):
            return 0
        if not self._data and not self._has_received():
            return 0
        size = min(len(buffer), len(self._data))
        if self._length != UNTIL_CLOSE:
            size = min(size, self._left)
        buffer[:size] = self._data[:size]
        del self._data[:size]
        self._note_read(size)
        return size

    def _has_received(self) -> bool:
        """Receive more bytes; return False at the end of a body that ends with the connection."""
        try:
            self._data += _receive(self._socket, self._shown)
        except UnreachableError:
            if self._length != UNTIL_CLOSE:
                raise
            self._is_at_end = True
        return not self._is_at_end

    def _note_read(self, size: int) -> None:
        if self._length == UNTIL_CLOSE:
            return
        self._left -= size
        if self._left:
            return
        if self._length == CHUNKED:
            self._take_line_end()
        else:
            self._is_at_end = True

    def _begin_chunk(self) -> None:
        while (found := maybe_read_chunk_size(self._data)) is None:
            self._data += _receive(self._socket, self._shown)
        self._left, start = found
        del self._data[:start]
        if not self._left:
            self._take_line_end()
            self._is_at_end = True

    def _take_line_end(self) -> None:
        while len(self._data) < 2:
            self._data += _receive(self._socket, self._shown)
        if self._data[:2] != b"\r\n":
            raise BadAnswerError("the answer comes in chunks that cannot be read")
        del self._data[:2]


def _receive(connected: socket.socket, shown: str) -> bytes:
    """Return the next bytes; UnreachableError where there are none."""
    try:
        data = connected.recv(READ_BYTES)
    except TimeoutError as fault:
        raise CallTimeoutError(f"{shown} did not answer in time") from fault
    except OSError as fault:
        raise UnreachableError(f"{shown}: {system_reason(fault)}") from fault
    if not data:
        raise UnreachableError(f"{shown} closed the connection")
    return data
