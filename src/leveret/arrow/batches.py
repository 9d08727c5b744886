"""Record batches made of parts of chunks, without looking at single messages.

A column of a chunk is already what Arrow wants, except that its numbers count from the beginning of
that chunk. So a batch joins the bytes of all its chunks and adds to each row what its chunk has to
add (`_spread`). Envelopes are read once each and spread over the rows by `take`.
"""

import sys
from array import array
from itertools import accumulate
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from leveret.arrow.chunks import Part
from leveret.arrow.envelopes import envelope_arrays
from leveret.arrow.schema import TIME, schema_of

BATCH_ROWS: Final = 65_536
BATCH_BYTES: Final = 8 * 1024 * 1024
NUMBER_BITS: Final = 40  # of a broker id, for the offset; the stream's number stands above

_CLASS: Final = b"\x00\x3c\x00\x00"  # class and weight of a content header


class Batch:
    """Parts of chunks on their way into one record batch."""

    def __init__(self, stream: str, number: int, columns: list[str]) -> None:
        self._stream = stream
        self._number = number
        self._columns = columns
        self._schema = schema_of(columns)
        self._parts: list[Part] = []
        self._rows = 0
        self._bytes = 0

    def has_room(self, rows: int, size: int) -> bool:
        return self._rows + rows <= BATCH_ROWS and self._bytes + size <= BATCH_BYTES

    @property
    def rows(self) -> int:
        return self._rows

    def add(self, part: Part, size: int) -> None:
        self._parts.append(part)
        self._rows += part.rows
        self._bytes += size

    def finish(self) -> pa.RecordBatch:
        """The rows so far; the batch is empty after that. Raises Corrupt."""
        table = _Table(self._stream, self._number, self._parts)
        arrays = [table.column(name) for name in self._columns]
        self._parts = []
        self._rows = self._bytes = 0
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


class _Table:
    """The columns of some parts, each made when it is asked for."""

    def __init__(self, stream: str, number: int, parts: list[Part]) -> None:
        self._stream = stream
        self._number = number
        self._parts = parts
        self._rows = sum(part.rows for part in parts)
        self._ends = list(accumulate(part.rows for part in parts))  # rows up to each part's end
        self._envelopes: dict[str, pa.Array] | None = None
        self._rows_of: pa.Array | None = None  # for each row, that of its envelope
        self._body_offsets: pa.Array | None = None

    def column(self, name: str) -> pa.Array:
        if name == "stream":
            return pa.repeat(pa.scalar(self._stream, pa.string()), self._rows)
        if name == "offset":
            return self._offsets()
        if name == "timestamp":
            return self._times()
        if name == "body":
            return self._bodies()
        if name == "broker_id":
            return self._broker_ids()
        if name == "properties":
            return self._content_headers()
        return self._of_envelope(name)

    # Of the rows

    def _spread(self, values: list[int]) -> pa.Array:
        """A number for each part, repeated for each of its rows."""
        runs = pa.RunEndEncodedArray.from_arrays(
            pa.array(self._ends, pa.int32()), pa.array(values, pa.int64())
        )
        return pc.run_end_decode(runs)

    def _joined(self, pieces: list[memoryview], bases: list[int]) -> pa.Array:
        """Numbers of all parts, each with that of its part added."""
        data = pa.py_buffer(b"".join(pieces))
        numbers = pa.Array.from_buffers(pa.uint32(), self._rows, [None, data])
        return pc.add(numbers.cast(pa.int64()), self._spread(bases))

    def _offsets(self) -> pa.Array:
        first = self._parts[0]
        before = first.view.first_offset + first.low - 1
        return pc.cumulative_sum(pa.repeat(pa.scalar(1, pa.int64()), self._rows), start=before)

    def _times(self) -> pa.Array:
        pieces = [part.view.times(part.low, part.high) for part in self._parts]
        times_ms = self._joined(pieces, [part.view.first_ms for part in self._parts])
        return pc.multiply(times_ms, 1000).cast(TIME)

    def _body_ends(self) -> pa.Array:
        """0, and where the body of each row ends."""
        if self._body_offsets is None:
            bases, total = [], 0
            for part in self._parts:
                start = part.view.body_end(part.low)
                bases.append(total - start)
                total += part.view.body_end(part.high) - start
            pieces = [part.view.ends(part.low, part.high) for part in self._parts]
            ends = self._joined(pieces, bases).cast(pa.int32())
            self._body_offsets = pa.concat_arrays([pa.array([0], pa.int32()), ends])
        return self._body_offsets

    def _bodies(self) -> pa.Array:
        values = b"".join([part.view.bodies(part.low, part.high) for part in self._parts])
        buffers = [None, self._body_ends().buffers()[1], pa.py_buffer(values)]
        return pa.Array.from_buffers(pa.binary(), self._rows, buffers, 0)

    # Of their envelopes

    def _of_envelope(self, name: str) -> pa.Array:
        if self._envelopes is None:
            self._read_envelopes()
        assert self._envelopes is not None
        found = self._envelopes[name]
        if found.null_count == len(found):
            return pa.nulls(self._rows, found.type)
        return found if self._rows_of is None else found.take(self._rows_of)

    def _read_envelopes(self) -> None:
        """Read every distinct envelope once, and find it for each row."""
        known: dict[bytes, int] = {}
        numbers = array("i")  # by envelope of all parts, one part behind the other
        bases = []
        for part in self._parts:
            bases.append(len(numbers))
            numbers.extend(_numbers(part, known))
        rows_of = self._joined([p.view.which(p.low, p.high) for p in self._parts], bases)
        if len(known) != len(numbers):
            found = pa.Array.from_buffers(
                pa.int32(), len(numbers), [None, pa.py_buffer(numbers.tobytes())]
            )
            rows_of = found.take(rows_of)
        self._envelopes = envelope_arrays(list(known))
        if len(known) != self._rows or not _counts_up(rows_of):
            self._rows_of = rows_of

    def _broker_ids(self) -> pa.Array:
        assigned = pc.add(self._offsets(), self._number << NUMBER_BITS)
        return pc.coalesce(self._of_envelope("broker_id"), assigned)

    def _content_headers(self) -> pa.Array:
        """The content header of each message: class, weight, size of the body, properties."""
        ends = self._body_ends()
        sizes = pc.subtract(ends.slice(1), ends.slice(0, self._rows)).cast(pa.int64())
        swapped = array("q", sizes.buffers()[1].to_pybytes()[: 8 * self._rows])
        if sys.byteorder == "little":
            swapped.byteswap()
        eights = pa.Array.from_buffers(
            pa.binary(8), self._rows, [None, pa.py_buffer(swapped.tobytes())]
        ).cast(pa.binary())
        return pc.binary_join_element_wise(_CLASS, eights, self._of_envelope("properties"), b"")


def _numbers(part: Part, known: dict[bytes, int]) -> "array[int]":
    """For each envelope of a part's chunk, its number among all that are known."""
    view = part.view
    if part.rows == view.count:
        return array("i", [known.setdefault(e, len(known)) for e in view.envelopes()])
    numbers = array("i", bytes(4 * view.envelope_count))
    for used in part.used_envelopes():
        numbers[used] = known.setdefault(view.envelope(used), len(known))
    return numbers


def _counts_up(numbers: pa.Array) -> bool:
    """Whether these are 0, 1, 2 and so on."""
    ones = pa.repeat(pa.scalar(1, numbers.type), len(numbers))
    return bool(numbers.equals(pc.cumulative_sum(ones, start=-1)))
