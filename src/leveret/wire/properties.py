"""The payload of a content header frame: class 60, body size, properties.

    class:u16  weight:u16  body_size:u64  flags:u16  property*

Each flag, from the highest bit down, says that one property follows, in this order:

    8000 content_type  shortstr     0800 priority        u8          0040 timestamp   u64
    4000 content_encoding shortstr  0400 correlation_id  shortstr    0020 type        shortstr
    2000 headers       table        0200 reply_to        shortstr    0010 user_id     shortstr
    1000 delivery_mode u8           0100 expiration      shortstr    0008 app_id      shortstr
                                    0080 message_id      shortstr    0004 cluster_id  shortstr

    shortstr = length:u8 bytes; 0002 means nothing; 0001 (more flags follow) is refused

`parse_traits` is for the publish path. It checks the whole payload in one pass, so that later
decoding cannot fail. `decode_properties` builds all properties, for all other callers.
"""

from typing import Final

from librt.strings import BytesWriter, read_i16_be, read_i64_be, write_i16_be, write_i64_be
from mypy_extensions import i64, mypyc_attr

from leveret.errors import FieldSyntaxError, FrameError
from leveret.wire.property_flags import (
    APP_ID,
    CLUSTER_ID,
    CONTENT_ENCODING,
    CONTENT_TYPE,
    CONTINUATION,
    CORRELATION_ID,
    DELIVERY_MODE,
    EXPIRATION,
    HEADERS,
    MESSAGE_ID,
    PRIORITY,
    REPLY_TO,
    TIMESTAMP,
    TYPE,
    USER_ID,
)
from leveret.wire.scan import check_value, counted_end, name_end
from leveret.wire.tables import Table, decode_table, encode_table, read_u64

BASIC_CLASS: Final = 60
PERSISTENT: Final = 2
SHORTSTR_BYTES_MAX: Final = 255

_FLAGS_AT: Final = 12
_PROPERTIES_AT: Final = 14


# All flags that `_note_texts` handles: most messages have none of them.
_TEXTS: Final = 0x07FC


@mypyc_attr(acyclic=True)
class Traits:
    """The facts of a content header that the broker needs to route, store and deliver a message."""

    def __init__(self) -> None:
        self.body_size: i64 = 0
        self.delivery_mode: i64 = -1  # -1 where absent
        self.persistent: bool = False
        self.priority: i64 = -1  # -1 where absent
        self.expiration: str | None = None  # as sent, not checked
        self.reply_to: str | None = None
        self.user_id: str | None = None
        # The span of the entries of the headers table, without its length; 0 and 0 = no table.
        self.headers_at: i64 = 0
        self.headers_end: i64 = 0
        self.has_cc: bool = False
        self.has_bcc: bool = False
        self.has_delay: bool = False  # x-delay


class Properties:
    """Every property of a message; None where it is absent."""

    def __init__(self) -> None:
        self.content_type: str | None = None
        self.content_encoding: str | None = None
        self.headers: Table | None = None
        self.delivery_mode: int | None = None
        self.priority: int | None = None
        self.correlation_id: str | None = None
        self.reply_to: str | None = None
        self.expiration: str | None = None
        self.message_id: str | None = None
        self.timestamp: int | None = None  # seconds since 1970, 64 bits unsigned
        self.type: str | None = None
        self.user_id: str | None = None
        self.app_id: str | None = None
        self.cluster_id: str | None = None

    def values_by_name(self) -> dict[str, object]:
        """Return the properties that are set, without the headers, by RabbitMQ's names."""
        values: dict[str, object] = {
            "content_type": self.content_type,
            "content_encoding": self.content_encoding,
            "delivery_mode": self.delivery_mode,
            "priority": self.priority,
            "correlation_id": self.correlation_id,
            "reply_to": self.reply_to,
            "expiration": self.expiration,
            "message_id": self.message_id,
            "timestamp": self.timestamp,
            "type": self.type,
            "user_id": self.user_id,
            "app_id": self.app_id,
            "cluster_id": self.cluster_id,
        }
        return {name: value for name, value in values.items() if value is not None}


