"""The jobs of one topic that a worker holds, and the renewal of their leases.

A worker holds a job from its hand-out until the service has settled it. One call renews all leases
that are due, long before they end, also the leases of jobs whose ack is still on its way. A job
whose lease cannot be renewed is lost: its task is cancelled, and it is not settled any more.

Times are of the event loop's clock; times of the service cannot be compared with them.
"""

import asyncio
import logging
from collections.abc import Iterator
from typing import Final

from leveret.job_model import BATCH_MAX, Outcome
from leveret.jobs.client.async_client import AsyncClient
from leveret.jobs.client.errors import CallError
from leveret.jobs.client.job import Job

_LOG = logging.getLogger("leveret.jobs")
_RENEWED_AFTER: Final = 1 / 3  # of a lease; the renewal itself may take as long again
_CHECKS_PER_LEASE: Final = 8


class HeldJob:
    """One job that this worker holds."""

    __slots__ = ("began_s", "is_cancellable", "job", "task")

    def __init__(self, job: Job, began_s: float) -> None:
        self.job = job
        self.began_s = began_s  # when its lease began, or was renewed
        self.task: asyncio.Task[None] | None = None  # None before it runs and after it has run
        self.is_cancellable = False  # coroutines are; functions in a thread are not


class HeldJobs:
    """All held jobs of one topic."""

    def __init__(self, client: AsyncClient, lease_s: float) -> None:
        self._client = client
        self._lease_s = lease_s
        self._holds: dict[tuple[int, int], HeldJob] = {}
        self.lost = 0  # jobs whose lease could not be kept

    def __iter__(self) -> Iterator[HeldJob]:
        return iter(list(self._holds.values()))

    def __len__(self) -> int:
        return len(self._holds)

    def take(self, job: Job) -> HeldJob:
        hold = HeldJob(job, asyncio.get_running_loop().time())
        self._holds[(job.id, job.token)] = hold
        return hold

    def drop(self, hold: HeldJob) -> None:
        """Forget a job that is settled or lost."""
        self._holds.pop((hold.job.id, hold.job.token), None)

    def lose(self, hold: HeldJob, why: str) -> None:
        """Give up a job whose lease is gone, and cancel its task."""
        self.drop(hold)
        self.lost += 1
        hold.job.is_lost = True
        _LOG.warning("job %d of %s is lost: %s", hold.job.id, hold.job.topic, why)
        if hold.task is not None and hold.is_cancellable:
            hold.task.cancel()

    async def keep(self) -> None:
        """Renew leases until cancelled."""
        while True:
            await asyncio.sleep(self._lease_s / _CHECKS_PER_LEASE)
            try:
                # A short limit leaves time for another try, and lost jobs are noticed soon.
                async with asyncio.timeout(self._lease_s * _RENEWED_AFTER):
                    await self._renew_due()
            except TimeoutError:
                _LOG.warning("leases cannot be renewed: the service does not answer in time")
            except CallError as fault:
                _LOG.warning("leases cannot be renewed: %s", fault)
            self._lose_ended()

    async def _renew_due(self) -> None:
        now_s = asyncio.get_running_loop().time()
        due = [hold for hold in self if now_s - hold.began_s >= self._lease_s * _RENEWED_AFTER]
        for start in range(0, len(due), BATCH_MAX):
            await self._renew(due[start : start + BATCH_MAX])

    async def _renew(self, holds: list[HeldJob]) -> None:
        began_s = asyncio.get_running_loop().time()
        jobs = [hold.job for hold in holds]
        found = await self._client.extend_many(jobs, lease_s=self._lease_s)
        for hold, (outcome, until) in zip(holds, found, strict=True):
            if outcome is Outcome.DONE:
                hold.began_s = began_s
                hold.job.lease_expires_at = until or hold.job.lease_expires_at
            elif (hold.job.id, hold.job.token) in self._holds:  # not settled meanwhile
                self.lose(hold, f"its lease is {outcome.value}")

    def _lose_ended(self) -> None:
        now_s = asyncio.get_running_loop().time()
        for hold in self:
            if now_s - hold.began_s >= self._lease_s:
                self.lose(hold, "its lease ended before it could be renewed")
