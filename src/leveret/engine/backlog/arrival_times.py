"""When the messages of a queue came, without a time in any of them.

Messages are numbered in order of arrival, so a few marks say enough: "from this number on, they
came at this time or up to a second later". A mark is made at most once a second and queue, at the
end of a turn that brought something. With `MARKS_MAX` of them the one goes whose loss blurs least,
measured by its age: the time of a message is known to a second for the first two minutes, and to
about a seventh of its age from then on, even after a week. An age is never given too small.

Invariant: numbers and times of the marks ascend; `next_seq` is above all numbers that were seen.
"""

from array import array
from typing import Final

from mypy_extensions import i64

GRAIN_MS: Final = 1000
MARKS_MAX: Final = 128
KEPT_MAX: Final = 16  # marks of one queue in a checkpoint
UNKNOWN: Final = 0


class ArrivalTimes:
    """Marks of one queue."""

    def __init__(self) -> None:
        self.next_seq: i64 = 0  # of the first message that comes after the last look
        self.last_ms: i64 = UNKNOWN  # of the last mark
        self.seqs: array[int] = array("Q")
        self.times_ms: array[int] = array("Q")

    def wants_mark(self, now_ms: i64) -> bool:
        """Whether what came since the last look needs a mark of its own."""
        return now_ms - self.last_ms >= GRAIN_MS

    def mark(self, now_ms: i64) -> None:
        """What came since the last look came now."""
        self.add(self.next_seq, now_ms)

    def add(self, seq: i64, time_ms: i64) -> None:
        """Messages from a number on came at a time."""
        self.last_ms = time_ms
        self.seqs.append(seq)
        self.times_ms.append(time_ms)
        if len(self.seqs) > MARKS_MAX:
            self._thin(time_ms)

    def kept(self, oldest: i64) -> list[int]:
        """Some of the marks that tell of an oldest number and what came after it, for the log."""
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
        """Take over what the log has kept; messages below a number have been seen."""
        self.seqs = marks.seqs
        self.times_ms = marks.times_ms
        self.last_ms = marks.last_ms
        self.next_seq = next_seq

    def clear(self) -> None:
        """Nothing is left of what the marks tell of."""
        del self.seqs[:]
        del self.times_ms[:]

    def arrived_ms(self, seq: i64) -> i64:
        """When a message came, or a little before that; UNKNOWN where nothing tells."""
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
        # What is older than the first mark came before it; that is all that is known.
        return self.times_ms[low - 1] if low > 0 else self.times_ms[0]

    def _thin(self, now_ms: i64) -> None:
        """Forget the mark whose loss blurs least: the gap that it leaves, by its age."""
        times = self.times_ms
        best: i64 = 1
        least = 2.0  # above every share
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
