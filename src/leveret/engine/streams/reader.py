"""A consumer of a stream: its position, its filter, and its cursor.

A reader may have a cursor: a name under which the broker keeps the offset up to which everything
has been settled. A later reader of that name continues there. Messages may be settled in any order;
the cursor moves over settled messages without a gap.
"""

from collections import deque

from mypy_extensions import i64

from leveret.engine.backlog.settled_numbers import SettledNumbers
from leveret.engine.message import Message
from leveret.engine.streams.chunk import Chunk, Envelope
from leveret.engine.turns.session import Consumer, Session


class Reader(Consumer):
    """A subscription to a stream."""

    def __init__(self, session: Session, queue: i64, tag: str, exclusive: bool) -> None:
        super().__init__(session, queue, tag, no_ack=False, exclusive=exclusive)
        self.offset: i64 = 0  # next message to deliver
        self.chunk: Chunk | None = None  # the chunk that is being read
        self.filters: list[str] = []
        self.match_unfiltered = False
        self.cursor = ""  # name of the cursor; empty: none
        self._sent: deque[int] = deque()  # offsets from the first unsettled delivery on
        self._settled = SettledNumbers()  # settled deliveries, numbered from 0
        self._deliveries: i64 = 0

    def wants(self, envelope: Envelope) -> bool:
        """Return True if a message passes the filter."""
        if envelope.filter_value is None:
            return self.match_unfiltered
        return envelope.filter_value in self.filters

    def note_sent(self, message: Message) -> None:
        """Remember a delivery, for the cursor."""
        message.rank = self._deliveries
        self._deliveries += 1
        self._sent.append(message.seq)

    def note_settled(self, message: Message) -> i64:
        """Note a settled delivery. Return the new offset of the cursor, or -1 if it stays."""
        before = self._settled.floor
        self._settled.add(message.rank)
        count = self._settled.floor - before
        last: i64 = -1
        while count > 0:
            last = self._sent.popleft()
            count -= 1
        return last + 1 if last >= 0 else -1
