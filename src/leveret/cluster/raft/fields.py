"""Numbers and bytes in the formats of the cluster: written by functions, read by `Reader`.

Numbers are big-endian and never negative. Bytes from a peer or a disk are read only by a `Reader`.
It raises `FieldSyntaxError` if bytes are missing or a number is out of range, and never reads
beyond its end.
"""

from typing import Final

from librt.strings import BytesWriter, read_i32_be, read_i64_be, write_i32_be, write_i64_be
from mypy_extensions import i32, i64

from leveret.errors import FieldSyntaxError

U32_MAX: Final = 0x7FFF_FFFF  # for sizes and counts; nothing here is as large as 2 GiB
U64_MAX: Final = 0x3FFF_FFFF_FFFF_FFFF  # leaves room for arithmetic that must not wrap


def write_u32(writer: BytesWriter, value: i64) -> None:
    assert 0 <= value <= U32_MAX
    write_i32_be(writer, i32(value))


def write_u64(writer: BytesWriter, value: i64) -> None:
    assert 0 <= value <= U64_MAX
    write_i64_be(writer, value)


def write_bytes(writer: BytesWriter, value: bytes) -> None:
    """Write a size and that many bytes."""
    write_u32(writer, len(value))
    writer.write(value)


class Reader:
    """Reads fields one after the other, up to `end`."""

    def __init__(self, data: bytes, at: i64, end: i64) -> None:
        assert 0 <= at <= end <= len(data)
        self.data = data
        self.at: i64 = at
        self.end: i64 = end

    def _take(self, size: i64) -> i64:
        """Return the position of the next `size` bytes, and move past them."""
        at = self.at
        if size > self.end - at:
            raise FieldSyntaxError(f"{size} bytes wanted at {at}, {self.end - at} left")
        self.at = at + size
        return at

    def u8(self) -> i64:
        return self.data[self._take(1)]

    def u32(self) -> i64:
        value = i64(read_i32_be(self.data, self._take(4)))
        if value < 0:
            raise FieldSyntaxError(f"a size or count over {U32_MAX}")
        return value

    def u64(self) -> i64:
        value = read_i64_be(self.data, self._take(8))
        if value < 0 or value > U64_MAX:
            raise FieldSyntaxError(f"a number over {U64_MAX}")
        return value

    def count(self, bytes_each: i64) -> i64:
        """Read a count of items of at least `bytes_each` bytes; raise if they cannot fit."""
        value = self.u32()
        if value * bytes_each > self.end - self.at:
            raise FieldSyntaxError(f"{value} entries cannot be in {self.end - self.at} bytes")
        return value

    def raw(self, size: i64) -> bytes:
        at = self._take(size)
        return self.data[at : at + size]

    def sized(self) -> bytes:
        """Read a size and that many bytes."""
        return self.raw(self.u32())

    def sized_within(self, bytes_max: i64) -> bytes:
        """Read a size and that many bytes; raise if there are more than `bytes_max`."""
        size = self.u32()
        if size > bytes_max:
            raise FieldSyntaxError(f"{size} bytes where {bytes_max} are allowed")
        return self.raw(size)

    def require_end(self) -> None:
        if self.at != self.end:
            raise FieldSyntaxError(f"{self.end - self.at} bytes too many")
