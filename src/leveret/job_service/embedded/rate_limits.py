"""Limits how many jobs a namespace may enqueue in a second: a token bucket for each, in memory."""

from leveret.errors import JobsRateLimitError


class RateLimits:
    """Buckets with the tokens of one second. A batch may overdraw a full bucket."""

    def __init__(self, per_second: int) -> None:
        self._per_second = per_second  # 0: no limit
        self.is_limited = per_second > 0
        self._buckets: dict[str, tuple[float, int]] = {}  # tokens, and the time of that count

    def take(self, counts: dict[str, int], now_ms: int) -> None:
        """Take tokens for a batch, by namespace; JobsRateLimitError where there are too few."""
        if not self.is_limited:
            return
        left = {name: self._left(name, now_ms) for name in counts}
        for name, tokens in left.items():
            if tokens < min(counts[name], self._per_second):
                missing = min(counts[name], self._per_second) - tokens
                raise JobsRateLimitError(name, missing / self._per_second)
        for name, tokens in left.items():
            self._buckets[name] = (tokens - counts[name], now_ms)

    def _left(self, namespace: str, now_ms: int) -> float:
        tokens, as_of_ms = self._buckets.get(namespace, (float(self._per_second), now_ms))
        gained = (now_ms - as_of_ms) * self._per_second / 1000
        return min(float(self._per_second), tokens + gained)
