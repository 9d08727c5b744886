"""Makes record batches from rows of chunks, without decoding single messages.

A column of a chunk already has Arrow's layout, but its numbers are relative to the beginning of the
chunk. So the base of each chunk is repeated for its rows (`_spread`) and added to all of them at
once. Each distinct envelope is decoded once and spread over its rows by `take`.
"""

import sys
from array import array
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from leveret.arrow.envelopes import envelope_array
from leveret.arrow.schema import TIME, schema_of
from leveret.engine.streams.row_batch import RowBatch

NUMBER_BITS: Final = 40  # bits of the offset in a broker id; the number of the stream is above them

_CLASS: Final = b"\x00\x3c\x00\x00"  # class and weight of a content header


def make_batch(
    stream: str, number: int, columns: list[str], rows: RowBatch, given: bytes = b""
) -> pa.RecordBatch:
    """Return some columns of rows as a batch, for the stream with this name and log number.

    Rows of a queue have their own numbers and times in `given`, see `queue_chunks`.
    """
    table = _Table(stream, number, rows, given)
    arrays = [table.column(name) for name in columns]
    return pa.RecordBatch.from_arrays(arrays, schema=schema_of(columns))


class _Table:
    """The columns of some rows, each made on demand."""

    def __init__(self, stream: str, number: int, rows: RowBatch, given: bytes) -> None:
        self._given = pa.py_buffer(given) if given else None
        self._stream = stream
        self._number = number
        self._rows = rows
        self._count = int(rows.count)
        self._row_ends = pa.py_buffer(rows.row_ends.getvalue())
        self._has_found = False
        # Envelope index of each row; None if they are in order.
        self._envelope_of: pa.Array | None = None
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

    def _spread(self, values: bytes) -> pa.Array:
        """Repeat the number of each chunk for each of its rows."""
        chunks = len(values) // 8
        ends = pa.Array.from_buffers(pa.int32(), chunks, [None, self._row_ends])
        numbers = pa.Array.from_buffers(pa.int64(), chunks, [None, pa.py_buffer(values)])
        return pc.run_end_decode(pa.RunEndEncodedArray.from_arrays(ends, numbers))

    def _joined(self, numbers: bytes, bases: bytes) -> pa.Array:
        """Return the number of each row with the base of its chunk added."""
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
        """Return 0, followed by the end of each row's body."""
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
        if rows.envelopes.count == self._count and _counts_up(found):
            return None
        return found

    def _broker_ids(self) -> pa.Array:
        assigned = pc.add(self._offsets(), self._number << NUMBER_BITS)
        return pc.coalesce(self._of_envelope("broker_id"), assigned)

    def _content_headers(self) -> pa.Array:
        """Return the content header of each message: class, weight, body size, properties."""
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
    """Return True if the numbers are 0, 1, 2 and so on."""
    ones = pa.repeat(pa.scalar(1, numbers.type), len(numbers))
    return bool(numbers.equals(pc.cumulative_sum(ones, start=-1)))