def parse_traits(payload: bytes, depth: i64 = 0) -> Traits:
    """Check the whole payload and return the facts that the publish path needs.

    Raise FrameError for a body size of 2^63 or more, and for a second word of flags. Raise
    FieldSyntaxError for properties that are cut short, malformed or followed by other bytes. The
    caller checks the class. Use the depth `WRAPPING_MAX` for bytes of a peer.
    """
    flags = _read_flags(payload)
    traits = Traits()
    traits.body_size = _read_body_size(payload)
    at: i64 = _PROPERTIES_AT
    if flags & CONTENT_TYPE:
        at = _text_end(payload, at)
    if flags & CONTENT_ENCODING:
        at = _text_end(payload, at)
    if flags & HEADERS:
        at = _note_headers(payload, at, traits, depth)
    if flags & DELIVERY_MODE:
        traits.delivery_mode = _octet(payload, at)
        traits.persistent = traits.delivery_mode == PERSISTENT
        at += 1
    if flags & PRIORITY:
        traits.priority = _octet(payload, at)
        at += 1
    if flags & _TEXTS:
        at = _note_texts(payload, at, flags, traits)
    if at != len(payload):
        raise FieldSyntaxError("content header: bytes follow the last property")
    return traits


def _note_texts(payload: bytes, start: i64, flags: i64, traits: Traits) -> i64:
    at = start
    if flags & CORRELATION_ID:
        at = _text_end(payload, at)
    if flags & REPLY_TO:
        traits.reply_to = _text(payload, at)
        at = _text_end(payload, at)
    if flags & EXPIRATION:
        traits.expiration = _text(payload, at)
        at = _text_end(payload, at)
    if flags & MESSAGE_ID:
        at = _text_end(payload, at)
    if flags & TIMESTAMP:
        at = _fixed_end(payload, at, 8)
    if flags & TYPE:
        at = _text_end(payload, at)
    if flags & USER_ID:
        traits.user_id = _text(payload, at)
        at = _text_end(payload, at)
    if flags & APP_ID:
        at = _text_end(payload, at)
    if flags & CLUSTER_ID:
        at = _text_end(payload, at)
    return at


def _note_headers(payload: bytes, at: i64, traits: Traits, depth: i64) -> i64:
    end = counted_end(payload, at, len(payload))
    start = at + 4
    traits.headers_at = start
    traits.headers_end = end
    at = start
    while at < end:
        tag_at = name_end(payload, at, end)
        length = tag_at - at - 1
        if length == 7:
            if payload[at + 1] == 0x78 and payload[at + 1 : tag_at] == b"x-delay":
                traits.has_delay = True
        elif length == 2:
            if payload[at + 1 : tag_at] == b"CC":
                traits.has_cc = True
        elif length == 3 and payload[at + 1 : tag_at] == b"BCC":
            traits.has_bcc = True
        at = check_value(payload, tag_at, end, depth)
    return end


def _read_flags(payload: bytes) -> i64:
    if len(payload) < _PROPERTIES_AT:
        raise FieldSyntaxError("content header: cut short")
    flags: i64 = i64(read_i16_be(payload, _FLAGS_AT)) & 0xFFFF
    if flags & CONTINUATION:
        raise FrameError("content header: only one word of property flags is supported")
    return flags


def _read_body_size(payload: bytes) -> i64:
    size = read_i64_be(payload, 4)
    if size < 0:
        raise FrameError("content header: the body size is over 2^63")
    return size


def _fixed_end(payload: bytes, at: i64, size: i64) -> i64:
    if size > len(payload) - at:
        raise FieldSyntaxError("content header: a property is cut short")
    return at + size


def _octet(payload: bytes, at: i64) -> i64:
    if at >= len(payload):
        raise FieldSyntaxError("content header: a property is cut short")
    return payload[at]


def _text_end(payload: bytes, at: i64) -> i64:
    return _fixed_end(payload, at + 1, _octet(payload, at))


def _text(payload: bytes, at: i64) -> str:
    return payload[at + 1 : _text_end(payload, at)].decode("utf-8", "surrogateescape")


class _Cursor:
    """Reads the properties of a payload one after the other."""

    def __init__(self, payload: bytes) -> None:
        self.payload = payload
        self.flags: i64 = _read_flags(payload)
        self.at: i64 = _PROPERTIES_AT

    def text(self, flag: i64) -> str | None:
        if not self.flags & flag:
            return None
        text = _text(self.payload, self.at)
        self.at = _text_end(self.payload, self.at)
        return text

    def octet(self, flag: i64) -> int | None:
        if not self.flags & flag:
            return None
        self.at += 1
        return int(_octet(self.payload, self.at - 1))

    def table(self, flag: i64) -> Table | None:
        if not self.flags & flag:
            return None
        start = self.at + 4
        self.at = counted_end(self.payload, self.at, len(self.payload))
        return decode_table(self.payload, start, self.at)

    def number(self, flag: i64) -> int | None:
        if not self.flags & flag:
            return None
        start = self.at
        self.at = _fixed_end(self.payload, start, 8)
        return read_u64(self.payload, start)


