"""The socket of a connection: it counts bytes, and can repair content headers.

The count tells a broker that is busy with large messages from a silent one. A
`HeaderRepairingReader` is put before the client library only after the broker has sent a message
that the library cannot decode, because it costs time.
"""

import asyncio
import fcntl
import struct
import termios
from typing import Any, Final

import aiormq.connection
import pamqp.exceptions
import pamqp.frame
from aiormq import spec
from yarl import URL

from leveret.bus.connections.header_repair import repair_content_header

_FRAME_HEADER: Final = 2  # frame type of a content header
_TYPE_BYTES: Final = 1
_CHANNEL_AND_SIZE_BYTES: Final = 6


class CountingTransportFactory(aiormq.connection.TransportFactory):
    """Opens the socket, keeps it, and counts its bytes."""

    def __init__(self, *, repairs_headers: bool) -> None:
        self.writer: asyncio.StreamWriter | None = None
        self._repairs_headers = repairs_headers
        self._read_bytes = 0
        self._written_bytes = 0
        self._last_read = b""

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
        return HeaderRepairingReader(reader) if self._repairs_headers else reader, self.writer

    @property
    def passed_bytes(self) -> int:
        """Bytes that were received, plus sent bytes that the peer's TCP has acknowledged."""
        if self.writer is None:
            return 0
        waiting_bytes = self.writer.transport.get_write_buffer_size() + _unsent_bytes(self.writer)
        return self._read_bytes + self._written_bytes - waiting_bytes

    def maybe_close(self) -> spec.Connection.Close | None:
        """Return the connection.close that was read last, if it was one.

        aiormq does not tell its text if it comes instead of connection.open-ok.
        """
        try:
            frame = pamqp.frame.unmarshal(bytes(self._last_read))[2]
        except pamqp.exceptions.PAMQPException:
            return None
        return frame if isinstance(frame, spec.Connection.Close) else None

    def abort(self) -> None:
        """Drop the socket, if it is open."""
        if self.writer is not None:
            self.writer.transport.abort()

    def _count(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        feed, write = reader.feed_data, writer.write

        def counted_feed(data: Any) -> None:
            self._read_bytes += len(data)
            self._last_read = data
            feed(data)

        def counted_write(data: Any) -> None:
            self._written_bytes += len(data)
            write(data)

        reader.feed_data = counted_feed  # type: ignore[method-assign]
        writer.write = counted_write  # type: ignore[method-assign]


def _unsent_bytes(writer: asyncio.StreamWriter) -> int:
    """Return the bytes in the kernel's send buffer, 0 if unknown. It can hold a large message."""
    try:
        descriptor = writer.get_extra_info("socket").fileno()
        return int(struct.unpack("i", fcntl.ioctl(descriptor, termios.TIOCOUTQ, bytes(4)))[0])
    except (OSError, ValueError, AttributeError):
        return 0


class HeaderRepairingReader(asyncio.StreamReader):
    """Wraps a reader and repairs the content headers that pass.

    It relies on how the client library reads a frame: one byte for the type, six for channel and
    size, then payload and end octet in one piece.
    """

    def __init__(self, reader: asyncio.StreamReader) -> None:
        super().__init__()
        self._reader = reader
        self._type = 0
        self._rest = b""  # repaired payload of the frame whose head was read

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
        elif n == _CHANNEL_AND_SIZE_BYTES and self._type == _FRAME_HEADER:
            return await self._header(data)
        return data

    async def _header(self, head: bytes) -> bytes:
        channel, size_bytes = struct.unpack(">HI", head)
        frame = await self._reader.readexactly(size_bytes + 1)
        payload = repair_content_header(frame[:-1])
        self._rest = payload + frame[-1:]
        return struct.pack(">HI", channel, len(payload))
