"""The store of jobs on Redis and PostgreSQL: every call of the contract, and what runs beside them.

A call goes to the shard of its topic, past a breaker that answers at once while the shard is down.
Where a topic is being moved the call waits for its end within the deadline, and is then sent to the
new shard. Calls that look at a topic first have its buffer flushed, so that a client sees what it
has put in.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, Final, TypeVar

from msgspec.structs import astuple

from leveret.errors import JobsDrainingError, JobsError, JobsUnavailableError
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
from leveret.job_service.shards.background.flusher import Flusher
from leveret.job_service.shards.background.prefetcher import Prefetcher
from leveret.job_service.shards.background.sweeper import Sweeper
from leveret.job_service.shards.background.ticker import Ticker
from leveret.job_service.shards.bells import Bells
from leveret.job_service.shards.counters import Counters, figures
from leveret.job_service.shards.dead_set import DeadSet
from leveret.job_service.shards.gathering import Acks, Claims
from leveret.job_service.shards.intake import Intake, topics_of
from leveret.job_service.shards.memory import Memory, Topic
from leveret.job_service.shards.moments import moment, ms_of
from leveret.job_service.shards.numbers import Numbers
from leveret.job_service.shards.routing import ShardMap
from leveret.job_service.shards.schedules import Schedules
from leveret.job_service.shards.settings import WAIT_POLL_S, ShardsSettings
from leveret.job_service.shards.shard import Shard
from leveret.job_service.shards.tables import (
    Tables,
    Time,
    columns,
    job,
    kept_error,
    leased_job,
    outcomes_of,
    urgency,
)
from leveret.job_service.shards.wal import Wal
from leveret.job_service.snowflake import EPOCH_MS

Answer = TypeVar("Answer")
POLL_S: Final = 0.05  # between two tries at the end
POP_TRIES: Final = 3  # of a dequeue, to find a buffer empty
_NACK: Final = "SELECT * FROM leveret_nack($1, $2, $3::BIGINT[], $4::BIGINT[], $5, $6, $7, $8)"
_BURY: Final = "SELECT * FROM leveret_bury($1, $2, $3::BIGINT[], $4::BIGINT[], $5, $6)"

log = logging.getLogger(__name__)


class ShardsStore:
    """One node of the service. `leveret.job_service.shards.open_store` makes one."""

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
        self._clock, self._settings, self._random = clock, settings, random
        self._memory = Memory(redis_url, settings)
        self._shards = [Shard(index, dsn, settings) for index, dsn in enumerate(dsns)]
        self._wal = Wal(data, settings.sync, settings.segment_bytes)
        self._routes = ShardMap(self._shards, self._memory)
        self._tables = Tables(clock, settings, random)
        self._bells = Bells()
        self._counters = Counters()
        self._numbers = Numbers(self._memory, self._shards, settings, random)
        self._intake = Intake(
            self._memory, self._shards, self._routes, self._tables, self._wal, self._numbers
        )
        self._sweeper = Sweeper(self._wal, self._shards, self._routes, self._tables, self._bells)
        self._flushers = [
            Flusher(shard, self._memory, self._routes, self._tables, self._wal, self._bells)
            for shard in self._shards
        ]
        self._prefetcher = Prefetcher(self._memory, self._routes, self._tables)
        self._schedules = Schedules(self._shards, self._tables, self.enqueue)
        self._ticker = Ticker(
            self._memory,
            self._routes,
            self._tables,
            self._flushers,
            self._schedules,
            self._counters,
            self._bells,
        )
        self._tasks: list[asyncio.Task[None]] = []
        self._is_draining = False
        self._dead = DeadSet(self._read, clock)
        self._acks = Acks(self._ack)
        self._claims = Claims(self._claim)
        self._wire()

    def _wire(self) -> None:
        self._memory.on_up = self._on_memory_up
        for shard in self._shards:
            shard.on_up = partial(self._sweeper.introduce, shard)
        for flusher in self._flushers:
            flusher.elsewhere = self._signal

    async def _on_memory_up(self) -> None:
        await self._intake.forget_keys()

    # ---- life

    async def start(self) -> None:
        """Recover what the local log has, and begin to flush, wake and prefetch.

        Servers that are down do not keep a node from starting: their topics answer so.
        """
        self._wal.open()
        await asyncio.gather(self._memory.probe(), *(shard.probe() for shard in self._shards))
        await self._try("read the shard map", self._routes.refresh)
        await self._try("sweep the local log", self._sweep_all)
        await self._try("lease a number", self._numbers.renew)
        for shard in self._shards:
            if shard.is_up and self._routes.is_loaded:
                await self._try("do what fell due", partial(self._ticker.look, shard))
        for work in (
            self._memory.watch(),
            self._numbers.watch(),
            self._wal.run(self._settings.sync_interval_ms / 1000),
            self._sweeper.run(),
            self._prefetcher.run(),
            *(shard.watch() for shard in self._shards),
            *(flusher.run() for flusher in self._flushers),
            *(self._ticker.run(shard) for shard in self._shards),
        ):
            self._begin(work)

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        task.add_done_callback(_tell)
        self._tasks.append(task)

    async def _sweep_all(self) -> None:
        await self._sweeper.sweep(0.0)

    async def _try(self, what: str, work: Callable[[], Awaitable[None]]) -> None:
        """What fails is done later."""
        try:
            await work()
        except JobsError as error:
            log.warning("could not %s: %s", what, error)

    async def stop(self, deadline_s: float) -> None:
        """Take no more, bring everything to the shards; JobsUnavailableError if that failed in
        time."""
        self._is_draining = self._ticker.is_draining = True
        fault: JobsUnavailableError | None = None
        try:
            async with asyncio.timeout(deadline_s):
                await self._drain()
                await self._sweeper.leave()
        except (TimeoutError, JobsError) as error:
            left = len(self._wal.outstanding)
            down = ", ".join(shard.name for shard in self._shards if not shard.is_up) or error
            fault = JobsUnavailableError(f"{left} jobs stay in the local log and in Redis: {down}")
        await self._close()
        if fault is not None:
            raise fault

    async def _drain(self) -> None:
        """Flush all buffers, until nothing of ours is on its way; what others left may stay."""
        while True:
            await self._try("flush all buffers", self._flush_all)
            await self._try("sweep the local log", self._sweep_all)
            if not self._wal.outstanding and not self._wal.undone:
                return
            await asyncio.sleep(POLL_S)

    async def _flush_all(self) -> None:
        if self._memory.is_up and self._routes.is_loaded:
            for topic in await self._memory.buffers():
                if self._routes.shard_of(topic).is_up:
                    await self._flush(topic)

    async def _close(self) -> None:
        while self._tasks:
            for task in self._tasks:
                task.cancel()
            # Again if need be: libraries have been seen to lose a cancellation.
            await asyncio.wait(self._tasks, timeout=1.0)
            self._tasks = [task for task in self._tasks if not task.done()]
        for shard in self._shards:
            shard.close()
        await self._memory.close()
        self._wal.close()

    def _now(self) -> Any:
        return moment(self._clock.now_ms())

    # ---- reaching a shard

    def _flusher(self, topic: Topic) -> Flusher:
        return self._flushers[self._routes.shard_of(topic).index]

    def _signal(self, topic: Topic) -> None:
        self._flusher(topic).signal(topic)

    async def _flush(self, topic: Topic) -> None:
        """Bring the buffer of a topic to its table."""
        flusher = self._flusher(topic)
        flusher.shard.require()
        try:
            await flusher.flush(topic)
        except TimeoutError as error:
            raise JobsUnavailableError(f"{flusher.shard.name} is too slow") from error

    async def _flush_if_buffered(self, topic: Topic) -> bool:
        """Whether something was flushed."""
        if not self._memory.is_up:
            return False
        try:
            waiting = await self._memory.buffered(topic)
        except JobsUnavailableError as error:
            log.info("the table is read without the buffer: %s", error)
            return False
        if waiting:
            await self._unless_stopped(topic, lambda _: self._flush(topic))
        return waiting > 0

    async def _unless_stopped(
        self, topic: Topic, work: Callable[[Shard], Awaitable[Answer]]
    ) -> Answer:
        return await self._routes.reach(topic, work, self._settings.deadline_s)

    async def _ask(self, topic: Topic, sql: str, *arguments: object) -> list[Any]:
        async def work(shard: Shard) -> list[Any]:
            return await shard.fetch(sql, *topic, *arguments)

        return await self._unless_stopped(topic, work)

    async def _read(self, topic: Topic, sql: str, *arguments: object) -> list[Any]:
        """A plain statement, where the topic lives: a shard that it has left refuses."""

        async def work(connection: Any) -> list[Any]:
            async with connection.transaction():
                await connection.execute("SELECT leveret_gate($1, $2)", *topic)
                rows: list[Any] = await connection.fetch(sql, *topic, *arguments)
                return rows

        return await self._unless_stopped(topic, lambda shard: shard.run(work))

    # ---- in and out

    async def enqueue(self, jobs: list[NewJob]) -> Enqueued:
        if self._is_draining:
            raise JobsDrainingError("the service is stopping")
        if not jobs:
            return Enqueued([], 0)
        ids, known = await self._intake.take(jobs)
        for one in jobs:
            self._counters.of((one.namespace, one.topic)).enqueued += 1
        for topic in topics_of(jobs):
            if self._memory.is_up:
                self._signal(topic)
            else:
                self._bells.ring(topic)
        return Enqueued(ids, known)

    async def dequeue(
        self, namespace: str, topic: str, limit: int, lease_ms: int | None, wait_ms: int
    ) -> list[LeasedJob]:
        name = namespace, topic
        loop = asyncio.get_running_loop()
        end_s = loop.time() + wait_ms / 1000
        while True:
            if self._is_draining:
                raise JobsDrainingError("the service is stopping")
            bell = self._bells.bell(name)
            found = await self._claims.ask(name, limit, lease_ms)
            left_s = end_s - loop.time()
            if found or left_s <= 0:
                return found
            await self._bells.wait(bell, min(left_s, WAIT_POLL_S))

    async def _claim(self, topic: Topic, limit: int, lease_ms: int | None) -> list[LeasedJob]:
        self._routes.shard_of(topic).require()
        self._prefetcher.note(topic)
        async with self._prefetcher.alone(topic):
            popped = await self._pop(topic, limit)
            now_ms = self._clock.now_ms()
            rows = await self._ask(
                topic,
                "SELECT * FROM leveret_claim($1, $2, $3::BIGINT[], $4, $5, $6, $7)",
                popped,
                limit,
                lease_ms,
                (now_ms - EPOCH_MS) << 22,
                moment(now_ms),
            )
        counts = self._counters.of(topic)
        counts.expired += sum(int(row["job_token"]) for row in rows if row["job_id"] is None)
        rows = sorted((row for row in rows if row["job_id"] is not None), key=urgency)
        counts.handed_out += len(rows)
        if any(row["job_rank"] for row in rows):
            await self._serve(topic, rows)
        return [leased_job(row) for row in rows]

    async def _pop(self, topic: Topic, limit: int) -> list[int]:
        """Prefetched ids, with the topic's buffer flushed before; none while Redis is down."""
        if not self._memory.is_up:
            return []
        try:
            for _ in range(POP_TRIES):
                popped = await self._memory.pop(topic, limit)
                if popped is not None:
                    return popped
                await self._unless_stopped(topic, lambda _: self._flush(topic))
        except JobsUnavailableError as error:
            if not self._routes.shard_of(topic).is_up:
                raise
            log.info("jobs are leased without Redis: %s", error)
        return []

    async def _serve(self, topic: Topic, rows: list[Any]) -> None:
        priorities = [row["job_priority"] for row in rows]
        ranks = [row["job_rank"] for row in rows]
        await self._ask(
            topic, "SELECT leveret_serve($1, $2, $3::INT[], $4::BIGINT[])", priorities, ranks
        )

    # ---- settling

    async def _settle(
        self, topic: Topic, sql: str, handles: list[Handle], *arguments: object
    ) -> list[Any]:
        """The row of each handle. What is unknown may be in the buffer: then it is asked again."""
        rows = await self._ask(topic, sql, *columns(handles), *arguments)
        unknown = [n for n, row in enumerate(rows) if row["outcome"] == Outcome.UNKNOWN.value]
        if unknown and await self._flush_if_buffered(topic):
            again = columns([handles[n] for n in unknown])
            found = await self._ask(topic, sql, *again, *arguments)
            for n, row in zip(unknown, found, strict=True):
                rows[n] = row
        return rows

    async def ack(self, namespace: str, topic: str, handles: list[Handle]) -> list[Outcome]:
        return await self._acks.ask((namespace, topic), handles)

    async def _ack(self, name: Topic, handles: list[Handle]) -> list[Outcome]:
        sql = "SELECT * FROM leveret_ack($1, $2, $3::BIGINT[], $4::BIGINT[], $5)"
        outcomes = outcomes_of(await self._settle(name, sql, handles, self._now()))
        self._counters.of(name).acked += outcomes.count(Outcome.DONE)
        self._bells.ring(name)  # a slot may be free
        return outcomes

    async def nack(
        self,
        namespace: str,
        topic: str,
        handles: list[Handle],
        error: str,
        delay_ms: int | None,
        is_dead: bool = False,
    ) -> list[Outcome]:
        name = namespace, topic
        kept, now = kept_error(error), self._now()
        if is_dead:
            rows = await self._settle(name, _BURY, handles, kept, now)
        else:
            drawn = self._random.random()
            rows = await self._settle(name, _NACK, handles, kept, delay_ms, drawn, now)
        outcomes = outcomes_of(rows)
        self._counters.of(name).failed += outcomes.count(Outcome.DONE)
        await self._ticker.made_ready(name)
        return outcomes

    async def extend(
        self, namespace: str, topic: str, handles: list[Handle], lease_ms: int | None
    ) -> list[tuple[Outcome, int]]:
        rows = await self._settle(
            (namespace, topic),
            "SELECT * FROM leveret_extend($1, $2, $3::BIGINT[], $4::BIGINT[], $5, $6)",
            handles,
            lease_ms,
            self._now(),
        )
        ends = [ms_of(row["until_at"]) if row["until_at"] else 0 for row in rows]
        return list(zip(outcomes_of(rows), ends, strict=True))

    async def cancel(self, namespace: str, topic: str, ids: list[int]) -> list[Outcome]:
        name = namespace, topic
        await self._flush_if_buffered(name)
        rows = await self._ask(name, "SELECT * FROM leveret_cancel($1, $2, $3::BIGINT[])", ids)
        return outcomes_of(rows)

    async def deliver_now(self, namespace: str, topic: str, ids: list[int]) -> list[Outcome]:
        name = namespace, topic
        await self._flush_if_buffered(name)
        sql = "SELECT * FROM leveret_deliver_now($1, $2, $3::BIGINT[], $4)"
        outcomes = outcomes_of(await self._ask(name, sql, ids, self._now()))
        await self._ticker.made_ready(name)
        return outcomes

    # ---- looking

    async def find(self, namespace: str, topic: str, id: int) -> Job | None:
        name = namespace, topic
        await self._flush_if_buffered(name)
        sql = "SELECT * FROM items WHERE (namespace || '') = $1 AND (topic || '') = $2 AND id = $3"
        rows = await self._read(name, sql, id)
        return job(rows[0], self._clock.now_ms()) if rows else None

    async def dead(self, namespace: str, topic: str, after_id: int, limit: int) -> list[Job]:
        return await self._dead.listed((namespace, topic), after_id, limit)

    async def redrive(self, namespace: str, topic: str, ids: list[int] | None) -> int:
        driven = await self._dead.redrive((namespace, topic), ids)
        await self._ticker.made_ready((namespace, topic))
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
            "INSERT INTO topics VALUES ($1, $2, 'live', $3, $4, $5, $6, $7, $8)"
            " ON CONFLICT (namespace, topic) DO UPDATE SET retries_max = $3, backoff_ms = $4,"
            " backoff_ms_max = $5, jitter = $6, lease_ms = $7, concurrency_max = $8",
            *astuple(settings),
        )

    async def stats(self, namespace: str | None) -> list[TopicStats]:
        """Of every topic that has jobs or that this node knows, on the shards that answer."""
        if self._memory.is_up:
            for topic in await self._memory.buffers():
                if namespace is None or topic[0] == namespace:
                    await self._try("flush for the statistics", partial(self._flush, topic))
        return await figures(self._shards, self._counters, namespace, self._now())

    # ---- schedules

    async def schedules(self, namespace: str) -> list[Schedule]:
        return await self._schedules.list(namespace)

    async def set_schedule(self, schedule: Schedule) -> None:
        topic = schedule.namespace, schedule.topic
        await self._unless_stopped(topic, lambda home: self._schedules.set(schedule, home))

    async def delete_schedule(self, namespace: str, name: str) -> bool:
        return await self._schedules.delete(namespace, name)


def _tell(task: asyncio.Task[None]) -> None:
    """Nobody waits for what runs beside the calls: its end must not go unseen."""
    if not task.cancelled() and task.exception() is not None:
        log.error("a part of the store has ended", exc_info=task.exception())
