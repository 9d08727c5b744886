"""Messages that are only positions in the log: twelve bytes each instead of an object.

A `PagedRun` is a stretch of one log file: sequence numbers and offsets of messages, oldest first. `PagedRuns`
is a line of them; it is filled at one end and read back at the other, in pages. How a page is read
is the business of `PageReader`: the engine opens no files.

Invariant: offsets ascend inside a run, so that neighbours can be read together.
"""

from array import array
from bisect import bisect_left
from typing import Final

from mypy_extensions import i64

from leveret.engine.message import COUNTED, LOGGED, REDELIVERED, Message
from leveret.errors import CorruptionError
from leveret.journal.journal import Journal
from leveret.journal.records import NOWHERE, OFFSET_BITS, OFFSET_MASK

_COMPACT_AT: Final = 4096


def without(column: "array[int]", places: list[int]) -> "array[int]":
    """A column less the values at these places, which ascend."""
    rest = array(column.typecode)
    start = 0
    for place in places:
        rest.extend(column[start:place])
        start = place + 1
    rest.extend(column[start:])
    return rest


class PagedRun:
    """Messages of one log file."""

    def __init__(self, file: i64) -> None:
        self.file = file
        self.at: i64 = 0  # those before have been taken
        self.last: i64 = -1  # the last offset
        self.seqs: array[int] = array("Q")
        self.offsets: array[int] = array("I")

    def add(self, seq: i64, offset: i64) -> None:
        self.seqs.append(seq)
        self.offsets.append(offset)
        self.last = offset

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

    def rest(self, count: i64) -> "PagedRun":
        """The last `count` messages that are left, as a run that shares the columns with this one.

        It is for reading: nothing may be added to it.
        """
        view = PagedRun(self.file)
        view.seqs = self.seqs
        view.offsets = self.offsets
        view.at = len(self.offsets) - count
        view.last = self.last
        return view

    def copy(self) -> "PagedRun":
        """The messages that are left, as a run with columns of its own."""
        part = PagedRun(self.file)
        part.seqs = self.seqs[self.at :]
        part.offsets = self.offsets[self.at :]
        part.last = self.last
        return part

    def cut(self, count: i64) -> "PagedRun":
        """Take the next `count` messages, as a run of their own."""
        part = PagedRun(self.file)
        part.seqs = self.seqs[self.at : self.at + count]
        part.offsets = self.offsets[self.at : self.at + count]
        part.last = part.offsets[-1]
        self.advance(count)
        return part

    def advance(self, count: i64) -> None:
        """The next `count` messages have been taken."""
        self.at += count
        if self.at >= _COMPACT_AT and self.at * 2 > len(self.offsets):
            del self.offsets[: self.at]
            del self.seqs[: self.at]
            self.at = 0

    def places_of(self, wanted: list[int]) -> list[int]:
        """Where messages with these sequence numbers are; numbers ascend along a run."""
        found: list[int] = []
        if self.left() == 0:
            return found
        first: i64 = self.seqs[self.at]
        last: i64 = self.seqs[-1]
        for seq in wanted:
            if first <= seq <= last:
                place = bisect_left(self.seqs, seq, self.at)
                if self.seqs[place] == seq:
                    found.append(place)
        found.sort()
        return found

    def part(self, places: list[int]) -> "PagedRun":
        """Messages at these places, which ascend, as a run of their own; they stay here."""
        part = PagedRun(self.file)
        for place in places:
            part.add(self.seqs[place], self.offsets[place])
        return part

    def remove(self, places: list[int]) -> None:
        """Take the messages at these places, which ascend, out of the middle."""
        self.seqs = without(self.seqs, places)
        self.offsets = without(self.offsets, places)

    def takes(self, position: i64) -> bool:
        """Whether a message at this position may follow."""
        return position >> OFFSET_BITS == self.file and position & OFFSET_MASK > self.last


