"""Finds the shard of a topic.

A topic is on shard `FNV32a(namespace + topic) % N` unless the table `shard_map` of the first shard
says otherwise. N is in the first shard too (`map_state`). The first node writes the number of its
databases there, and `leveret pipeline reshard` changes it. A node that was given more databases
uses them as the map says. A node that was given fewer does not start. If it could not read the map
then, it refuses the topics of the shards that it lacks.

When a topic has moved (`topic_mover.py`), or N has changed, the shard that a node asks refuses, and
the node reads the map again. No node can act on an old map.
"""

import asyncio
from collections.abc import Awaitable, Callable
from functools import lru_cache
from typing import Any, Final, TypeVar

from leveret.errors import ConfigError, JobsUnavailableError
from leveret.job_service.shards.buffered_job import BufferedJob
from leveret.job_service.shards.redis.redis_client import RedisClient
from leveret.job_service.shards.shard import Shard, TopicStoppedError
from leveret.job_service.shards.topic_name import TopicName
from leveret.job_service.shards.transaction import transaction

Answer = TypeVar("Answer")

POLL_S: Final = 0.05  # between two tries, for a topic that is being moved
SLOTS_KEPT: Final = 100_000
_PRIME: Final = 0x0100_0193
_BASIS: Final = 0x811C_9DC5
# One snapshot: the topics that are not on the shard of their hash, and the number of shards.
_MAP: Final = (
    "SELECT namespace, topic, shard FROM shard_map"
    " UNION ALL SELECT NULL, NULL, shards FROM map_state"
)


def fnv32a(data: bytes) -> int:
    """Return the FNV-1a hash of 32 bits."""
    found = _BASIS
    for byte in data:
        found = (found ^ byte) * _PRIME & 0xFFFF_FFFF
    return found


@lru_cache(SLOTS_KEPT)  # hashing is slow in Python, and every job of a flush needs its slot
def slot_of(topic: TopicName) -> int:
    """Return the hash of a topic: of its namespace followed by its name."""
    return fnv32a("".join(topic).encode())


def to_signed(slot: int) -> int:
    """Return a hash as a signed integer of PostgreSQL."""
    return slot - (1 << 32) if slot >> 31 else slot


class ShardMap:
    """Finds the shard of a topic."""

    def __init__(self, shards: list[Shard], redis: RedisClient) -> None:
        self._shards = shards
        self._redis = redis
        self._overrides: dict[TopicName, int] = {}
        self._count = len(shards)  # the number of shards N
        self.is_loaded = False

    def shard_of(self, topic: TopicName) -> Shard:
        if not self.is_loaded:
            raise self._shards[0].health.error("has the shard map, and does not answer")
        index = self._index(topic)
        if index >= len(self._shards):
            raise JobsUnavailableError(
                f"the topic {topic[1]} is on shard {index}, which this node was not given"
            )
        return self._shards[index]

    def require_shards(self) -> None:
        """Raise ConfigError if the map names shards that this node was not given."""
        given = len(self._shards)
        used = max(self._count, *(index + 1 for index in self._overrides.values()), given)
        if used > given:
            missing = ", ".join(str(index) for index in range(given, used))
            raise ConfigError(
                f"jobs_postgres: the other nodes use {used} databases, and this node was given"
                f" {given}: it lacks shard {missing}; give every node the same databases in the"
                " same order"
            )

    def by_shard(self, jobs: list[BufferedJob]) -> list[tuple[Shard, list[BufferedJob]]]:
        """Return jobs, which may be of several topics, by the shard of their topic."""
        found: dict[int, list[BufferedJob]] = {}
        for job in jobs:
            shard = self.shard_of((job.namespace, job.topic))
            found.setdefault(shard.index, []).append(job)
        return [(self._shards[index], jobs) for index, jobs in found.items()]

    def is_on(self, topic: TopicName, shard: Shard) -> bool:
        """Return whether a topic is on a shard, also if this node lacks the shard of the topic."""
        return self._index(topic) == shard.index

    def _index(self, topic: TopicName) -> int:
        override = self._overrides.get(topic)
        return slot_of(topic) % self._count if override is None else override

    async def reach(
        self, topic: TopicName, work: Callable[[Shard], Awaitable[Answer]], deadline_s: float
    ) -> Answer:
        """Do work on the shard of a topic; wait and try again while the topic is being moved."""
        loop = asyncio.get_running_loop()
        end_s = loop.time() + deadline_s
        while True:
            try:
                return await work(self.shard_of(topic))
            except TopicStoppedError as error:
                if loop.time() > end_s:
                    raise JobsUnavailableError(f"the topic {topic[1]} is being moved") from error
            await asyncio.sleep(POLL_S)
            await self.refresh()

    async def ask(
        self, topic: TopicName, deadline_s: float, sql: str, *arguments: object
    ) -> list[Any]:
        """Return the rows of a statement, whose first two arguments are the topic."""

        async def work(shard: Shard) -> list[Any]:
            return await shard.fetch(sql, *topic, *arguments)

        return await self.reach(topic, work, deadline_s)

    async def read(
        self, topic: TopicName, deadline_s: float, sql: str, *arguments: object
    ) -> list[Any]:
        """Return the rows of a statement as `ask` does; a shard that the topic has left refuses it.

        The functions of the schema check that themselves; a plain statement does not.
        """

        async def work(connection: Any) -> list[Any]:
            async with transaction(connection):
                await connection.execute("SELECT leveret_gate($1, $2)", *topic)
                rows: list[Any] = await connection.fetch(sql, *topic, *arguments)
                return rows

        return await self.reach(topic, lambda shard: shard.run(work), deadline_s)

    async def read_within(
        self, topic: TopicName, deadline_s: float, most_ms: int, sql: str, *arguments: object
    ) -> list[Any]:
        """Return the rows of a long read as `read` does; see `Shard.fetch_within`.

        A shard has few connections. So one such read of a node runs there at a time, and namespaces
        take turns.
        """

        async def work(shard: Shard) -> list[Any]:
            async with shard.long_reads.held(topic[0]):
                return await shard.fetch_within(most_ms, sql, *topic, *arguments, gate=topic)

        return await self.reach(topic, work, deadline_s)

    async def refresh(self) -> None:
        """Read the map from the first shard, or else from the copy in Redis."""
        first = self._shards[0]
        if first.is_up:
            self._take(await self._read(first))
            if self._redis.is_up:
                await self._redis.save_map(self._overrides, self._count)
        elif not self.is_loaded and self._redis.is_up:
            self._overrides, count = await self._redis.saved_map()
            self._count = count or len(self._shards)
            self.is_loaded = True

    async def _read(self, first: Shard) -> list[Any]:
        rows = await first.fetch(_MAP)
        if any(row["topic"] is None for row in rows):
            return rows
        # The number of shards is not set yet: the first node sets it.
        await first.fetch(
            "INSERT INTO map_state VALUES ($1) ON CONFLICT DO NOTHING", len(self._shards)
        )
        return await first.fetch(_MAP)

    def _take(self, rows: list[Any]) -> None:
        self._overrides = {
            (row["namespace"], row["topic"]): row["shard"]
            for row in rows
            if row["topic"] is not None
        }
        self._count = next(row["shard"] for row in rows if row["topic"] is None)
        self.is_loaded = True
