"""Encode message properties without loss, so that a copy equals the message.

The client library changes headers in three ways: it writes every floating-point value with four
bytes, refuses texts that are not UTF-8 (which it reads as bytes), and cuts header names at 128
bytes. `LosslessProperties` encodes the headers itself and keeps all three. An integer may get a
shorter type; its value stays.
"""

import struct
from typing import Any, Final

from pamqp import encode
from pamqp.commands import Basic

NAME_BYTES_MAX: Final = 255  # a header name is a short string of AMQP


class LosslessProperties(Basic.Properties):
    """Properties whose headers are encoded without loss."""

    def encode_property(self, name: str, value: Any) -> bytes:
        """Return one property as bytes."""
        if name == "headers":
            return _table(value)
        return bytes(super().encode_property(name, value))


def copy_properties(properties: Basic.Properties, **changed: Any) -> LosslessProperties:
    """Copy properties with some changed. A property that is None is left out of the message."""
    fields = {name: getattr(properties, name) for name in Basic.Properties.attributes()}
    return LosslessProperties(**{**fields, **changed})


def _table(table: dict[str, Any]) -> bytes:
    inner = b"".join(_short(name) + _value(value) for name, value in table.items())
    return struct.pack(">I", len(inner)) + inner


def _short(name: str) -> bytes:
    if not isinstance(name, str):
        raise TypeError(f"a header name must be a str, not {name!r}")
    data = name.encode()
    if len(data) > NAME_BYTES_MAX:
        raise ValueError(
            f"a header name has {len(data)} bytes; at most {NAME_BYTES_MAX} are allowed"
        )
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
