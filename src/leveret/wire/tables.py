"""Encode and decode AMQP 0-9-1 field tables, in RabbitMQ's dialect.

`leveret.wire.scan` describes the format and checks it. RabbitMQ: the tag `L` is read as a signed
64-bit number and written back as `l`; here too. If two entries have the same name, the first
counts. Text is decoded with surrogateescape, so that any bytes survive a round trip.

Decoding raises FieldSyntaxError and nothing else. Encoding raises ValueError for a value that no
table can hold.
"""

from calendar import timegm
from collections.abc import Mapping
from datetime import datetime
from typing import Final

from librt.strings import (
    BytesWriter,
    read_f32_be,
    read_f64_be,
    read_i16_be,
    read_i32_be,
    read_i64_be,
    write_f32_be,
    write_f64_be,
)
from mypy_extensions import i64

from leveret.wire.scan import (
    ARRAY,
    BINARY,
    BOOL,
    BYTE,
    DECIMAL,
    DEPTH_MAX,
    DOUBLE,
    FLOAT,
    LONG,
    LONG_ALIAS,
    LONGSTR,
    SHORT,
    SIGNED_INT,
    SIZES,
    TABLE,
    TIMESTAMP,
    UNSIGNED_BYTE,
    UNSIGNED_INT,
    UNSIGNED_SHORT,
    VOID,
    WRAPPING_MAX,
    check_entries,
    check_value,
    counted_end,
    name_end,
    require_span,
    value_end,
)
from leveret.wire.scan import NESTING_MAX as NESTING_MAX
from leveret.wire.scan import find_entry as find_entry

NAME_BYTES_MAX: Final = 255

_SIGNED: Final[frozenset[int]] = frozenset((BYTE, SHORT, SIGNED_INT, LONG))
_UNSIGNED: Final[frozenset[int]] = frozenset((UNSIGNED_BYTE, UNSIGNED_SHORT, UNSIGNED_INT))

INTEGERS: Final[frozenset[int]] = _SIGNED | _UNSIGNED

# Kinds that are compared by value. RabbitMQ: a timestamp is a number, a decimal is not.
_NUMBERS: Final[frozenset[int]] = INTEGERS | frozenset((DOUBLE, FLOAT, TIMESTAMP))

_NAMES: Final[dict[int, str]] = {
    LONGSTR: "longstr",
    BINARY: "binary",
    BYTE: "byte",
    UNSIGNED_BYTE: "unsignedbyte",
    SHORT: "short",
    UNSIGNED_SHORT: "unsignedshort",
    SIGNED_INT: "signedint",
    UNSIGNED_INT: "unsignedint",
    LONG: "long",
    BOOL: "bool",
    DOUBLE: "double",
    FLOAT: "float",
    DECIMAL: "decimal",
    TIMESTAMP: "timestamp",
    TABLE: "table",
    ARRAY: "array",
    VOID: "void",
}


class Field:
    """One typed value.

    kind    the tag octet, a constant of `leveret.wire.scan` (never `L`)
    value   S str; x bytes; integers and T int; t bool; d f float; D (scale, unscaled);
            F dict of Field; A list of Field; V None
    """

    def __init__(self, kind: int, value: object) -> None:
        self.kind = kind
        self.value = value

    def __eq__(self, other: object) -> bool:
        """Compare kind and value; see `equal_values` for RabbitMQ's wider equality."""
        if not isinstance(other, Field):
            return False
        return self.kind == other.kind and self.value == other.value

    def __hash__(self) -> int:
        return hash(self.kind)

    def __repr__(self) -> str:
        return f"Field({chr(self.kind)!r}, {self.value!r})"


Table = dict[str, Field]


def kind_name(kind: int) -> str:
    """Return RabbitMQ's name of a type, as in its error texts."""
    return _NAMES[kind]


def decode_table(data: bytes, start: i64, end: i64) -> Table:
    """Decode the entries between start and end: a table without its length."""
    return _decode_table(data, start, end, 0)


def decode_peer_table(data: bytes, start: i64, end: i64) -> Table:
    """Decode a table of a peer as `decode_table` does, with a lower depth limit.

    The limit leaves room for the tables into which the broker puts it (`WRAPPING_MAX`).
    """
    return _decode_table(data, start, end, WRAPPING_MAX)


def _decode_table(data: bytes, start: i64, end: i64, depth: i64) -> Table:
    require_span(data, start, end)
    check_entries(data, start, end, depth)
    return _read_entries(data, start, end, depth)


