"""Schedules: kept on the shards, fired by one node at a time.

A schedule is on the shard of its topic. The node that finds it due locks its row, enqueues the job
with an idempotency key made of its name and time, and sets the next time. If the node dies in
between, another node gets the lock, and the key prevents a second job. A schedule that missed times
while no node was up fires once.

The lock is on one server and the job goes to another, which may be silent. So an enqueue that takes
long goes on without the lock, and a later look finds its end.

A schedule that cannot fire stays due, and holds back no other: a *pass* goes through all due
schedules in the order of their times. The next pass begins after a while that grows with the number
of schedules that could not fire. Until then, looks handle only what has become due after the pass.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import datetime
from functools import partial
from typing import Any, Final

from leveret.errors import JobsError, JobsUnavailableError
from leveret.job_model import Enqueued, NewJob, Schedule
from leveret.job_service.cron import Cron
from leveret.job_service.shards.resharding.shard_reader import IS_COUNTED
from leveret.job_service.shards.shard import Shard
from leveret.job_service.shards.tables import Tables
from leveret.job_service.shards.timestamps import to_ms, to_timestamp
from leveret.job_service.shards.topic_name import TopicName
from leveret.job_service.shards.transaction import transaction

Rows = list[Any]
FIRED_MAX: Final = 100  # in one transaction
PATIENCE: Final = 0.5  # share of the deadline of a shard for which its transaction waits for jobs
CAUSES_MAX: Final = 10_000  # schedules that could not fire, whose causes are kept
RETRY_S: Final = 0.005  # before schedules that could not fire are tried again, for each of them
_NOW: Final = "SELECT coalesce($1::TIMESTAMPTZ, now())"
_LIST: Final = f"SELECT * FROM schedules j WHERE namespace = $1 AND {IS_COUNTED}"
_SET: Final = (
    "INSERT INTO schedules VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)"
    " ON CONFLICT (namespace, name) DO UPDATE SET topic = $3, cron = $4, timezone = $5,"
    " payload = $6, priority = $7, is_paused = $8, next_at = $9, version = $10"
)
# The next due schedules after a place. Leaves out topics that are being moved.
_DUE: Final = (
    "SELECT * FROM schedules s WHERE NOT is_paused AND next_at <= coalesce($1, now())"
    " AND ($3::TIMESTAMPTZ IS NULL OR (next_at, namespace, name) > ($3, $4::TEXT, $5::TEXT))"
    " AND NOT EXISTS (SELECT FROM topics t WHERE t.namespace = s.namespace"
    " AND t.topic = s.topic AND t.state <> 'live')"
    " ORDER BY next_at, namespace, name LIMIT $2 FOR UPDATE OF s SKIP LOCKED"
)

_Place = tuple[datetime | None, str, str]  # time, namespace and name of a schedule
_START: Final[_Place] = (None, "", "")

log = logging.getLogger(__name__)


class _Pass:
    """A pass through the due schedules of a shard."""

    def __init__(self, began_s: float) -> None:
        self.began_s = began_s  # by the clock of the event loop
        self.place = _START  # where it goes on
        self.refused = 0  # schedules that could not fire

    def is_over(self, now_s: float) -> bool:
        """Return whether the next pass may begin."""
        return now_s >= self.began_s + self.refused * RETRY_S


class Schedules:
    """The schedules of all shards."""

    def __init__(
        self,
        shards: list[Shard],
        tables: Tables,
        enqueue: Callable[[list[NewJob]], Awaitable[Enqueued]],
    ) -> None:
        self._shards = shards
        self._tables = tables
        self._enqueue = enqueue
        # Enqueues under way, by namespace and idempotency key.
        self._begun: dict[tuple[str, str | None], asyncio.Task[Enqueued]] = {}
        self._causes: dict[TopicName, str] = {}  # why a schedule could not fire, as was logged
        self._passes: dict[int, _Pass] = {}  # by shard

    async def list(self, namespace: str) -> list[Schedule]:
        """Return the schedules on the shards that answer."""
        found: Rows = []
        for shard in self._shards:
            if shard.is_up:
                try:
                    found += await shard.fetch(_LIST, namespace)
                except JobsUnavailableError as error:
                    log.info("schedules on %s are not listed: %s", shard.name, error)
        # The last of several versions counts.
        newest = {row["name"]: row for row in sorted(found, key=lambda row: row["version"])}
        return [_schedule(newest[name]) for name in sorted(newest)]

    async def set(self, schedule: Schedule, home: Shard) -> None:
        """Write a schedule to the shard of its topic; TopicStoppedError where that is another."""
        cron = Cron(schedule.cron, schedule.timezone)
        values = (
            schedule.namespace,
            schedule.name,
            schedule.topic,
            schedule.cron,
            schedule.timezone,
            schedule.payload,
            schedule.priority,
            schedule.is_paused,
        )

        async def work(connection: Any) -> None:
            async with transaction(connection):
                await connection.execute("SELECT leveret_gate($1, $2)", values[0], values[2])
                now_ms = await self._now_ms(connection)
                await connection.execute(_SET, *values, _next_at(cron, now_ms), now_ms)

        await home.run(work)
        home.due.expect(0.0)  # the shard knows when
        for shard in self._shards:
            # Another shard may have an older version of the schedule, for another topic.
            if shard is not home and shard.is_up:
                try:
                    await shard.fetch(
                        "DELETE FROM schedules WHERE namespace = $1 AND name = $2 AND topic <> $3",
                        *values[:3],
                    )
                except JobsUnavailableError as error:  # `drop_outdated` deletes it later
                    log.info("an older version of the schedule %s may remain: %s", values[1], error)

    async def drop_outdated(self, shard: Shard, connection: Any) -> None:
        """Delete schedules of a shard that has come up, where another shard has a later version."""
        for other in self._shards:
            if other is shard or not other.is_up:
                continue
            rows = await other.fetch("SELECT namespace, name, version FROM schedules")
            await connection.execute(
                "DELETE FROM schedules s USING unnest($1::TEXT[], $2::TEXT[], $3::BIGINT[])"
                " AS g(ns, name, version)"
                " WHERE s.namespace = g.ns AND s.name = g.name AND s.version < g.version",
                *([row[column] for row in rows] for column in ("namespace", "name", "version")),
            )

    async def delete(self, namespace: str, name: str) -> bool:
        """Delete a schedule on every shard; return whether there was one.

        Look again after it was found: its topic may be moving to another shard.
        """
        is_found = False
        up = [shard for shard in self._shards if shard.is_up]
        while any([await _delete(shard, namespace, name) for shard in up]):
            is_found = True
        if not is_found:
            for shard in self._shards:
                shard.require()  # the schedule may be on a shard that is down
        return is_found

    async def fire(self, shard: Shard) -> None:
        """Fire the due schedules of a shard. If that takes long, the next call goes on."""
        loop = asyncio.get_running_loop()
        until_s = loop.time() + PATIENCE * self._tables.settings.deadline_s
        current = self._passes.get(shard.index)
        if current is None:
            current = self._passes[shard.index] = _Pass(loop.time())
        while await self._fire_some(shard, current, until_s):
            if loop.time() >= until_s:
                return
        if current.is_over(loop.time()):
            self._passes.pop(shard.index, None)

    async def _fire_some(self, shard: Shard, current: _Pass, until_s: float) -> bool:
        """Fire the next due schedules of a pass; return whether there may be more."""

        async def work(connection: Any) -> tuple[Rows, int]:
            async with transaction(connection):
                now_ms = await self._now_ms(connection)
                given = self._tables.given_time()
                rows: Rows = await connection.fetch(_DUE, given, FIRED_MAX, *current.place)
                fired = [await self._fire_one(connection, row, now_ms, until_s) for row in rows]
                return rows, fired.count(False)

        rows, refused = await shard.run(work)
        current.refused += refused
        if rows:
            current.place = rows[-1]["next_at"], rows[-1]["namespace"], rows[-1]["name"]
        return len(rows) == FIRED_MAX

    async def _fire_one(self, connection: Any, row: Any, now_ms: int, until_s: float) -> bool:
        """Fire a due schedule; return False if it cannot fire now."""
        name = row["namespace"], row["name"]
        due_ms = to_ms(row["next_at"])
        job = NewJob(
            namespace=row["namespace"],
            topic=row["topic"],
            payload=row["payload"],
            priority=row["priority"],
            idempotency_key=f"schedule {row['name']} {due_ms}",
        )
        try:
            # This comes first: the machine may lack a timezone that other nodes know.
            next_at = _next_at(Cron(row["cron"], row["timezone"]), now_ms)
            is_enqueued = await self._enqueue_until(until_s, job)
        except JobsError as error:  # it stays due; other schedules do not wait for it
            self._log_cause(name, str(error))
            return False
        if is_enqueued:
            self._causes.pop(name, None)
            sql = "UPDATE schedules SET next_at = $3 WHERE namespace = $1 AND name = $2"
            await connection.execute(sql, *name, next_at)
        return True

    async def _enqueue_until(self, until_s: float, job: NewJob) -> bool:
        """Enqueue a job. Return False if that takes longer; the enqueue goes on."""
        key = job.namespace, job.idempotency_key
        task = self._begun.get(key)
        if task is None:
            task = asyncio.get_running_loop().create_task(_awaited(self._enqueue([job])))
            self._begun[key] = task
            task.add_done_callback(partial(self._on_end, key))
        left_s = max(until_s - asyncio.get_running_loop().time(), 0.0)
        done, _ = await asyncio.wait([task], timeout=left_s)
        if done:
            task.result()
        return bool(done)

    def _on_end(self, key: tuple[str, str | None], task: "asyncio.Task[Enqueued]") -> None:
        del self._begun[key]
        if not task.cancelled():
            task.exception()  # retrieved, so that asyncio does not log it

    def _log_cause(self, name: TopicName, cause: str) -> None:
        """Log why a schedule could not fire, once for each new cause: it is tried again soon."""
        if self._causes.get(name) != cause:
            text = "the schedule %s of %s could not fire: %s: it is tried again by itself"
            log.warning(text, name[1], name[0], cause)
        if len(self._causes) >= CAUSES_MAX:
            self._causes.clear()
        self._causes[name] = cause

    async def _now_ms(self, connection: Any) -> int:
        """Return the time of the shard, in a transaction."""
        return to_ms(await connection.fetchval(_NOW, self._tables.given_time()))


def _next_at(cron: Cron, now_ms: int) -> datetime | None:
    next_ms = cron.next_ms(now_ms)
    return None if next_ms is None else to_timestamp(next_ms)


async def _awaited(enqueuing: Awaitable[Enqueued]) -> Enqueued:
    return await enqueuing


async def _delete(shard: Shard, namespace: str, name: str) -> bool:
    rows = await shard.fetch(
        "DELETE FROM schedules WHERE namespace = $1 AND name = $2 RETURNING name", namespace, name
    )
    return bool(rows)


def _schedule(row: Any) -> Schedule:
    return Schedule(
        name=row["name"],
        namespace=row["namespace"],
        topic=row["topic"],
        cron=row["cron"],
        timezone=row["timezone"],
        payload=row["payload"],
        priority=row["priority"],
        is_paused=row["is_paused"],
    )
