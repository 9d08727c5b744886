"""One connection to another node: the handshake, then frames, or the bytes of one client.

    frame    = size:u32 kind:u8 body                 size counts what follows it
    PING     =                                       the sender is alive
    MESSAGES = …                                     of Raft: `leveret.cluster.raft.codec`
    REQUEST  = id:u32 kind:u8 payload                what one node asks of another
    ANSWER   = id:u32 is_done:u8 text
    DATA     = payload                               of the owner, for copies of directories
    BYE      = code:u8 sentence                      why the connection ends

A `Link` is an asyncio protocol, not a task. It decodes frames in its own buffer, and sends frames
as lists of pieces, so that large blocks are never joined. Memory is bounded whatever the peer does:
a frame has a size limit, and frames to a peer that does not read are dropped whole and counted,
which Raft tolerates. A peer that breaks the format, or is silent for too long, loses only its
connection. It is compiled, because every block passes it on each node.
"""

import asyncio
import socket
from typing import Final, cast

from leveret.cluster.errors import LinkRefusedError
from leveret.cluster.handshake import (
    BULK,
    PURPOSE_NAMES,
    RELAY,
    SENTENCE_BYTES_MAX,
    WELCOME,
    Card,
    Handshake,
    Listening,
)
from leveret.cluster.link_owner import LinkOwner
from leveret.cluster.raft.codec import (
    FRAME_BYTES_MAX,
    MESSAGES,
    SIZE_BYTES,
    decode_messages,
    encode_frames,
)
from leveret.cluster.raft.messages import Message
from leveret.cluster.relay import take_head
from leveret.errors import FieldSyntaxError, FrameError, ProtocolError, system_reason

HANDSHAKE_S: Final = 5.0
# A frame that has reached this gets no more messages: the peer works on the first of them sooner.
FRAME_BYTES_FULL: Final = 4 * 1024 * 1024
# Bytes that may wait for a peer that does not read, plus one frame. Then frames are dropped.
WAITING_BYTES_MAX: Final = 32 * 1024 * 1024
# A sender of DATA waits while this many bytes wait for the peer.
DATA_WAITING_BYTES_MAX: Final = 1024 * 1024
DATA_BYTES_MAX: Final = 1024 * 1024 + 16  # a slice of a file, and what the owner says about it
REQUEST_BYTES_MAX: Final = 64 * 1024
BUFFER_BYTES: Final = 256 * 1024
BULK_BUFFER_BYTES: Final = 2 * DATA_BYTES_MAX  # with less, each frame would need a new buffer
STRANGER_BUFFER_BYTES: Final = 4 * 1024
GROWN_BUFFER_BYTES: Final = 16 * 1024 * 1024  # for a large frame, until half of it is filled
GROWTH: Final = 4  # then the buffer gets so many times the bytes that have come
assert FRAME_BYTES_FULL < FRAME_BYTES_MAX

PING: Final = 0
REQUEST: Final = 2
ANSWER: Final = 3
DATA: Final = 4
BYE: Final = 5

REFUSED: Final = "refused: "  # how the reason of a connection that this node refuses begins
REFUSED_BY_PEER: Final = "it refuses this node: "  # likewise, if the other node refuses it

_PING_FRAME: Final = b"\0\0\0\1\0"


