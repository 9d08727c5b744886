"""AMQP frames for a load generator: publishes in blocks, and a parser that copies nothing.

    frame = type:u8 channel:u16 size:u32 payload CE

`Publishes` splits the frames of each message around the first eight body bytes, which hold the send
time. A block of many messages is one `join` of these pieces with the time. `Parser` reports
methods, content headers, and the start and end of each body frame. It skips bodies instead of
collecting them, so that large ones cost nothing. Everything uses channel 1, after the handshake on
channel 0.
"""

from typing import Final

from librt.strings import read_i32_be, read_i64_be
from mypy_extensions import i64

from leveret.amqp.methods import (
    BASIC_PUBLISH,
    CHANNEL_CLOSE,
    CONNECTION_CLOSE,
    FRAME_BODY,
    FRAME_END,
    FRAME_HEADER,
    FRAME_METHOD,
    FRAME_OVERHEAD,
)
from leveret.amqp.writer import MethodWriter
from leveret.errors import ClosedError, FrameError
from leveret.wire.properties import Properties, encode_header
from leveret.wire.tables import Table

CHANNEL: Final = 1
FRAME_BYTES: Final = 131_072  # frame size asked for in the handshake
STAMP_BYTES: Final = 8

_HEAD_BYTES: Final = 7
_MANDATORY: Final = 1
_TRANSIENT: Final = 1
_PERSISTENT: Final = 2


def frame(kind: i64, channel: i64, payload: bytes) -> bytes:
    """Return one complete frame."""
    assert 0 <= channel <= 0xFFFF
    head = bytes([kind, channel >> 8, channel & 0xFF])
    size: int = len(payload)
    return head + size.to_bytes(4, "big") + payload + bytes([FRAME_END])


def message_frames(
    exchange: str, routing_key: str, body: bytes, properties: Properties, mandatory: bool
) -> list[bytes]:
    """Return the frames of one publish."""
    method = MethodWriter(BASIC_PUBLISH).short(0).short_string(exchange).short_string(routing_key)
    method.octet(_MANDATORY if mandatory else 0)
    size: int = len(body)
    header = encode_header(properties, size)
    frames = [frame(FRAME_METHOD, CHANNEL, method.payload()), frame(FRAME_HEADER, CHANNEL, header)]
    most = FRAME_BYTES - FRAME_OVERHEAD
    parts = [body[at : at + most] for at in range(0, size, most)]
    frames.extend([frame(FRAME_BODY, CHANNEL, part) for part in parts])
    return frames


class Template:
    """Exchange, flags and properties that all messages of a producer share."""

    def __init__(self, exchange: str, persistent: bool, headers: Table, mandatory: bool) -> None:
        self.exchange = exchange
        self.mandatory = mandatory
        self.properties = Properties()
        self.properties.delivery_mode = _PERSISTENT if persistent else _TRANSIENT
        if headers:
            self.properties.headers = headers


