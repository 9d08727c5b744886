"""Messages of a queue for the worker: chunks, each with the numbers and times of its rows.

A chunk numbers its rows from 0 on, and its times ascend. Messages of a queue do neither: sequence
numbers have gaps, and the first message to be delivered may be the youngest. So numbers and times
are sent beside the chunk, 64 bits each: first all numbers, then all times in milliseconds.
"""

from array import array
from collections.abc import Iterable, Iterator
from typing import Final

from leveret.engine.message import Message
from leveret.journal.chunks import ChunkWriter, WritePosition

_SEGMENT_BYTES: Final = 1 << 62  # no segment is written, so it has no limit

QueueChunk = tuple[bytes, bytes]  # numbers and times; the chunk


def make_queue_chunks(rows: Iterable[tuple[int, Message]]) -> Iterator[QueueChunk]:
    """Make chunks of about a megabyte. Each message comes with its arrival time."""
    writer = _writer()
    seqs: array[int] = array("q")
    times: array[int] = array("q")
    for time_ms, message in rows:
        writer.add(message.address.record(), message.header, message.body, 0)
        seqs.append(message.seq)
        times.append(time_ms)
        if writer.is_full():
            yield seqs.tobytes() + times.tobytes(), writer.close().data
            writer, seqs, times = _writer(), array("q"), array("q")
    if seqs:
        yield seqs.tobytes() + times.tobytes(), writer.close().data


def _writer() -> ChunkWriter:
    return ChunkWriter(WritePosition(_SEGMENT_BYTES, 0, 0))
