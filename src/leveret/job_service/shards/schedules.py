"""Jobs that are put in again and again: kept on the shards, fired by one node at a time.

A schedule lives on the shard of its topic. Whoever finds it due locks its row, puts the job in
under an idempotency key made of its name and time, and sets the next time; a node that dies in
between leaves the lock to another one, and the key keeps the job from coming twice. Times that went
by while no node was up are made up for once.
"""

import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final

from leveret.errors import JobsError
from leveret.job_model import Enqueued, NewJob, Schedule
from leveret.job_service.cron import Cron
from leveret.job_service.shards.moments import moment, ms_of
from leveret.job_service.shards.resharding.reading import COUNTS
from leveret.job_service.shards.shard import Shard
from leveret.job_service.shards.tables import Tables

FIRED_MAX: Final = 100  # in one transaction
_LIST: Final = f"SELECT * FROM schedules j WHERE namespace = $1 AND {COUNTS}"
_SET: Final = (
    "INSERT INTO schedules VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)"
    " ON CONFLICT (namespace, name) DO UPDATE SET topic = $3, cron = $4, timezone = $5,"
    " payload = $6, priority = $7, is_paused = $8, next_at = $9"
)
# None of a topic that is on its way to another shard.
_DUE: Final = (
    "SELECT * FROM schedules s WHERE NOT is_paused AND next_at <= $1"
    " AND NOT EXISTS (SELECT FROM topics t WHERE t.namespace = s.namespace"
    " AND t.topic = s.topic AND t.state <> 'live')"
    " ORDER BY next_at LIMIT $2 FOR UPDATE OF s SKIP LOCKED"
)

log = logging.getLogger(__name__)


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

    async def list(self, namespace: str) -> list[Schedule]:
        found = []
        for shard in self._shards:
            rows = await shard.fetch(_LIST, namespace)
            found += [_schedule(row) for row in rows]
        return sorted(found, key=lambda schedule: schedule.name)

    async def set(self, schedule: Schedule, home: Shard) -> None:
        """Keep a schedule on the shard of its topic; TopicStopped where that is another."""
        next_ms = Cron(schedule.cron, schedule.timezone).next_ms(self._tables.clock.now_ms())
        values = (
            schedule.namespace,
            schedule.name,
            schedule.topic,
            schedule.cron,
            schedule.timezone,
            schedule.payload,
            schedule.priority,
            schedule.is_paused,
            None if next_ms is None else moment(next_ms),
        )

        async def work(connection: Any) -> None:
            async with connection.transaction():
                await connection.execute("SELECT leveret_gate($1, $2)", values[0], values[2])
                await connection.execute(_SET, *values)

        await home.run(work)
        for shard in self._shards:
            if shard is not home:  # where it was while it put jobs into another topic
                await shard.fetch(
                    "DELETE FROM schedules WHERE namespace = $1 AND name = $2 AND topic <> $3",
                    *values[:3],
                )

    async def delete(self, namespace: str, name: str) -> bool:
        """Whether there was one. Looks again after it was found: its topic may be on its way."""
        is_found = False
        while any([await _delete(shard, namespace, name) for shard in self._shards]):
            is_found = True
        return is_found

    async def fire(self, shard: Shard) -> None:
        """Put in what is due on a shard."""

        async def work(connection: Any) -> None:
            async with connection.transaction():
                now_ms = self._tables.clock.now_ms()
                rows = await connection.fetch(
                    _DUE,
                    moment(now_ms),
                    FIRED_MAX,
                )
                for row in rows:
                    await self._fire_one(connection, row, now_ms)

        await shard.run(work)

    async def _fire_one(self, connection: Any, row: Any, now_ms: int) -> None:
        due_ms = ms_of(row["next_at"])
        job = NewJob(
            namespace=row["namespace"],
            topic=row["topic"],
            payload=row["payload"],
            priority=row["priority"],
            idempotency_key=f"schedule {row['name']} {due_ms}",
        )
        try:
            await self._enqueue([job])
        except JobsError as error:  # it stays due, and holds up no other
            log.warning("the schedule %s waits: %s", row["name"], error)
            return
        next_ms = Cron(row["cron"], row["timezone"]).next_ms(now_ms)
        await connection.execute(
            "UPDATE schedules SET next_at = $3 WHERE namespace = $1 AND name = $2",
            row["namespace"],
            row["name"],
            None if next_ms is None else moment(next_ms),
        )


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
