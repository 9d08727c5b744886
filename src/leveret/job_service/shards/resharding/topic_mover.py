"""Moves a topic to another shard while the service runs. Any process can do it, in these steps:

    arrive   the new shard may get copies of the topic's jobs, which do not count yet
    freeze   the old shard refuses every change of the topic. Nodes wait, or answer that the topic
             is being moved, while new jobs stay in Redis
    carry    make the rows of the new shard the same as those of the old one: jobs with their
             leases, tokens and failures, idempotency keys, turns, schedules, flush marks. Equal
             rows are not copied again
    verify   compare row count and checksum of both; raise where they differ
    switch   the map names the new shard; the old one answers that the topic has moved
    thaw     the new shard accepts changes
    clean    delete the rows that the topic has left on other shards

`thaw` without `switch` cancels the move. Each step can be repeated after a crash: it reads the
states of the topic from the shards to find out what is left to do. Every writer checks in its
transaction that the topic is in the state in which its rows may be written. A process that was
thought dead can therefore add nothing to a live topic.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

import asyncpg

from leveret.errors import JobsUnavailableError
from leveret.job_model import TopicSettings
from leveret.job_service.shards.migration import migrate
from leveret.job_service.shards.resharding.row_sync import (
    KEY_COLUMNS,
    OF_TOPIC,
    TABLES,
    TopicRows,
    checksum_rows,
    copy_marks,
    missing_marks,
    sync_keyed_table,
    sync_small_table,
)
from leveret.job_service.shards.resharding.shard_reader import connect
from leveret.job_service.shards.routing import slot_of, to_signed
from leveret.job_service.shards.sql.loader import GATE_LOCK
from leveret.job_service.shards.statements import TELL_DUE
from leveret.job_service.shards.topic_name import TopicName

DEADLINE_S: Final = 600.0  # of one statement
DELETE_ROWS: Final = 5_000
LEFT: Final = ("items", "keys", "turns", "rounds", "schedules", "ack_nodes")


class CopyDiffersError(JobsUnavailableError):
    """The copy of a topic differs from the original."""


class TopicMover:
    """Moves topics between the databases of a service."""

    def __init__(self, databases: list[Any]) -> None:
        self.databases = databases

    async def count(self) -> int:
        """Return the number of shards that the map has."""
        found = await self.databases[0].fetchval("SELECT shards FROM map_state")
        return len(self.databases) if found is None else int(found)

    async def current(self, topic: TopicName) -> int:
        """Return the shard that the map names for a topic."""
        found = await self.databases[0].fetchval(
            f"SELECT shard FROM shard_map WHERE {OF_TOPIC}", *topic
        )
        return slot_of(topic) % await self.count() if found is None else int(found)

    async def state(self, shard: int, topic: TopicName) -> str | None:
        """Return the state of a topic on a shard; None where the shard does not list it."""
        found: str | None = await self.databases[shard].fetchval(
            f"SELECT state FROM topics WHERE {OF_TOPIC}", *topic
        )
        return found

    async def arrive(self, topic: TopicName, shard: int) -> None:
        """Let a shard accept copies of the topic's jobs."""
        current = await self._require_elsewhere(topic, shard)
        await self._set_state(shard, topic, "arriving")
        # Copied early, since a busy topic has many marks, however short its queue is.
        slot = to_signed(slot_of(topic))
        await copy_marks(self.databases[current], self.databases[shard], slot)

    async def freeze(self, topic: TopicName) -> None:
        """Let the shard of a topic refuse every change."""
        await self._set_state(await self.current(topic), topic, "frozen")

    async def carry(self, topic: TopicName, shard: int) -> int:
        """Copy the rows of a frozen topic to a shard; return how many were written or removed."""
        source = await self._require_frozen(topic, shard)
        target = self.databases[shard]
        await self._set_state(shard, topic, "settling")
        changed = await copy_marks(source, target, to_signed(slot_of(topic)))
        for rows in self._tables(topic):
            work = sync_keyed_table if rows.table in KEY_COLUMNS else sync_small_table
            changed += await work(source, target, rows)
        return changed

    async def verify(self, topic: TopicName, shard: int) -> dict[str, int]:
        """Return the number of rows in each table; CopyDiffersError where the shards differ."""
        source = await self._require_frozen(topic, shard)
        target = self.databases[shard]
        counts: dict[str, int] = {}
        for rows in self._tables(topic):
            here, there = await asyncio.gather(
                checksum_rows(source, rows), checksum_rows(target, rows)
            )
            if here != there:
                raise CopyDiffersError(
                    f"{rows.table} of the topic {topic[1]} of {topic[0]} differ: {here.shown()} on"
                    f" its shard, {there.shown()} on shard {shard}; it stays where it is"
                )
            counts[rows.table] = here.count
        if await missing_marks(source, target, to_signed(slot_of(topic))):
            raise CopyDiffersError(
                f"flush marks of the topic {topic[1]} are missing on shard {shard}"
            )
        return counts

    async def switch(self, topic: TopicName, shard: int) -> None:
        """Name another shard in the map; the old shard answers that the topic has moved."""
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

    async def thaw(self, topic: TopicName) -> None:
        """Let the shard of a topic accept changes again, and no other shard."""
        current = await self.current(topic)
        for shard in range(len(self.databases)):
            if shard != current and await self.state(shard, topic) not in (None, "moved"):
                await self._set_state(shard, topic, "moved")
        await self._set_state(current, topic, "live")
        await self.databases[current].execute("SELECT leveret_notify($1, $2)", *topic)
        await self.databases[current].execute(TELL_DUE, "0")  # its rows may be due at any time

    async def clean(self, topic: TopicName) -> int:
        """Delete rows of a topic on shards that it has left; return how many."""
        deleted = 0
        current = await self.current(topic)
        for shard in range(len(self.databases)):
            if shard != current and await self.state(shard, topic) == "moved":
                for table in LEFT:
                    deleted += await self._delete(shard, table, topic)
        return deleted

    async def move(self, topic: TopicName, shard: int) -> None:
        """Do all steps that are left to bring a topic to a shard."""
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

    def _tables(self, topic: TopicName) -> list[TopicRows]:
        return [TopicRows(table, topic) for table in TABLES]

    async def _require_elsewhere(self, topic: TopicName, shard: int) -> int:
        current = await self.current(topic)
        if current == shard:
            raise JobsUnavailableError(f"the topic {topic[1]} is on shard {shard} already")
        return current

    async def _require_frozen(self, topic: TopicName, shard: int) -> Any:
        """Return the database of a topic; raise unless it is frozen and not on `shard`."""
        current = await self._require_elsewhere(topic, shard)
        if await self.state(current, topic) != "frozen":
            raise JobsUnavailableError(f"the topic {topic[1]} is not frozen")
        return self.databases[current]

    async def _set_state(self, shard: int, topic: TopicName, state: str) -> None:
        """Set the state of a topic when no transaction that saw the old state is running."""
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

    async def _copy_settings(self, old: int, new: int, topic: TopicName) -> None:
        row = await self.databases[old].fetchrow(f"SELECT * FROM topics WHERE {OF_TOPIC}", *topic)
        await self.databases[new].execute(
            f"UPDATE topics SET retries_max = $3, backoff_ms = $4, backoff_ms_max = $5,"
            f" jitter = $6, lease_ms = $7, concurrency_max = $8 WHERE {OF_TOPIC}",
            *topic,
            *(row[name] for name in TopicSettings.__struct_fields__),
        )

    async def _delete(self, shard: int, table: str, topic: TopicName) -> int:
        deleted = 0
        while True:
            async with self.databases[shard].transaction():
                await self.databases[shard].execute(
                    "SELECT leveret_require($1, $2, 'moved')", *topic
                )
                rows = await self.databases[shard].fetch(
                    f"DELETE FROM {table} WHERE ctid = ANY(ARRAY(SELECT ctid FROM {table}"
                    f" WHERE {OF_TOPIC} LIMIT $3)) RETURNING 1",
                    *topic,
                    DELETE_ROWS,
                )
            deleted += len(rows)
            if len(rows) < DELETE_ROWS:
                return deleted


@asynccontextmanager
async def open_mover(dsns: Sequence[str]) -> AsyncIterator[TopicMover]:
    """Connect to all shards, in their order, and migrate them."""
    opened: list[Any] = []
    try:
        for dsn in dsns:
            opened.append(await connect(dsn, DEADLINE_S))
            await migrate(opened[-1])
        yield TopicMover(opened)
    except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
        raise JobsUnavailableError(
            f"a shard fails: {str(error) or type(error).__name__}"
        ) from error
    finally:
        for connection in opened:
            connection.terminate()
