"""Read the arguments of one AMQP method, in order.

    octet:u8  short:u16  long:u32  longlong:u64  bits:u8
    short string = length:u8 UTF-8    long string = length:u32 octets    table = length:u32 entries

Every read is checked against the end of the method. A method that is too short raises a FrameError
that shows its octets, as RabbitMQ does.
"""

from typing import Final

from librt.strings import read_i16_be, read_i32_be, read_i64_be
from mypy_extensions import i64

from leveret.errors import FrameError
from leveret.wire.tables import Table, decode_peer_table

MALFORMED_UTF8: Final = "Malformed UTF-8 in shortstr"
_SHOWN_BYTES_MAX: Final = 64  # of an undecodable method, in the error text


class MethodReader:
    """Reads the payload of a method frame, from its first argument on."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at: i64 = 4  # after class and method
        self.end: i64 = len(data)

    def octet(self) -> i64:
        at = self._take(1)
        return self.data[at]

    def bit(self) -> bool:
        """Read an octet that holds a single bit argument."""
        return (self.octet() & 1) != 0

    def short(self) -> i64:
        at = self._take(2)
        return i64(read_i16_be(self.data, at)) & 0xFFFF

    def long(self) -> i64:
        at = self._take(4)
        return i64(read_i32_be(self.data, at)) & 0xFFFFFFFF

    def longlong(self) -> i64:
        """Read 64 bits; a number of 2^63 and over comes out negative."""
        at = self._take(8)
        return read_i64_be(self.data, at)

    def short_string(self) -> str:
        size = self.octet()
        at = self._take(size)
        try:
            return self.data[at : at + size].decode("utf-8")
        except UnicodeDecodeError as fault:
            raise FrameError(MALFORMED_UTF8) from fault

    def long_string(self) -> bytes:
        size = self.long()
        at = self._take(size)
        return self.data[at : at + size]

    def table(self) -> Table:
        size = self.long()
        at = self._take(size)
        return decode_peer_table(self.data, at, at + size)

    def finish(self) -> None:
        """Raise FrameError unless the method ends here."""
        if self.at != self.end:
            raise self._undecodable()

    def _take(self, size: i64) -> i64:
        at = self.at
        if size > self.end - at:
            raise self._undecodable()
        self.at = at + size
        return at

    def _undecodable(self) -> FrameError:
        shown = self.data[4 : 4 + _SHOWN_BYTES_MAX]
        octets = ",".join([str(octet) for octet in shown])
        return FrameError(f"cannot decode <<{octets}>>")
