"""A range of a stream as an Arrow IPC stream: schema, batches, end marker."""

from collections.abc import Iterator
from typing import Final

import pyarrow as pa

from leveret.arrow.batches import BATCH_BYTES, Batch
from leveret.arrow.chunks import ChunkView, Part
from leveret.arrow.requests import Request
from leveret.arrow.schema import schema_of
from leveret.engine.streams.columns import shown

# A message of no bytes. Without it a reader knows that the stream was cut short.
END_MARKER: Final = b"\xff\xff\xff\xff\x00\x00\x00\x00"


def encode(request: Request, chunks: Iterator[ChunkView]) -> Iterator[bytes | pa.Buffer]:
    """The pieces of the stream. What `chunks` raises comes out of here."""
    yield schema_of(request.columns).serialize()
    for batch in batches(request, chunks):
        yield batch.serialize()
    yield END_MARKER


def batches(request: Request, chunks: Iterator[ChunkView]) -> Iterator[pa.RecordBatch]:
    """The range as record batches, full ones except for the last."""
    name = shown(request.stream.encode("utf-8", "surrogateescape"))
    batch = Batch(name, request.number, request.columns)
    for part in _parts(request, chunks):
        low = part.low
        while low < part.high:
            rest = Part(part.view, low, part.high)
            size = rest.size(BATCH_BYTES)
            if batch.rows and not batch.has_room(rest.rows, size):
                yield batch.finish()
            if not batch.has_room(rest.rows, size):  # too much for any batch
                rest = rest.first_rows(BATCH_BYTES)
                size = min(rest.size(BATCH_BYTES), BATCH_BYTES)
            batch.add(rest, size)
            low = rest.high
    if batch.rows:
        yield batch.finish()


def _parts(request: Request, chunks: Iterator[ChunkView]) -> Iterator[Part]:
    """Chunks trimmed to the range, and to the bytes that were asked for."""
    left = request.bytes_max
    for view in chunks:
        low = max(request.first - view.first_offset, 0)
        high = min(request.end - view.first_offset, view.count)
        if request.bytes_max:
            high = low + view.rows_within(low, high, left)
        part = Part(view, low, high)
        yield part
        if request.bytes_max:
            left -= view.body_end(high) - view.body_end(low)
            if left <= 0:
                return
