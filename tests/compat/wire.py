"""An AMQP 0-9-1 codec for tests, written apart from Leveret's own.

It owns the method table, field tables, content properties and frames, and knows nothing of
sockets. It shares no code with `leveret`, so that a mistake there is not mirrored here, and it
prefers readable values over speed. Field values are written either as plain Python values or as
`(tag, value)` pairs, and are always read back as `Typed` pairs, so that a test can compare types.

    frame   = type:u8 channel:u16 size:u32 payload end:0xCE
    method  = class:u16 method:u16 arguments
    header  = class:u16 weight:u16 body_size:u64 flags:u16 properties
    table   = size:u32 (name:shortstr tag:u8 value)*
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Final, NamedTuple, cast

METHOD: Final = 1
HEADER: Final = 2
BODY: Final = 3
HEARTBEAT: Final = 8
FRAME_END: Final = 0xCE
BASIC: Final = 60
PROTOCOL_HEADER: Final = b"AMQP\x00\x00\x09\x01"
FRAME_OVERHEAD_BYTES: Final = 8
CACHED: Final = 2048  # decoded payloads: tests of storage read the same ones thousands of times


class Typed(NamedTuple):
    """A field value with its wire tag, such as `Typed("I", 1000)`."""

    tag: str
    value: object


Table = dict[str, Typed]


class Signature(NamedTuple):
    """A method's ids and its fields as (name, wire type) in order."""

    class_id: int
    method_id: int
    name: str
    fields: tuple[tuple[str, str], ...]


_METHODS_TEXT: Final = """
10.10 connection.start version_major:octet version_minor:octet server_properties:table \
mechanisms:longstr locales:longstr
10.11 connection.start-ok client_properties:table mechanism:shortstr response:longstr \
locale:shortstr
10.20 connection.secure challenge:longstr
10.21 connection.secure-ok response:longstr
10.30 connection.tune channel_max:short frame_max:long heartbeat:short
10.31 connection.tune-ok channel_max:short frame_max:long heartbeat:short
10.40 connection.open virtual_host:shortstr capabilities:shortstr insist:bit
10.41 connection.open-ok known_hosts:shortstr
10.50 connection.close reply_code:short reply_text:shortstr class_id:short method_id:short
10.51 connection.close-ok
10.60 connection.blocked reason:shortstr
10.61 connection.unblocked
10.70 connection.update-secret new_secret:longstr reason:shortstr
10.71 connection.update-secret-ok
20.10 channel.open out_of_band:shortstr
20.11 channel.open-ok channel_id:longstr
20.20 channel.flow active:bit
20.21 channel.flow-ok active:bit
20.40 channel.close reply_code:short reply_text:shortstr class_id:short method_id:short
20.41 channel.close-ok
30.10 access.request realm:shortstr exclusive:bit passive:bit active:bit write:bit read:bit
30.11 access.request-ok ticket:short
40.10 exchange.declare ticket:short exchange:shortstr type:shortstr passive:bit durable:bit \
auto_delete:bit internal:bit nowait:bit arguments:table
40.11 exchange.declare-ok
40.20 exchange.delete ticket:short exchange:shortstr if_unused:bit nowait:bit
40.21 exchange.delete-ok
40.30 exchange.bind ticket:short destination:shortstr source:shortstr routing_key:shortstr \
nowait:bit arguments:table
40.31 exchange.bind-ok
40.40 exchange.unbind ticket:short destination:shortstr source:shortstr routing_key:shortstr \
nowait:bit arguments:table
40.51 exchange.unbind-ok
50.10 queue.declare ticket:short queue:shortstr passive:bit durable:bit exclusive:bit \
auto_delete:bit nowait:bit arguments:table
50.11 queue.declare-ok queue:shortstr message_count:long consumer_count:long
50.20 queue.bind ticket:short queue:shortstr exchange:shortstr routing_key:shortstr nowait:bit \
arguments:table
50.21 queue.bind-ok
50.30 queue.purge ticket:short queue:shortstr nowait:bit
50.31 queue.purge-ok message_count:long
50.40 queue.delete ticket:short queue:shortstr if_unused:bit if_empty:bit nowait:bit
50.41 queue.delete-ok message_count:long
50.50 queue.unbind ticket:short queue:shortstr exchange:shortstr routing_key:shortstr \
arguments:table
50.51 queue.unbind-ok
60.10 basic.qos prefetch_size:long prefetch_count:short global:bit
60.11 basic.qos-ok
60.20 basic.consume ticket:short queue:shortstr consumer_tag:shortstr no_local:bit no_ack:bit \
exclusive:bit nowait:bit arguments:table
60.21 basic.consume-ok consumer_tag:shortstr
60.30 basic.cancel consumer_tag:shortstr nowait:bit
60.31 basic.cancel-ok consumer_tag:shortstr
60.40 basic.publish ticket:short exchange:shortstr routing_key:shortstr mandatory:bit \
immediate:bit
60.50 basic.return reply_code:short reply_text:shortstr exchange:shortstr routing_key:shortstr
60.60 basic.deliver consumer_tag:shortstr delivery_tag:longlong redelivered:bit \
exchange:shortstr routing_key:shortstr
60.70 basic.get ticket:short queue:shortstr no_ack:bit
60.71 basic.get-ok delivery_tag:longlong redelivered:bit exchange:shortstr routing_key:shortstr \
message_count:long
60.72 basic.get-empty cluster_id:shortstr
60.80 basic.ack delivery_tag:longlong multiple:bit
60.90 basic.reject delivery_tag:longlong requeue:bit
60.100 basic.recover-async requeue:bit
60.110 basic.recover requeue:bit
60.111 basic.recover-ok
60.120 basic.nack delivery_tag:longlong multiple:bit requeue:bit
85.10 confirm.select nowait:bit
85.11 confirm.select-ok
90.10 tx.select
90.11 tx.select-ok
90.20 tx.commit
90.21 tx.commit-ok
90.30 tx.rollback
90.31 tx.rollback-ok
"""

