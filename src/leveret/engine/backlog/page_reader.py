"""Read the messages of a queue back from the log, a page at a time.

`PageReader` is the interface: the engine opens no files, so storage implements it.
`QueuePageReader` is the view of one queue. It adds the facts about a message that are not in its
MESSAGE record: whether it may have been delivered before, and how often it came back.
"""

from mypy_extensions import i64

from leveret.engine.backlog.paged import PagedRun, PagedRuns
from leveret.engine.message import COUNTED, LOGGED, REDELIVERED, Message
from leveret.errors import CorruptionError
from leveret.journal.journal import Journal
from leveret.journal.records import NOWHERE


class PageReader:
    """Interface to read messages of the log. Storage implements it."""

    def read(self, run: PagedRun, slot: i64) -> list[Message]:
        """Return the next messages of a run: at least one, at most a page. They stay in the run.

        `slot` is the broker slot of the queue. Raise CorruptionError if the next message cannot be
        read.
        """
        raise NotImplementedError

    def prepare(self, run: PagedRun) -> bool:
        """Check a part of the log file of a run; return True when `read` needs no further checks.

        A file is checked before its first read. A caller with little time calls this in slices
        until it returns True, and then `read` or `sift`.
        """
        return True

    def sift(self, run: PagedRun, slot: i64, needle: bytes) -> tuple[list[Message], i64]:
        """Return the next messages that may contain the needle, and how many were examined."""
        messages = self.read(run, slot)
        return messages, len(messages)

    def unreadable(self, run: PagedRun) -> i64:
        """Return how many of the next messages cannot be read, after a CorruptionError."""
        return run.left()


class QueuePageReader:
    """Reads the messages of one queue and restores the state that is not in their records."""

    def __init__(
        self, pages: PageReader, slot: i64, returned: dict[int, tuple[int, int, int]], counts: bool
    ) -> None:
        self.journal: Journal | None = None
        self._pages = pages
        self._counted: i64 = 0  # flag for messages that came back: COUNTED or 0
        self.set_counting(counts)
        self._slot = slot
        self._returned = returned  # of the ledger: returns, failures, due time by sequence number
        self.redelivered_through: i64 = -1  # up to here, messages may have been delivered already

    def set_counting(self, counts: bool) -> None:
        """Set whether messages show consumers how often they came back."""
        self._counted = COUNTED if counts else 0

    def read(self, runs: PagedRuns) -> list[Message]:
        """Take the next messages of a line."""
        messages = self.peek(runs.runs[0])
        runs.advance(len(messages))
        for message in messages:
            if not message.flags & LOGGED:
                self._unspill(message)
        return messages

    def current_position(self, message: Message) -> i64:
        """Return where the log holds a message: its record may have been copied."""
        journal = self.journal
        if journal is None or not journal.is_moving:
            return message.position
        return journal.current_position(message.position)

    def unreadable(self, run: PagedRun) -> i64:
        """Return how many of the next messages cannot be read, after a CorruptionError."""
        return self._pages.unreadable(run)

    def take(self, run: PagedRun) -> list[Message]:
        """Take the next messages of a run that is in no line."""
        messages = self.peek(run)
        run.advance(len(messages))
        for message in messages:
            if not message.flags & LOGGED:
                self._unspill(message)
        return messages

    def read_on(self, view: PagedRun) -> list[Message]:
        """Return the next messages of a view and advance it; empty if they cannot be read."""
        try:
            messages = self.peek(view)
        except CorruptionError:
            view.at += max(1, min(view.left(), self.unreadable(view)))
            return []
        view.at += len(messages)
        return messages

    def peek(self, run: PagedRun) -> list[Message]:
        """Return the next messages of a run without taking them."""
        messages = self._pages.read(run, self._slot)
        self._complete(messages)
        return messages

    def prepare(self, run: PagedRun) -> bool:
        """Return True if the next messages can be read at once; see `PageReader.prepare`."""
        return self._pages.prepare(run)

    def sift(self, run: PagedRun, needle: bytes) -> tuple[list[Message], i64]:
        """Return the next messages that may contain the needle, and how many were examined."""
        messages, count = self._pages.sift(run, self._slot, needle)
        self._complete(messages)
        return messages, count

    def _complete(self, messages: list[Message]) -> None:
        """Set the flags and counts of messages that are not in their records."""
        for message in messages:
            if message.seq <= self.redelivered_through:
                message.flags |= REDELIVERED
            counts = self._returned.get(message.seq) if self._returned else None
            if counts is not None:
                message.returns, message.failures, _ = counts
                message.flags |= self._counted | REDELIVERED

    def _unspill(self, message: Message) -> None:
        """Release the log position of a spilled message: it is in memory again."""
        assert self.journal is not None
        self.journal.release(message.position)
        message.position = NOWHERE
