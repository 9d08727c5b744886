"""Measure how far the cursors of streams are behind, in messages and in seconds.

A cursor is a position that a consumer, an archive or a query stores under a name. It is behind by
the messages from its offset to the end of the stream, and by the age of the first of them.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from leveret.engine.queues.queue import Queue
from leveret.engine.streams.lag import message_time_ms, messages_behind, next_offset
from leveret.engine.streams.stream import Stream
from leveret.metrics.family import GAUGE, Family

GROUP: Final = "leveret_stream_metrics"
LAG_MESSAGES: Final = Family(
    name="leveret_stream_cursor_lag_messages",
    kind=GAUGE,
    about="Messages of the stream after the position of a cursor.",
    group=GROUP,
)
LAG_SECONDS: Final = Family(
    name="leveret_stream_cursor_lag_seconds",
    kind=GAUGE,
    about="Age of the first message after the position of a cursor; 0 if there is none.",
    group=GROUP,
)
CURSOR_FAMILIES: Final = (LAG_MESSAGES, LAG_SECONDS)

_Key = tuple[str, str, str]  # vhost, stream, cursor


@dataclass(frozen=True, slots=True)
class CursorLag:
    """The lag of one cursor."""

    vhost: str
    stream: str
    cursor: str
    messages: int
    seconds: float

    def labels(self) -> dict[str, str]:
        return {"vhost": self.vhost, "queue": self.stream, "cursor": self.cursor}


class CursorTimes:
    """The time of the message at each cursor.

    A time is read from the stream once for each position: the message may be in a segment whose
    index is not in memory.
    """

    def __init__(self) -> None:
        self._times: dict[_Key, tuple[int, int]] = {}  # offset and its time in ms

    def lags(self, queues: Iterable[Queue], now_ms: int) -> Iterator[CursorLag]:
        """Yield the lag of each cursor."""
        for queue in queues:
            if isinstance(queue, Stream):
                for cursor, offset in list(queue.cursors.cursors.items()):
                    yield self._lag(queue, cursor, int(offset), now_ms)

    def keep_only(self, seen: set[_Key]) -> None:
        """Forget the times of cursors that no longer exist."""
        for gone in self._times.keys() - seen:
            del self._times[gone]

    def _lag(self, stream: Stream, cursor: str, offset: int, now_ms: int) -> CursorLag:
        messages = int(messages_behind(stream, offset))
        seconds = 0.0
        if messages:
            key = (stream.vhost, stream.name, cursor)
            first_ms = self._time_ms(key, stream, int(next_offset(stream, offset)))
            seconds = max(now_ms - first_ms, 0) / 1000
        return CursorLag(stream.vhost, stream.name, cursor, messages, seconds)

    def _time_ms(self, key: _Key, stream: Stream, offset: int) -> int:
        known = self._times.get(key)
        if known is not None and known[0] == offset:
            return known[1]
        found = int(message_time_ms(stream, offset))
        if found < 0:
            found = int(stream.writer.last_ms)
        self._times[key] = (offset, found)
        return found
