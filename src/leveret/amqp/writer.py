"""Write the payload of one AMQP method: class, method and arguments, in order."""

from typing import Final

from librt.strings import BytesWriter, write_i16_be, write_i32_be, write_i64_be
from mypy_extensions import i16, i32, i64, u8

from leveret.wire.tables import Table, encode_table

SHORT_STRING_BYTES_MAX: Final = 255
_DOTS: Final = b"..."
_LONG_MAX: Final = (1 << 32) - 1


def signed16(value: i64) -> i16:
    """Return an unsigned 16-bit number as the signed number that `librt` writes."""
    assert 0 <= value <= 0xFFFF
    return i16(value - 0x10000 if value > 0x7FFF else value)


class MethodWriter:
    """Builds the payload of a method; the counterpart of `MethodReader`."""

    def __init__(self, method: i64) -> None:
        self._out = BytesWriter()
        write_i32_be(self._out, i32(method))

    def octet(self, value: i64) -> "MethodWriter":
        self._out.append(u8(value & 0xFF))
        return self

    def short(self, value: i64) -> "MethodWriter":
        write_i16_be(self._out, signed16(value))
        return self

    def long(self, value: i64) -> "MethodWriter":
        """Write 32 bits; a larger number is replaced by the greatest that fits."""
        if value > _LONG_MAX:
            value = _LONG_MAX
        write_i32_be(self._out, i32(value - (1 << 32) if value >> 31 else value))
        return self

    def longlong(self, value: i64) -> "MethodWriter":
        write_i64_be(self._out, value)
        return self

    def short_string(self, text: str) -> "MethodWriter":
        """Write a short string. RabbitMQ: text over 255 bytes is cut at a character, with dots."""
        data = text.encode("utf-8", "surrogateescape")
        if len(data) > SHORT_STRING_BYTES_MAX:
            cut = data[: SHORT_STRING_BYTES_MAX - len(_DOTS)].decode("utf-8", "ignore")
            data = cut.encode("utf-8") + _DOTS
        self._out.append(len(data))
        self._out.write(data)
        return self

    def long_string(self, data: bytes) -> "MethodWriter":
        write_i32_be(self._out, i32(len(data)))
        self._out.write(data)
        return self

    def table(self, table: Table) -> "MethodWriter":
        self._out.write(encode_table(table))
        return self

    def payload(self) -> bytes:
        return self._out.getvalue()