PROPERTIES: Final = (
    ("content_type", "shortstr"),
    ("content_encoding", "shortstr"),
    ("headers", "table"),
    ("delivery_mode", "octet"),
    ("priority", "octet"),
    ("correlation_id", "shortstr"),
    ("reply_to", "shortstr"),
    ("expiration", "shortstr"),
    ("message_id", "shortstr"),
    ("timestamp", "longlong"),
    ("type", "shortstr"),
    ("user_id", "shortstr"),
    ("app_id", "shortstr"),
    ("cluster_id", "shortstr"),
)

CONTENT_METHODS: Final = frozenset(
    ("basic.publish", "basic.return", "basic.deliver", "basic.get-ok")
)


def _signature(line: str) -> Signature:
    ids, name, *fields = line.split()
    class_id, method_id = ids.split(".")
    pairs = tuple((field, kind) for field, _, kind in (item.partition(":") for item in fields))
    return Signature(int(class_id), int(method_id), name, pairs)


METHODS: Final[dict[str, Signature]] = {
    signature.name: signature for signature in map(_signature, _METHODS_TEXT.strip().splitlines())
}
_BY_ID: Final = {(item.class_id, item.method_id): item for item in METHODS.values()}

_INTEGERS: Final = {"octet": "!B", "short": "!H", "long": "!I", "longlong": "!Q"}
_FIXED: Final = {
    "b": "!b", "B": "!B", "s": "!h", "u": "!H", "I": "!i", "i": "!I", "l": "!q", "L": "!Q",
    "T": "!Q", "f": "!f", "d": "!d",
}  # fmt: skip


def frame(kind: int, channel: int, payload: bytes) -> bytes:
    """One whole frame."""
    return struct.pack("!BHI", kind, channel, len(payload)) + payload + bytes([FRAME_END])