class Link:
    """One connection: has the methods of an asyncio.BufferedProtocol."""

    def __init__(self, owner: LinkOwner["Link"], handshake: Handshake, target: str = "") -> None:
        self._owner = owner
        self._handshake = handshake
        self._target = target  # the name of the node that is dialed
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._reason = ""
        self._has_ended = False  # by this side; bytes that still arrive are ignored
        self._is_judged = False
        self.address = ""
        self.is_open = False
        self.has_opened = False
        self.is_surplus = False  # another connection with the same peer is kept instead
        self.refusal = WELCOME  # the code of the refusal, by either side; WELCOME: none
        self.is_refused_by_peer = False
        self.opened: asyncio.Future[None] = self._loop.create_future()  # open, or ended
        self.closed: asyncio.Future[None] = self._loop.create_future()
        # Received bytes are in the buffer from `_at` to `_end`.
        self._buffer = memoryview(bytearray(STRANGER_BUFFER_BYTES))
        self._at = 0
        self._end_at = 0
        self._buffer_bytes = BUFFER_BYTES  # of a buffer that holds no large frame
        self._relay_data = b""  # of a relay whose head has not all come
        self._is_write_paused = False
        self.received_s = 0.0  # when bytes came last
        self._seen_bytes = 0  # `received_bytes` at the last look of `is_receiving`
        self.sent_s = 0.0
        self.dropped = 0  # frames
        self.received_bytes = 0
        self.sent_bytes = 0

    @property
    def card(self) -> Card | None:
        """The peer's card, once the peer has shown that it knows the secret."""
        return self._handshake.card

    @property
    def peer(self) -> str:
        card = self._handshake.card
        return self._target if card is None else card.name

    @property
    def target(self) -> str:
        """The name of the node that the dialing side looks for."""
        handshake = self._handshake
        return handshake.target if isinstance(handshake, Listening) else self._target

    @property
    def purpose(self) -> int:
        return self._handshake.purpose

    @property
    def incarnation(self) -> int:
        card = self._handshake.card
        return 0 if card is None else card.incarnation

    @property
    def is_proven(self) -> bool:
        return self._handshake.is_proven

    @property
    def reason(self) -> str:
        """The reason why the connection has ended; empty if it needs no log line."""
        return self._reason

    @property
    def is_made(self) -> bool:
        """True if the connection was made, so that its end will be reported."""
        return self._transport is not None

    @property
    def is_dialed(self) -> bool:
        return not isinstance(self._handshake, Listening)

    @property
    def transport(self) -> asyncio.Transport:
        assert self._transport is not None
        return self._transport

    def __str__(self) -> str:
        who = f"node {self.peer}" if self.peer else "an unknown node"
        where = f" at {self.address}" if self.address else ""
        what = PURPOSE_NAMES.get(self.purpose, "")
        return f"{who}{where}{f' ({what})' if what else ''}"

    # Methods that asyncio calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        made = self._transport = cast(asyncio.Transport, transport)  # uvloop's is no subclass
        if self._has_ended:
            made.abort()  # it was given up before TLS was through
            return
        found = transport.get_extra_info("peername")
        self.address = f"{found[0]}:{found[1]}" if found else "?"
        raw = transport.get_extra_info("socket")
        if raw is not None:
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._deadline = self._loop.call_later(HANDSHAKE_S, self._on_late)
        self.received_s = self._loop.time()
        hello = self._handshake.begin()
        if hello:
            made.write(hello)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer[self._end_at :]

    def buffer_updated(self, nbytes: int) -> None:
        if self._has_ended:
            self._end_at = 0
            return
        self.received_s = self._loop.time()
        self.received_bytes += nbytes
        self._end_at += nbytes
        try:
            if self.is_open:
                self._take_frames()
            else:
                self._shake()
        except LinkRefusedError as refusal:
            self._refuse(refusal)
        except ProtocolError as fault:
            if self._handshake.is_done:
                self.close(f"it breaks the protocol between nodes: {fault}")
            else:
                self.close(
                    f"it does not speak the protocol between nodes ({fault}): nothing but nodes "
                    "may connect to --cluster-listen, and --cluster-peers must name these addresses"
                )

    def is_receiving(self) -> bool:
        """Return True if a part of a frame is here that has grown since the last look."""
        has_grown = self.received_bytes > self._seen_bytes
        self._seen_bytes = self.received_bytes
        return has_grown and self._end_at > self._at

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        self._is_write_paused = True

    def resume_writing(self) -> None:
        self._is_write_paused = False
        if self.is_open:
            self._owner.on_writable(self)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        was_open, self.is_open = self.is_open, False
        if not self._reason:
            at_end = "" if was_open else "it closed the connection"
            self._reason = system_reason(exc) if exc else at_end
        for future in (self.opened, self.closed):
            if not future.done():
                future.set_result(None)
        self._owner.on_closed(self, self._reason)

    # The handshake

    def _shake(self) -> None:
        """Continue the handshake, or the head of a relay."""
        data = bytes(self._buffer[: self._end_at])
        self._end_at = 0
        handshake = self._handshake
        if not handshake.is_done:
            answer = handshake.feed(data)
            if handshake.card is not None and not self._is_judged:
                self._is_judged = True
                self._owner.check_peer(self)
            if answer:
                self._write([answer])
            if not self._is_shaken():
                return
            data = handshake.rest()
        if self.purpose == RELAY and not self.is_dialed:
            self._take_relay(data)
        else:
            self._open(data)

    def _is_shaken(self) -> bool:
        return self._handshake.is_done

    def _open(self, rest: bytes) -> None:
        assert self._deadline is not None
        self._deadline.cancel()
        self.is_open = True
        self.has_opened = True
        if self.purpose == RELAY:
            self.transport.pause_reading()
            self._relay_data = rest
        else:
            if self.purpose == BULK:
                self._buffer_bytes = BULK_BUFFER_BYTES
            size = max(self._buffer_bytes, len(rest) + SIZE_BYTES)
            self._buffer = memoryview(bytearray(size))
            self._buffer[: len(rest)] = rest
            self._end_at = len(rest)
            self.transport.set_write_buffer_limits(DATA_WAITING_BYTES_MAX)
        self.sent_s = self._loop.time()
        if not self.opened.done():
            self.opened.set_result(None)
        self._owner.on_open(self)
        if self._end_at and self.is_open:
            self._take_frames()

    def _take_relay(self, data: bytes) -> None:
        self._relay_data += data
        found = take_head(self._relay_data)
        if found is None:
            return
        head, rest = found
        assert self._deadline is not None
        self._deadline.cancel()
        self.is_open = True
        self.has_opened = True
        self.transport.pause_reading()
        self._owner.on_relay(self, head, rest)

    def take_relay(self) -> tuple[asyncio.Transport, bytes]:
        """Give a dialed relay connection away, paused, with the bytes that came already."""
        assert self.purpose == RELAY
        rest, self._relay_data = self._relay_data, b""
        return self.transport, rest

    def _refuse(self, refusal: LinkRefusedError) -> None:
        """End the handshake with a sentence; the peer is told if it is this node that refuses."""
        self.refusal = refusal.code
        if refusal.by_peer:
            self.is_refused_by_peer = True
            self.close(f"{REFUSED_BY_PEER}{refusal}")
        else:
            self._write([self._handshake.refuse(refusal.code, str(refusal))])
            self.close(f"{REFUSED}{refusal}")

    def _on_late(self) -> None:
        self.abort(f"no handshake within {HANDSHAKE_S:g} s")

    # Frames

    def _take_frames(self) -> None:
        at, end = self._at, self._end_at
        buffer = self._buffer
        while end - at >= SIZE_BYTES:
            size = int.from_bytes(buffer[at : at + SIZE_BYTES], "big")
            if size == 0 or size > FRAME_BYTES_MAX:
                raise FrameError(f"a frame of {size} bytes")
            next_at = at + SIZE_BYTES + size
            if next_at > end:
                break
            self._on_frame(buffer[at + SIZE_BYTES : next_at])
            if not self.is_open:
                return
            at = next_at
        self._keep(at, end)

    def _keep(self, at: int, end: int) -> None:
        """Keep the part of a frame that has come, with room for all of it."""
        if at == end:
            self._at = self._end_at = 0
            if len(self._buffer) > self._buffer_bytes:
                self._buffer = memoryview(bytearray(self._buffer_bytes))
            return
        wanted = SIZE_BYTES
        if end - at >= SIZE_BYTES:
            wanted += int.from_bytes(self._buffer[at : at + SIZE_BYTES], "big")
        part_bytes, room = end - at, len(self._buffer)
        if wanted > room and (room < GROWN_BUFFER_BYTES or 2 * part_bytes > room):
            # The rest of the frame is received into its place. A buffer of the largest size takes
            # half a second to make, so it grows with the bytes that come, not with a bare size.
            size = min(wanted, max(GROWN_BUFFER_BYTES, GROWTH * part_bytes))
            grown = memoryview(bytearray(size))
            grown[:part_bytes] = self._buffer[at:end]
            self._buffer = grown
            at, end = 0, part_bytes
        elif at > 0 and at + max(wanted, BUFFER_BYTES // 2) > room:
            part = bytes(self._buffer[at:end])
            self._buffer[: len(part)] = part
            at, end = 0, len(part)
        self._at, self._end_at = at, end

    def _on_frame(self, frame: memoryview) -> None:
        kind = frame[0]
        if kind == MESSAGES:
            messages = decode_messages(frame)
            if messages:
                self._owner.on_messages(self, messages, len(frame))
        elif kind == DATA:
            self._owner.on_data(self, bytes(frame[1:]))
        elif kind != PING:
            self._on_rare(kind, bytes(frame[1:]))

    def _on_rare(self, kind: int, body: bytes) -> None:
        if len(body) > REQUEST_BYTES_MAX:
            raise FrameError(f"a request of {len(body)} bytes")
        if kind in (REQUEST, ANSWER) and len(body) >= 5:
            number, code = int.from_bytes(body[:4], "big"), body[4]
            if kind == REQUEST:
                self._owner.on_request(self, number, code, body[5:])
            else:
                self._owner.on_answer(self, number, code == 1, _to_line(body[5:]))
        elif kind == BYE and body:
            raise LinkRefusedError(
                body[0], _to_line(body[1 : 1 + SENTENCE_BYTES_MAX]), by_peer=True
            )
        else:
            raise FieldSyntaxError(f"a frame of kind {kind} and {len(body)} bytes")

    # Sending

    def send(self, source: int, target: int, messages: list[Message]) -> None:
        """Send all messages of a turn. Drop those that do not fit."""
        for pieces in encode_frames(source, target, messages, FRAME_BYTES_FULL):
            self._send_frame(pieces)

    def ping(self) -> None:
        """Tell the peer that this node is alive."""
        self._send_frame([_PING_FRAME])

    def send_request(self, number: int, kind: int, payload: bytes) -> None:
        self._send_frame([_frame(REQUEST, number.to_bytes(4, "big") + bytes([kind]) + payload)])

    def send_answer(self, number: int, is_done: bool, text: str) -> None:
        body = number.to_bytes(4, "big") + bytes([is_done]) + text.encode()
        self._send_frame([_frame(ANSWER, body[:REQUEST_BYTES_MAX])])

    def send_data(self, *pieces: bytes) -> bool:
        """Send bytes to the owner of the other node; return False if there is no room for them.

        The pieces arrive as one. They are not joined here, because that would copy large ones.
        """
        size = sum(map(len, pieces))
        assert size <= DATA_BYTES_MAX
        head = (size + 1).to_bytes(SIZE_BYTES, "big") + bytes([DATA])
        return self._send_frame([head, *pieces])

    def may_send_data(self) -> bool:
        """Return False while much waits for the peer; `on_writable` tells when it is sent."""
        return self.is_open and not self._is_write_paused

    def close_with_reason(self, refusal: LinkRefusedError) -> None:
        """End an open connection, and tell the peer why."""
        self.refusal = refusal.code
        if self.is_open:
            self._send_frame([_frame(BYE, bytes([refusal.code]) + str(refusal).encode())])
        self.close(f"{REFUSED}{refusal}")

    def _send_frame(self, pieces: list[bytes]) -> bool:
        if self.transport.get_write_buffer_size() >= WAITING_BYTES_MAX:
            self.dropped += 1
            return False
        self._write(pieces)
        return True

    def _write(self, pieces: list[bytes]) -> None:
        self.sent_s = self._loop.time()
        self.sent_bytes += sum(map(len, pieces))
        if len(pieces) == 1:
            self.transport.write(pieces[0])
        else:
            self.transport.writelines(pieces)

    def close(self, reason: str) -> None:
        """Send the waiting bytes and close the connection, within a deadline."""
        self._end(reason)
        if self._transport is not None and not self._transport.is_closing():
            self._transport.close()
            self._deadline = self._loop.call_later(HANDSHAKE_S, self._transport.abort)

    def abort(self, reason: str) -> None:
        """Close the connection at once."""
        self._end(reason)
        if self._transport is not None:
            self._transport.abort()

    def _end(self, reason: str) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        self.is_open = False
        self._has_ended = True
        self._at = self._end_at = 0
        self._reason = self._reason or reason


def _frame(kind: int, body: bytes) -> bytes:
    return (len(body) + 1).to_bytes(SIZE_BYTES, "big") + bytes([kind]) + body


def _to_line(data: bytes) -> str:
    """Return a text of a peer as one printable line."""
    text = data.decode(errors="replace")
    return "".join(character if character.isprintable() else "?" for character in text)
