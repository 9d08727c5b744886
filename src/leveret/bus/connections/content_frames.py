"""The frames that carry messages and answers to them: pure, bytes to values and back.

The client library passes each frame through two queues and three tasks. That is more work than
everything else that the bus does for a message, so the bus reads and writes these frames itself.
All other frames are left to the library.

    method frame     deliver, return, ack or nack; the first two have content
    header frame     class, weight, size of the body, properties
    body frames      until the size is reached

A broker that breaks these rules gets a `MalformedFrameError`, which ends the connection: the next
message must not be put together from frames of two.
"""

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from pamqp.commands import Basic
from pamqp.header import ContentHeader

from leveret.bus.connections.header_repair import is_perhaps_deep, repair_content_header

METHOD_FRAME: Final = 1
HEADER_FRAME: Final = 2
BODY_FRAME: Final = 3
FRAME_HEAD: Final = struct.Struct(">BHI")  # type, channel, size
FRAME_BYTES: Final = 8  # of a frame besides its payload
CONTENT_HEADER_BYTES: Final = 12  # besides the properties
SHORT_BYTES_MAX: Final = 255
MESSAGE_BYTES_MAX: Final = 536_870_912  # RabbitMQ allows no larger message

FRAME_END: Final = b"\xce"
_BASIC: Final = 60
_PUBLISH_HEAD: Final = struct.Struct(">HHH").pack(_BASIC, 40, 0)
_DELIVER: Final = struct.Struct(">HH").pack(_BASIC, 60)
_RETURN: Final = struct.Struct(">HH").pack(_BASIC, 50)
_ACK: Final = struct.Struct(">HH").pack(_BASIC, 80)
_NACK: Final = struct.Struct(">HH").pack(_BASIC, 120)
_ID_BYTES: Final = 4  # class and method
_ANSWER: Final = struct.Struct(">BHIHHQBB")
_TAG_AND_BITS: Final = struct.Struct(">QB")
_CONTENT_HEADER: Final = struct.Struct(">HHQ")
_REQUEUE: Final = 2
_UNDECODABLE: Final = (
    ValueError,
    TypeError,
    OverflowError,
    LookupError,
    RecursionError,
    struct.error,
)


class MalformedFrameError(ConnectionError):
    """The broker sent frames that break AMQP. The client library closes the connection."""


@dataclass(slots=True)
class DeliveredContent:
    """A message as the broker delivered it."""

    tag: int
    is_redelivered: bool
    exchange: str
    routing_key: str
    properties: Basic.Properties
    body: bytes


def encode_publish(
    channel: int,
    exchange: str,
    routing_key: str,
    *,
    mandatory: bool,
    properties: bytes,
    body: bytes,
    frame_bytes_max: int,
) -> bytes:
    """Return all frames of a message. `properties` begin with their flags."""
    method = b"".join(
        (_PUBLISH_HEAD, _short(exchange), _short(routing_key), b"\x01" if mandatory else b"\x00")
    )
    parts = [
        FRAME_HEAD.pack(METHOD_FRAME, channel, len(method)),
        method,
        FRAME_END,
        FRAME_HEAD.pack(HEADER_FRAME, channel, CONTENT_HEADER_BYTES + len(properties)),
        _CONTENT_HEADER.pack(_BASIC, 0, len(body)),
        properties,
        FRAME_END,
    ]
    step = frame_bytes_max - FRAME_BYTES if frame_bytes_max else len(body)
    for at in range(0, len(body), step or 1):
        piece = body[at : at + step]
        parts += (FRAME_HEAD.pack(BODY_FRAME, channel, len(piece)), piece, FRAME_END)
    return b"".join(parts)


def encode_ack(channel: int, tag: int) -> bytes:
    """Return the frame that acknowledges one delivery."""
    return _ANSWER.pack(METHOD_FRAME, channel, 13, _BASIC, 80, tag, 0, FRAME_END[0])


def encode_nack(channel: int, tag: int, *, requeue: bool) -> bytes:
    """Return the frame that rejects one delivery."""
    bits = _REQUEUE if requeue else 0
    return _ANSWER.pack(METHOD_FRAME, channel, 13, _BASIC, 120, tag, bits, FRAME_END[0])


def _short(text: str) -> bytes:
    if not isinstance(text, str):
        raise TypeError(f"an exchange or routing key must be a str, not {text!r}")
    data = text.encode()
    if len(data) > SHORT_BYTES_MAX:
        raise ValueError(f"{text[:20]!r}… has {len(data)} bytes; at most 255 are allowed")
    return bytes((len(data),)) + data


