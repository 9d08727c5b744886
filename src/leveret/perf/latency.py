"""Histogram of latencies: fixed memory, and percentiles that are exact to 3 %.

Each power of two is divided into 32 buckets of equal width. Values below 64 have one bucket each.

    index(v) = v                            for v < 64
             = shift * 32 + (v >> shift)    with shift such that 32 <= v >> shift < 64
"""

from typing import Final

from mypy_extensions import i64

_EXACT: Final = 64
_HALF: Final = 32
_SHIFT_MAX: Final = 36  # 2^42 ns is over an hour; longer latencies share the last bucket
_BUCKETS: Final = _SHIFT_MAX * _HALF + _EXACT
_NS_MAX: Final = (_EXACT << _SHIFT_MAX) - 1


class Histogram:
    """Counts latencies by bucket."""

    def __init__(self) -> None:
        self.count: i64 = 0
        self.max_ns: i64 = 0
        self.buckets: list[int] = [0] * _BUCKETS

    def add(self, ns: i64) -> None:
        """Count one latency. A negative one, from a clock that went back, counts as 0."""
        ns = max(0, min(ns, _NS_MAX))
        self.count += 1
        if ns > self.max_ns:
            self.max_ns = ns
        shift: i64 = 0
        while ns >> shift >= _EXACT:
            shift += 1
        self.buckets[shift * _HALF + (ns >> shift)] += 1

    def merge(self, buckets: list[int], max_ns: i64) -> None:
        """Add the counts of another histogram."""
        assert len(buckets) == _BUCKETS
        for index in range(_BUCKETS):
            self.buckets[index] += buckets[index]
            self.count += buckets[index]
        self.max_ns = max(self.max_ns, max_ns)

    def since(self, before: "Histogram") -> dict[int, int]:
        """Return the counts by bucket that were added since the state `before`."""
        added: dict[int, int] = {}
        for index in range(_BUCKETS):
            if self.buckets[index] != before.buckets[index]:
                added[index] = self.buckets[index] - before.buckets[index]
        return added

    def highest_ns(self) -> i64:
        """Return the upper end of the highest bucket that is not empty."""
        for index in range(_BUCKETS - 1, -1, -1):
            if self.buckets[index] != 0:
                return _middle(index + 1) if index + 1 < _BUCKETS else _NS_MAX
        return 0

    def add_counts(self, counts: dict[int, int], max_ns: i64) -> None:
        """Add counts that `since` of another histogram returned."""
        for index, count in counts.items():
            self.buckets[index] += count
            self.count += count
        self.max_ns = max(self.max_ns, max_ns)

    def percentile(self, percent: float) -> int:
        """Return the latency in ns that `percent` % do not exceed; 0 if nothing was counted."""
        left = round(int(self.count - 1) * percent / 100)
        for index in range(_BUCKETS):
            left -= self.buckets[index]
            if left < 0:
                return min(_middle(index), self.max_ns)
        return self.max_ns


def _middle(index: int) -> int:
    """Return the value in the middle of a bucket."""
    if index < _EXACT:
        return index
    shift = index // _HALF - 1
    return ((index - shift * _HALF) << shift) + (1 << shift >> 1)
