"""Hands jobs out: first prefetched jobs, then the most urgent jobs of the table.

A dequeue that finds nothing waits for a signal that its topic has ready jobs.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Any, Final

from leveret.errors import JobsDrainingError, JobsError, JobsUnavailableError
from leveret.job_model import Handle, LeasedJob
from leveret.job_service.shards import statements
from leveret.job_service.shards.background.flusher import Flusher
from leveret.job_service.shards.background.note_writer import NoteWriter
from leveret.job_service.shards.background.prefetcher import Prefetcher
from leveret.job_service.shards.batching import ClaimBatcher
from leveret.job_service.shards.counters import Counters
from leveret.job_service.shards.ready_signals import ReadySignals
from leveret.job_service.shards.routing import ShardMap
from leveret.job_service.shards.settings import WAIT_POLL_S
from leveret.job_service.shards.settling import Settler
from leveret.job_service.shards.tables import Tables, read_leased_job, urgency_of
from leveret.job_service.shards.timestamps import to_ms
from leveret.job_service.shards.topic_name import TopicName
from leveret.job_service.snowflake import first_of
from leveret.job_service.store import AckedAndTaken, OnTaken

_SERVE: Final = "SELECT leveret_serve($1, $2, $3::INT[], $4::BIGINT[])"

log = logging.getLogger(__name__)


class Dequeuer:
    """Serves the dequeues of one node."""

    def __init__(
        self,
        routes: ShardMap,
        tables: Tables,
        flushers: list[Flusher],
        prefetcher: Prefetcher,
        notes: NoteWriter,
        settler: Settler,
        signals: ReadySignals,
        counters: Counters,
        update_table: Callable[[TopicName, bool], Awaitable[bool]],
    ) -> None:
        self._routes = routes
        self._tables = tables
        self._flushers = flushers
        self._prefetcher = prefetcher
        self._notes = notes
        self._settler = settler
        self._signals = signals
        self._counters = counters
        # Writes the jobs that Redis has of a topic to its table. True: prefetched jobs too.
        self._update_table = update_table
        self._claims = ClaimBatcher(self._claim)
        self._unfinished_takes: set[asyncio.Task[None]] = set()
        self.is_draining = False  # if True, dequeues are refused

    async def dequeue(
        self, topic: TopicName, limit: int, lease_ms: int | None, wait_ms: int
    ) -> list[LeasedJob]:
        loop = asyncio.get_running_loop()
        end_s = loop.time() + wait_ms / 1000
        while True:
            if self.is_draining:
                raise JobsDrainingError("the service is stopping")
            with self._signals.signal_for(topic) as event:
                # The client of a call that waits may disconnect.
                found = await self._claims.claim(topic, limit, lease_ms, may_leave=wait_ms > 0)
                left_s = end_s - loop.time()
                if found or left_s <= 0:
                    return found
                if not self._routes.shard_of(topic).is_listening:
                    left_s = min(left_s, WAIT_POLL_S)
                await self._signals.wait(event, left_s)

    def begin_take(
        self,
        topic: TopicName,
        handles: list[Handle],
        limit: int,
        lease_ms: int | None,
        on_done: OnTaken,
    ) -> bool:
        """Begin to ack jobs and to lease the next ones by one call of Redis; see `Store`.

        A task goes on where that is not enough: the list has fewer jobs than wanted, or Redis does
        not answer.
        """
        shard = self._routes.shard_of(topic)
        if self.is_draining or not self._prefetcher.may_take(topic) or not shard.is_fresh:
            return False
        acks = self._settler.quick_acks(topic, handles) if handles else None
        if (handles and acks is None) or not shard.is_up or shard.health.skew_refusal():
            return False
        shard.note_use()

        def on_end(found: tuple[bytes, list[LeasedJob]] | Exception) -> None:
            letters, jobs = (b"", []) if isinstance(found, Exception) else found
            if isinstance(found, Exception):
                log.info("prefetched jobs cannot be used, so the shard is asked: %s", found)
            elif not jobs:
                on_done(None)
                return
            self._prefetcher.is_used(topic, limit)  # counts the call
            if len(jobs) == limit:
                outcomes = self._settler.outcomes_of_quick_acks(topic, letters)
                self._note_handed_out(topic, jobs, lease_ms)
                on_done(AckedAndTaken(outcomes, jobs))
                return
            work = self._finish_take(topic, handles, letters, jobs, limit, lease_ms, on_done)
            task = asyncio.get_running_loop().create_task(work, name="rest of a dequeue")
            self._unfinished_takes.add(task)
            task.add_done_callback(self._unfinished_takes.discard)

        least_urgent = self._flushers[shard.index].priority_behind(topic)
        self._prefetcher.begin_take(topic, acks, limit, lease_ms, least_urgent, on_end)
        return True

    async def _finish_take(
        self,
        topic: TopicName,
        handles: list[Handle],
        letters: bytes,
        jobs: list[LeasedJob],
        limit: int,
        lease_ms: int | None,
        on_done: OnTaken,
    ) -> None:
        """Ask the shard for what Redis has not done, and call `on_done`.

        If the acks are done and no job can be leased because of an error, tell no job.
        """
        try:
            if not jobs:  # some may have been taken off the list
                await self._prefetcher.try_to_take_back(topic)
            outcomes = await self._settler.finish_acks(topic, handles, letters)
            try:
                if jobs:
                    jobs = await self._complete(topic, jobs, limit, lease_ms)
                else:
                    jobs = await self._claims.claim(topic, limit, lease_ms, may_leave=False)
            except JobsError as error:
                if not handles:
                    raise
                log.info("no job is leased after an ack: %s", error)
        except Exception as fault:
            on_done(fault)
        else:
            on_done(AckedAndTaken(outcomes, jobs))

    async def _claim(self, topic: TopicName, limit: int, lease_ms: int | None) -> list[LeasedJob]:
        shard = self._routes.shard_of(topic)
        shard.note_use()
        await shard.freshen()
        shard.require()
        shard.health.require_clock()
        jobs: list[LeasedJob] = []
        if self._prefetcher.is_used(topic, limit):
            least_urgent = self._flushers[shard.index].priority_behind(topic)
            jobs = await self._prefetcher.take(topic, limit, lease_ms, least_urgent)
        return await self._complete(topic, jobs, limit, lease_ms)

    async def _complete(
        self, topic: TopicName, jobs: list[LeasedJob], limit: int, lease_ms: int | None
    ) -> list[LeasedJob]:
        """Add jobs of the table to prefetched ones, up to the limit."""
        if len(jobs) < limit:
            try:
                jobs += await self._lease_directly(topic, limit - len(jobs), lease_ms)
            except JobsError as error:
                if not jobs:
                    raise
                log.info("a dequeue gets prefetched jobs alone: %s", error)
        if jobs:
            self._note_handed_out(topic, jobs, lease_ms)
        return jobs

    def _note_handed_out(
        self, topic: TopicName, jobs: list[LeasedJob], lease_ms: int | None
    ) -> None:
        self._counters.of(topic).handed_out += len(jobs)
        self._prefetcher.refill(topic, lease_ms)

    async def _lease_directly(
        self, topic: TopicName, limit: int, lease_ms: int | None
    ) -> list[LeasedJob]:
        if self._flushers[self._routes.shard_of(topic).index].is_behind(topic):
            await self._try_to_update_table(topic)
        take_backs = self._prefetcher.take_backs
        rows = await self._lease(topic, limit, lease_ms)
        if not rows:
            # Another node may have buffered jobs that it has not flushed, or may have prefetched
            # jobs. This node may have taken jobs back meanwhile.
            has_changed = await self._try_to_update_table(topic, takes_back=True)
            if has_changed or self._prefetcher.take_backs != take_backs:
                rows = await self._lease(topic, limit, lease_ms)
        if any(row["job_rank"] for row in rows):
            ranks = [row["job_rank"] for row in rows]
            await self._ask(topic, _SERVE, [row["job_priority"] for row in rows], ranks)
        return [read_leased_job(row) for row in rows]

    async def _try_to_update_table(self, topic: TopicName, takes_back: bool = False) -> bool:
        """Return whether jobs of the table have changed; False if Redis does not answer."""
        try:
            return await self._update_table(topic, takes_back)
        except JobsUnavailableError as error:
            if not self._routes.shard_of(topic).is_up:
                raise
            log.info("a table is read without the jobs in Redis: %s", error)
            return False

    async def _lease(self, topic: TopicName, limit: int, lease_ms: int | None) -> list[Any]:
        """Return rows of the most urgent jobs, which are leased now."""
        rows = await self._claim_rows(topic, limit, lease_ms, None)
        if rows and rows[0]["job_token"] == statements.ENDED:
            # A lease has ended. The job may be acked: write the notes, then take the lease back.
            ended_at = self._notes.leases_noted_at(self._routes.shard_of(topic))
            await self._notes.write(topic)
            rows = await self._claim_rows(topic, limit, lease_ms, ended_at)
        expired = sum(int(row["job_token"]) for row in rows if row["job_id"] is None)
        self._counters.of(topic).expired += expired
        leased = sorted((row for row in rows if row["job_id"] is not None), key=urgency_of)
        if leased:  # all until the same time
            self._tables.expect_due(self._routes.shard_of(topic), to_ms(leased[0]["job_until"]))
        return leased

    async def _claim_rows(
        self, topic: TopicName, limit: int, lease_ms: int | None, ended_at: datetime | None
    ) -> list[Any]:
        fence, given = first_of(self._tables.clock.now_ms()), self._tables.given_time()
        return await self._ask(topic, statements.CLAIM, limit, lease_ms, fence, given, ended_at)

    async def _ask(self, topic: TopicName, sql: str, *arguments: object) -> list[Any]:
        deadline_s = self._tables.settings.deadline_s
        return await self._routes.ask(topic, deadline_s, sql, *arguments)