OnDelivered = Callable[[DeliveredContent], None]
OnReturned = Callable[[str], None]  # with the message id
OnConfirm = Callable[[int, bool, bool], None]  # tag; with all before it; True for an ack


class ContentReceiver:
    """Puts the frames of one channel together."""

    def __init__(
        self,
        *,
        on_delivered: OnDelivered | None = None,
        on_returned: OnReturned | None = None,
        on_confirm: OnConfirm | None = None,
    ) -> None:
        self._on_delivered = on_delivered
        self._on_returned = on_returned
        self._on_confirm = on_confirm
        self._method = b""  # of the message that is being received
        self._properties: Basic.Properties | None = None  # None until the header is received
        self._left_bytes = 0  # of its body
        self._body: list[bytes] = []

    def take(self, kind: int, payload: bytes) -> bool:
        """Take a frame. Return False if it is neither part of a message nor a confirm.

        Raise MalformedFrameError for a frame that cannot be decoded or comes out of order.
        """
        if kind == METHOD_FRAME:
            return self._take_method(payload)
        if not self._method:
            return False
        if kind == HEADER_FRAME:
            self._take_header(payload)
        else:
            self._body.append(payload)
            self._left_bytes -= len(payload)
        if self._properties is None:
            raise MalformedFrameError("the broker sent a body before its header")
        if self._left_bytes < 0:
            raise MalformedFrameError("the broker sent a body that is longer than its header says")
        if self._left_bytes == 0:
            self._finish(self._properties)
        return True

    def _take_header(self, payload: bytes) -> None:
        if self._properties is not None:
            raise MalformedFrameError("the broker sent two headers for one message")
        try:
            size_bytes, self._properties = _decode_header(payload)
        except _UNDECODABLE as fault:
            raise MalformedFrameError(f"the broker sent a wrong header: {fault}") from fault
        if size_bytes > MESSAGE_BYTES_MAX:
            raise MalformedFrameError(
                f"the broker announced a message of {size_bytes} bytes; "
                f"at most {MESSAGE_BYTES_MAX} are allowed"
            )
        self._left_bytes = size_bytes

    def _take_method(self, payload: bytes) -> bool:
        method = payload[:_ID_BYTES]
        if method in (_DELIVER, _RETURN):
            if self._method:
                raise MalformedFrameError("the broker sent a message inside another one")
            self._method = payload
            return True
        if method in (_ACK, _NACK) and self._on_confirm is not None:
            try:
                tag, bits = _TAG_AND_BITS.unpack_from(payload, _ID_BYTES)
            except struct.error as fault:
                raise MalformedFrameError(f"the broker sent a wrong confirm: {fault}") from fault
            self._on_confirm(tag, bool(bits & 1), method == _ACK)
            return True
        return False

    def _finish(self, properties: Basic.Properties) -> None:
        method, body = self._method, b"".join(self._body)
        self._method, self._body, self._properties = b"", [], None
        if method[:_ID_BYTES] == _DELIVER and self._on_delivered is not None:
            try:
                content = _decode_deliver(method, properties, body)
            except _UNDECODABLE as fault:
                raise MalformedFrameError(f"the broker sent a wrong delivery: {fault}") from fault
            self._on_delivered(content)
        elif self._on_returned is not None:
            self._on_returned(properties.message_id or "")


def _decode_deliver(method: bytes, properties: Basic.Properties, body: bytes) -> DeliveredContent:
    at = _ID_BYTES + 1 + method[_ID_BYTES]  # behind the consumer tag
    tag, bits = _TAG_AND_BITS.unpack_from(method, at)
    at += _TAG_AND_BITS.size
    exchange_end = at + 1 + method[at]
    exchange = method[at + 1 : exchange_end].decode(errors="replace")
    routing_key = method[exchange_end + 1 :].decode(errors="replace")
    return DeliveredContent(tag, bool(bits & 1), exchange, routing_key, properties, body)


def _decode_header(payload: bytes) -> tuple[int, Basic.Properties]:
    """Return the size of the body and the properties, which are repaired if they must be."""
    if is_perhaps_deep(payload):
        payload = repair_content_header(payload)
    header = ContentHeader()
    try:
        header.unmarshal(payload)
    except _UNDECODABLE:
        header = ContentHeader()
        header.unmarshal(repair_content_header(payload))
    return header.body_size, header.properties
