"""The settled messages of a queue, as a set of sequence numbers.

All numbers below `floor` are in the set. Messages that were settled out of order make runs above
the floor. Each run is stored by both of its ends, so that adding a number costs two look-ups and no
search. A queue whose messages are settled in order has no runs.
"""

from bisect import bisect_right

from mypy_extensions import i64


class SettledNumbers:
    """A set of sequence numbers that is mostly one stretch from the start."""

    def __init__(self) -> None:
        self.floor: i64 = 0  # all numbers below are in the set
        self._ends: dict[int, int] = {}  # first number of a run -> its last number + 1
        self._starts: dict[int, int] = {}  # last number + 1 -> first number of the run

    def add(self, seq: i64) -> None:
        """Add one number, which must not be in the set."""
        if seq == self.floor:
            self.floor = seq + 1
            if self._ends:
                self._join_floor()
            return
        assert seq > self.floor
        self._insert(seq, seq + 1)

    def _insert(self, first: i64, end: i64) -> None:
        """Add a run above the floor, and join it with the runs that it touches."""
        if end in self._ends:
            after = self._ends.pop(end)
            del self._starts[after]
            end = after
        if first in self._starts:
            before = self._starts.pop(first)
            del self._ends[before]
            first = before
        self._ends[first] = end
        self._starts[end] = first

    def add_run(self, first: i64, last: i64) -> None:
        """Add all numbers of a run; none of its numbers above the floor may be in the set."""
        if last < self.floor:
            return
        if first > self.floor:
            self._insert(first, last + 1)
            return
        self.floor = last + 1
        if self._ends:
            self._join_floor()

    def has(self, seq: i64) -> bool:
        """Return True if a number is in the set. Slow above the floor: for recovery and tests."""
        if seq < self.floor:
            return True
        for first, end in self._ends.items():
            if first <= seq < end:
                return True
        return False

    def missing(self, seqs: list[int]) -> list[int]:
        """Return the given numbers, which ascend, that are not in the set."""
        rest = [seq for seq in seqs if seq >= self.floor]
        if not rest or not self._ends:
            return rest
        first: i64 = rest[0]
        last: i64 = rest[-1]
        ends = self._ends
        runs = sorted([(start, ends[start]) for start in ends if start <= last])
        found: list[int] = []
        at = 0
        if len(runs) > 1:  # skip the runs that end before the first number
            at = max(0, bisect_right(runs, (first, 1 << 62)) - 1)
        for number in rest:
            seq: i64 = number
            while at < len(runs) and runs[at][1] <= seq:
                at += 1
            if at == len(runs) or seq < runs[at][0]:
                found.append(number)
        return found

    def runs(self) -> list[tuple[int, int]]:
        """Return the runs above the floor in order, as first and last numbers."""
        return sorted((first, end - 1) for first, end in self._ends.items())

    def without(self, seqs: list[int]) -> "SettledNumbers":
        """Return a copy of the set without the given numbers, which ascend."""
        runs = self.runs()
        if self.floor > 0:
            runs.insert(0, (0, self.floor - 1))
        rest = SettledNumbers()
        at = 0
        for first, last in runs:
            while at < len(seqs) and seqs[at] <= last:
                if seqs[at] > first:
                    rest.add_run(first, seqs[at] - 1)
                first = max(first, seqs[at] + 1)
                at += 1
            if first <= last:
                rest.add_run(first, last)
        return rest

    def _join_floor(self) -> None:
        end = self._ends.pop(self.floor, None)
        if end is not None:
            del self._starts[end]
            self.floor = end
