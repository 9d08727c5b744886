"""A range of a stream as an Arrow IPC stream: schema, batches, end marker."""

from collections.abc import Iterator
from typing import Final

import pyarrow as pa

from leveret.arrow.batches import ROW_COLUMNS, make_batch
from leveret.arrow.packing import Pack
from leveret.arrow.requests import Request
from leveret.arrow.schema import schema_of
from leveret.engine.streams.chunk import Chunk, read_chunk
from leveret.engine.streams.envelope_columns import text_of_bytes
from leveret.engine.streams.row_batch import RowBatch, rows_within

# A message of no bytes. Without it a reader knows that the stream was cut short.
END_MARKER: Final = b"\xff\xff\xff\xff\x00\x00\x00\x00"


def encode(request: Request, chunks: Iterator[Chunk]) -> Iterator[bytes | pa.Buffer]:
    """The pieces of the stream. What `chunks` raises comes out of here."""
    name = text_of_bytes(request.stream.encode("utf-8", "surrogateescape"))
    yield schema_of(request.columns).serialize()
    for rows in gather(request, chunks):
        yield make_batch(name, request.number, request.columns, rows).serialize()
    yield END_MARKER


def encode_packs(request: Request, packs: Iterator[Pack]) -> Iterator[bytes | pa.Buffer]:
    """The same for messages of a queue."""
    name = text_of_bytes(request.stream.encode("utf-8", "surrogateescape"))
    yield schema_of(request.columns).serialize()
    for given, data in packs:
        yield from _encode_pack(request, name, given, read_chunk(data, 0, 0))
    yield END_MARKER


def _encode_pack(request: Request, name: str, given: bytes, chunk: Chunk) -> Iterator[pa.Buffer]:
    """Mostly one batch; more where the rows share a long envelope."""
    low, count = 0, int(chunk.count)
    while low < count:
        rows = RowBatch(not ROW_COLUMNS.issuperset(request.columns), "body" in request.columns)
        high = low + int(rows.room(chunk, low, count))
        rows.add(chunk, low, high)
        part = given[8 * low : 8 * high] + given[8 * (count + low) : 8 * (count + high)]
        yield make_batch(name, request.number, request.columns, rows, part).serialize()
        low = high


def gather(request: Request, chunks: Iterator[Chunk]) -> Iterator[RowBatch]:
    """The range in portions of the size of a batch; only the last may be small."""
    wants_envelopes = not ROW_COLUMNS.issuperset(request.columns)
    wants_bodies = "body" in request.columns
    rows = RowBatch(wants_envelopes, wants_bodies)
    for chunk, low, high in _trimmed(request, chunks):
        while low < high:
            count = rows.room(chunk, low, high)
            if count == 0:
                yield rows
                rows = RowBatch(wants_envelopes, wants_bodies)
            else:
                rows.add(chunk, low, low + count)
                low += count
    if rows.count:
        yield rows


def _trimmed(request: Request, chunks: Iterator[Chunk]) -> Iterator[tuple[Chunk, int, int]]:
    """Chunks, and which of their rows are in the range and in the bytes that were asked for."""
    left = request.bytes_max
    for chunk in chunks:
        low = max(request.first - chunk.first_offset, 0)
        high = min(request.end - chunk.first_offset, chunk.count)
        if request.bytes_max:
            high = low + rows_within(chunk, low, high, left)
            left -= chunk.body_start(high) - chunk.body_start(low)
        yield chunk, low, high
        if request.bytes_max and left <= 0:
            return
