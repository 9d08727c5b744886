"""Messages of a queue on their way to the worker: packs, each a chunk and the numbers of its rows.

A chunk counts its rows from 0 on and its times upwards, which those of a queue do not: sequence
numbers have gaps, and what is served first may have come last. So both are sent beside the chunk,
64 bits each, first all numbers and then all times in milliseconds.
"""

from array import array
from collections.abc import Iterable, Iterator
from typing import Final

from leveret.engine.message import Message
from leveret.journal.chunks import ChunkWriter, WritePosition

_SEGMENT_BYTES: Final = 1 << 62  # nothing is written to a segment

Pack = tuple[bytes, bytes]  # numbers and times; the chunk


def packs_of(rows: Iterable[tuple[int, Message]]) -> Iterator[Pack]:
    """Packs of about a megabyte of messages, each given with the time at which it came."""
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