def decode_properties(payload: bytes) -> Properties:
    """Decode all properties; raise FieldSyntaxError or FrameError as `parse_traits` does."""
    cursor = _Cursor(payload)
    properties = Properties()
    properties.content_type = cursor.text(CONTENT_TYPE)
    properties.content_encoding = cursor.text(CONTENT_ENCODING)
    properties.headers = cursor.table(HEADERS)
    properties.delivery_mode = cursor.octet(DELIVERY_MODE)
    properties.priority = cursor.octet(PRIORITY)
    properties.correlation_id = cursor.text(CORRELATION_ID)
    properties.reply_to = cursor.text(REPLY_TO)
    properties.expiration = cursor.text(EXPIRATION)
    properties.message_id = cursor.text(MESSAGE_ID)
    properties.timestamp = cursor.number(TIMESTAMP)
    properties.type = cursor.text(TYPE)
    properties.user_id = cursor.text(USER_ID)
    properties.app_id = cursor.text(APP_ID)
    properties.cluster_id = cursor.text(CLUSTER_ID)
    if cursor.at != len(payload):
        raise FieldSyntaxError("content header: bytes follow the last property")
    return properties


class _Builder:
    """Collects encoded properties and their flags."""

    def __init__(self) -> None:
        self.writer = BytesWriter()
        self.flags: i64 = 0

    def text(self, flag: i64, text: str | None) -> None:
        if text is None:
            return
        encoded = text.encode("utf-8", "surrogateescape")
        if len(encoded) > SHORTSTR_BYTES_MAX:
            raise ValueError(f"a property of {len(encoded)} bytes does not fit a short string")
        self.flags |= flag
        self.writer.append(len(encoded))
        self.writer.write(encoded)

    def number(self, flag: i64, number: int | None, size: int) -> None:
        if number is None:
            return
        self.flags |= flag
        self.writer.write(number.to_bytes(size, "big"))

    def table(self, flag: i64, table: Table | None) -> None:
        if table is None:
            return
        self.flags |= flag
        self.writer.write(encode_table(table))


def encode_header(properties: Properties, body_size: int) -> bytes:
    """Encode a whole payload; raise ValueError if a text is too long."""
    assert 0 <= body_size < 1 << 63
    builder = _Builder()
    builder.text(CONTENT_TYPE, properties.content_type)
    builder.text(CONTENT_ENCODING, properties.content_encoding)
    builder.table(HEADERS, properties.headers)
    builder.number(DELIVERY_MODE, properties.delivery_mode, 1)
    builder.number(PRIORITY, properties.priority, 1)
    builder.text(CORRELATION_ID, properties.correlation_id)
    builder.text(REPLY_TO, properties.reply_to)
    builder.text(EXPIRATION, properties.expiration)
    builder.text(MESSAGE_ID, properties.message_id)
    builder.number(TIMESTAMP, properties.timestamp, 8)
    builder.text(TYPE, properties.type)
    builder.text(USER_ID, properties.user_id)
    builder.text(APP_ID, properties.app_id)
    builder.text(CLUSTER_ID, properties.cluster_id)
    head = BytesWriter()
    write_i16_be(head, BASIC_CLASS)
    write_i16_be(head, 0)
    write_i64_be(head, body_size)
    head.write(int(builder.flags).to_bytes(2, "big"))
    head.write(builder.writer.getvalue())
    return head.getvalue()


def with_headers(payload: bytes, headers: Table | None) -> bytes:
    """Return the payload with other headers; the other properties keep their bytes."""
    flags = _read_flags(payload)
    start: i64 = _PROPERTIES_AT
    if flags & CONTENT_TYPE:
        start = _text_end(payload, start)
    if flags & CONTENT_ENCODING:
        start = _text_end(payload, start)
    end = counted_end(payload, start, len(payload)) if flags & HEADERS else start
    flags = (flags | HEADERS) if headers is not None else (flags & ~HEADERS)
    encoded = encode_table(headers) if headers is not None else b""
    writer = BytesWriter()
    writer.write(payload[:_FLAGS_AT])
    writer.write(int(flags).to_bytes(2, "big"))
    writer.write(payload[_PROPERTIES_AT:start])
    writer.write(encoded)
    writer.write(payload[end:])
    return writer.getvalue()
