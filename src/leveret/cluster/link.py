"""One connection to another node: the handshake, then frames of messages of all groups.

A `Link` is an asyncio protocol, not a task. It passes whole frames to its owner, and sends the
owner's data in one write. Memory is bounded whatever the peer does: a frame has a size limit, and
frames to a peer that does not read are dropped whole and counted, which Raft tolerates. A peer that
breaks the format, or is silent for too long, loses only its connection.
"""

import asyncio
import logging
import socket
from typing import Final, Protocol, cast

from leveret.cluster.errors import LinkRefusedError
from leveret.cluster.handshake import (
    PURPOSE_NAMES,
    REASONS,
    WELCOME,
    Handshake,
    Listening,
)
from leveret.cluster.raft.codec import (
    FRAME_BYTES_MAX,
    decode_frame,
    encode_frame,
    encode_frames,
    frame_size,
)
from leveret.cluster.raft.entry import NOBODY
from leveret.cluster.raft.messages import Message
from leveret.errors import (
    FieldSyntaxError,
    ProtocolError,
)

log = logging.getLogger(__name__)

HANDSHAKE_S: Final = 5.0
# A frame that has reached this gets no more messages: the peer works on the first of them sooner.
FRAME_BYTES_FULL: Final = 4 * 1024 * 1024
# What waits for a peer that does not read; then frames are dropped. It can be one frame more.
WAITING_BYTES_MAX: Final = 32 * 1024 * 1024
assert FRAME_BYTES_FULL < FRAME_BYTES_MAX


class Owner(Protocol):
    """Who decides about a link and takes what it brings."""

    def judge(self, link: "Link") -> int:
        """The verdict on a node that has connected and knows the secret."""

    def on_open(self, link: "Link") -> None:
        """The handshake is done."""

    def on_messages(self, link: "Link", messages: list[Message], size_bytes: int) -> None:
        """A frame has come."""

    def on_closed(self, link: "Link", reason: str) -> None:
        """It is gone, and why; a reason that is empty is no news."""


