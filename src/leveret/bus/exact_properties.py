"""Properties that leave as they came: a copy of a message must not differ from the message.

The client library writes every floating-point header with four bytes, whatever came with eight;
refuses texts that are not UTF-8, which it reads as bytes; and cuts names of headers at 128 bytes.
`ExactProperties` are its properties with a table of headers that keeps all three. Integers may get
a shorter type than they had; their value stays.
"""

import struct
from typing import Any, Final

from pamqp import encode
from pamqp.commands import Basic

NAME_BYTES_MAX: Final = 255  # of a header: a short string of AMQP


class ExactProperties(Basic.Properties):
    """Properties whose headers are encoded without loss."""

    def encode_property(self, name: str, value: Any) -> bytes:
        """One property as bytes."""
        if name == "headers":
            return _table(value)
        return bytes(super().encode_property(name, value))


def exact_copy(properties: Basic.Properties, **changed: Any) -> ExactProperties:
    """A copy with some properties changed; what is None is left out of a message."""
    fields = {name: getattr(properties, name) for name in Basic.Properties.attributes()}
    return ExactProperties(**{**fields, **changed})


def _table(table: dict[str, Any]) -> bytes:
    inner = b"".join(_short(name) + _value(value) for name, value in table.items())
    return struct.pack(">I", len(inner)) + inner


def _short(name: str) -> bytes:
    if not isinstance(name, str):
        raise TypeError(f"a header's name is a text, not {name!r}")
    data = name.encode()
    if len(data) > NAME_BYTES_MAX:
        raise ValueError(f"a header's name has {len(data)} bytes; {NAME_BYTES_MAX} is the most")
    return bytes((len(data),)) + data


def _value(value: Any) -> bytes:
    if isinstance(value, float):
        return b"d" + struct.pack(">d", value)
    if isinstance(value, bytes):
        return b"S" + struct.pack(">I", len(value)) + value
    if isinstance(value, dict):
        return b"F" + _table(value)
    if isinstance(value, list):
        inner = b"".join(_value(each) for each in value)
        return b"A" + struct.pack(">I", len(inner)) + inner
    return encode.encode_table_value(value)
