"""A line of ready messages: one FIFO that takes messages back to their place.

Messages stand in order of arrival (`fresh`); those that came back (`returned`) keep their original
place by rank. The head of a line is in memory, what is beyond its window in the log alone.
"""

from heapq import heappop, heappush
from typing import Final

from mypy_extensions import i64

from leveret.engine.backlog.paged import PagedRuns
from leveret.engine.message import Message

WINDOW_BYTES: Final = 16 * 1024 * 1024  # bodies in memory before further messages go to the log

_COMPACT_AT: Final = 1024  # taken slots at the front of `fresh` before it is worth moving the rest


class Line:
    """One FIFO that takes messages back to their place.

    Its head is in memory; what is beyond the window stands in the log (`paged`) and is read back
    when the head is used up. What came back is older than everything in the log's part.
    """

    def __init__(self) -> None:
        self.fresh: list[Message | None] = []  # by rank; slots before `at` are taken
        self.at: i64 = 0
        self.fresh_bytes: i64 = 0  # bodies in `fresh`
        self.returned: list[tuple[int, Message]] = []  # heap by rank
        self.paged = PagedRuns()

    def is_empty(self) -> bool:
        return self.at == len(self.fresh) and not self.returned and self.paged.count == 0

    def is_full(self, window: i64) -> bool:
        """Whether a further message belongs into the log's part."""
        return (
            self.paged.count != 0
            or len(self.fresh) - self.at >= window
            or self.fresh_bytes >= WINDOW_BYTES
        )

    def append(self, message: Message) -> None:
        self.fresh.append(message)
        self.fresh_bytes += len(message.body)

    def needs_page(self) -> bool:
        """Whether the next message is in the log alone."""
        return self.at == len(self.fresh) and not self.returned and self.paged.count != 0

    def head(self) -> Message:
        """The next message, which stays; it is in memory."""
        returned = self.returned
        if self.at < len(self.fresh):
            first = self.fresh[self.at]
            assert first is not None
            if not returned or first.rank < returned[0][0]:
                return first
        return returned[0][1]

    def head_rank(self) -> i64:
        """The rank of the next message, wherever it is; -1 in an empty line."""
        rank: i64 = -1
        if self.at < len(self.fresh):
            first = self.fresh[self.at]
            assert first is not None
            rank = first.rank
        elif self.paged.count != 0:
            run = self.paged.runs[0]
            rank = run.seqs[run.at]
        if self.returned:
            back: i64 = self.returned[0][0]
            if rank < 0 or back < rank:
                rank = back
        return rank

    def pop(self) -> Message:
        """Take the next message; it is in memory."""
        fresh = self.fresh
        at = self.at
        if at < len(fresh):
            first = fresh[at]
            assert first is not None
            if not self.returned or first.rank < self.returned[0][0]:
                fresh[at] = None
                self.fresh_bytes -= len(first.body)
                self._advance(at + 1)
                return first
        return heappop(self.returned)[1]

    def put_back(self, message: Message) -> None:
        """Return a message to its place by rank."""
        heappush(self.returned, (message.rank, message))

    def _advance(self, at: i64) -> None:
        """Move the front to `at` and give back the slots before it now and then."""
        fresh = self.fresh
        if at == len(fresh):
            fresh.clear()
            at = 0
        elif at >= _COMPACT_AT and at * 2 > len(fresh):
            del fresh[:at]
            at = 0
        self.at = at

    def messages(self) -> list[Message]:
        """All messages in memory, in order, without taking them."""
        kept: list[Message] = [m for m in self.fresh[self.at :] if m is not None]
        if self.returned:
            kept.extend([m for _, m in self.returned])
            kept.sort(key=_rank)
        return kept


def _rank(message: Message) -> int:
    return message.rank
