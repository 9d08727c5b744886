"""Measure how far a reader of a stream is behind: in messages, and the time of the first."""

from mypy_extensions import i64

from leveret.engine.streams.stream import Stream
from leveret.errors import CorruptionError


def next_offset(stream: Stream, offset: i64) -> i64:
    """Return the offset of the next message for a reader at `offset`.

    Retention may have deleted the messages at `offset`.
    """
    return max(offset, stream.first_offset)


def messages_behind(stream: Stream, offset: i64) -> i64:
    """Return the number of messages from a reader at `offset` to the end of the stream."""
    return max(stream.end_offset - next_offset(stream, offset), 0)


def message_time_ms(stream: Stream, offset: i64) -> i64:
    """Return when the broker accepted an existing message; -1 if it cannot be read."""
    try:
        chunk = stream.segments.find(offset)
    except CorruptionError:  # readers of the stream report it
        return -1
    return chunk.time_ms(offset - chunk.first_offset)
