"""Count measurements in buckets, as Prometheus shows them, and estimate quantiles.

One measurement costs a binary search in a short list. So use it for events that happen once for
many messages: a sync of the log, a check of the loop, a request.
"""

from bisect import bisect_left
from collections.abc import Sequence


class Histogram:
    """Counts of measurements by upper bound."""

    def __init__(self, bounds: Sequence[float]) -> None:
        assert list(bounds) == sorted(bounds)
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(self.bounds) + 1)  # the last bucket is for values above all bounds
        self.sum = 0.0
        self.count = 0
        self.highest = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value
        self.count += 1
        self.highest = max(self.highest, value)

    def quantile(self, share: float) -> float:
        """Return a bound that this share of the measurements does not exceed; 0 if none."""
        left = share * self.count
        for bound, count in zip(self.bounds, self.counts, strict=False):
            left -= count
            if left <= 0:
                return min(bound, self.highest)
        return self.highest
