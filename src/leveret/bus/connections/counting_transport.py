"""The socket of a connection: it counts bytes, and sends the frames of one turn together.

The count tells a broker that is busy with large messages from a silent one. Frames that tasks send
in one turn of the event loop are one write, so that many publishes or acks cost one system call.
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

from leveret.bus.connections.frame_reader import FrameReader

WAITING_BYTES_MAX: Final = 65_536  # of one turn; more is written at once


class CountingTransportFactory(aiormq.connection.TransportFactory):
    """Opens the socket, keeps it, and counts its bytes."""

    def __init__(self) -> None:
        self.writer: asyncio.StreamWriter | None = None
        self.reader: FrameReader | None = None
        self._waiting: list[bytes] = []  # frames of this turn
        self._waiting_bytes = 0
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
        self.reader = FrameReader(reader)
        return self.reader, self.writer

    def send(self, frame: bytes) -> None:
        """Write a frame, together with all others of this turn."""
        if self.writer is None or self.writer.transport.is_closing():
            return
        if not self._waiting:
            asyncio.get_running_loop().call_soon(self.flush)
        self._waiting.append(frame)
        self._waiting_bytes += len(frame)
        if self._waiting_bytes > WAITING_BYTES_MAX:
            self.flush()

    def flush(self) -> None:
        """Write the frames that wait for the end of this turn."""
        if self._waiting and self.writer is not None:
            data = b"".join(self._waiting)
            self._waiting, self._waiting_bytes = [], 0
            if not self.writer.transport.is_closing():
                self.writer.write(data)

    async def wait_for_room(self) -> None:
        """Wait while the peer does not take what was written before."""
        if self.writer is not None:
            await self.writer.drain()

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
            self.flush()  # what was sent earlier goes first
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
