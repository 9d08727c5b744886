"""Record batches made of rows, without looking at single messages.

A column of a chunk is already what Arrow wants, except that its numbers count from the beginning of
that chunk. So what each chunk has to add is repeated for its rows (`_spread`) and added to all at
once. Envelopes are spread over the rows by `take`.
"""

import sys
from array import array
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from leveret.arrow.envelopes import envelope_array
from leveret.arrow.schema import TIME, schema_of
from leveret.engine.streams.row_batch import RowBatch

NUMBER_BITS: Final = 40  # of a broker id, for the offset; the stream's number stands above
ROW_COLUMNS: Final = frozenset(("stream", "offset", "timestamp", "body"))  # no envelope is needed

_CLASS: Final = b"\x00\x3c\x00\x00"  # class and weight of a content header


def make_batch(
    stream: str, number: int, columns: list[str], rows: RowBatch, given: bytes = b""
) -> pa.RecordBatch:
    """Some columns of some rows, of the stream that has this name and this number in the log.

    Rows of a queue have their numbers and times `given`, as `packing` says.
    """
    table = _Table(stream, number, rows, given)
    arrays = [table.column(name) for name in columns]
    return pa.RecordBatch.from_arrays(arrays, schema=schema_of(columns))


class _Table:
    """The columns of some rows, each made when it is asked for."""

    def __init__(self, stream: str, number: int, rows: RowBatch, given: bytes) -> None:
        self._given = pa.py_buffer(given) if given else None
        self._stream = stream
        self._number = number
        self._rows = rows
        self._count = int(rows.count)
        self._row_ends = pa.py_buffer(rows.row_ends.getvalue())
        self._has_found = False
        self._envelope_of: pa.Array | None = None  # for each row; None: they are in order
        self._body_ends: pa.Array | None = None

    def column(self, name: str) -> pa.Array:
        if name == "stream":
            return pa.repeat(pa.scalar(self._stream, pa.string()), self._count)
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

    def _spread(self, values: bytes) -> pa.Array:
        """A number for each chunk, repeated for each of its rows."""
        chunks = len(values) // 8
        ends = pa.Array.from_buffers(pa.int32(), chunks, [None, self._row_ends])
        numbers = pa.Array.from_buffers(pa.int64(), chunks, [None, pa.py_buffer(values)])
        return pc.run_end_decode(pa.RunEndEncodedArray.from_arrays(ends, numbers))

    def _joined(self, numbers: bytes, bases: bytes) -> pa.Array:
        """A number for each row, with that of its chunk added."""
        array = pa.Array.from_buffers(pa.uint32(), self._count, [None, pa.py_buffer(numbers)])
        return pc.add(array.cast(pa.int64()), self._spread(bases))

    def _given_column(self, place: int) -> pa.Array:
        assert self._given is not None
        values = self._given.slice(8 * self._count * place, 8 * self._count)
        return pa.Array.from_buffers(pa.int64(), self._count, [None, values], 0)

    def _offsets(self) -> pa.Array:
        if self._given is not None:
            return self._given_column(0)
        ones = pa.repeat(pa.scalar(1, pa.int64()), self._count)
        return pc.cumulative_sum(ones, start=self._rows.first_offset - 1)

    def _times(self) -> pa.Array:
        if self._given is not None:
            times_ms = self._given_column(1)
        else:
            times_ms = self._joined(self._rows.times.getvalue(), self._rows.first_ms.getvalue())
        return pc.multiply(times_ms, 1000).cast(TIME)

    def _ends(self) -> pa.Array:
        """0, and where the body of each row ends."""
        if self._body_ends is None:
            ends = self._joined(self._rows.ends.getvalue(), self._rows.ends_base.getvalue())
            zero = pa.array([0], pa.int32())
            self._body_ends = pa.concat_arrays([zero, ends.cast(pa.int32())])
        return self._body_ends

    def _bodies(self) -> pa.Array:
        values = pa.py_buffer(b"".join(self._rows.bodies))
        return pa.Array.from_buffers(
            pa.binary(), self._count, [None, self._ends().buffers()[1], values], 0
        )

    # Of their envelopes

    def _of_envelope(self, name: str) -> pa.Array:
        found = envelope_array(self._rows.envelopes, name)
        if found.null_count == len(found):
            return pa.nulls(self._count, found.type)
        if not self._has_found:
            self._envelope_of = self._find_envelopes()
            self._has_found = True
        return found if self._envelope_of is None else found.take(self._envelope_of)

    def _find_envelopes(self) -> pa.Array | None:
        rows = self._rows
        places = self._joined(rows.which.getvalue(), rows.which_base.getvalue())
        data = rows.numbers.getvalue()
        numbers = pa.Array.from_buffers(pa.int32(), len(data) // 4, [None, pa.py_buffer(data)])
        found = numbers.take(places)
        if rows.envelopes.exchange.count == self._count and _counts_up(found):
            return None
        return found

    def _broker_ids(self) -> pa.Array:
        assigned = pc.add(self._offsets(), self._number << NUMBER_BITS)
        return pc.coalesce(self._of_envelope("broker_id"), assigned)

    def _content_headers(self) -> pa.Array:
        """The content header of each message: class, weight, size of the body, properties."""
        ends = self._ends()
        sizes = pc.subtract(ends.slice(1), ends.slice(0, self._count)).cast(pa.int64())
        swapped = array("q", sizes.buffers()[1].to_pybytes()[: 8 * self._count])
        if sys.byteorder == "little":
            swapped.byteswap()
        eights = pa.Array.from_buffers(
            pa.binary(8), self._count, [None, pa.py_buffer(swapped.tobytes())]
        ).cast(pa.binary())
        return pc.binary_join_element_wise(_CLASS, eights, self._of_envelope("properties"), b"")


def _counts_up(numbers: pa.Array) -> bool:
    """Whether these are 0, 1, 2 and so on."""
    ones = pa.repeat(pa.scalar(1, numbers.type), len(numbers))
    return bool(numbers.equals(pc.cumulative_sum(ones, start=-1)))
