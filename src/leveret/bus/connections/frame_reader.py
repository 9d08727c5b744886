"""Read frames before the client library: messages and confirms go to their receivers at once.

The library reads a frame in three pieces: one byte for the type, six for channel and size, then
payload and end octet. It gets every frame that no receiver takes.
"""

import asyncio
from typing import Final

from leveret.bus.connections.content_frames import (
    FRAME_END,
    FRAME_HEAD,
    MESSAGE_BYTES_MAX,
    ContentReceiver,
    MalformedFrameError,
)

# The library drops a connection on which it sees no frame for three heartbeats.
_HEARTBEAT: Final = b"\x08\x00\x00\x00\x00\x00\x00\xce"
_SEEN_EVERY_S: Final = 1.0
_PROTOCOL_HEADER: Final = b"A"  # of "AMQP": a broker that speaks another version
_PROTOCOL_HEADER_BYTES: Final = 8


class FrameReader(asyncio.StreamReader):
    """Wraps the reader of a socket."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        super().__init__()
        self._reader = reader
        self._receivers: dict[int, ContentReceiver] = {}  # by channel
        self._rest = b""  # of the frame that the library reads
        self._loop_of = asyncio.get_running_loop()
        self._seen_s = 0.0  # when the library got a frame

    def add(self, channel: int, receiver: ContentReceiver) -> None:
        """Pass the messages and confirms of a channel to this receiver."""
        self._receivers[channel] = receiver

    def at_eof(self) -> bool:
        return not self._rest and self._reader.at_eof()

    async def read(self, n: int = -1) -> bytes:
        return await self._reader.read(n)

    async def readexactly(self, n: int) -> bytes:
        if not self._rest:
            self._rest = await self._next()
            self._seen_s = self._loop_of.time()
        data, self._rest = self._rest[:n], self._rest[n:]
        return data

    async def _next(self) -> bytes:
        """Return the next frame that no receiver takes."""
        read = self._reader.readexactly
        while True:
            head = await read(FRAME_HEAD.size)
            if head[:1] == _PROTOCOL_HEADER:
                return head + await read(_PROTOCOL_HEADER_BYTES - len(head))
            kind, channel, size_bytes = FRAME_HEAD.unpack(head)
            if size_bytes > MESSAGE_BYTES_MAX:
                raise MalformedFrameError(f"the broker announced a frame of {size_bytes} bytes")
            payload = await read(size_bytes + 1)
            if payload[-1:] != FRAME_END:
                raise MalformedFrameError("the broker sent a frame without its end octet")
            receiver = self._receivers.get(channel)
            if receiver is None or not receiver.take(kind, payload[:-1]):
                return head + payload
            if self._loop_of.time() - self._seen_s > _SEEN_EVERY_S:
                return _HEARTBEAT
