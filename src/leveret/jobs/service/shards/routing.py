"""Which shard a topic lives on, and how it is moved to another while the service runs.

A topic lives on shard `FNV32a(namespace + topic) % N` unless the table `shard_map` of the first
shard says otherwise. To move one, from any process:

    freeze   its shard refuses every change of it from now on; nodes wait or answer that it is being
             moved, while new jobs wait in Redis
    carry    copy its rows to the new shard, with the flush marks and keys of its jobs (any copy of
             the same rows will do)
    switch   the map names the new shard; the old one answers that the topic has moved
    thaw     the new shard takes changes; the old rows are deleted

`thaw` without `switch` calls it off. A node learns of a move from the old shard, which refuses it,
and then reads the map anew: no node can act on an old map. Each step can be repeated after a crash.
Before the number of shards changes, `switch` every topic to the shard it is on.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import asyncpg

from leveret.errors import JobsUnavailable
from leveret.jobs.service.items import TopicSettings
from leveret.jobs.service.shards.functions import GATE
from leveret.jobs.service.shards.memory import Memory, Topic
from leveret.jobs.service.shards.shard import Shard

CARRY_ROWS: Final = 500
CONNECT_S: Final = 10.0
SLOTS_KEPT: Final = 100_000
_PRIME: Final = 0x0100_0193
_BASIS: Final = 0x811C_9DC5


def fnv32a(data: bytes) -> int:
    """Fowler, Noll and Vo's hash of 32 bits, 1a."""
    found = _BASIS
    for byte in data:
        found = (found ^ byte) * _PRIME & 0xFFFF_FFFF
    return found


def slot_of(topic: Topic) -> int:
    """The hash of a topic: of its namespace and its name, one after the other."""
    return fnv32a("".join(topic).encode())


def signed(slot: int) -> int:
    """A hash as PostgreSQL's integers have it."""
    return slot - (1 << 32) if slot >> 31 else slot


class ShardMap:
    """Finds the shard of a topic."""

    def __init__(self, shards: list[Shard], memory: Memory) -> None:
        self._shards = shards
        self._memory = memory
        self._overrides: dict[Topic, int] = {}
        self._slots: dict[Topic, int] = {}  # hashes are slow in Python; a topic asks again
        self.is_loaded = False

    def shard_of(self, topic: Topic) -> Shard:
        if not self.is_loaded:
            raise JobsUnavailable(
                f"{self._shards[0].name}, which has the shard map, does not answer"
            )
        override = self._overrides.get(topic)
        return self._shards[self.slot(topic) % len(self._shards) if override is None else override]

    def slot(self, topic: Topic) -> int:
        """`slot_of`, remembered."""
        found = self._slots.get(topic)
        if found is None:
            if len(self._slots) >= SLOTS_KEPT:
                self._slots.clear()
            found = self._slots[topic] = slot_of(topic)
        return found

    async def refresh(self) -> None:
        """Read the map anew, from the first shard or else from the copy in Redis."""
        first = self._shards[0]
        if first.is_up:
            rows = await first.fetch("SELECT namespace, topic, shard FROM shard_map")
            self._overrides = {(r["namespace"], r["topic"]): r["shard"] for r in rows}
            self.is_loaded = True
            if self._memory.is_up:
                await self._memory.save_map(self._overrides)
        elif not self.is_loaded and self._memory.is_up:
            self._overrides = await self._memory.saved_map()
            self.is_loaded = True


# ---- moving a topic, from any process


async def freeze(dsns: list[str], topic: Topic) -> None:
    """Let the topic's shard refuse every change of it."""
    async with _connections(dsns) as databases:
        source = databases[await _current(databases, topic)]
        async with source.transaction():
            await source.execute("SELECT pg_advisory_xact_lock($1)", GATE)
            await _set_state(source, topic, "frozen")