def shortstr(text: str | bytes) -> bytes:
    """A short string; bytes are taken as they are, so that bad UTF-8 can be sent."""
    data = text.encode() if isinstance(text, str) else text
    return bytes([len(data)]) + data


def longstr(text: str | bytes) -> bytes:
    """A long string of text or raw bytes."""
    data = text.encode() if isinstance(text, str) else text
    return struct.pack("!I", len(data)) + data


def typed(value: object) -> Typed:
    """The pair for a plain Python value; a pair is returned as it is."""
    if isinstance(value, tuple):
        return Typed(cast(str, value[0]), value[1])
    if isinstance(value, bool):
        return Typed("t", value)
    if isinstance(value, int):
        return Typed("I" if -(2**31) <= value < 2**31 else "l", value)
    tags = {str: "S", bytes: "x", float: "d", dict: "F", list: "A", type(None): "V"}
    return Typed(tags[type(value)], value)


def field_value(value: object) -> bytes:
    """A tagged field value."""
    tag, plain_value = typed(value)
    return tag.encode() + _untagged(tag, plain_value)


def _untagged(tag: str, value: object) -> bytes:
    if tag in _FIXED:
        return struct.pack(_FIXED[tag], value)
    if tag == "t":
        return b"\x01" if value else b"\x00"
    if tag == "V":
        return b""
    if tag in ("S", "x"):
        return longstr(cast("str | bytes", value))
    if tag == "F":
        return table(cast("Mapping[str, object]", value))
    if tag == "A":
        return longstr(b"".join(map(field_value, cast("Sequence[object]", value))))
    if tag == "D":
        scale, number = cast("tuple[int, int]", value)
        return struct.pack("!BI", scale, number)
    return cast(bytes, value)  # an unknown tag carries the bytes given


def table(fields: Mapping[str, object]) -> bytes:
    """A field table with its size."""
    return longstr(b"".join(shortstr(key) + field_value(fields[key]) for key in fields))


def _argument(kind: str, value: object) -> bytes:
    if kind in _INTEGERS:
        return struct.pack(_INTEGERS[kind], value)
    if kind == "shortstr":
        return shortstr(cast("str | bytes", value))
    if kind == "longstr":
        return longstr(cast("str | bytes", value))
    # Bytes in the place of a table are sent raw, so that a broken table can be written.
    return value if isinstance(value, bytes) else table(cast("Mapping[str, object]", value))


_DEFAULTS: Final[dict[str, object]] = {
    "octet": 0, "short": 0, "long": 0, "longlong": 0, "shortstr": "", "longstr": "", "table": {},
    "bit": False,
}  # fmt: skip


def method(name: str, arguments: Mapping[str, object]) -> bytes:
    """A method payload; fields not given are zero, empty or false."""
    signature = METHODS[name]
    unknown = set(arguments) - {field for field, _ in signature.fields}
    if unknown:
        raise TypeError(f"{name} has no field {sorted(unknown)}")
    out = bytearray(struct.pack("!HH", signature.class_id, signature.method_id))
    bits: list[bool] = []
    for field, kind in (*signature.fields, ("", "end")):
        if kind == "bit":
            bits.append(bool(arguments.get(field, False)))
            continue
        out += _packed(bits)
        bits = []
        if kind != "end":
            out += _argument(kind, arguments.get(field, _DEFAULTS[kind]))
    return bytes(out)


def _packed(bits: Sequence[bool]) -> bytes:
    return bytes([sum(bit << place for place, bit in enumerate(bits))]) if bits else b""


def header(
    size_bytes: int, properties: Mapping[str, object], *, class_id: int = BASIC, weight: int = 0
) -> bytes:
    """A content header payload."""
    flags = 0
    values = b""
    for place, (name, kind) in enumerate(PROPERTIES):
        if name in properties:
            flags |= 1 << (15 - place)
            values += _argument(kind, properties[name])
    return struct.pack("!HHQH", class_id, weight, size_bytes, flags) + values


