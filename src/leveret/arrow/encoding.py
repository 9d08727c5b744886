"""Encodes a range of a stream as an Arrow IPC stream: schema, batches, end marker."""

from collections.abc import Iterator
from typing import Final

import pyarrow as pa

from leveret.arrow.batches import make_batch
from leveret.arrow.queue_chunks import QueueChunk
from leveret.arrow.requests import Request
from leveret.arrow.schema import schema_of
from leveret.engine.streams.chunk import Chunk, read_chunk
from leveret.engine.streams.envelope_columns import envelope_bits, text_of_bytes
from leveret.engine.streams.row_batch import RowBatch, rows_within

# An empty IPC message. If it is missing, a reader knows that the stream was cut short.
END_MARKER: Final = b"\xff\xff\xff\xff\x00\x00\x00\x00"


def encode(request: Request, chunks: Iterator[Chunk]) -> Iterator[bytes | pa.Buffer]:
    """Yield the pieces of the IPC stream. Errors of `chunks` are passed on."""
    name = text_of_bytes(request.stream.encode("utf-8", "surrogateescape"))
    yield schema_of(request.columns).serialize()
    for rows in group_rows(request, chunks):
        yield make_batch(name, request.number, request.columns, rows).serialize()
    yield END_MARKER


def encode_queue(
    request: Request, queue_chunks: Iterator[QueueChunk]
) -> Iterator[bytes | pa.Buffer]:
    """Yield the pieces of the IPC stream for messages of a queue."""
    name = text_of_bytes(request.stream.encode("utf-8", "surrogateescape"))
    yield schema_of(request.columns).serialize()
    for given, data in queue_chunks:
        yield from _encode_queue_chunk(request, name, given, read_chunk(data, 0, 0))
    yield END_MARKER


def _encode_queue_chunk(
    request: Request, name: str, given: bytes, chunk: Chunk
) -> Iterator[pa.Buffer]:
    """Yield the batches of one queue chunk: mostly one, more if rows share a long envelope."""
    low, count = 0, int(chunk.count)
    while low < count:
        rows = RowBatch(envelope_bits(request.columns), "body" in request.columns)
        high = low + int(rows.room(chunk, low, count))
        rows.add(chunk, low, high)
        part = given[8 * low : 8 * high] + given[8 * (count + low) : 8 * (count + high)]
        yield make_batch(name, request.number, request.columns, rows, part).serialize()
        low = high


def group_rows(request: Request, chunks: Iterator[Chunk]) -> Iterator[RowBatch]:
    """Yield the rows of the range, grouped by batch size. Only the last group may be small."""
    wanted = envelope_bits(request.columns)
    wants_bodies = "body" in request.columns
    rows = RowBatch(wanted, wants_bodies)
    for chunk, low, high in _trimmed(request, chunks):
        while low < high:
            count = rows.room(chunk, low, high)
            if count == 0:
                yield rows
                rows = RowBatch(wanted, wants_bodies)
            else:
                rows.add(chunk, low, low + count)
                low += count
    if rows.count:
        yield rows


def _trimmed(request: Request, chunks: Iterator[Chunk]) -> Iterator[tuple[Chunk, int, int]]:
    """Yield each chunk with the first and last row that are in the range and the byte limit."""
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
