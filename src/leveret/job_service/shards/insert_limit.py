"""How many jobs one insert into a shard takes.

A slow shard may need longer than the deadline for a full batch, and then would need as long for the
same batch again. So a batch that failed is followed by one of half the size. Each insert that
succeeds raises the size again, slowly, since each failure stops all calls to the shard.
"""

from typing import Final

from leveret.job_service.shards.buffered_job import BufferedJob
from leveret.job_service.shards.settings import FLUSH_BYTES

GROWTH: Final = 8  # an insert raises the limit by this part of it


class InsertLimit:
    """The limit for one shard."""

    def __init__(self, jobs_max: int) -> None:
        self._jobs_max: Final = jobs_max
        self.jobs = jobs_max
        self.bytes = FLUSH_BYTES  # one job may have more

    def fitting(self, jobs: list[BufferedJob]) -> int:
        """Return how many of these jobs, at least one, fit into an insert."""
        count = size = 0
        while count < min(len(jobs), self.jobs) and size < self.bytes:
            size += len(jobs[count].payload)
            count += 1
        return count

    def on_failed(self) -> None:
        self.jobs = max(self.jobs // 2, 1)
        self.bytes = max(self.bytes // 2, 1)

    def on_done(self) -> None:
        self.jobs = min(self.jobs + -(-self.jobs // GROWTH), self._jobs_max)
        self.bytes = min(self.bytes + -(-self.bytes // GROWTH), FLUSH_BYTES)
