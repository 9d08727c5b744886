"""Positions of the messages of a line that are in the log and not in memory: twelve bytes each.

A `PagedRun` holds sequence numbers and offsets of messages in one log file, oldest first.
`PagedRuns` is a queue of runs: new messages are added at the end, and pages are read back from the
front. `page_reader` does the reading.

Invariant: offsets ascend inside a run, so that neighbouring messages are read together.
"""

from array import array
from bisect import bisect_left
from typing import Final

from mypy_extensions import i64

from leveret.journal.records import OFFSET_BITS, OFFSET_MASK

_COMPACT_AT: Final = 4096  # taken entries at the front before the columns are cut


def without(column: "array[int]", places: list[int]) -> "array[int]":
    """Return a copy of a column without the values at the given places, which ascend."""
    rest = array(column.typecode)
    start = 0
    for place in places:
        rest.extend(column[start:place])
        start = place + 1
    rest.extend(column[start:])
    return rest


class PagedRun:
    """Sequence numbers and offsets of messages in one log file, as two columns."""

    def __init__(self, file: i64) -> None:
        self.file = file
        self.at: i64 = 0  # entries before this place have been taken
        self.last: i64 = -1  # offset of the last message
        self.seqs: array[int] = array("Q")
        self.offsets: array[int] = array("I")

    def add(self, seq: i64, offset: i64) -> None:
        self.seqs.append(seq)
        self.offsets.append(offset)
        self.last = offset

    def left(self) -> i64:
        """Return how many messages have not been taken."""
        return len(self.offsets) - self.at

    def stretches(self) -> list[tuple[int, int]]:
        """Return first and last number of each stretch of consecutive sequence numbers."""
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

    def view_last(self, count: i64) -> "PagedRun":
        """Return a read-only view of the last `count` messages; it shares this run's columns."""
        view = PagedRun(self.file)
        view.seqs = self.seqs
        view.offsets = self.offsets
        view.at = len(self.offsets) - count
        view.last = self.last
        return view

    def copy(self) -> "PagedRun":
        """Return the messages that are left as a new run with its own columns."""
        part = PagedRun(self.file)
        part.seqs = self.seqs[self.at :]
        part.offsets = self.offsets[self.at :]
        part.last = self.last
        return part

    def cut(self, count: i64) -> "PagedRun":
        """Take the next `count` messages and return them as a new run."""
        part = PagedRun(self.file)
        part.seqs = self.seqs[self.at : self.at + count]
        part.offsets = self.offsets[self.at : self.at + count]
        part.last = part.offsets[-1]
        self.advance(count)
        return part

    def advance(self, count: i64) -> None:
        """Mark the next `count` messages as taken."""
        self.at += count
        if self.at >= _COMPACT_AT and self.at * 2 > len(self.offsets):
            del self.offsets[: self.at]
            del self.seqs[: self.at]
            self.at = 0

    def places_of(self, wanted: list[int]) -> list[int]:
        """Return the places of the messages with the given sequence numbers.

        Sequence numbers must ascend along this run.
        """
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

    def select(self, places: list[int]) -> "PagedRun":
        """Copy the messages at the given places, which ascend, to a new run."""
        part = PagedRun(self.file)
        for place in places:
            part.add(self.seqs[place], self.offsets[place])
        return part

    def remove(self, places: list[int]) -> None:
        """Remove the messages at the given places, which ascend."""
        self.seqs = without(self.seqs, places)
        self.offsets = without(self.offsets, places)

    def can_follow(self, position: i64) -> bool:
        """Return True if a message at this position can be added at the end."""
        return position >> OFFSET_BITS == self.file and position & OFFSET_MASK > self.last


class PagedRuns:
    """The paged messages of one line, in order, over several log files."""

    def __init__(self) -> None:
        self.count: i64 = 0
        self.runs: list[PagedRun] = []

    def add(self, seq: i64, position: i64) -> None:
        """Add a message at the end of the line."""
        if not self.runs or not self.runs[-1].can_follow(position):
            self.runs.append(PagedRun(position >> OFFSET_BITS))
        self.runs[-1].add(seq, position & OFFSET_MASK)
        self.count += 1

    def advance(self, count: i64) -> None:
        """Mark the next messages as taken; all of them are in the first run."""
        first = self.runs[0]
        assert count <= first.left()
        first.advance(count)
        self.count -= count
        if first.left() == 0:
            self.runs.pop(0)

    def cut(self, count: i64) -> PagedRun:
        """Take the next messages, all from the first run, and return them as a new run."""
        first = self.runs[0]
        part = first.cut(count)
        self.count -= count
        if first.left() == 0:
            self.runs.pop(0)
        return part

    def remove(self, run: PagedRun, places: list[int]) -> None:
        """Remove messages from the middle of a run."""
        run.remove(places)
        self.count -= len(places)
        if run.left() == 0:
            self.runs.remove(run)

    def find(self, file: i64) -> PagedRun | None:
        """Return the first run in a log file."""
        for run in self.runs:
            if run.file == file:
                return run
        return None

    def move(self, run: PagedRun, positions: list[int]) -> None:
        """Give the next messages of a run new positions; their order in the line is unchanged."""
        index = self.runs.index(run)
        first: i64 = positions[0]
        if index == 0 or not self.runs[index - 1].can_follow(first):
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
