"""A chunk as the worker reads it: its columns as stretches of bytes, no message for itself.

The format is drawn in `leveret.journal.chunks`. A `ChunkView` is made of bytes whose checksum was
right; `Part` is what a batch takes of it.
"""

import struct
from array import array
from bisect import bisect_left
from operator import sub
from typing import Final
from zlib import crc32

from leveret.errors import Corrupt
from leveret.journal.chunks import CHUNK_HEAD_BYTES

_HEAD: Final = struct.Struct("<IIQQQII")
_NUMBER: Final = struct.Struct("<I")
_ITEM: Final = 4  # bytes of a number in a column


def chunk_size(head: bytes | memoryview) -> int:
    """The size of the chunk that begins with these bytes, which are enough for a head."""
    return CHUNK_HEAD_BYTES + int(_NUMBER.unpack_from(head)[0])


def chunk_range(head: bytes | memoryview) -> tuple[int, int]:
    """The first offset of the chunk that begins with these bytes, and its number of messages."""
    fields = _HEAD.unpack_from(head)
    return fields[2], fields[5]


class ChunkView:
    """The columns of one chunk."""

    def __init__(self, data: bytes | memoryview) -> None:
        """Raises Corrupt where the bytes are not one whole chunk as it was written."""
        self._data = memoryview(data)
        if len(data) < CHUNK_HEAD_BYTES or chunk_size(data) != len(data):
            raise Corrupt("a chunk is cut short")
        head = _HEAD.unpack_from(data)
        if crc32(self._data[8:]) != head[1]:
            raise Corrupt("a chunk has been changed")
        self.first_offset: int = head[2]
        self.first_ms: int = head[3]
        self.count: int = head[5]
        self.envelope_count: int = head[6]
        self._which_at = CHUNK_HEAD_BYTES + _ITEM * self.count
        self._ends_at = self._which_at + _ITEM * self.count
        self._envelope_ends_at = self._ends_at + _ITEM * (self.count + 1)
        self._envelopes_at = self._envelope_ends_at + _ITEM * (self.envelope_count + 1)
        self.envelope_bytes = self._number(self._envelopes_at - _ITEM)
        self._bodies_at = self._envelopes_at + self.envelope_bytes
        if self._bodies_at + self.body_end(self.count) != len(data):
            raise Corrupt("the columns of a chunk do not fit together")

    @property
    def end_offset(self) -> int:
        return self.first_offset + self.count

    def _number(self, at: int) -> int:
        return int(_NUMBER.unpack_from(self._data, at)[0])

    def _numbers(self, at: int, low: int, high: int) -> memoryview:
        return self._data[at + _ITEM * low : at + _ITEM * high]

    def times(self, low: int, high: int) -> memoryview:
        return self._numbers(CHUNK_HEAD_BYTES, low, high)

    def which(self, low: int, high: int) -> memoryview:
        return self._numbers(self._which_at, low, high)

    def ends(self, low: int, high: int) -> memoryview:
        """Where the bodies of some rows end."""
        return self._numbers(self._ends_at, low + 1, high + 1)

    def body_end(self, row: int) -> int:
        """Where the body before a row ends, and that of the row begins."""
        return self._number(self._ends_at + _ITEM * row)

    def bodies(self, low: int, high: int) -> memoryview:
        return self._data[
            self._bodies_at + self.body_end(low) : self._bodies_at + self.body_end(high)
        ]

    def envelope(self, number: int) -> bytes:
        at = self._envelope_ends_at + _ITEM * number
        start, end = self._number(at), self._number(at + _ITEM)
        return bytes(self._data[self._envelopes_at + start : self._envelopes_at + end])

    def envelopes(self) -> list[bytes]:
        data = bytes(self._data[self._envelopes_at : self._bodies_at])
        ends = self._envelope_ends()
        return [data[ends[n] : ends[n + 1]] for n in range(self.envelope_count)]

    def _envelope_ends(self) -> "array[int]":
        return array(
            "I", self._numbers(self._envelope_ends_at, 0, self.envelope_count + 1).tobytes()
        )

    def widest_envelope(self) -> int:
        ends = self._envelope_ends()
        return max(map(sub, ends[1:], ends), default=0)

    def rows_within(self, low: int, high: int, bytes_max: int) -> int:
        """How many rows from `low` on have bodies of that many bytes; the last may have more."""
        ends = array("I", self.ends(low, high).tobytes())
        return min(bisect_left(ends, self.body_end(low) + bytes_max) + 1, high - low)


class Part:
    """Rows of a chunk."""

    def __init__(self, view: ChunkView, low: int, high: int) -> None:
        self.view = view
        self.low = low
        self.high = high

    @property
    def rows(self) -> int:
        return self.high - self.low

    def size(self, enough: int) -> int:
        """Bytes of the rows as a table, about, and not too few. Not exact over `enough`."""
        view = self.view
        bodies = view.body_end(self.high) - view.body_end(self.low)
        envelope = view.envelope_bytes  # no envelope is wider than all together
        if envelope * self.rows > enough:
            envelope = view.widest_envelope()
        return bodies + envelope * self.rows

    def first_rows(self, bytes_max: int) -> "Part":
        """As many rows as give a table of that size; at least one."""
        view = self.view
        rows = view.rows_within(self.low, self.high, bytes_max)
        rows = min(rows, bytes_max // (view.widest_envelope() + 1))
        return Part(view, self.low, self.low + max(rows, 1))

    def used_envelopes(self) -> list[int]:
        """The numbers of the envelopes that these rows have."""
        if self.rows == self.view.count:
            return list(range(self.view.envelope_count))
        return sorted(set(array("I", self.view.which(self.low, self.high).tobytes())))