class Reader:
    """A cursor over one payload; reading past its end raises `struct.error`."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def fixed(self, form: str) -> int:
        (value,) = struct.unpack_from(form, self.data, self.at)
        self.at += struct.calcsize(form)
        return cast(int, value)

    def take(self, count: int) -> bytes:
        if self.at + count > len(self.data):
            raise struct.error(f"{count} bytes wanted at {self.at} of {len(self.data)}")
        self.at += count
        return self.data[self.at - count : self.at]

    def shortstr(self) -> str:
        return self.take(self.fixed("!B")).decode(errors="backslashreplace")

    def longstr(self) -> bytes:
        return self.take(self.fixed("!I"))

    def table(self) -> Table:
        inner = Reader(self.longstr())
        fields: Table = {}
        while inner.at < len(inner.data):
            name = inner.shortstr()
            fields[name] = inner.field_value()
        return fields

    def field_value(self) -> Typed:
        tag = self.take(1).decode("latin-1")
        if tag in _FIXED:
            return Typed(tag, self.fixed(_FIXED[tag]))
        if tag == "t":
            return Typed(tag, self.fixed("!B") != 0)
        if tag == "V":
            return Typed(tag, None)
        if tag == "S":
            return Typed(tag, self.longstr().decode(errors="backslashreplace"))
        if tag == "x":
            return Typed(tag, self.longstr())
        if tag == "F":
            return Typed(tag, self.table())
        if tag == "A":
            return Typed(tag, Reader(self.longstr()).field_values())
        if tag == "D":
            return Typed(tag, (self.fixed("!B"), self.fixed("!I")))
        raise struct.error(f"unknown field tag {tag!r}")

    def field_values(self) -> list[Typed]:
        values: list[Typed] = []
        while self.at < len(self.data):
            values.append(self.field_value())
        return values

    def argument(self, kind: str) -> object:
        if kind in _INTEGERS:
            return self.fixed(_INTEGERS[kind])
        if kind == "shortstr":
            return self.shortstr()
        return self.longstr() if kind == "longstr" else self.table()


def read_method(payload: bytes) -> tuple[str, dict[str, object]]:
    """The name and the fields of a method payload."""
    name, fields = _read_method(payload)
    return name, fields.copy()


@lru_cache(maxsize=CACHED)
def _read_method(payload: bytes) -> tuple[str, dict[str, object]]:
    reader = Reader(payload)
    signature = _BY_ID[reader.fixed("!H"), reader.fixed("!H")]
    fields: dict[str, object] = {}
    bit_place = 8
    bits = 0
    for name, kind in signature.fields:
        if kind != "bit":
            bit_place = 8
            fields[name] = reader.argument(kind)
            continue
        if bit_place == 8:
            bits, bit_place = reader.fixed("!B"), 0
        fields[name] = bool(bits >> bit_place & 1)
        bit_place += 1
    if reader.at != len(payload):
        raise struct.error(f"{len(payload) - reader.at} bytes left after {signature.name}")
    return signature.name, fields


def read_header(payload: bytes) -> tuple[int, dict[str, object]]:
    """The body size and the properties of a content header payload."""
    size_bytes, properties = _read_header(payload)
    return size_bytes, properties.copy()


@lru_cache(maxsize=CACHED)
def _read_header(payload: bytes) -> tuple[int, dict[str, object]]:
    reader = Reader(payload)
    reader.fixed("!I")
    size_bytes = reader.fixed("!Q")
    flags = reader.fixed("!H")
    properties = {
        name: reader.argument(kind)
        for place, (name, kind) in enumerate(PROPERTIES)
        if flags & 1 << (15 - place)
    }
    return size_bytes, properties


def plain(value: object) -> object:
    """A decoded value without its tags, all the way down."""
    if isinstance(value, Typed):
        return plain(value.value)
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [plain(item) for item in value]
    return value
