"""Which messages of a queue are done with, by sequence number.

Everything below `floor` is; above it there may be further runs, when messages were settled out of
order. Runs are kept by both ends, so that adding a number costs two look-ups and no search. A queue
that is worked off in order has no runs at all.
"""

from bisect import bisect_right

from mypy_extensions import i64


class SettledNumbers:
    """A set of sequence numbers that is mostly one stretch from the start."""

    def __init__(self) -> None:
        self.floor: i64 = 0  # all numbers below are in the set
        self._ends: dict[int, int] = {}  # first number of a run -> the one after its last
        self._starts: dict[int, int] = {}  # the one after its last -> first number of the run

    def add(self, seq: i64) -> None:
        """Add one number that is not in the set."""
        if seq == self.floor:
            self.floor = seq + 1
            if self._ends:
                self._join_floor()
            return
        assert seq > self.floor
        self._insert(seq, seq + 1)

    def _insert(self, first: i64, end: i64) -> None:
        """Add a run above the floor, joined with those that it touches."""
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
        """Add all numbers of a run; those above the floor are not in the set yet."""
        if last < self.floor:
            return
        if first > self.floor:
            self._insert(first, last + 1)
            return
        self.floor = last + 1
        if self._ends:
            self._join_floor()

    def has(self, seq: i64) -> bool:
        """Whether a number is in the set. Slow above the floor: for recovery and tests."""
        if seq < self.floor:
            return True
        for first, end in self._ends.items():
            if first <= seq < end:
                return True
        return False

    def missing(self, seqs: list[int]) -> list[int]:
        """Those of some numbers, given in order, that are not in the set."""
        rest = [seq for seq in seqs if seq >= self.floor]
        if not rest or not self._ends:
            return rest
        first: i64 = rest[0]
        last: i64 = rest[-1]
        ends = self._ends
        runs = sorted([(start, ends[start]) for start in ends if start <= last])
        found: list[int] = []
        at = 0
        if len(runs) > 1:  # those that end before the first number do not matter
            at = max(0, bisect_right(runs, (first, 1 << 62)) - 1)
        for number in rest:
            seq: i64 = number
            while at < len(runs) and runs[at][1] <= seq:
                at += 1
            if at == len(runs) or seq < runs[at][0]:
                found.append(number)
        return found

    def runs(self) -> list[tuple[int, int]]:
        """The runs above the floor, first and last numbers, in order."""
        return sorted((first, end - 1) for first, end in self._ends.items())

    def without(self, seqs: list[int]) -> "SettledNumbers":
        """The same set less some numbers, which are given in ascending order."""
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