class Link(asyncio.Protocol):
    """One connection."""

    def __init__(self, owner: Owner, handshake: Handshake) -> None:
        self._owner = owner
        self._handshake = handshake
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._reason = ""
        self._has_ended = False  # by this side; what still comes is not looked at
        self.address = ""
        self.is_open = False
        self.has_opened = False
        self.refusal = WELCOME  # the code of the refusal, by either side; WELCOME: none
        self.closed: asyncio.Future[None] = self._loop.create_future()
        # Parts of a frame that has not all come, and how many bytes it and they have
        self._parts: list[bytes] = []
        self._parts_bytes = 0
        self._wanted_bytes = 0
        self.received_s = 0.0  # when bytes came last
        self.sent_s = 0.0
        self.dropped = 0  # frames
        self.received_bytes = 0
        self.sent_bytes = 0

    @property
    def peer(self) -> int:
        return self._handshake.peer

    @property
    def purpose(self) -> int:
        return self._handshake.purpose

    @property
    def incarnation(self) -> int:
        return self._handshake.incarnation

    @property
    def is_made(self) -> bool:
        """Whether there is a connection, and so an end of it to wait for."""
        return self._transport is not None

    @property
    def is_dialed(self) -> bool:
        return not isinstance(self._handshake, Listening)

    def __str__(self) -> str:
        who = f"node {self.peer}" if self.peer != NOBODY else "a node that has not said its number"
        where = f" at {self.address}" if self.address else ""
        what = PURPOSE_NAMES.get(self.purpose, "")
        return f"{who}{where}{f' ({what})' if what else ''}"

    # What asyncio calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        made = self._transport = cast(asyncio.Transport, transport)  # uvloop's is no subclass
        if self._has_ended:
            made.abort()  # it was given up before TLS was through
            return
        found = transport.get_extra_info("peername")
        self.address = f"{found[0]}:{found[1]}" if found else "?"
        raw = transport.get_extra_info("socket")
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._deadline = self._loop.call_later(HANDSHAKE_S, self._on_late)
        self.received_s = self._loop.time()
        hello = self._handshake.begin()
        if hello:
            made.write(hello)

    def data_received(self, data: bytes) -> None:
        if self._has_ended:
            return
        self.received_s = self._loop.time()
        self.received_bytes += len(data)
        try:
            if not self.is_open:
                data = self._shake(data)
            if self.is_open and data:
                self._take(data)
        except LinkRefusedError as refusal:
            self._refuse(refusal)
        except ProtocolError as fault:
            self.close(f"it breaks the protocol: {fault}")

    def connection_lost(self, exc: Exception | None) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        was_open, self.is_open = self.is_open, False
        if not self._reason:
            self._reason = str(exc) if exc else ("" if was_open else "it closed the connection")
        if not self.closed.done():
            self.closed.set_result(None)
        self._owner.on_closed(self, self._reason)

    # The handshake

    def _shake(self, data: bytes) -> bytes:
        """Go on with the handshake; what came behind it."""
        answer = self._handshake.feed(data)
        if answer:
            self._write(answer)
        if not self._handshake.is_done:
            return b""
        if isinstance(self._handshake, Listening):
            code = self._owner.judge(self)
            if code != WELCOME:
                raise LinkRefusedError(code, REASONS[code], by_peer=False)
            self._write(self._handshake.verdict(WELCOME))
        assert self._deadline is not None
        self._deadline.cancel()
        self.is_open = True
        self.has_opened = True
        self.sent_s = self._loop.time()
        self._owner.on_open(self)
        return self._handshake.rest()

    def _refuse(self, refusal: LinkRefusedError) -> None:
        self.refusal = refusal.code
        if isinstance(self._handshake, Listening):
            self._write(self._handshake.verdict(refusal.code))
            self.close(f"refused: {refusal}")
        elif refusal.by_peer:
            self.close(f"it refuses this node: {refusal}")
        else:
            self.close(f"not taken: {refusal}")

    def _on_late(self) -> None:
        self.abort(f"no handshake within {HANDSHAKE_S:g} s")

    # Frames

    def _take(self, data: bytes) -> None:
        if self._parts:
            data = self._join(data)
        at, end = 0, len(data)
        while at < end:
            size = frame_size(data, at)
            if size == 0 or size > end - at:
                self._keep(data[at:] if at else data, size)
                return
            whole = data if size == end else data[at : at + size]
            self._on_frame(whole)
            if not self.is_open:
                return
            at += size

    def _keep(self, part: bytes, wanted_bytes: int) -> None:
        self._parts = [part]
        self._parts_bytes = len(part)
        self._wanted_bytes = wanted_bytes  # 0 while not even the size has come

    def _join(self, data: bytes) -> bytes:
        """All that has come of a frame, once it is enough; else nothing. Copies no part twice."""
        self._parts.append(data)
        self._parts_bytes += len(data)
        if self._parts_bytes < self._wanted_bytes:
            return b""
        whole = b"".join(self._parts)
        self._parts = []
        return whole

    def _on_frame(self, frame: bytes) -> None:
        messages = decode_frame(frame)
        if messages:
            first = messages[0]
            if first.source != self.peer or first.target != self._handshake.me.node:
                raise FieldSyntaxError(f"a frame from {first.source} for {first.target}")
            self._owner.on_messages(self, messages, len(frame))

    # Sending

    def send(self, messages: list[Message]) -> None:
        """Send all of a turn; what does not fit is lost."""
        assert self._transport is not None
        for frame in encode_frames(self._handshake.me.node, self.peer, messages, FRAME_BYTES_FULL):
            self._send_frame(frame)

    def ping(self) -> None:
        """Nothing, so that the peer sees that this node is there."""
        self._send_frame(encode_frame(self._handshake.me.node, self.peer, []))

    def _send_frame(self, frame: bytes) -> None:
        assert self._transport is not None
        if len(frame) > FRAME_BYTES_MAX + 4:
            log.error("%s: a frame of %d bytes is more than a node takes", self, len(frame))
            self.dropped += 1
        elif self._transport.get_write_buffer_size() >= WAITING_BYTES_MAX:
            self.dropped += 1
        else:
            self._write(frame)

    def _write(self, data: bytes) -> None:
        assert self._transport is not None
        self.sent_s = self._loop.time()
        self.sent_bytes += len(data)
        self._transport.write(data)

    def pause(self) -> None:
        if self._transport is not None and self._transport.is_reading():
            self._transport.pause_reading()

    def resume(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            if not self._transport.is_reading():
                self._transport.resume_reading()

    def close(self, reason: str) -> None:
        """Send what waits and be gone, within a deadline."""
        self._end(reason)
        if self._transport is not None and not self._transport.is_closing():
            self._transport.close()
            self._deadline = self._loop.call_later(HANDSHAKE_S, self._transport.abort)

    def abort(self, reason: str) -> None:
        """Be gone at once."""
        self._end(reason)
        if self._transport is not None:
            self._transport.abort()

    def _end(self, reason: str) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        self.is_open = False
        self._has_ended = True
        self._parts = []
        self._reason = self._reason or reason
