"""Check and search encoded AMQP 0-9-1 field tables, in RabbitMQ's dialect, without decoding them.

    table  = length:u32  entry*                       length counts the bytes of the entries
    entry  = name_length:u8  name  value
    value  = tag:u8  data

    tag  data                    name            tag  data                       name
    S    length:u32 bytes        longstr         t    u8, 0 is false             bool
    x    length:u32 bytes        binary          d    IEEE 754, 64 bit           double
    b    i8                      byte            f    IEEE 754, 32 bit           float
    B    u8                      unsignedbyte    D    scale:u8 unscaled:u32      decimal
    s    i16                     short           T    u64, seconds since 1970    timestamp
    u    u16                     unsignedshort   F    table                      table
    I    i32                     signedint       A    length:u32 value*          array
    i    u32                     unsignedint     V    nothing                    void
    l L  i64                     long

The functions go through the bytes by index and build no values, because the publish path uses
them. For any input they return or raise FieldSyntaxError. Bytes that passed `check_entries` can be
decoded without further checks.
"""

from typing import Final

from librt.strings import read_i32_be
from mypy_extensions import i64

from leveret.errors import FieldSyntaxError

# Nesting of tables and arrays that a peer may send. Compiled code does not check its stack, so
# this limit protects it.
NESTING_MAX: Final = 64
# The broker puts tables of peers into its own tables: the arguments of a queue into its definition,
# the headers of a traced message into the headers of the trace. So the depth limit is
# `NESTING_MAX + WRAPPING_MAX`, and the depth of a peer's table is counted from `WRAPPING_MAX`.
WRAPPING_MAX: Final = 4
DEPTH_MAX: Final = NESTING_MAX + WRAPPING_MAX

LONGSTR: Final = 0x53  # S
BINARY: Final = 0x78  # x
BYTE: Final = 0x62  # b
UNSIGNED_BYTE: Final = 0x42  # B
SHORT: Final = 0x73  # s
UNSIGNED_SHORT: Final = 0x75  # u
SIGNED_INT: Final = 0x49  # I
UNSIGNED_INT: Final = 0x69  # i
LONG: Final = 0x6C  # l
LONG_ALIAS: Final = 0x4C  # L
BOOL: Final = 0x74  # t
DOUBLE: Final = 0x64  # d
FLOAT: Final = 0x66  # f
DECIMAL: Final = 0x44  # D
TIMESTAMP: Final = 0x54  # T
TABLE: Final = 0x46  # F
ARRAY: Final = 0x41  # A
VOID: Final = 0x56  # V

# Bytes of a value after its tag, for types of fixed size.
SIZES: Final[dict[int, int]] = {
    BYTE: 1,
    UNSIGNED_BYTE: 1,
    SHORT: 2,
    UNSIGNED_SHORT: 2,
    SIGNED_INT: 4,
    UNSIGNED_INT: 4,
    LONG: 8,
    LONG_ALIAS: 8,
    BOOL: 1,
    DOUBLE: 8,
    FLOAT: 4,
    DECIMAL: 5,
    TIMESTAMP: 8,
    VOID: 0,
}

# Entries of `_SIZE_CODES` that are not sizes.
_COUNTED: Final = 254
_UNKNOWN: Final = 255


def _size_codes() -> bytes:
    codes = bytearray([_UNKNOWN]) * 256
    for tag, size in SIZES.items():
        codes[tag] = size
    for tag in (LONGSTR, BINARY, TABLE, ARRAY):
        codes[tag] = _COUNTED
    return bytes(codes)


# Size by tag. In compiled code, a look-up in a dict would cost ten times as much.
_SIZE_CODES: Final[bytes] = _size_codes()


def counted_end(data: bytes, at: i64, end: i64) -> i64:
    """Return the end of the bytes that the u32 at `at` counts; it must not be after `end`."""
    if at < 0 or end > len(data) or end - at < 4:
        raise FieldSyntaxError("field table: a length is cut short")
    # The mask makes a u32 of 2^31 or more positive again.
    length: i64 = i64(read_i32_be(data, at)) & 0xFFFFFFFF
    if length > end - at - 4:
        raise FieldSyntaxError("field table: a length reaches past the end")
    return at + 4 + length


def value_end(data: bytes, at: i64, end: i64) -> i64:
    """Return the end of the value whose tag is at `at`; the inside of a table is not checked."""
    if at >= end:
        raise FieldSyntaxError("field table: a value is missing")
    code: i64 = _SIZE_CODES[data[at]]
    if code == _COUNTED:
        return counted_end(data, at + 1, end)
    if code == _UNKNOWN:
        raise FieldSyntaxError(f"field table: unknown type tag {data[at]}")
    if code > end - at - 1:
        raise FieldSyntaxError("field table: a value is cut short")
    return at + 1 + code


def name_end(data: bytes, at: i64, end: i64) -> i64:
    """Return the end of the entry name whose length octet is at `at`."""
    stop: i64 = at + 1 + data[at]
    if stop >= end:
        raise FieldSyntaxError("field table: a name is cut short")
    return stop


def check_value(data: bytes, at: i64, end: i64, depth: i64) -> i64:
    """Return the end of a value as `value_end` does, and check inside tables and arrays too."""
    stop = value_end(data, at, end)
    tag: i64 = data[at]
    if tag == TABLE:
        check_entries(data, at + 5, stop, depth + 1)
    elif tag == ARRAY:
        _check_items(data, at + 5, stop, depth + 1)
    return stop


def check_entries(data: bytes, start: i64, end: i64, depth: i64) -> None:
    """Raise FieldSyntaxError unless the bytes are valid entries, with all nested values."""
    _require_depth(depth)
    at = start
    while at < end:
        at = check_value(data, name_end(data, at, end), end, depth)


def _check_items(data: bytes, start: i64, end: i64, depth: i64) -> None:
    _require_depth(depth)
    at = start
    while at < end:
        at = check_value(data, at, end, depth)


def _require_depth(depth: i64) -> None:
    if depth > DEPTH_MAX:
        raise FieldSyntaxError(f"field table: nested deeper than {NESTING_MAX}")


def find_entry(data: bytes, start: i64, end: i64, name: bytes) -> i64:
    """Return the index of the tag of the first entry called `name`, or -1.

    The entries up to that one are checked, but not the inside of nested tables and arrays.
    """
    require_span(data, start, end)
    length: i64 = len(name)
    at = start
    while at < end:
        tag_at = name_end(data, at, end)
        stop = value_end(data, tag_at, end)
        if tag_at - at - 1 == length and data[at + 1 : tag_at] == name:
            return tag_at
        at = stop
    return -1


def require_span(data: bytes, start: i64, end: i64) -> None:
    """Raise FieldSyntaxError unless start and end are in the data, in this order."""
    if start < 0 or end < start or end > len(data):
        raise FieldSyntaxError("field table: cut short")