class Publishes:
    """Makes blocks of publish frames with their send time, using keys and sizes in turn.

    `_between[i]` is the end of message i and the start of message i + 1.
    """

    def __init__(
        self, template: Template, keys: list[str], sizes: list[int], stamped: bool, burst: i64
    ) -> None:
        self._is_stamped = stamped
        self._count: i64 = max(len(keys), len(sizes))
        self._at: i64 = 0  # the next message
        self._before: list[bytes] = []
        self._after: list[bytes] = []
        for index in range(self._count):
            self._cut(template, keys[index % len(keys)], sizes[index % len(sizes)])
        starts = self._before[1:] + self._before[:1]
        between = [end + start for end, start in zip(self._after, starts, strict=True)]
        # Long enough for a block that starts at any message.
        self._between: list[bytes] = between * (burst // self._count + 2)

    def _cut(self, template: Template, key: str, size: i64) -> None:
        body = b"x" * size
        frames = message_frames(
            template.exchange, key, body, template.properties, template.mandatory
        )
        whole = b"".join(frames)
        cut: i64 = len(frames[0]) + len(frames[1])
        skip: i64 = 0
        if self._is_stamped:
            assert size >= STAMP_BYTES
            cut += _HEAD_BYTES
            skip = STAMP_BYTES
        self._before.append(whole[:cut])
        self._after.append(whole[cut + skip :])

    def block(self, count: i64, now_ns: int) -> bytes:
        """Return the frames of `count` messages, at most a burst, with the send time `now_ns`."""
        stamp = now_ns.to_bytes(STAMP_BYTES, "big") if self._is_stamped else b""
        first = self._at
        last = first + count - 1
        self._at = (last + 1) % self._count
        between = self._between[first:last]
        return stamp.join([self._before[first], *between, self._after[last % self._count]])


class Parser:
    """Parses received frames. Subclasses handle what they need; other methods go to `answers`."""

    def __init__(self) -> None:
        self.answers: list[bytes] = []  # payloads of methods that no subclass handled
        self.now_ns: i64 = 0  # when the current bytes were received
        self._rest: bytes = b""  # the start of an incomplete frame
        self._missing: i64 = 0  # bytes of a body frame still to come, with its end octet
        self._body_size: i64 = 0  # of that frame

    def feed(self, data: bytes, now_ns: i64) -> None:
        """Parse received bytes and handle every complete frame."""
        self.now_ns = now_ns
        if self._rest:
            data = self._rest + data
            self._rest = b""
        at: i64 = 0
        if self._missing != 0:
            if len(data) < self._missing:
                self._missing -= len(data)
                return
            at = self._missing
            self._missing = 0
            self.on_body_end(self._body_size)
        at = self._read_frames(data, at)
        if at < len(data):
            self._rest = data[at:]

    def _read_frames(self, data: bytes, at: i64) -> i64:
        """Handle complete frames. Return the position of the incomplete rest."""
        end: i64 = len(data)
        while end - at >= _HEAD_BYTES:
            kind: i64 = data[at]
            size = i64(read_i32_be(data, at + 3))
            if size < 0 or size > FRAME_BYTES:
                raise FrameError(f"invalid frame size {size}")
            start = at + _HEAD_BYTES
            stop = start + size
            if kind == FRAME_BODY:
                if end - start < size and end - start < STAMP_BYTES:
                    break
                self.on_body_start(data, start, size)
                at = stop + 1
                if at > end:
                    self._missing = at - end
                    self._body_size = size
                    return end
                self.on_body_end(size)
            else:
                if stop >= end:
                    break
                self._on_frame(kind, data, start, stop)
                at = stop + 1
            if data[stop] != FRAME_END:
                raise FrameError(f"invalid frame end {data[stop]}")
        return at

    def _on_frame(self, kind: i64, data: bytes, start: i64, stop: i64) -> None:
        if kind == FRAME_METHOD and stop - start >= 4:
            method = i64(read_i32_be(data, start))
            if method == CONNECTION_CLOSE or method == CHANNEL_CLOSE:
                raise ClosedError(_reply_of(data[start:stop]))
            self.on_method(method, data, start, stop)
        elif kind == FRAME_HEADER and stop - start >= 12:
            self.on_header(read_i64_be(data, start + 4))

    def on_method(self, method: i64, data: bytes, start: i64, stop: i64) -> None:
        """Handle a method with its payload at data[start:stop]."""
        self.answers.append(data[start:stop])

    def on_header(self, body_bytes: i64) -> None:
        """Handle a content header."""

    def on_body_start(self, data: bytes, start: i64, size: i64) -> None:
        """Handle the start of a body frame: its first eight bytes, or all if it is shorter."""

    def on_body_end(self, size: i64) -> None:
        """Handle the end of a body frame."""


def _reply_of(payload: bytes) -> str:
    """Return the code and text of a close method."""
    code = int.from_bytes(payload[4:6], "big")
    text = payload[7 : 7 + payload[6]].decode("utf-8", "replace")
    return f"closed by the broker: {code} {text}"
