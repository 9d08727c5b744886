"""A batch of rows: the messages of many chunks, joined for a table.

The columns of chunks are joined unchanged. Their numbers count from the beginning of their chunk.
So the batch keeps, for each chunk, where its rows end and a number to be added to each of its rows.
The code that makes a table adds it to all rows at once. Nothing here looks at a single message,
except where a chunk is cut.

An envelope that several messages share is decoded once.
"""

from typing import Final

from librt.strings import BytesWriter, write_i32_le, write_i64_le
from mypy_extensions import i32, i64

from leveret.engine.streams.chunk import Chunk
from leveret.engine.streams.envelope_columns import EnvelopeColumns
from leveret.errors import CorruptionError
from leveret.journal.chunks import CHUNK_HEAD_BYTES

ROWS_MAX: Final = 65_536
ROWS_BYTES_MAX: Final = 8 * 1024 * 1024  # approximate size of the table; one row may have more
UNWANTED: Final = 8  # unwanted body bytes that count as one: they are read too


class RowBatch:
    """Rows of consecutive chunks, up to a limit. `wanted` has the bits of `envelope_bits`."""

    def __init__(self, wanted: i64, wants_bodies: bool) -> None:
        self._wants_envelopes = wanted != 0
        self._wants_bodies = wants_bodies
        self.first_offset: i64 = 0
        self.count: i64 = 0
        self.bytes: i64 = 0  # approximate size of the table
        self.body_bytes: i64 = 0
        # For each row (32 bits): counted from the beginning of its chunk
        self.times = BytesWriter()
        self.which = BytesWriter()
        self.ends = BytesWriter()
        # For each chunk: the end of its rows (32 bits), and the numbers to add to them (64 bits)
        self.row_ends = BytesWriter()
        self.first_ms = BytesWriter()
        self.which_base = BytesWriter()
        self.ends_base = BytesWriter()
        self.bodies: list[bytes] = []
        # For each envelope of each chunk: its row in `envelopes` (32 bits)
        self.numbers = BytesWriter()
        self.envelopes = EnvelopeColumns(wanted)
        self._known: dict[bytes, int] = {}
        self._measured: Chunk | None = None
        self._width: i64 = 0  # bytes of the largest envelope of `_measured`

    def room(self, chunk: Chunk, low: i64, high: i64) -> i64:
        """Return how many rows of a chunk fit into the batch. 0 means that the batch is full.

        An empty batch takes at least one row, however large it is.
        """
        rows = high - low
        size = self._bytes_of(chunk, low, high)
        if self.count + rows <= ROWS_MAX and self.bytes + size <= ROWS_BYTES_MAX:
            return rows
        if self.count != 0:
            return 0
        width = self._width_of(chunk) if self._wants_envelopes else 0
        rows = min(ROWS_BYTES_MAX // (width + 1), rows, ROWS_MAX)
        if self._wants_bodies:
            rows = min(rows, rows_within(chunk, low, high, ROWS_BYTES_MAX - rows * width))
        return max(rows, 1)

    def _bytes_of(self, chunk: Chunk, low: i64, high: i64) -> i64:
        """Return an upper estimate of the table size of some rows.

        Tables are as large as allowed, because each one has a fixed cost for its reader.
        """
        size = chunk.body_start(high) - chunk.body_start(low)
        if not self._wants_bodies:
            size //= UNWANTED
        if self._wants_envelopes:
            size += (high - low) * self._width_of(chunk)
        return size

    def _width_of(self, chunk: Chunk) -> i64:
        """Return the size of the largest envelope of a chunk. The last answer is cached."""
        if self._measured is not chunk:
            self._measured = chunk
            self._width = _widest(chunk)
        return self._width

    def add(self, chunk: Chunk, low: i64, high: i64) -> None:
        """Add rows of a chunk. Raise CorruptionError if its columns do not match."""
        data = chunk.data
        if chunk.bodies_at + chunk.body_start(chunk.count) != len(data):
            raise CorruptionError("the columns of a chunk do not fit together")
        if self.count == 0:
            self.first_offset = chunk.first_offset + low
        start = chunk.body_start(low)
        end = chunk.body_start(high)
        self.bytes += self._bytes_of(chunk, low, high)
        self.count += high - low
        write_i32_le(self.row_ends, i32(self.count))
        write_i64_le(self.first_ms, chunk.first_ms)
        self.times.write(data[CHUNK_HEAD_BYTES + 4 * low : CHUNK_HEAD_BYTES + 4 * high])
        write_i64_le(self.ends_base, self.body_bytes - start)
        self.ends.write(data[chunk.ends_at + 4 + 4 * low : chunk.ends_at + 4 + 4 * high])
        if self._wants_bodies:
            self.bodies.append(data[chunk.bodies_at + start : chunk.bodies_at + end])
        self.body_bytes += end - start
        if self._wants_envelopes:
            self._add_envelopes(chunk, low, high)

    def _add_envelopes(self, chunk: Chunk, low: i64, high: i64) -> None:
        write_i64_le(self.which_base, len(self.numbers) // 4)
        self.which.write(chunk.data[chunk.which_at + 4 * low : chunk.which_at + 4 * high])
        if high - low < chunk.count:
            self._add_used_envelopes(chunk, low, high)
        elif chunk.envelope_count * 2 > chunk.count > 1:
            self._add_all_envelopes(chunk)
        else:
            number: i64 = 0
            while number < chunk.envelope_count:
                write_i32_le(self.numbers, i32(self._find(chunk, number)))
                number += 1

    def _add_all_envelopes(self, chunk: Chunk) -> None:
        """Decode all envelopes. Few are shared: looking for equal ones would cost more."""
        envelopes = self.envelopes
        start = chunk.envelope_start(0)
        number: i64 = 0
        while number < chunk.envelope_count:
            end = chunk.envelope_start(number + 1)
            write_i32_le(self.numbers, i32(envelopes.count))
            envelopes.add(chunk.data, start, end)
            start = end
            number += 1

    def _add_used_envelopes(self, chunk: Chunk, low: i64, high: i64) -> None:
        """Decode only the envelopes that the rows use. The others get row 0, which is not used."""
        places: list[int] = [0] * chunk.envelope_count
        is_used = bytearray(chunk.envelope_count)
        while low < high:
            number = chunk.which(low)
            if number >= chunk.envelope_count:
                raise CorruptionError("a chunk names an envelope that it does not have")
            if not is_used[number]:
                is_used[number] = 1
                places[number] = self._find(chunk, number)
            low += 1
        for place in places:
            write_i32_le(self.numbers, i32(place))

    def _find(self, chunk: Chunk, number: i64) -> i64:
        """Return the row of an envelope in `envelopes`. Decode it if it is new."""
        start = chunk.envelope_start(number)
        end = chunk.envelope_start(number + 1)
        envelope = chunk.data[start:end]
        known = self._known.get(envelope)
        if known is not None:
            return known
        place = self.envelopes.count
        self.envelopes.add(chunk.data, start, end)
        self._known[envelope] = place
        return place


def rows_within(chunk: Chunk, low: i64, high: i64, bytes_max: i64) -> i64:
    """Return how many rows from `low` on have `bytes_max` body bytes. The last may exceed it."""
    limit = chunk.body_start(low) + bytes_max
    if chunk.body_start(high) <= limit:
        return high - low
    row = low
    while row < high and chunk.body_start(row) < limit:
        row += 1
    return max(row - low, 1)


def _widest(chunk: Chunk) -> i64:
    """Return the size of the largest envelope."""
    widest: i64 = 0
    start = chunk.envelope_start(0)
    number: i64 = 1
    while number <= chunk.envelope_count:
        end = chunk.envelope_start(number)
        widest = max(widest, end - start)
        start = end
        number += 1
    return widest