def decode_field(data: bytes, at: i64, end: i64) -> Field:
    """Decode the value whose tag is at `at`, as `find_entry` returns it."""
    require_span(data, at, end)
    check_value(data, at, end, 0)
    return _read_field(data, at, end, 0)


# The `_read_` functions get bytes that were checked before, and check nothing.


def _read_entries(data: bytes, start: i64, end: i64, depth: i64) -> Table:
    assert depth <= DEPTH_MAX
    table: Table = {}
    at = start
    while at < end:
        tag_at = name_end(data, at, end)
        name = data[at + 1 : tag_at].decode("utf-8", "surrogateescape")
        if name not in table:
            table[name] = _read_field(data, tag_at, end, depth)
        at = value_end(data, tag_at, end)
    return table


def _read_items(data: bytes, start: i64, end: i64, depth: i64) -> list[Field]:
    assert depth <= DEPTH_MAX
    items: list[Field] = []
    at = start
    while at < end:
        items.append(_read_field(data, at, end, depth))
        at = value_end(data, at, end)
    return items


def _read_field(data: bytes, tag_at: i64, end: i64, depth: i64) -> Field:
    tag: i64 = data[tag_at]
    at = tag_at + 1
    if tag == LONGSTR:
        text = data[at + 4 : counted_end(data, at, end)]
        return Field(LONGSTR, text.decode("utf-8", "surrogateescape"))
    if tag == TABLE:
        return Field(TABLE, _read_entries(data, at + 4, counted_end(data, at, end), depth + 1))
    if tag == ARRAY:
        return Field(ARRAY, _read_items(data, at + 4, counted_end(data, at, end), depth + 1))
    if tag == BINARY:
        return Field(BINARY, data[at + 4 : counted_end(data, at, end)])
    if tag == LONG_ALIAS:
        return Field(LONG, _read_number(data, at, LONG))
    return Field(tag, _read_fixed(data, at, tag))


def _read_fixed(data: bytes, at: i64, tag: i64) -> object:
    if tag == BOOL:
        return data[at] != 0
    if tag == VOID:
        return None
    if tag == DOUBLE:
        return read_f64_be(data, at)
    if tag == FLOAT:
        return read_f32_be(data, at)
    if tag == DECIMAL:
        return (int(data[at]), _read_number(data, at + 1, UNSIGNED_INT))
    return _read_number(data, at, tag)


def _read_number(data: bytes, at: i64, tag: i64) -> int:
    if tag == SIGNED_INT:
        return int(read_i32_be(data, at))
    if tag == UNSIGNED_INT:
        return int(i64(read_i32_be(data, at)) & 0xFFFFFFFF)
    if tag == LONG:
        return int(read_i64_be(data, at))
    if tag == TIMESTAMP:
        return read_u64(data, at)
    if tag == SHORT:
        return int(read_i16_be(data, at))
    if tag == UNSIGNED_SHORT:
        return int(i64(read_i16_be(data, at)) & 0xFFFF)
    octet: i64 = data[at]
    if tag == BYTE and octet >= 0x80:
        octet -= 0x100
    return int(octet)


def read_u64(data: bytes, at: i64) -> int:
    """Return the unsigned number in the eight bytes at `at`; it may not fit an i64."""
    number = int(read_i64_be(data, at))
    return number if number >= 0 else number + (1 << 64)


def encode_table(table: Table) -> bytes:
    """Encode a table with its length; raise ValueError if a name is too long."""
    writer = BytesWriter()
    _write_table(writer, table, 0)
    return writer.getvalue()


def _write_counted(writer: BytesWriter, data: bytes) -> None:
    writer.write(len(data).to_bytes(4, "big"))
    writer.write(data)


def _write_table(writer: BytesWriter, table: Table, depth: i64) -> None:
    entries = BytesWriter()
    for name, field in table.items():
        encoded = name.encode("utf-8", "surrogateescape")
        if len(encoded) > NAME_BYTES_MAX:
            raise ValueError(f"a name of {len(encoded)} bytes does not fit a field table")
        entries.append(len(encoded))
        entries.write(encoded)
        _write_field(entries, field, depth)
    _write_counted(writer, entries.getvalue())


def _write_array(writer: BytesWriter, fields: list[Field], depth: i64) -> None:
    items = BytesWriter()
    for field in fields:
        _write_field(items, field, depth)
    _write_counted(writer, items.getvalue())


