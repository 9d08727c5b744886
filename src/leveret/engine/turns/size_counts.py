"""How large published messages are, as RabbitMQ's dashboards show it.

Sizes are sampled, so that they cost nothing per message: of what one read of a socket publishes,
the last message stands for all.
"""

from typing import Final

from mypy_extensions import i64

BOUNDS: Final = (
    100,
    1_000,
    10_000,
    100_000,
    1_000_000,
    10_000_000,
    50_000_000,
    100_000_000,
)


class Sizes:
    """Counts by upper bound."""

    def __init__(self) -> None:
        self.counts: list[int] = [0] * (len(BOUNDS) + 1)  # the last: above all bounds
        self.total_bytes: i64 = 0

    def note(self, size: i64, count: i64) -> None:
        """So many messages of this size were published."""
        at: i64 = 0
        while at < len(BOUNDS) and size > BOUNDS[at]:
            at += 1
        self.counts[at] += count
        self.total_bytes += size * count
