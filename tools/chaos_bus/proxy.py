"""A TCP proxy that knows AMQP frames: it can reset, drop bytes, and insert a frame of its own.

It keeps its port while the broker behind it comes and goes. A frame is put into the client's stream
only between two frames, so the broker sees a client that breaks a rule, and closes its channel.
"""

import asyncio
import contextlib
import socket
import struct
from collections.abc import Callable
from typing import Final

HOST: Final = "127.0.0.1"
READ_BYTES: Final = 65536

_PROTOCOL_HEADER: Final = b"AMQP\x00\x00\x09\x01"
_FRAME_HEAD: Final = struct.Struct(">BHI")
_FRAME_END: Final = b"\xce"
_METHOD: Final = 1
_CONSUME: Final = struct.pack(">HH", 60, 20)
_ACK: Final = struct.pack(">HH", 60, 80)
_UNKNOWN_TAG: Final = 2**40  # a delivery tag that the broker never used
_RESET: Final = struct.pack("ii", 1, 0)  # linger for no time: close by a reset


class Passage:
    """A client's connection and the matching connection to the broker."""

    def __init__(
        self,
        client: asyncio.StreamWriter,
        broker: asyncio.StreamWriter,
        on_consume: Callable[[], None],
    ) -> None:
        self.client = client
        self.broker = broker
        self.consuming_channel: int | None = None
        self.is_black_hole = False
        self._unread = b""  # bytes of the client that are not a whole frame yet
        self._has_greeted = False
        self._on_consume = on_consume

    def whole_frames(self, data: bytes) -> bytes:
        """Return the client's bytes that can be sent on without splitting a frame."""
        self._unread += data
        end = 0
        if not self._has_greeted and self._unread.startswith(_PROTOCOL_HEADER):
            self._has_greeted = True
            end = len(_PROTOCOL_HEADER)
        while len(self._unread) >= end + _FRAME_HEAD.size:
            kind, channel, size = _FRAME_HEAD.unpack_from(self._unread, end)
            start = end + _FRAME_HEAD.size
            if len(self._unread) < start + size + 1:
                break
            if kind == _METHOD and self._unread.startswith(_CONSUME, start):
                self.consuming_channel = channel
                self._on_consume()
            end = start + size + 1
        whole, self._unread = self._unread[:end], self._unread[end:]
        return whole

    def break_channel(self) -> None:
        """Send an ack with an unknown tag in the client's name."""
        assert self.consuming_channel is not None
        payload = _ACK + struct.pack(">QB", _UNKNOWN_TAG, 0)
        head = _FRAME_HEAD.pack(_METHOD, self.consuming_channel, len(payload))
        self.broker.write(head + payload + _FRAME_END)

    def reset(self) -> None:
        """Close both sockets by a reset."""
        for writer in (self.client, self.broker):
            found: socket.socket = writer.get_extra_info("socket")
            with contextlib.suppress(OSError):
                found.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            writer.transport.abort()


class Proxy:
    """Listens on a port and forwards to a broker."""

    def __init__(self, broker_port: int) -> None:
        self.broker_port = broker_port
        self.port = 0
        self.passages: set[Passage] = set()
        self.consumes = 0  # number of basic.consume so far
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        """Listen on a free port."""
        self._server = await asyncio.start_server(self._on_client, HOST, 0)
        self.port = int(self._server.sockets[0].getsockname()[1])

    async def stop(self) -> None:
        """Close everything."""
        assert self._server is not None
        self._server.close()
        for passage in list(self.passages):
            passage.reset()
        await self._server.wait_closed()

    def _on_consume(self) -> None:
        self.consumes += 1

    @property
    def url(self) -> str:
        """The address for clients."""
        return f"amqp://guest:guest@{HOST}:{self.port}/"

    async def _on_client(
        self, from_client: asyncio.StreamReader, to_client: asyncio.StreamWriter
    ) -> None:
        try:
            from_broker, to_broker = await asyncio.open_connection(HOST, self.broker_port)
        except OSError:
            to_client.transport.abort()
            return
        passage = Passage(to_client, to_broker, self._on_consume)
        self.passages.add(passage)
        try:
            async with asyncio.TaskGroup() as pumps:
                pumps.create_task(self._to_broker(passage, from_client))
                pumps.create_task(self._to_client(passage, from_broker))
        finally:
            self.passages.discard(passage)

    async def _to_broker(self, passage: Passage, reader: asyncio.StreamReader) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(READ_BYTES):
                whole = passage.whole_frames(data)
                if not passage.is_black_hole:
                    passage.broker.write(whole)
                    await passage.broker.drain()
        # A peer behind a black hole does not learn that the other one has gone.
        if not passage.is_black_hole:
            passage.broker.close()

    async def _to_client(self, passage: Passage, reader: asyncio.StreamReader) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(READ_BYTES):
                if not passage.is_black_hole:
                    passage.client.write(data)
                    await passage.client.drain()
        if not passage.is_black_hole:
            passage.client.close()
