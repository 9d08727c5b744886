"""Settles the jobs of one topic: one call at a time, for all jobs that have ended meanwhile.

While a call is on its way, jobs that end wait for the next call. A busy worker therefore settles
hundreds of jobs with one call, and an idle worker settles each job at once. A call that fails is
sent again as long as the leases last; `held_jobs.py` renews them meanwhile.
"""

import asyncio
import logging
from typing import Final

from leveret.job_model import BATCH_MAX, Outcome
from leveret.jobs.client import calls
from leveret.jobs.client.async_client import AsyncClient
from leveret.jobs.client.errors import CallError, UnreachableError
from leveret.jobs.worker.held_jobs import HeldJob, HeldJobs

_LOG = logging.getLogger("leveret.jobs")
_PAUSE_S: Final = 0.5  # after a failed call
# The job, its error, the delay in seconds, and whether it is dead at once.
Failed = tuple[HeldJob, str, float | None, bool]


class Settler:
    """Jobs of one topic that have ended and are not settled yet."""

    def __init__(self, client: AsyncClient, held: HeldJobs, has_room: asyncio.Event) -> None:
        self._has_room = has_room  # set when jobs were settled: the worker may take more
        self._client = client
        self._held = held
        self._done: list[HeldJob] = []
        self._failed: list[Failed] = []
        self._news = asyncio.Event()
        self._is_closing = False
        self.acked = 0
        self.nacked = 0

    def __len__(self) -> int:
        """Return how many jobs wait; the worker takes no more when there are too many."""
        return len(self._done) + len(self._failed)

    def ack(self, hold: HeldJob) -> None:
        self._done.append(hold)
        self._news.set()

    def nack(self, hold: HeldJob, error: str, delay_s: float | None, is_dead: bool = False) -> None:
        self._failed.append((hold, error, delay_s, is_dead))
        self._news.set()

    def close(self) -> None:
        """End `run` when everything is settled."""
        self._is_closing = True
        self._news.set()

    async def run(self) -> None:
        while not self._is_closing or len(self):
            await self._news.wait()
            self._news.clear()
            while len(self):
                await self._settle_some()

    async def _settle_some(self) -> None:
        try:
            if self._done:
                await self._ack_some()
            if self._failed:
                await self._nack_some()
        except CallError as fault:
            _LOG.warning("jobs cannot be settled: %s", fault)
            if not isinstance(fault, UnreachableError) and fault.status in (400, 401, 403):
                self._give_up(str(fault))
            await asyncio.sleep(_PAUSE_S)
        self._done = [hold for hold in self._done if not hold.job.is_lost]
        self._failed = [each for each in self._failed if not each[0].job.is_lost]
        self._has_room.set()

    async def _ack_some(self) -> None:
        some = self._done[:BATCH_MAX]
        outcomes = await self._client.ack_many([hold.job for hold in some])
        del self._done[: len(some)]
        for hold, outcome in zip(some, outcomes, strict=True):
            self._held.drop(hold)
            self.acked += outcome is Outcome.DONE
            if outcome is Outcome.STALE:
                _LOG.warning("job %d was done after its lease had ended", hold.job.id)

    async def _nack_some(self) -> None:
        some = self._failed[:BATCH_MAX]
        given = [(hold.job, error, delay_s, is_dead) for hold, error, delay_s, is_dead in some]
        outcomes = await self._client.send_call(calls.nack(given))
        del self._failed[: len(some)]
        for (hold, *_), outcome in zip(some, outcomes, strict=True):
            self._held.drop(hold)
            self.nacked += outcome is Outcome.DONE

    def _give_up(self, why: str) -> None:
        """Lose all waiting jobs: the service refuses them for good."""
        for hold in [*self._done, *(each[0] for each in self._failed)]:
            self._held.lose(hold, why)
