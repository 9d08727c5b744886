"""A line of ready messages: a FIFO to which messages can be returned at their original place.

    returned   heap by rank: messages that came back
    fresh      list by rank: messages in memory, in order of arrival
    paged      positions in the log: messages beyond the window

The next message is the one with the lower rank of the heads of `returned` and `fresh`. When both
are empty, a page is read from the log.

If many messages come back, they are put in the log alone: each time in a further line, one of
`paged_returns`. `Ready` says which of these lines is served next.

Invariant: every returned message is older than every paged message.
"""

from heapq import heappop, heappush
from typing import Final

from mypy_extensions import i64

from leveret.engine.backlog.paged import PagedRuns
from leveret.engine.message import REDELIVERED, Message

# Headers and bodies in memory; further messages stay in the log.
WINDOW_BYTES: Final = 16 * 1024 * 1024

_COMPACT_AT: Final = 1024  # taken slots at the front of `fresh` before it is cut


class Line:
    """One FIFO of ready messages."""

    def __init__(self) -> None:
        self.fresh: list[Message | None] = []  # by rank; slots before `at` are taken
        self.at: i64 = 0
        self.fresh_bytes: i64 = 0  # headers and bodies in `fresh`
        self.returned: list[tuple[int, Message]] = []  # heap by rank
        self.returned_bytes: i64 = 0  # headers and bodies in `returned`
        self.kept: i64 = 0  # returned messages that could not be paged out when it was last tried
        self.kept_bytes: i64 = 0
        self.number: i64 = 0  # counts the lines of paged returns in order of creation
        self.paged = PagedRuns()
        self.paged_returns: list[Line] | None = None  # None: there are none

    def is_empty(self) -> bool:
        """Return True if the line itself has no message; its paged returns may have some."""
        return self.at == len(self.fresh) and not self.returned and self.paged.count == 0

    def is_used_up(self) -> bool:
        """Return True if neither the line nor its paged returns have a message."""
        if not self.is_empty():
            return False
        if self.paged_returns is not None:
            for line in self.paged_returns:
                if not line.is_empty():
                    return False
        return True

    def with_returns(self) -> "list[Line]":
        """Return the lines of paged returns, and then the line itself."""
        if self.paged_returns is None:
            return [self]
        return [*self.paged_returns, self]

    def is_full(self, window: i64) -> bool:
        """Return True if the next new message belongs in `paged`."""
        return (
            self.paged.count != 0
            or len(self.fresh) - self.at >= window
            or self.fresh_bytes >= WINDOW_BYTES
        )

    def append(self, message: Message) -> None:
        self.fresh.append(message)
        self.fresh_bytes += len(message.body) + len(message.header)

    def needs_page(self) -> bool:
        """Return True if the next message must be read from the log."""
        return self.at == len(self.fresh) and not self.returned and self.paged.count != 0

    def head(self) -> Message:
        """Return the next message without taking it; it must be in memory."""
        returned = self.returned
        if self.at < len(self.fresh):
            first = self.fresh[self.at]
            assert first is not None
            if not returned or first.rank < returned[0][0]:
                return first
        return returned[0][1]

    def head_rank(self) -> i64:
        """Return the rank of the next message, in memory or in the log; -1 if the line is empty."""
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
        """Take the next message; it must be in memory."""
        fresh = self.fresh
        at = self.at
        if at < len(fresh):
            first = fresh[at]
            assert first is not None
            if not self.returned or first.rank < self.returned[0][0]:
                fresh[at] = None
                front = at + 1
                if front < len(fresh) and front < _COMPACT_AT:
                    self.at = front  # most messages end here
                else:
                    try:
                        self._advance(front)
                    except Exception:
                        fresh[at] = first
                        raise
                self.fresh_bytes -= len(first.body) + len(first.header)
                return first
        message = heappop(self.returned)[1]
        self.returned_bytes -= len(message.body) + len(message.header)
        return message

    def has_long_return(self, window: i64) -> bool:
        """Return True if more messages or bytes came back than memory should hold.

        Messages that cannot be paged out are taken and put back by each try. So as many as these
        must come back before the next try, or the cost would grow with the square of their number.
        """
        new = len(self.returned) - self.kept
        new_bytes = self.returned_bytes - self.kept_bytes
        return new > max(window, self.kept) or new_bytes > max(WINDOW_BYTES, self.kept_bytes)

    def take_returned(self) -> list[Message]:
        """Take all returned messages, in order."""
        taken = [message for _, message in sorted(self.returned)]
        self.returned = []
        self.returned_bytes = 0
        return taken

    def take_fresh(self) -> list[Message]:
        """Take all messages of `fresh`, in order."""
        taken: list[Message] = [m for m in self.fresh[self.at :] if m is not None]
        self.fresh = []
        self.at = 0
        self.fresh_bytes = 0
        return taken

    def put_back(self, message: Message) -> None:
        """Put a message back at its original place."""
        if not self.returned:
            self.returned_bytes = self.kept = self.kept_bytes = 0
        self.returned_bytes += len(message.body) + len(message.header)
        heappush(self.returned, (message.rank, message))

    def mark_returns(self, messages: list[Message]) -> None:
        """Mark messages as redelivered that were read from the log for a line of paged returns."""
        if self.number != 0:
            for message in messages:
                message.flags |= REDELIVERED
                message.returns = max(message.returns, 1)

    def _advance(self, at: i64) -> None:
        """Move the front to `at`, and free the slots before it when there are many."""
        fresh = self.fresh
        if at == len(fresh):
            fresh.clear()
            at = 0
        elif at >= _COMPACT_AT and at * 2 > len(fresh):
            del fresh[:at]
            at = 0
        self.at = at

    def messages(self) -> list[Message]:
        """Return all messages in memory, in order, without taking them."""
        kept: list[Message] = [m for m in self.fresh[self.at :] if m is not None]
        if self.returned:
            kept.extend([m for _, m in self.returned])
            kept.sort(key=_rank)
        return kept


def _rank(message: Message) -> int:
    return message.rank
