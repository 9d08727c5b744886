"""Tell when each message of a queue arrived, without a timestamp in the message.

Messages are numbered in order of arrival, so a few marks are enough. A mark means: messages from
this number on arrived at this time, or up to a second later. A queue gets at most one mark per
second, at the end of a turn in which messages arrived.

A queue keeps at most `MARKS_MAX` marks. When there are more, the mark whose removal costs the least
precision is dropped. The arrival time of a message is exact to a second for the first two minutes,
and to about a seventh of its age after that, even after a week. The computed age is never too
small.

Invariant: numbers and times of the marks ascend; `next_seq` is above all numbers that were seen.
"""

from array import array
from typing import Final

from mypy_extensions import i64

GRAIN_MS: Final = 1000  # least time between two marks
MARKS_MAX: Final = 128
KEPT_MAX: Final = 16  # marks of one queue in a checkpoint
UNKNOWN: Final = 0


class ArrivalTimes:
    """The marks of one queue, as two columns."""

    def __init__(self) -> None:
        self.next_seq: i64 = 0  # number of the first message that was not seen yet
        self.last_ms: i64 = UNKNOWN  # time of the last mark
        self.seqs: array[int] = array("Q")
        self.times_ms: array[int] = array("Q")

    def wants_mark(self, now_ms: i64) -> bool:
        """Return True if messages that arrive now need a new mark."""
        return now_ms - self.last_ms >= GRAIN_MS

    def mark(self, now_ms: i64) -> None:
        """Mark the messages from `next_seq` on as arrived now."""
        self.add(self.next_seq, now_ms)

    def add(self, seq: i64, time_ms: i64) -> None:
        """Add a mark: messages from `seq` on arrived at `time_ms`."""
        self.last_ms = time_ms
        self.seqs.append(seq)
        self.times_ms.append(time_ms)
        if len(self.seqs) > MARKS_MAX:
            self._thin(time_ms)

    def kept(self, oldest: i64) -> list[int]:
        """Return up to `KEPT_MAX` marks for a checkpoint: numbers and times in turn.

        They cover the message `oldest` and all later ones.
        """
        first: i64 = 0
        while first + 1 < len(self.seqs) and i64(self.seqs[first + 1]) <= oldest:
            first += 1
        count: i64 = len(self.seqs) - first
        step = (count + KEPT_MAX - 1) // KEPT_MAX
        found: list[int] = []
        while count > 0:
            found.append(self.seqs[first])
            found.append(self.times_ms[first])
            first += step
            count -= step
        return found

    def restore(self, marks: "ArrivalTimes", next_seq: i64) -> None:
        """Take over the marks that were read from the log; messages below `next_seq` are seen."""
        self.seqs = marks.seqs
        self.times_ms = marks.times_ms
        self.last_ms = marks.last_ms
        self.next_seq = next_seq

    def clear(self) -> None:
        """Drop all marks: the queue is empty."""
        del self.seqs[:]
        del self.times_ms[:]

    def arrived_ms(self, seq: i64) -> i64:
        """Return when a message arrived, or slightly earlier; UNKNOWN without marks."""
        seqs = self.seqs
        low: i64 = 0
        high: i64 = len(seqs)
        if high == 0:
            return UNKNOWN
        while low < high:
            middle = (low + high) // 2
            if i64(seqs[middle]) <= seq:
                low = middle + 1
            else:
                high = middle
        # A message older than the first mark arrived before it. Nothing more is known.
        return self.times_ms[low - 1] if low > 0 else self.times_ms[0]

    def _thin(self, now_ms: i64) -> None:
        """Drop the mark that leaves the smallest gap in relation to its age."""
        times = self.times_ms
        best: i64 = 1
        least = 2.0  # above every possible share
        index: i64 = 1
        last: i64 = len(times) - 1
        while index < last:
            before: i64 = times[index - 1]
            gap: i64 = times[index + 1] - before
            share = float(gap) / float(now_ms - before + 1)
            if share < least:
                best = index
                least = share
            index += 1
        self.seqs.pop(best)
        times.pop(best)
