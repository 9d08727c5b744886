"""The socket of a connection: what passes is counted, and what cannot be read can be made readable.

The count tells a broker that is busy with large messages from one that is silent. `CarefulReader`
stands before the client library once a broker has sent something that the library cannot decode;
before that it would only cost time.
"""

import asyncio
import fcntl
import struct
import termios
from typing import Any, Final

import aiormq.connection
from yarl import URL

from leveret.bus.connections.readable import readable

_CONTENT_HEADER: Final = 2  # the type of its frame
_TYPE_BYTES: Final = 1
_REST_BYTES: Final = 6  # of a frame's head: the channel and the size


class Transports(aiormq.connection.TransportFactory):
    """Opens the socket and remembers it."""

    def __init__(self, *, is_careful: bool) -> None:
        self.writer: asyncio.StreamWriter | None = None
        self._is_careful = is_careful
        self._read_bytes = 0
        self._written_bytes = 0

    async def create(
        self, url: URL, **kwargs: Any
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        is_tls = url.scheme == "amqps"
        factory = (
            aiormq.connection.TLSTransportFactory()
            if is_tls
            else aiormq.connection.TCPTransportFactory()
        )
        reader, self.writer = await factory.create(url, **kwargs)
        self._count(reader, self.writer)
        return CarefulReader(reader) if self._is_careful else reader, self.writer

    @property
    def passed_bytes(self) -> int:
        """That came in, and that the other side has acknowledged."""
        if self.writer is None:
            return 0
        waiting_bytes = self.writer.transport.get_write_buffer_size() + _unsent_bytes(self.writer)
        return self._read_bytes + self._written_bytes - waiting_bytes

    def cut(self) -> None:
        """Drop the socket, where there is one."""
        if self.writer is not None:
            self.writer.transport.abort()

    def _count(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        feed, write = reader.feed_data, writer.write

        def counted_feed(data: Any) -> None:
            self._read_bytes += len(data)
            feed(data)

        def counted_write(data: Any) -> None:
            self._written_bytes += len(data)
            write(data)

        reader.feed_data = counted_feed  # type: ignore[method-assign]
        writer.write = counted_write  # type: ignore[method-assign]


def _unsent_bytes(writer: asyncio.StreamWriter) -> int:
    """In the kernel's buffer, which may take a large message at once; 0 where it does not say."""
    try:
        descriptor = writer.get_extra_info("socket").fileno()
        return int(struct.unpack("i", fcntl.ioctl(descriptor, termios.TIOCOUTQ, bytes(4)))[0])
    except (OSError, ValueError, AttributeError):
        return 0


class CarefulReader(asyncio.StreamReader):
    """Another reader, whose content headers can all be decoded.

    It is read as the client library reads: the type of a frame, the rest of its head, then all that
    follows in one piece.
    """

    def __init__(self, reader: asyncio.StreamReader) -> None:
        super().__init__()
        self._reader = reader
        self._type = 0
        self._rest = b""  # of a frame whose head has been given out

    def at_eof(self) -> bool:
        return not self._rest and self._reader.at_eof()

    async def read(self, n: int = -1) -> bytes:
        return await self._reader.read(n)

    async def readexactly(self, n: int) -> bytes:
        if self._rest:
            data, self._rest = self._rest[:n], self._rest[n:]
            return data
        data = await self._reader.readexactly(n)
        if n == _TYPE_BYTES:
            self._type = data[0]
        elif n == _REST_BYTES and self._type == _CONTENT_HEADER:
            return await self._header(data)
        return data

    async def _header(self, head: bytes) -> bytes:
        channel, size_bytes = struct.unpack(">HI", head)
        frame = await self._reader.readexactly(size_bytes + 1)
        payload = readable(frame[:-1])
        self._rest = payload + frame[-1:]
        return struct.pack(">HI", channel, len(payload))