async def carry(dsns: list[str], topic: Topic, shard: int) -> int:
    """Copy what a frozen topic has to another shard; how many jobs."""
    async with _connections(dsns) as databases:
        source, target = databases[await _current(databases, topic)], databases[shard]
        if await _state(source, topic) != "frozen":
            raise JobsUnavailable(f"the topic {topic[1]} is not frozen")
        slot = signed(slot_of(topic))
        await _copy(source, target, "flush_marks", "slot = $1", slot)
        for table in ("keys", "turns", "rounds"):
            await _copy(source, target, table, "namespace = $1 AND topic = $2", *topic)
        return await _copy(source, target, "items", "namespace = $1 AND topic = $2", *topic)


async def switch(dsns: list[str], topic: Topic, shard: int) -> None:
    """Name another shard in the map; the old one answers that the topic has moved."""
    async with _connections(dsns) as databases:
        old = await _current(databases, topic)
        if old != shard:
            await _copy_settings(databases[old], databases[shard], topic)
        await databases[0].execute(
            "INSERT INTO shard_map VALUES ($1, $2, $3)"
            " ON CONFLICT (namespace, topic) DO UPDATE SET shard = $3",
            *topic,
            shard,
        )
        if old != shard:
            await _set_state(databases[old], topic, "moved")


async def thaw(dsns: list[str], topic: Topic) -> None:
    """Let the topic's shard take changes again; rows that it left elsewhere are deleted."""
    async with _connections(dsns) as databases:
        current = await _current(databases, topic)
        for index, database in enumerate(databases):
            if index != current and await _state(database, topic) is not None:
                await _set_state(database, topic, "moved")
                for table in ("items", "keys", "turns", "rounds"):
                    await database.execute(
                        f"DELETE FROM {table} WHERE namespace = $1 AND topic = $2", *topic
                    )
        await _set_state(databases[current], topic, "live")


@asynccontextmanager
async def _connections(dsns: list[str]) -> AsyncIterator[list[Any]]:
    opened: list[Any] = []
    try:
        for dsn in dsns:
            connection = await asyncpg.connect(dsn, timeout=CONNECT_S, command_timeout=CONNECT_S)
            opened.append(connection)
        yield opened
    finally:
        for connection in opened:
            await connection.close(timeout=CONNECT_S)


async def _current(databases: list[Any], topic: Topic) -> int:
    found = await databases[0].fetchval(
        "SELECT shard FROM shard_map WHERE namespace = $1 AND topic = $2", *topic
    )
    home = slot_of(topic) % len(databases)
    return home if found is None else int(found)


async def _state(database: Any, topic: Topic) -> str | None:
    found: str | None = await database.fetchval(
        "SELECT state FROM topics WHERE namespace = $1 AND topic = $2", *topic
    )
    return found


async def _set_state(database: Any, topic: Topic, state: str) -> None:
    plain = TopicSettings()
    await database.execute(
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


async def _copy_settings(source: Any, target: Any, topic: Topic) -> None:
    """The target has the topic as frozen, with its settings."""
    await target.execute("DELETE FROM topics WHERE namespace = $1 AND topic = $2", *topic)
    await _copy(source, target, "topics", "namespace = $1 AND topic = $2", *topic)
    await _set_state(target, topic, "frozen")


async def _copy(source: Any, target: Any, table: str, where: str, *arguments: object) -> int:
    copied = 0
    async with source.transaction():
        rows: list[Any] = []
        async for row in source.cursor(f"SELECT * FROM {table} WHERE {where}", *arguments):
            rows.append(tuple(row))
            if len(rows) == CARRY_ROWS:
                await _insert(target, table, rows)
                copied += len(rows)
                rows = []
        if rows:
            await _insert(target, table, rows)
    return copied + len(rows)


async def _insert(target: Any, table: str, rows: list[Any]) -> None:
    places = ", ".join(f"${number}" for number in range(1, len(rows[0]) + 1))
    await target.executemany(f"INSERT INTO {table} VALUES ({places}) ON CONFLICT DO NOTHING", rows)
