"""The store of jobs on Redis and PostgreSQL: its parts, its start and stop, and all its calls.

A call goes to the shard of its topic. While the shard is down, its breaker refuses the call at
once. While a topic is being moved, the call waits within its deadline and is then sent to the new
shard. Calls that read a topic flush its buffer first, so that a client sees the jobs it has
enqueued.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, Final
from uuid import uuid4

from msgspec.structs import astuple

from leveret.errors import ConfigError, JobsDrainingError, JobsError, JobsUnavailableError
from leveret.job_model import (
    Enqueued,
    Handle,
    Job,
    LeasedJob,
    NewJob,
    Outcome,
    Schedule,
    TopicSettings,
    TopicStats,
)
from leveret.job_service.report import StoreReport
from leveret.job_service.shards import statements
from leveret.job_service.shards.background.flusher import Flusher
from leveret.job_service.shards.background.note_writer import NoteWriter
from leveret.job_service.shards.background.prefetcher import Prefetcher
from leveret.job_service.shards.background.sweeper import Sweeper
from leveret.job_service.shards.background.ticker import Ticker
from leveret.job_service.shards.counters import Counters, collect_stats
from leveret.job_service.shards.dead_jobs import DeadJobs
from leveret.job_service.shards.dequeueing import Dequeuer
from leveret.job_service.shards.enqueueing import Enqueuer
from leveret.job_service.shards.id_generator import IdGenerator
from leveret.job_service.shards.job_lists import JobLists
from leveret.job_service.shards.ready_signals import ReadySignals
from leveret.job_service.shards.redis.prefetch_client import PrefetchClient
from leveret.job_service.shards.routing import ShardMap
from leveret.job_service.shards.schedules import Schedules
from leveret.job_service.shards.server_health import Time, server_report
from leveret.job_service.shards.settings import ShardsSettings
from leveret.job_service.shards.settling import Settler
from leveret.job_service.shards.shard import Shard
from leveret.job_service.shards.stamping import Stamps
from leveret.job_service.shards.table_updates import TableUpdater
from leveret.job_service.shards.tables import (
    Tables,
    read_job,
)
from leveret.job_service.shards.timestamps import to_ms
from leveret.job_service.shards.topic_name import TopicName
from leveret.job_service.shards.wal import Wal
from leveret.job_service.store import OnEnqueued, OnTaken
from leveret.slices import FairLock

POLL_S: Final = 0.05  # between two tries to drain

log = logging.getLogger(__name__)


class ShardsStore:
    """The store of one node; `leveret.job_service.shards.open_store` makes one."""

    begins_batches = False

    def __init__(
        self,
        redis_url: str,
        dsns: list[str],
        data: Path,
        clock: Time,
        random: Random,
        settings: ShardsSettings,
    ) -> None:
        assert dsns, "there is at least one shard"
        self._settings = settings
        self._redis = PrefetchClient(redis_url, settings, clock)
        self._shards = [Shard(index, dsn, settings, clock) for index, dsn in enumerate(dsns)]
        self._wal = Wal(data, settings.sync, settings.segment_bytes)
        self._routes = ShardMap(self._shards, self._redis)
        self._tables = Tables(clock, settings, random)
        self._signals = ReadySignals()
        self._counters = Counters()
        self._counting = FairLock()
        self._id_generator = IdGenerator(self._redis, self._shards, settings, random)
        self._enqueuer = Enqueuer(
            self._redis, self._shards, self._routes, self._tables, self._wal, self._id_generator
        )
        self._sweeper = Sweeper(self._wal, self._shards, self._routes, self._tables, self._signals)
        self._notes = NoteWriter(self._redis, self._routes, self._tables, uuid4())
        self._prefetcher = Prefetcher(self._redis, self._routes, self._tables, self._notes)
        self._flushers = [self._flusher(shard) for shard in self._shards]
        self._updater = self._make_updater()
        self._settler = Settler(
            self._routes,
            self._tables,
            self._updater,
            self._prefetcher,
            self._notes,
            self._signals,
            self._counters,
            random,
        )
        self._schedules = Schedules(self._shards, self._tables, self.enqueue)
        self._ticker = Ticker(
            self._shards,
            self._routes,
            self._tables,
            self._schedules,
            self._counters,
            self._signals,
            self._prefetcher,
            self._notes,
        )
        self._stamps = Stamps(settings.secret_digest)
        self._tasks: list[asyncio.Task[None]] = []
        self._ended: list[str] = []  # sentences about tasks that have ended by a bug
        self._is_draining = False
        self._started_s = 0.0  # by the clock of the event loop
        self._lists = JobLists(self._routes, self._tables)
        self._dead = DeadJobs(self._read, self._lists.read, self._tables)
        self._dequeuer = Dequeuer(
            self._routes,
            self._tables,
            self._flushers,
            self._prefetcher,
            self._notes,
            self._settler,
            self._signals,
            self._counters,
            self._updater.update,
        )
        self._wire()

    def _flusher(self, shard: Shard) -> Flusher:
        return Flusher(
            shard,
            self._redis,
            self._routes,
            self._tables,
            self._wal,
            self._signals,
            self._prefetcher,
        )

    def _make_updater(self) -> TableUpdater:
        return TableUpdater(
            self._redis,
            self._routes,
            self._flushers,
            self._prefetcher,
            self._notes,
            self._settings.deadline_s,
        )

    def _wire(self) -> None:
        self._redis.on_up = self._on_redis_up
        for shard in self._shards:
            shard.on_up = partial(self._on_shard_up, shard)
            shard.on_ready = self._on_ready
            shard.check_stamp = partial(self._check_stamp, shard)
        for flusher in self._flushers:
            flusher.on_moved = self._updater.signal

    def _on_ready(self, topic: TopicName | None) -> None:
        """Wake waiting dequeues of a topic, or all of them."""
        if topic is None:
            self._signals.notify_all()
        else:
            self._signals.notify(topic)

    async def _on_shard_up(self, shard: Shard, connection: Any) -> None:
        await self._sweeper.report_log(shard, connection)
        await self._schedules.drop_outdated(shard, connection)

    async def _check_stamp(self, shard: Shard, connection: Any) -> bool:
        return await self._stamps.check(connection, shard.index, shard.name, self._wal.origin)

    async def _on_redis_up(self) -> None:
        await self._enqueuer.forget_keys()
        # A dequeue that began to wait without Redis has not marked its topic there, so no other
        # node would notify it. It looks again, and leaves the mark.
        self._signals.notify_all()

    async def start(self) -> None:
        """Recover the jobs of the local log, and start the background tasks.

        A node starts even if servers are down: calls for their topics are refused. Raise
        ConfigError if a database is another shard than its place in the options says, or is
        missing.
        """
        self._started_s = asyncio.get_running_loop().time()
        await asyncio.to_thread(self._wal.open)  # reads all its files
        await asyncio.gather(self._redis.probe(), *(shard.probe() for shard in self._shards))
        for shard in self._shards:
            if shard.is_up and not shard.is_stamped:  # it came up before the first shard
                await shard.probe()
            if shard.refusal is not None:
                await self._give_up()
                raise shard.refusal
        await self._try_to("read the shard map", self._routes.refresh)
        try:
            self._routes.require_shards()
        except ConfigError:
            await self._give_up()
            raise
        await self._try_to("sweep the local log", self._sweep_all)
        await self._try_to("lease a node number", self._id_generator.renew)
        for shard in self._shards:
            if shard.is_up and self._routes.is_loaded:
                await self._try_to("handle due jobs", partial(self._ticker.handle_due, shard))
        for work in (
            self._redis.watch(),
            self._id_generator.watch(),
            self._wal.run(self._settings.sync_interval_ms / 1000),
            self._sweeper.run(),
            *(shard.watch() for shard in self._shards),
            *(flusher.run() for flusher in self._flushers),
            *(self._ticker.run(shard) for shard in self._shards),
            *(self._prefetcher.run(shard) for shard in self._shards),
        ):
            self._begin(work)

    async def _give_up(self) -> None:
        """End a start that was refused. An empty log must not count as lost in the shards."""
        if not self._wal.outstanding and not self._wal.undone:
            await self._try_to("sign off", self._sweeper.leave)
        await self._close()

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work, name=getattr(work, "__qualname__", ""))
        task.add_done_callback(self._note_end)
        self._tasks.append(task)

    def _note_end(self, task: asyncio.Task[None]) -> None:
        """Note the error of a background task, which no caller awaits."""
        if not task.cancelled() and (fault := task.exception()) is not None:
            text = f"the part {task.get_name()} of the jobs service has stopped because of a bug"
            log.error("%s: restart this node, and report it", text, exc_info=fault)
            self._ended.append(f"{text}: restart this node, and report it")

    async def _sweep_all(self) -> None:
        await self._sweeper.sweep(0.0)

    async def _try_to(self, what: str, work: Callable[[], Awaitable[None]]) -> None:
        """Do work; log an error, since a background task does the work again later."""
        try:
            await work()
        except JobsError as error:
            log.warning("could not %s: %s: it is tried again by itself", what, error)

    async def stop(self, deadline_s: float) -> None:
        """Take no more jobs, and flush all jobs to the shards.

        JobsUnavailableError where some could not be flushed in time.
        """
        self._is_draining = self._ticker.is_draining = self._dequeuer.is_draining = True
        self._notes.is_stopping = True
        self._signals.notify_all()  # waiting dequeues end
        fault: JobsUnavailableError | None = None
        try:
            async with asyncio.timeout(deadline_s):
                await self._prefetcher.leave()
                await self._drain()
                await self._sweeper.leave()
                await self._id_generator.leave()
        except (TimeoutError, JobsError) as error:
            left = len(self._wal.outstanding)
            down = ", ".join(shard.name for shard in self._shards if not shard.is_up) or error
            if self._notes.topics:
                log.error("acks of this node stay in Redis alone: %s", down)
            if left or self._wal.undone:
                text = f"{left} jobs stay in the local log and in Redis: {down}"
                fault = JobsUnavailableError(text)
            else:
                log.warning("all jobs are stored, but this node could not sign off: %s", down)
        await self._close()
        if fault is not None:
            raise fault

    async def _drain(self) -> None:
        """Flush all buffers until no job and no ack of this node is outstanding."""
        while True:
            await self._try_to("flush all buffers", self._updater.flush_all)
            await self._try_to("sweep the local log", self._sweep_all)
            await self._write_notes()
            if not (self._wal.outstanding or self._wal.undone) and self._notes.is_written:
                await self._write_notes()  # what is left are announcements to withdraw
                return
            await asyncio.sleep(POLL_S)

    async def _write_notes(self) -> None:
        for topic in self._notes.own_topics:
            await self._try_to("write the notes", partial(self._notes.write, topic))

    async def _close(self) -> None:
        await self._prefetcher.close()
        while self._tasks:
            for task in self._tasks:
                task.cancel()
            # Again if need be: libraries have been seen to lose a cancellation.
            await asyncio.wait(self._tasks, timeout=1.0)
            self._tasks = [task for task in self._tasks if not task.done()]
        for shard in self._shards:
            shard.close()
        await self._redis.close()
        self._wal.close()

    async def _read(self, topic: TopicName, sql: str, *arguments: object) -> list[Any]:
        return await self._routes.read(topic, self._settings.deadline_s, sql, *arguments)

    def creates_queue(self, namespace: str, topic: str) -> bool:
        return False

    async def enqueue(self, jobs: list[NewJob]) -> Enqueued:
        if self._is_draining:
            raise JobsDrainingError("the service is stopping")
        if not jobs:
            return Enqueued([], 0)
        ids, known = await self._enqueuer.enqueue(jobs)
        priorities: dict[TopicName, list[int]] = {}
        for job in jobs:
            priorities.setdefault((job.namespace, job.topic), []).append(job.priority)
        for topic, found in priorities.items():
            self._note_enqueued(topic, len(found), min(found), is_quiet=False)
        return Enqueued(ids, known)

    def _note_enqueued(self, topic: TopicName, count: int, urgent: int, *, is_quiet: bool) -> None:
        """Count new jobs of a topic, and plan their flush. `urgent` is their first priority."""
        self._counters.of(topic).enqueued += count
        if not self._redis.is_up:
            self._signals.notify(topic)
            return
        try:
            self._updater.flusher_of(topic).signal(topic, urgent, is_quiet=is_quiet)
        except JobsUnavailableError as error:  # the topic has moved during the call
            log.info("new jobs of %s are left to the flushers of other nodes: %s", topic[1], error)

    def begin_enqueue(self, jobs: list[NewJob], on_done: OnEnqueued) -> bool:
        if self._is_draining or len(jobs) != 1:
            return False
        (job,) = jobs

        def on_enqueued(found: Enqueued | Exception, is_quiet: bool = False) -> None:
            try:
                on_done(found)  # first, because the client waits
            finally:
                if isinstance(found, Enqueued):
                    topic = job.namespace, job.topic
                    self._note_enqueued(topic, 1, job.priority, is_quiet=is_quiet)

        return self._enqueuer.begin(job, on_enqueued)

    async def dequeue(
        self, namespace: str, topic: str, limit: int, lease_ms: int | None, wait_ms: int
    ) -> list[LeasedJob]:
        return await self._dequeuer.dequeue((namespace, topic), limit, lease_ms, wait_ms)

    def begin_take(
        self,
        namespace: str,
        topic: str,
        handles: list[Handle],
        limit: int,
        lease_ms: int | None,
        on_done: OnTaken,
        *,
        may_find_none: bool,
    ) -> bool:
        # Redis alone never knows that there is no job: that is left to `dequeue`.
        return self._dequeuer.begin_take((namespace, topic), handles, limit, lease_ms, on_done)

    async def ack(self, namespace: str, topic: str, handles: list[Handle]) -> list[Outcome]:
        return await self._settler.ack((namespace, topic), handles)

    async def nack(
        self,
        namespace: str,
        topic: str,
        handles: list[Handle],
        error: str,
        delay_ms: int | None,
        is_dead: bool = False,
    ) -> list[Outcome]:
        return await self._settler.nack((namespace, topic), handles, error, delay_ms, is_dead)

    async def extend(
        self, namespace: str, topic: str, handles: list[Handle], lease_ms: int | None
    ) -> list[tuple[Outcome, int]]:
        return await self._settler.extend((namespace, topic), handles, lease_ms)

    async def cancel(self, namespace: str, topic: str, ids: list[int]) -> list[Outcome]:
        return await self._settler.cancel((namespace, topic), ids)

    async def deliver_now(self, namespace: str, topic: str, ids: list[int]) -> list[Outcome]:
        return await self._settler.deliver_now((namespace, topic), ids)

    async def find(self, namespace: str, topic: str, id: int) -> Job | None:
        name = namespace, topic
        await self._updater.update(name)
        rows = await self._read(name, statements.FIND, id, self._tables.given_time())
        return read_job(rows[0], to_ms(rows[0]["asked_at"])) if rows else None

    async def list_jobs(
        self, namespace: str, topic: str, state: str, limit: int, after: str
    ) -> tuple[list[Job], str]:
        await self._updater.update((namespace, topic), takes_back=True)
        return await self._lists.page((namespace, topic), state, limit, after)

    async def dead(self, namespace: str, topic: str, after_id: int, limit: int) -> list[Job]:
        return await self._dead.list_dead((namespace, topic), after_id, limit)

    async def redrive(self, namespace: str, topic: str, ids: list[int] | None) -> int:
        driven = await self._dead.redrive((namespace, topic), ids)
        await self._settler.on_ready((namespace, topic))
        return driven

    async def delete_dead(self, namespace: str, topic: str, ids: list[int] | None) -> int:
        return await self._dead.delete((namespace, topic), ids)

    async def settings(self, namespace: str, topic: str) -> TopicSettings:
        sql = "SELECT * FROM topics WHERE namespace = $1 AND topic = $2"
        rows = await self._read((namespace, topic), sql)
        names = TopicSettings.__struct_fields__ if rows else ()
        return TopicSettings(**{name: rows[0][name] for name in names})

    async def set_settings(self, namespace: str, topic: str, settings: TopicSettings) -> None:
        await self._read(
            (namespace, topic),
            "WITH changed AS (INSERT INTO topics VALUES ($1, $2, 'live', $3, $4, $5, $6, $7, $8)"
            " ON CONFLICT (namespace, topic) DO UPDATE SET retries_max = $3, backoff_ms = $4,"
            " backoff_ms_max = $5, jitter = $6, lease_ms = $7, concurrency_max = $8"
            " RETURNING TRUE) SELECT leveret_notify($1, $2) FROM changed",
            *astuple(settings),
        )
        await self._prefetcher.try_to_take_back((namespace, topic))  # leased by the old settings

    async def stats(self, namespace: str | None) -> list[TopicStats]:
        """Return statistics of every topic that has jobs or that this node has served.

        With many jobs that takes seconds on a connection, and there are few connections. So one
        count runs at a time, and namespaces take turns.
        """
        async with self._counting.held(namespace or ""):
            return await self._count(namespace)

    async def _count(self, namespace: str | None) -> list[TopicStats]:
        def is_asked(topic: TopicName) -> bool:
            is_up = any(each.is_up and self._routes.is_on(topic, each) for each in self._shards)
            return is_up and (namespace is None or topic[0] == namespace)

        if self._redis.is_up:
            for topic in await self._redis.buffers():
                if is_asked(topic):
                    flush = partial(self._updater.flush, topic)
                    await self._try_to("flush for the statistics", flush)
            for topic in await self._redis.prefetched_topics():
                if is_asked(topic):
                    write = partial(self._notes.write, topic)
                    await self._try_to("write notes for the statistics", write)
        given = self._tables.given_time()
        return await collect_stats(self._shards, self._routes, self._counters, namespace, given)

    def report(self) -> StoreReport:
        now_s = asyncio.get_running_loop().time()
        oldest = next(iter(self._wal.outstanding.values()), None)
        servers = [server_report(self._redis.health, is_shard=False)]
        for shard in self._shards:
            servers.append(server_report(shard.health, is_shard=True))
            servers[-1].connections_refused = shard.refused_connections
        return StoreReport(
            servers=servers,
            log_jobs=len(self._wal.outstanding),
            flush_lag_s=0.0 if oldest is None else now_s - (oldest.added_s or self._started_s),
            busy_topics=self._prefetcher.busy,
            ended=self._ended,
        )

    async def schedules(self, namespace: str) -> list[Schedule]:
        return await self._schedules.list(namespace)

    async def set_schedule(self, schedule: Schedule) -> None:
        topic = schedule.namespace, schedule.topic
        set_on = partial(self._schedules.set, schedule)
        await self._routes.reach(topic, set_on, self._settings.deadline_s)

    async def delete_schedule(self, namespace: str, name: str) -> bool:
        return await self._schedules.delete(namespace, name)
