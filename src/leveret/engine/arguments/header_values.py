"""Format field values as RabbitMQ's error texts show them, and parse texts as whole numbers.

The format is that of Erlang terms. It is copied because clients and their tests compare error
texts. RabbitMQ breaks long values into lines; Leveret does not.
"""

from typing import Final

from mypy_extensions import i64

from leveret.wire.scan import DEPTH_MAX
from leveret.wire.tables import Field, Table, kind_name

# Longer than every useful number. Python refuses to convert very long texts.
_DIGITS_MAX: Final = 255

_ESCAPES: Final[dict[str, str]] = {
    '"': '\\"',
    "\\": "\\\\",
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
    "\v": "\\v",
    "\f": "\\f",
    "\b": "\\b",
    "\x1b": "\\e",
}


def shown_text(text: str) -> str:
    """Format a text: quoted if all of it is printable, otherwise as a list of bytes."""
    if not text:
        return "<<>>"
    quoted = "".join([_ESCAPES.get(char, char) for char in text])
    for char in text:
        if char not in _ESCAPES and not _is_printable(char):
            data = text.encode("utf-8", "surrogateescape")
            return "<<" + ",".join([str(octet) for octet in data]) + ">>"
    return f'<<"{quoted}">>'


def parse_integer(text: str) -> int | None:
    """Return the number of a text of ASCII digits with an optional sign; None for other texts."""
    digits = text[1:] if text[:1] in ("+", "-") else text
    if len(digits) > _DIGITS_MAX or not digits.isascii() or not digits.isdigit():
        return None
    return int(text)


def shown_value(field: Field) -> str:
    """Format the value of a field, without its type."""
    return _shown_field(field, 0)


def _shown_field(field: Field, depth: i64) -> str:
    assert depth <= DEPTH_MAX
    value = field.value
    if isinstance(value, str):
        return shown_text(value)
    if isinstance(value, bytes):
        return shown_text(value.decode("utf-8", "surrogateescape"))
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return _shown_float(value)
    if isinstance(value, dict):
        return _shown_table(value, depth + 1)
    if isinstance(value, list):
        return "[" + ",".join([_shown_item(item, depth + 1) for item in value]) + "]"
    if isinstance(value, tuple):
        return f"{{{value[0]},{value[1]}}}"
    return "undefined" if value is None else str(value)


def _shown_table(table: Table, depth: i64) -> str:
    entries = [
        f"{{{shown_text(name)},{kind_name(field.kind)},{_shown_field(field, depth)}}}"
        for name, field in table.items()
    ]
    return "[" + ",".join(entries) + "]"


def _shown_item(field: Field, depth: i64) -> str:
    return f"{{{kind_name(field.kind)},{_shown_field(field, depth)}}}"


def _shown_float(value: float) -> str:
    """Format with the fewest digits, but always with a point: 1.0e22, not 1e+22."""
    text = str(value)
    mantissa, mark, exponent = text.partition("e")
    if not mark:
        return text
    point = mantissa if "." in mantissa else mantissa + ".0"
    return f"{point}e{int(exponent)}"


def _is_printable(char: str) -> bool:
    """Return False for control characters, and for surrogates (bytes that are not UTF-8)."""
    code = ord(char)
    return 0x20 <= code < 0x7F or (code >= 0xA0 and not 0xD800 <= code < 0xE000)
