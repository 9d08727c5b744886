"""A consumer of a stream: where it is, what it wants, and how far it has got.

A reader may have a cursor: a name under which the broker keeps the offset up to which everything
has been settled. A later reader of that name goes on there. Messages may be settled in any order;
the cursor moves over what is settled without a gap.
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
        self.offset: i64 = 0  # of the next message
        self.chunk: Chunk | None = None  # the one being read
        self.filters: list[str] = []
        self.match_unfiltered = False
        self.cursor = ""  # its name, if it has one
        self._sent: deque[int] = deque()  # offsets that are not settled without a gap
        self._settled = SettledNumbers()  # deliveries that are settled, numbered from 0
        self._deliveries: i64 = 0

    def wants(self, envelope: Envelope) -> bool:
        """Whether a message passes the filter."""
        if envelope.filter_value is None:
            return self.match_unfiltered
        return envelope.filter_value in self.filters

    def note_sent(self, message: Message) -> None:
        """Remember a delivery, for the cursor."""
        message.rank = self._deliveries
        self._deliveries += 1
        self._sent.append(message.seq)

    def note_settled(self, message: Message) -> i64:
        """A delivery is settled: where the cursor stands now, -1 = where it stood."""
        before = self._settled.floor
        self._settled.add(message.rank)
        count = self._settled.floor - before
        last: i64 = -1
        while count > 0:
            last = self._sent.popleft()
            count -= 1
        return last + 1 if last >= 0 else -1