class PagedRuns:
    """Positions in order, over several files."""

    def __init__(self) -> None:
        self.count: i64 = 0
        self.runs: list[PagedRun] = []

    def add(self, seq: i64, position: i64) -> None:
        """Add a message at the end."""
        if not self.runs or not self.runs[-1].takes(position):
            self.runs.append(PagedRun(position >> OFFSET_BITS))
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

    def cut(self, count: i64) -> PagedRun:
        """Take the next messages, all of the first run, as a run of their own."""
        first = self.runs[0]
        part = first.cut(count)
        self.count -= count
        if first.left() == 0:
            self.runs.pop(0)
        return part

    def remove(self, run: PagedRun, places: list[int]) -> None:
        """Take messages out of the middle of a run."""
        run.remove(places)
        self.count -= len(places)
        if run.left() == 0:
            self.runs.remove(run)

    def find(self, file: i64) -> PagedRun | None:
        """The first run of a file."""
        for run in self.runs:
            if run.file == file:
                return run
        return None

    def move(self, run: PagedRun, positions: list[int]) -> None:
        """The next messages of a run stand elsewhere now; they keep their place in the line."""
        index = self.runs.index(run)
        first: i64 = positions[0]
        if index == 0 or not self.runs[index - 1].takes(first):
            self.runs.insert(index, PagedRun(first >> OFFSET_BITS))
            index += 1
        moved = self.runs[index - 1]
        at = run.at
        for position in positions:
            moved.add(run.seqs[at], i64(position) & OFFSET_MASK)
            at += 1
        run.advance(len(positions))
        if run.left() == 0:
            self.runs.pop(index)


class PageReader:
    """Reads messages of the log. Storage subclasses it."""

    def read(self, run: PagedRun, slot: i64) -> list[Message]:
        """The next messages of a run: at least one, and no more than a page.

        Corrupt where not even the next one can be read.
        """
        raise NotImplementedError

    def prepare(self, run: PagedRun) -> bool:
        """Check a part of what has to be checked before the next messages of a run are read.

        False: there is more. Who must not wait calls this before `read` and `sift`.
        """
        return True

    def sift(self, run: PagedRun, slot: i64, needle: bytes) -> tuple[list[Message], i64]:
        """Those of the next messages of a run that may have some bytes, and how many were seen."""
        messages = self.read(run, slot)
        return messages, len(messages)

    def unreadable(self, run: PagedRun) -> i64:
        """After Corrupt: how many of the next messages of the run are lost with it."""
        return run.left()


class QueuePageReader:
    """Reads the messages of one queue, and gives them back what is known of them."""

    def __init__(
        self, pages: PageReader, slot: i64, returned: dict[int, tuple[int, int, int]], counts: bool
    ) -> None:
        self.journal: Journal | None = None
        self._pages = pages
        self._counted: i64 = 0
        self.set_counting(counts)
        self._slot = slot
        self._returned = returned  # the queue's: returns, failures, due time by sequence number
        self.redelivered_through: i64 = -1  # may have been delivered before the node was started

    def set_counting(self, counts: bool) -> None:
        """Whether messages that came back say how often."""
        self._counted = COUNTED if counts else 0

    def read(self, runs: PagedRuns) -> list[Message]:
        """Take the next messages of the line."""
        messages = self.peek(runs.runs[0])
        runs.advance(len(messages))
        for message in messages:
            if not message.flags & LOGGED:
                self._unspill(message)
        return messages

    def unreadable(self, run: PagedRun) -> i64:
        """After Corrupt: how many of the next messages of the run are lost with it."""
        return self._pages.unreadable(run)

    def take(self, run: PagedRun) -> list[Message]:
        """Take the next messages of a run by itself."""
        messages = self.peek(run)
        run.advance(len(messages))
        for message in messages:
            if not message.flags & LOGGED:
                self._unspill(message)
        return messages

    def read_on(self, view: PagedRun) -> list[Message]:
        """The next messages of a view, which is moved on; nothing where they cannot be read."""
        try:
            messages = self.peek(view)
        except CorruptionError:
            view.at += max(1, min(view.left(), self.unreadable(view)))
            return []
        view.at += len(messages)
        return messages

    def peek(self, run: PagedRun) -> list[Message]:
        """The next messages of a run, which stay."""
        messages = self._pages.read(run, self._slot)
        self._complete(messages)
        return messages

    def prepare(self, run: PagedRun) -> bool:
        """Whether the next messages of a run can be read at once; see `PageReader.prepare`."""
        return self._pages.prepare(run)

    def sift(self, run: PagedRun, needle: bytes) -> tuple[list[Message], i64]:
        """Those of the next messages that may have some bytes, and how many were seen."""
        messages, count = self._pages.sift(run, self._slot, needle)
        self._complete(messages)
        return messages, count

    def _complete(self, messages: list[Message]) -> None:
        """Give messages what is known of them besides their record."""
        for message in messages:
            if message.seq <= self.redelivered_through:
                message.flags |= REDELIVERED
            counts = self._returned.get(message.seq) if self._returned else None
            if counts is not None:
                message.returns, message.failures, _ = counts
                message.flags |= self._counted | REDELIVERED

    def _unspill(self, message: Message) -> None:
        """A message that was in the log only to be out of memory is in memory again."""
        assert self.journal is not None
        self.journal.release(message.position)
        message.position = NOWHERE