def _write_field(writer: BytesWriter, field: Field, depth: i64) -> None:
    _require_depth(depth)
    kind = field.kind
    value = field.value
    writer.append(kind)
    if isinstance(value, str):
        _write_counted(writer, value.encode("utf-8", "surrogateescape"))
    elif isinstance(value, bytes):
        _write_counted(writer, value)
    elif isinstance(value, dict):
        _write_table(writer, value, depth + 1)
    elif isinstance(value, list):
        _write_array(writer, value, depth + 1)
    elif isinstance(value, tuple):
        writer.append(value[0])
        writer.write(int(value[1]).to_bytes(4, "big"))
    elif value is not None:
        _write_number(writer, kind, value)


def _write_number(writer: BytesWriter, kind: int, value: object) -> None:
    if isinstance(value, bool):
        writer.append(1 if value else 0)
    elif isinstance(value, float):
        if kind == DOUBLE:
            write_f64_be(writer, value)
        else:
            write_f32_be(writer, value)
    else:
        assert isinstance(value, int), "the kind and the value of a field must agree"
        writer.write(value.to_bytes(SIZES[kind], "big", signed=kind in _SIGNED))


def _require_depth(depth: i64) -> None:
    if depth > DEPTH_MAX:
        raise ValueError(f"a field table cannot be nested deeper than {NESTING_MAX}")


def field_of(value: object) -> Field:
    """Convert a Python value to a field; raise ValueError if no type fits."""
    return _field_of(value, WRAPPING_MAX)


def table_of(values: Mapping[str, object]) -> Table:
    """Convert a mapping of Python values to a table."""
    return {name: _field_of(value, WRAPPING_MAX) for name, value in values.items()}


def _field_of(value: object, depth: i64) -> Field:
    _require_depth(depth)
    if isinstance(value, Field):
        return value
    if isinstance(value, str):
        return Field(LONGSTR, value)
    if isinstance(value, bool):
        return Field(BOOL, value)
    if isinstance(value, int):
        return _integer_field(value)
    if isinstance(value, (list, tuple)):
        return Field(ARRAY, [_field_of(item, depth + 1) for item in value])
    if isinstance(value, dict):
        return Field(TABLE, {str(name): _field_of(value[name], depth + 1) for name in value})
    return _scalar_field(value)


def _integer_field(value: int) -> Field:
    if -(1 << 31) <= value < 1 << 31:
        return Field(SIGNED_INT, value)
    if -(1 << 63) <= value < 1 << 63:
        return Field(LONG, value)
    raise ValueError(f"{value} does not fit 64 bits")


def _scalar_field(value: object) -> Field:
    if value is None:
        return Field(VOID, None)
    if isinstance(value, float):
        return Field(DOUBLE, value)
    if isinstance(value, bytes):
        return Field(BINARY, value)
    if isinstance(value, datetime):
        return Field(TIMESTAMP, _seconds(value))
    raise ValueError(f"a field table cannot hold a value of type {type(value).__name__}")


def _seconds(moment: datetime) -> int:
    """Return the seconds since 1970. A time without a zone is UTC, never the machine's zone."""
    seconds = int(timegm(moment.utctimetuple()))
    if seconds < 0:
        raise ValueError(f"{moment} is before 1970")
    return seconds


def plain_table(table: Table) -> dict[str, object]:
    """Convert a table to values for JSON: without types, and with U+FFFD for invalid UTF-8."""
    return {_shown(name): plain_value(field) for name, field in table.items()}


def plain_value(field: Field) -> object:
    """Convert one value for JSON."""
    value = field.value
    if isinstance(value, str):
        return _shown(value)
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, dict):
        return plain_table(value)
    if isinstance(value, list):
        return [plain_value(item) for item in value]
    if isinstance(value, tuple):
        return float(value[1] / 10 ** int(value[0]))
    return value


def _shown(text: str) -> str:
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def equal_values(a: Field, b: Field) -> bool:
    """Return True if RabbitMQ calls two header values or arguments equal.

    Whole numbers are compared by value whatever their width, and so are floats. A float never
    equals a whole number (RabbitMQ 4), and a bool never equals a number. Text and binary are
    compared by their bytes. Inside tables and arrays the kinds must be equal too.
    """
    if a.kind == b.kind:
        return a.value == b.value
    if a.kind in _NUMBERS and b.kind in _NUMBERS:
        return isinstance(a.value, float) == isinstance(b.value, float) and a.value == b.value
    octets = _octets(a)
    return octets is not None and octets == _octets(b)


def _octets(field: Field) -> bytes | None:
    value = field.value
    if isinstance(value, str):
        return value.encode("utf-8", "surrogateescape")
    return value if isinstance(value, bytes) else None
