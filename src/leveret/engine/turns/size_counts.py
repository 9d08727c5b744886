"""Sizes of published messages, in the buckets of RabbitMQ's dashboards.

Sizes are sampled, so that they cost nothing per message: the last message that one read of a socket
publishes stands for all messages of that read.
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


class SizeCounts:
    """Counts of messages by upper bound of their size."""

    def __init__(self) -> None:
        self.counts: list[int] = [0] * (len(BOUNDS) + 1)  # the last one: above all bounds
        self.total_bytes: i64 = 0

    def note(self, size: i64, count: i64) -> None:
        """Count messages of one size."""
        at: i64 = 0
        while at < len(BOUNDS) and size > BOUNDS[at]:
            at += 1
        self.counts[at] += count
        self.total_bytes += size * count
