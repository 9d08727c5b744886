"""Envelopes of a chunk as columns: one for each property, in the layout of Apache Arrow.

    TextColumn     values:bytes ends:i32*(count+1)   values one after the other, and their ends
    NumberColumn   values:i64*count
    HeadersColumn  ends:i32*(count+1)                into the columns `names` and `values`

Each has `valid`, a bit for every row from the lowest bit of the first octet on: 0 means no value. A
column without any value (`null_count` == `count`) has no bytes at all, because most messages use
few properties. Numbers are little-endian.

Bulk readers use these columns: a stream whose messages all differ in one property (a message id)
has as many envelopes as messages. So only the columns that the reader wants are decoded. The others
stay empty, and nothing after the last wanted property is looked at.

Bytes are copied unchanged; the reader finds out whether they are UTF-8. Values of headers become
text: numbers in decimal, tables and arrays as JSON, `true` and `false`. A void has no value.
"""

import json
from math import isfinite
from typing import Final

from librt.strings import (
    BytesWriter,
    read_i16_be,
    read_i32_be,
    read_i64_be,
    write_i32_le,
    write_i64_le,
)
from mypy_extensions import i32, i64

from leveret.errors import CorruptionError, FieldSyntaxError
from leveret.wire.property_flags import (
    APP_ID,
    CONTENT_ENCODING,
    CONTENT_TYPE,
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
from leveret.wire.scan import BINARY, LONGSTR, VOID, counted_end, name_end, value_end
from leveret.wire.tables import INTEGERS, Field, decode_field

BROKER_ID_HEADER: Final = b"x-broker-id"
DEATH_HEADER: Final = b"x-death"

_FLAGS: Final = 2  # octets
# Bits for the parts of an envelope that have no property flag. They are above all flags.
_EXCHANGE: Final = 0x1_0000
_ROUTING_KEY: Final = 0x2_0000
_PROPERTIES: Final = 0x4_0000  # all properties as published
_BROKER_ID: Final = 0x8_0000  # a header
_DEATHS: Final = 0x10_0000  # a header
_ANY_FLAG: Final = 0xFFFF
_NO_FLAG: Final = 0x1_0000

_BITS: Final = {
    "broker_id": _BROKER_ID,
    "exchange": _EXCHANGE,
    "routing_key": _ROUTING_KEY,
    "content_type": CONTENT_TYPE,
    "content_encoding": CONTENT_ENCODING,
    "headers": HEADERS,
    "delivery_mode": DELIVERY_MODE,
    "priority": PRIORITY,
    "correlation_id": CORRELATION_ID,
    "reply_to": REPLY_TO,
    "expiration": EXPIRATION,
    "message_id": MESSAGE_ID,
    "message_timestamp": TIMESTAMP,
    "type": TYPE,
    "user_id": USER_ID,
    "app_id": APP_ID,
    "x_death": _DEATHS,
    "properties": _PROPERTIES,
}


def envelope_bits(columns: list[str]) -> int:
    """Return a bit for each of these columns that is in the envelope; 0 if none is."""
    bits = 0
    for column in columns:
        bits |= _BITS.get(column, 0)
    return bits


class Column:
    """The common part of all columns: the number of rows, and which rows have a value."""

    def __init__(self) -> None:
        self.count: i64 = 0
        self.null_count: i64 = 0
        self._valid = BytesWriter()
        self._bits: i64 = 0  # of the last octet, which is not full

    def note(self, is_there: bool) -> None:
        """Add the bit of a row."""
        place = self.count & 7
        if is_there:
            self._bits |= i64(1) << place
        else:
            self.null_count += 1
        self.count += 1
        if place == 7:
            self._valid.append(self._bits)
            self._bits = 0

    def valid(self) -> bytes:
        """Return the bits of all rows."""
        found = self._valid.getvalue()
        return found + bytes((self._bits,)) if self.count & 7 else found

    def add_none(self) -> None:
        """Add a row without a value."""
        if self.null_count == self.count:  # no value so far: `begin` writes these rows later
            self.null_count += 1
            self.count += 1
        else:
            self.write_none()
            self.note(False)

    def begin(self) -> None:
        """Write the rows that were left out, before the first value."""
        rows = self.count
        self.count = 0
        self.null_count = 0
        while self.count < rows:
            self.write_none()
            self.note(False)

    def write_none(self) -> None:
        """Write the placeholder for a missing value."""
        raise NotImplementedError


class TextColumn(Column):
    """Texts, or bytes."""

    def __init__(self) -> None:
        super().__init__()
        self._values = BytesWriter()
        self._ends = BytesWriter()
        write_i32_le(self._ends, 0)

    def add(self, value: bytes) -> None:
        if self.null_count == self.count:
            self.begin()
        self._values.write(value)
        write_i32_le(self._ends, i32(len(self._values)))
        self.note(True)

    def write_none(self) -> None:
        write_i32_le(self._ends, i32(len(self._values)))

    def ends(self) -> bytes:
        return self._ends.getvalue()

    def values(self) -> bytes:
        return self._values.getvalue()


class NumberColumn(Column):
    """Whole numbers."""

    def __init__(self) -> None:
        super().__init__()
        self._values = BytesWriter()

    def add(self, value: i64) -> None:
        if self.null_count == self.count:
            self.begin()
        write_i64_le(self._values, value)
        self.note(True)

    def write_none(self) -> None:
        write_i64_le(self._values, 0)

    def values(self) -> bytes:
        return self._values.getvalue()


class HeadersColumn(Column):
    """Tables, each as names and values."""

    def __init__(self) -> None:
        super().__init__()
        self.names = TextColumn()
        self.values = TextColumn()
        self._ends = BytesWriter()
        write_i32_le(self._ends, 0)

    def begin_row(self) -> None:
        """Begin a row. The caller adds names and values, then calls `end_row`."""
        if self.null_count == self.count:
            self.begin()

    def end_row(self) -> None:
        write_i32_le(self._ends, i32(self.names.count))
        self.note(True)

    def write_none(self) -> None:
        write_i32_le(self._ends, i32(self.names.count))

    def ends(self) -> bytes:
        return self._ends.getvalue()


class EnvelopeColumns:
    """Address and properties of many envelopes: the columns of which `wanted` has the bit."""

    def __init__(self, wanted: i64) -> None:
        self.count: i64 = 0
        self._wanted = wanted
        self._lowest = _lowest_flag(wanted)  # the last property that has to be decoded
        self.exchange = TextColumn()
        self.routing_key = TextColumn()
        self.content_type = TextColumn()
        self.content_encoding = TextColumn()
        self.headers = HeadersColumn()
        self.delivery_mode = NumberColumn()
        self.priority = NumberColumn()
        self.correlation_id = TextColumn()
        self.reply_to = TextColumn()
        self.expiration = TextColumn()
        self.message_id = TextColumn()
        self.timestamp = NumberColumn()  # seconds; an unsigned number above 2**63 is negative here
        self.type = TextColumn()
        self.user_id = TextColumn()
        self.app_id = TextColumn()
        self.properties = TextColumn()  # all properties as published, from the flags on
        self.broker_id = NumberColumn()  # from the header `x-broker-id`
        self.deaths: dict[int, Field] = {}  # the header `x-death`, by row
        # The envelope that is being decoded
        self._data: bytes = b""
        self._at: i64 = 0
        self._end: i64 = 0
        self._flags: i64 = 0

    def add(self, data: bytes, start: i64, end: i64) -> None:
        """Decode the envelope in these bytes. Raise CorruptionError if it is malformed."""
        self._data = data
        self._at = start
        self._end = end
        try:
            self._read_address()
            if self._wanted & _PROPERTIES:
                self.properties.add(data[self._at : end])
            if self._lowest != _NO_FLAG:
                self._read_properties()
        except (IndexError, ValueError, FieldSyntaxError) as fault:
            raise CorruptionError("an envelope is cut short") from fault
        self.count += 1

    def _read_address(self) -> None:
        data = self._data
        left = (i64(read_i32_be(data, self._at)) & 0xFFFFFFFF) - 1
        self._at += 8
        self._short_text(self.exchange, _EXCHANGE)
        self._short_text(self.routing_key, _ROUTING_KEY)
        while left > 0:  # skip the keys of CC and BCC: they are headers too
            self._at += 4 + (i64(read_i32_be(data, self._at)) & 0xFFFFFFFF)
            left -= 1

    def _read_properties(self) -> None:
        """Decode properties up to the last wanted one. They are in the order of their flags."""
        self._flags = i64(read_i16_be(self._data, self._at)) & 0xFFFF
        self._at += _FLAGS
        self._text(self.content_type, CONTENT_TYPE)
        self._text(self.content_encoding, CONTENT_ENCODING)
        self._read_headers()
        if self._lowest >= HEADERS:
            return
        self._octet(self.delivery_mode, DELIVERY_MODE)
        self._octet(self.priority, PRIORITY)
        if self._lowest >= PRIORITY:
            return
        self._text(self.correlation_id, CORRELATION_ID)
        self._text(self.reply_to, REPLY_TO)
        self._text(self.expiration, EXPIRATION)
        self._text(self.message_id, MESSAGE_ID)
        if self._lowest >= MESSAGE_ID:
            return
        self._read_timestamp()
        self._text(self.type, TYPE)
        self._text(self.user_id, USER_ID)
        self._text(self.app_id, APP_ID)

    def _short_text(self, column: TextColumn, bit: i64) -> None:
        start = self._at + 1
        end = start + i64(self._data[self._at])
        if end > self._end:
            raise IndexError
        if self._wanted & bit:
            column.add(self._data[start:end])
        self._at = end

    def _text(self, column: TextColumn, flag: i64) -> None:
        if self._flags & flag:
            self._short_text(column, flag)
        elif self._wanted & flag:
            column.add_none()

    def _octet(self, column: NumberColumn, flag: i64) -> None:
        if self._flags & flag:
            if self._wanted & flag:
                column.add(i64(self._data[self._at]))
            self._at += 1
        elif self._wanted & flag:
            column.add_none()

    def _read_timestamp(self) -> None:
        if self._flags & TIMESTAMP:
            if self._wanted & TIMESTAMP:
                self.timestamp.add(read_i64_be(self._data, self._at))
            self._at += 8
        elif self._wanted & TIMESTAMP:
            self.timestamp.add_none()

    def _read_headers(self) -> None:
        if self._flags & HEADERS:
            end = counted_end(self._data, self._at, self._end)
            if self._wanted & (HEADERS | _BROKER_ID | _DEATHS):
                self._read_entries(self._at + 4, end)
            self._at = end
            return
        if self._wanted & HEADERS:
            self.headers.add_none()
        if self._wanted & _BROKER_ID:
            self.broker_id.add_none()

    def _read_entries(self, at: i64, end: i64) -> None:
        headers = self.headers
        data = self._data
        wants_all = self._wanted & HEADERS != 0
        broker_id: Field | None = None
        seen: list[bytes] = []  # the first of two entries with one name counts
        if wants_all:
            headers.begin_row()
        while at < end:
            tag_at = name_end(data, at, end)
            name = data[at + 1 : tag_at]
            at = value_end(data, tag_at, end)
            if name in seen:
                continue
            seen.append(name)
            if wants_all:
                headers.names.add(name)
                _add_value(headers.values, data, tag_at, at)
            if name == DEATH_HEADER:
                if self._wanted & _DEATHS:
                    self.deaths[self.count] = decode_field(data, tag_at, at)
            elif name == BROKER_ID_HEADER:
                broker_id = decode_field(data, tag_at, at)
        if wants_all:
            headers.end_row()
        if not self._wanted & _BROKER_ID:
            return
        if broker_id is not None and broker_id.kind in INTEGERS:
            assert isinstance(broker_id.value, int)
            self.broker_id.add(broker_id.value)
        else:
            self.broker_id.add_none()


def _lowest_flag(wanted: i64) -> i64:
    """Return the lowest property flag that wanted columns need, or `_NO_FLAG`."""
    flags = wanted & _ANY_FLAG
    if wanted & (_BROKER_ID | _DEATHS):
        flags |= HEADERS
    if flags == 0:
        return _NO_FLAG
    return flags & -flags


def _add_value(column: TextColumn, data: bytes, tag_at: i64, end: i64) -> None:
    tag: i64 = data[tag_at]
    if tag == LONGSTR or tag == BINARY:
        column.add(data[tag_at + 5 : end])
    elif tag == VOID:
        column.add_none()
    else:
        column.add(field_text(decode_field(data, tag_at, end)).encode())


def field_text(field: Field) -> str:
    """Return a value as text. A void is empty."""
    value = field.value
    if isinstance(value, str):
        return text_of_bytes(value.encode("utf-8", "surrogateescape"))
    if isinstance(value, bytes):
        return text_of_bytes(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return _decimal_text(int(value[0]), int(value[1]))
    if isinstance(value, (dict, list)):
        return json.dumps(_plain(field), ensure_ascii=False, separators=(",", ":"))
    return "" if value is None else str(value)


def text_of_bytes(data: bytes) -> str:
    """Return bytes as text, with `\\xNN` for bytes that are not UTF-8."""
    return data.decode("utf-8", "backslashreplace")


def _decimal_text(scale: int, unscaled: int) -> str:
    """Return the exact number, with `scale` digits after the point."""
    if scale == 0:
        return str(unscaled)
    digits = str(unscaled).rjust(scale + 1, "0")
    return f"{digits[:-scale]}.{digits[-scale:]}"


def _plain(field: Field) -> object:
    """Return a value for JSON. Values without an exact JSON form become text."""
    value = field.value
    if isinstance(value, dict):
        return {
            text_of_bytes(str(name).encode("utf-8", "surrogateescape")): _plain(inner)
            for name, inner in value.items()
        }
    if isinstance(value, list):
        return [_plain(inner) for inner in value]
    if isinstance(value, float):
        return value if isfinite(value) else str(value)
    if value is None or isinstance(value, (bool, int)):
        return value
    return field_text(field)
