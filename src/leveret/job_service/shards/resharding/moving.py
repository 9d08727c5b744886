"""Moves a topic to another shard while the service runs, from any process.

    arrive   the new shard may be given copies of the topic's jobs, which do not count
    freeze   its shard refuses every change of it from now on; nodes wait, or answer that it is
             being moved, while new jobs stay in Redis
    carry    make the new shard's rows the same as the old one's: jobs with their leases, tokens and
             failures, idempotency keys, turns, schedules, flush marks. What is there already and
             the same is not copied again
    verify   compare number and checksum of the rows of both; raises where they differ
    switch   the map names the new shard; the old one answers that the topic has moved
    thaw     the new shard takes changes
    clean    rows that the topic left elsewhere are deleted

`thaw` without `switch` calls it off. Each step can be repeated after a crash, and looks at the
states of the topic, which are in the shards, to find what is left to do. Whoever writes rows checks
in the same transaction that the topic is in the state in which they may be written: a process that
was thought dead can add nothing to a topic that is live.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

import asyncpg

from leveret.errors import JobsUnavailableError
from leveret.job_model import TopicSettings
from leveret.job_service.shards.memory import Topic
from leveret.job_service.shards.migration import migrate
from leveret.job_service.shards.resharding.carrying import (
    KEYED,
    OWN,
    TABLES,
    Rows,
    carry_keyed,
    carry_marks,
    carry_whole,
    missing_marks,
    sums,
)
from leveret.job_service.shards.resharding.reading import connect
from leveret.job_service.shards.routing import signed, slot_of
from leveret.job_service.shards.sql.loader import GATE_LOCK

DEADLINE_S: Final = 600.0  # of one statement
DELETE_ROWS: Final = 5_000
LEFT: Final = ("items", "keys", "turns", "rounds", "schedules")


class CopyDiffersError(JobsUnavailableError):
    """What was copied is not what was there."""


class Mover:
    """Moves topics between the databases of a service."""

    def __init__(self, databases: list[Any]) -> None:
        self.databases = databases

    # ---- where topics are

    async def count(self) -> int:
        """How many shards the hashes of topics go by."""
        found = await self.databases[0].fetchval("SELECT shards FROM map_state")
        return len(self.databases) if found is None else int(found)

    async def current(self, topic: Topic) -> int:
        """The shard that the map names for a topic."""
        found = await self.databases[0].fetchval(f"SELECT shard FROM shard_map WHERE {OWN}", *topic)
        return slot_of(topic) % await self.count() if found is None else int(found)

    async def state(self, shard: int, topic: Topic) -> str | None:
        """Of a topic on a shard; None where it has no row of its own."""
        found: str | None = await self.databases[shard].fetchval(
            f"SELECT state FROM topics WHERE {OWN}", *topic
        )
        return found

    # ---- steps

    async def arrive(self, topic: Topic, shard: int) -> None:
        """Let a shard be given copies of the topic's jobs."""
        current = await self._require_elsewhere(topic, shard)
        await self._set_state(shard, topic, "arriving")
        # Of a busy topic these are many, whatever the length of its queue.
        slot = signed(slot_of(topic))
        await carry_marks(self.databases[current], self.databases[shard], slot)

    async def freeze(self, topic: Topic) -> None:
        """Let the topic's shard refuse every change of it."""
        await self._set_state(await self.current(topic), topic, "frozen")

    async def carry(self, topic: Topic, shard: int) -> int:
        """Make a shard's rows those of the frozen topic; how many rows were written or removed."""
        source = await self._require_frozen(topic, shard)
        target = self.databases[shard]
        await self._set_state(shard, topic, "settling")
        changed = await carry_marks(source, target, signed(slot_of(topic)))
        for rows in self._tables(topic):
            work = carry_keyed if rows.table in KEYED else carry_whole
            changed += await work(source, target, rows)
        return changed

    async def verify(self, topic: Topic, shard: int) -> dict[str, int]:
        """The number of rows in each table, the same on both shards; Differs."""
        source = await self._require_frozen(topic, shard)
        target = self.databases[shard]
        counts: dict[str, int] = {}
        for rows in self._tables(topic):
            here, there = await asyncio.gather(sums(source, rows), sums(target, rows))
            if here != there:
                raise CopyDiffersError(
                    f"{rows.table} of the topic {topic[1]} of {topic[0]} differ: {here.told()} on"
                    f" its shard, {there.told()} on shard {shard}; it stays where it is"
                )
            counts[rows.table] = here.count
        if await missing_marks(source, target, signed(slot_of(topic))):
            raise CopyDiffersError(
                f"flush marks of the topic {topic[1]} are missing on shard {shard}"
            )
        return counts

    async def switch(self, topic: Topic, shard: int) -> None:
        """Name another shard in the map; the old one answers that the topic has moved."""
        old = await self.current(topic)
        if old != shard:
            await self._require_frozen(topic, shard)
            await self._copy_settings(old, shard, topic)
        await self.databases[0].execute(
            "INSERT INTO shard_map VALUES ($1, $2, $3)"
            " ON CONFLICT (namespace, topic) DO UPDATE SET shard = $3",
            *topic,
            shard,
        )
        if old != shard:
            await self._set_state(old, topic, "moved")

    async def thaw(self, topic: Topic) -> None:
        """Let the topic's shard take changes again, and no other."""
        current = await self.current(topic)
        for shard in range(len(self.databases)):
            if shard != current and await self.state(shard, topic) not in (None, "moved"):
                await self._set_state(shard, topic, "moved")
        await self._set_state(current, topic, "live")

    async def clean(self, topic: Topic) -> int:
        """Delete what the topic left on shards that it is not on; how many rows."""
        deleted = 0
        current = await self.current(topic)
        for shard in range(len(self.databases)):
            if shard != current and await self.state(shard, topic) == "moved":
                for table in LEFT:
                    deleted += await self._delete(shard, table, topic)
        return deleted

    async def move(self, topic: Topic, shard: int) -> None:
        """All steps, for a topic wherever it is and whatever was done before."""
        if await self.current(topic) != shard:
            await self.arrive(topic, shard)
            await self.freeze(topic)
            try:
                await self.carry(topic, shard)
                await self.verify(topic, shard)
                await self.switch(topic, shard)
            except CopyDiffersError:
                await self.thaw(topic)
                raise
        await self.thaw(topic)
        await self.clean(topic)

    # ---- parts of steps

    def _tables(self, topic: Topic) -> list[Rows]:
        return [Rows(table, topic) for table in TABLES]

    async def _require_elsewhere(self, topic: Topic, shard: int) -> int:
        current = await self.current(topic)
        if current == shard:
            raise JobsUnavailableError(f"the topic {topic[1]} is on shard {shard} already")
        return current

    async def _require_frozen(self, topic: Topic, shard: int) -> Any:
        """The database of a topic, which is frozen and not the one of `shard`."""
        current = await self._require_elsewhere(topic, shard)
        if await self.state(current, topic) != "frozen":
            raise JobsUnavailableError(f"the topic {topic[1]} is not frozen")
        return self.databases[current]

    async def _set_state(self, shard: int, topic: Topic, state: str) -> None:
        """Once nothing is under way that has seen the state before."""
        plain = TopicSettings()
        async with self.databases[shard].transaction():
            await self.databases[shard].execute("SELECT pg_advisory_xact_lock($1)", GATE_LOCK)
            await self.databases[shard].execute(
                "INSERT INTO topics VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)"
                " ON CONFLICT (namespace, topic) DO UPDATE SET state = $3",
                *topic,
                state,
                plain.retries_max,
                plain.backoff_ms,
                plain.backoff_ms_max,
                plain.jitter,
                plain.lease_ms,
                plain.concurrency_max,
            )

    async def _copy_settings(self, old: int, new: int, topic: Topic) -> None:
        row = await self.databases[old].fetchrow(f"SELECT * FROM topics WHERE {OWN}", *topic)
        await self.databases[new].execute(
            f"UPDATE topics SET retries_max = $3, backoff_ms = $4, backoff_ms_max = $5,"
            f" jitter = $6, lease_ms = $7, concurrency_max = $8 WHERE {OWN}",
            *topic,
            *(row[name] for name in TopicSettings.__struct_fields__),
        )

    async def _delete(self, shard: int, table: str, topic: Topic) -> int:
        deleted = 0
        while True:
            async with self.databases[shard].transaction():
                await self.databases[shard].execute(
                    "SELECT leveret_require($1, $2, 'moved')", *topic
                )
                rows = await self.databases[shard].fetch(
                    f"DELETE FROM {table} WHERE ctid = ANY(ARRAY(SELECT ctid FROM {table}"
                    f" WHERE {OWN} LIMIT $3)) RETURNING 1",
                    *topic,
                    DELETE_ROWS,
                )
            deleted += len(rows)
            if len(rows) < DELETE_ROWS:
                return deleted


@asynccontextmanager
async def mover(dsns: Sequence[str]) -> AsyncIterator[Mover]:
    """Connects to all shards, in their order, and brings their tables up to date."""
    opened: list[Any] = []
    try:
        for dsn in dsns:
            opened.append(await connect(dsn, DEADLINE_S))
            await migrate(opened[-1])
        yield Mover(opened)
    except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
        raise JobsUnavailableError(
            f"a shard fails: {str(error) or type(error).__name__}"
        ) from error
    finally:
        for connection in opened:
            connection.terminate()
