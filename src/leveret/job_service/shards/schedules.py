"""Schedules: kept on the shards, fired by one node at a time.

A schedule is on the shard of its topic. The node that finds it due locks its row, enqueues the job
with an idempotency key made of its name and time, and sets the next time. If the node dies in
between, another node gets the lock, and the key prevents a second job. A schedule that missed times
while no node was up fires once.
"""

import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final

from leveret.errors import JobsError
from leveret.job_model import Enqueued, NewJob, Schedule
from leveret.job_service.cron import Cron
from leveret.job_service.shards.resharding.shard_reader import IS_COUNTED
from leveret.job_service.shards.shard import Shard
from leveret.job_service.shards.tables import Tables
from leveret.job_service.shards.timestamps import to_ms, to_timestamp

FIRED_MAX: Final = 100  # in one transaction
_LIST: Final = f"SELECT * FROM schedules j WHERE namespace = $1 AND {IS_COUNTED}"
_SET: Final = (
    "INSERT INTO schedules VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)"
    " ON CONFLICT (namespace, name) DO UPDATE SET topic = $3, cron = $4, timezone = $5,"
    " payload = $6, priority = $7, is_paused = $8, next_at = $9"
)
# Leaves out topics that are being moved.
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
        """Write a schedule to the shard of its topic; TopicStoppedError where that is another."""
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
            None if next_ms is None else to_timestamp(next_ms),
        )

        async def work(connection: Any) -> None:
            async with connection.transaction():
                await connection.execute("SELECT leveret_gate($1, $2)", values[0], values[2])
                await connection.execute(_SET, *values)

        await home.run(work)
        for shard in self._shards:
            if shard is not home:  # an older version of it, for another topic, may be there
                await shard.fetch(
                    "DELETE FROM schedules WHERE namespace = $1 AND name = $2 AND topic <> $3",
                    *values[:3],
                )

    async def delete(self, namespace: str, name: str) -> bool:
        """Delete a schedule on every shard; return whether there was one.

        Look again after it was found: its topic may be moving to another shard.
        """
        is_found = False
        while any([await _delete(shard, namespace, name) for shard in self._shards]):
            is_found = True
        return is_found

    async def fire(self, shard: Shard) -> None:
        """Fire the due schedules of a shard."""

        async def work(connection: Any) -> None:
            async with connection.transaction():
                now_ms = self._tables.clock.now_ms()
                rows = await connection.fetch(
                    _DUE,
                    to_timestamp(now_ms),
                    FIRED_MAX,
                )
                for row in rows:
                    await self._fire_one(connection, row, now_ms)

        await shard.run(work)

    async def _fire_one(self, connection: Any, row: Any, now_ms: int) -> None:
        due_ms = to_ms(row["next_at"])
        job = NewJob(
            namespace=row["namespace"],
            topic=row["topic"],
            payload=row["payload"],
            priority=row["priority"],
            idempotency_key=f"schedule {row['name']} {due_ms}",
        )
        try:
            await self._enqueue([job])
        except JobsError as error:  # it stays due; other schedules do not wait for it
            log.warning("the schedule %s could not fire: %s", row["name"], error)
            return
        next_ms = Cron(row["cron"], row["timezone"]).next_ms(now_ms)
        await connection.execute(
            "UPDATE schedules SET next_at = $3 WHERE namespace = $1 AND name = $2",
            row["namespace"],
            row["name"],
            None if next_ms is None else to_timestamp(next_ms),
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
