"""Messages that are only positions in the log: twelve bytes each instead of an object.

A `Run` is a stretch of one log file: sequence numbers and offsets of messages, oldest first. `Runs`
is a line of them; it is filled at one end and read back at the other, in pages. How a page is read
is the business of `Pages`: the engine opens no files.
"""

from array import array
from typing import Final

from mypy_extensions import i64

from leveret.engine.message import COUNTED, REDELIVERED, Message
from leveret.journal.records import OFFSET_BITS, OFFSET_MASK

_COMPACT_AT: Final = 4096


class Run:
    """Messages of one log file."""

    def __init__(self, file: i64) -> None:
        self.file = file
        self.at: i64 = 0  # those before have been taken
        self.seqs: array[int] = array("Q")
        self.offsets: array[int] = array("I")

    def add(self, seq: i64, offset: i64) -> None:
        self.seqs.append(seq)
        self.offsets.append(offset)

    def left(self) -> i64:
        return len(self.offsets) - self.at

    def stretches(self) -> list[tuple[int, int]]:
        """First and last of every stretch of sequence numbers without a gap."""
        found: list[tuple[int, int]] = []
        first: i64 = -1
        last: i64 = -1
        for number in self.seqs[self.at :]:
            seq: i64 = number
            if seq != last + 1 or first < 0:
                if first >= 0:
                    found.append((first, last))
                first = seq
            last = seq
        if first >= 0:
            found.append((first, last))
        return found

    def advance(self, count: i64) -> None:
        """The next `count` messages have been taken."""
        self.at += count
        if self.at >= _COMPACT_AT and self.at * 2 > len(self.offsets):
            del self.offsets[: self.at]
            del self.seqs[: self.at]
            self.at = 0


class Runs:
    """Positions in order, over several files."""

    def __init__(self) -> None:
        self.count: i64 = 0
        self.runs: list[Run] = []

    def add(self, seq: i64, position: i64) -> None:
        """Add a message at the end."""
        file = position >> OFFSET_BITS
        if not self.runs or self.runs[-1].file != file:
            self.runs.append(Run(file))
        self.runs[-1].add(seq, position & OFFSET_MASK)
        self.count += 1

    def advance(self, count: i64) -> None:
        """The next messages, all of the first run, have been taken."""
        first = self.runs[0]
        assert count <= first.left()
        first.advance(count)
        self.count -= count
        if first.left() == 0:
            self.runs.pop(0)


class Pages:
    """Reads messages of the log. Storage subclasses it."""

    def read(self, run: Run, slot: i64) -> list[Message]:
        """The next messages of a run: at least one, and no more than a page."""
        raise NotImplementedError


class QueuePages:
    """Reads the messages of one queue, and gives them back what is known of them."""

    def __init__(
        self, pages: Pages, slot: i64, returned: dict[int, tuple[int, int]], counts: bool
    ) -> None:
        self._pages = pages
        self._counted: i64 = COUNTED if counts else 0
        self._slot = slot
        self._returned = returned  # the queue's: returns and failures by sequence number
        self.redelivered_through: i64 = -1  # may have been delivered before the node was started

    def read(self, runs: Runs) -> list[Message]:
        """Take the next messages of the line."""
        messages = self._pages.read(runs.runs[0], self._slot)
        runs.advance(len(messages))
        for message in messages:
            if message.seq <= self.redelivered_through:
                message.flags |= REDELIVERED
            counts = self._returned.get(message.seq) if self._returned else None
            if counts is not None:
                message.returns, message.failures = counts
                message.flags |= self._counted | REDELIVERED
        return messages
