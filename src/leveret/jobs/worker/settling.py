"""Telling the service what became of jobs: one call at a time, for all that ended meanwhile.

While a call is on its way the next ones gather, so that a busy worker settles hundreds of jobs with
one call and an idle one settles each at once. A call that fails is tried again for as long as the
leases last: they are renewed meanwhile (`held.py`).
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
# With the error, a delay in seconds, and whether that was its last attempt.
Failed = tuple[HeldJob, str, float | None, bool]


class Settling:
    """What of one topic waits to be settled."""

    def __init__(self, client: AsyncClient, held: HeldJobs, has_room: asyncio.Event) -> None:
        self._has_room = has_room  # set whenever jobs were settled: the worker may take more
        self._client = client
        self._held = held
        self._done: list[HeldJob] = []
        self._failed: list[Failed] = []
        self._news = asyncio.Event()
        self._is_closing = False
        self.acked = 0
        self.nacked = 0

    def __len__(self) -> int:
        """How many jobs have ended and are not settled; the worker takes no more when too many."""
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
                _LOG.warning("job %d was done under a lease that is over", hold.job.id)

    async def _nack_some(self) -> None:
        some = self._failed[:BATCH_MAX]
        given = [(hold.job, error, delay_s, is_dead) for hold, error, delay_s, is_dead in some]
        outcomes = await self._client.send_call(calls.nack(given))
        del self._failed[: len(some)]
        for (hold, *_), outcome in zip(some, outcomes, strict=True):
            self._held.drop(hold)
            self.nacked += outcome is Outcome.DONE

    def _give_up(self, why: str) -> None:
        """The service will not take them, however often it is asked."""
        for hold in [*self._done, *(each[0] for each in self._failed)]:
            self._held.lose(hold, why)
