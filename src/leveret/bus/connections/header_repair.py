"""Rewrite content headers that the client library cannot decode: pure, bytes to bytes.

Three kinds of values are legal for a broker and fatal for the library: times beyond the year 9999
(from publishers that count micro- or nanoseconds), short strings that are not UTF-8, and tables
inside tables without end. The library drops the connection, the broker delivers the message again,
and so on for ever.

A wrong time in a table becomes a number; as a property it is left out. A short string is read as
Latin-1 and written as UTF-8. A table or list deeper than `DEPTH_MAX` becomes a byte array of its
bytes. All other bytes stay as they are, and a malformed header is returned unchanged.
"""

import struct
from typing import Final

TIME_MAX: Final = 253_402_300_799_999  # in ms, because the library reads large times as ms
SHORT_BYTES_MAX: Final = 255
DEPTH_MAX: Final = 100  # tables and lists inside each other; decoding 450 of them fails

_FLAGS_AT: Final = 12  # after class, weight and body size
_CONTINUED: Final = 1  # more flags follow; no AMQP property needs them
# The type of each property from the highest flag on: s short string, F table, o octet, T time.
_PROPERTIES: Final = b"ssFoossssTssss"
_SIZES: Final = {
    **dict.fromkeys(b"tbB", 1),
    **dict.fromkeys(b"su", 2),
    **dict.fromkeys(b"Iif", 4),
    ord("D"): 5,
    **dict.fromkeys(b"lLdT", 8),
    **dict.fromkeys(b"V\x00", 0),
}
_LONG: Final = b"SxFA"  # types with a size of four bytes before the value
_U32: Final = struct.Struct(">I")
_U64: Final = struct.Struct(">Q")


def is_perhaps_deep(payload: bytes) -> bool:
    """Return True if tables and lists may be inside each other deeper than `DEPTH_MAX`.

    Such a header may still be decoded, but not encoded again for a retry.
    """
    return payload.count(b"F") + payload.count(b"A") > DEPTH_MAX


def repair_content_header(payload: bytes) -> bytes:
    """Return the payload of a content header in a form that the client library can decode."""
    try:
        return _header(payload)
    except (ValueError, IndexError, struct.error):
        return payload


def _header(payload: bytes) -> bytes:
    (flags,) = struct.unpack_from(">H", payload, _FLAGS_AT)
    if flags & _CONTINUED:
        raise ValueError("more flags than AMQP has properties")
    parts: list[bytes] = []
    at = _FLAGS_AT + 2
    for position, kind in enumerate(_PROPERTIES):
        flag = 1 << (15 - position)
        if not flags & flag:
            continue
        end = at + _property_bytes(payload, at, kind)
        value = payload[at:end]
        at = end
        if kind == ord("T") and not _is_time(value):
            flags &= ~flag
        else:
            parts.append(_property(kind, value))
    _require_end(at, payload)
    return b"".join((payload[:_FLAGS_AT], struct.pack(">H", flags), *parts))


def _property_bytes(payload: bytes, at: int, kind: int) -> int:
    if kind == ord("s"):
        return 1 + payload[at]
    if kind == ord("F"):
        return 4 + int(_U32.unpack_from(payload, at)[0])
    return 8 if kind == ord("T") else 1


def _property(kind: int, value: bytes) -> bytes:
    if kind == ord("s"):
        return _short(value[1:])
    return _sized(_entries(value[4:], 1)) if kind == ord("F") else value


def _entries(table: bytes, depth: int) -> bytes:
    """Repair the names and values of a table."""
    parts: list[bytes] = []
    at = 0
    while at < len(table):
        name_end = at + 1 + table[at]
        parts.append(_short(table[at + 1 : name_end]))
        at = name_end + _value_bytes(table, name_end)
        parts.append(_value(table[name_end:at], depth))
    _require_end(at, table)
    return b"".join(parts)


def _items(array: bytes, depth: int) -> bytes:
    parts: list[bytes] = []
    at = 0
    while at < len(array):
        end = at + _value_bytes(array, at)
        parts.append(_value(array[at:end], depth))
        at = end
    _require_end(at, array)
    return b"".join(parts)


def _require_end(at: int, data: bytes) -> None:
    if at != len(data):
        raise ValueError(f"{len(data)} bytes instead of {at}")


def _value_bytes(data: bytes, at: int) -> int:
    """Return the size of a value, with its type octet."""
    kind = data[at]
    if kind in _LONG:
        return 5 + int(_U32.unpack_from(data, at + 1)[0])
    if kind not in _SIZES:
        raise ValueError(f"not a type of AMQP: {kind}")
    return 1 + _SIZES[kind]


def _value(value: bytes, depth: int) -> bytes:
    kind = value[:1]
    if kind == b"T" and not _is_time(value[1:]):
        return b"l" + value[1:]  # a 64-bit integer: the eight bytes stay
    if kind in (b"F", b"A") and depth == DEPTH_MAX:
        return b"x" + value[1:]  # the size and the bytes stay
    if kind == b"F":
        return kind + _sized(_entries(value[5:], depth + 1))
    if kind == b"A":
        return kind + _sized(_items(value[5:], depth + 1))
    return value


def _is_time(value: bytes) -> bool:
    return int(_U64.unpack(value)[0]) <= TIME_MAX


def _short(text: bytes) -> bytes:
    try:
        text.decode()
    except UnicodeDecodeError:
        # A text that grows too long is cut between two characters.
        whole = text.decode("latin-1").encode()[:SHORT_BYTES_MAX]
        text = whole.decode(errors="ignore").encode()
    return bytes((len(text),)) + text


def _sized(data: bytes) -> bytes:
    return _U32.pack(len(data)) + data
