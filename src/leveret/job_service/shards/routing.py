"""Which shard a topic lives on.

A topic lives on shard `FNV32a(namespace + topic) % N` unless the table `shard_map` of the first
shard says otherwise. N is in the first shard too (`map_state`): the number of databases of the node
that wrote it first, and from then on what `leveret pipeline reshard` makes of it. A node that was
given more databases uses them as the map says; one that was given fewer refuses what it lacks.

A node learns that a topic has moved (`moving.py`), or that N has changed, from the shard that it
asks: that one refuses, and the node reads the map anew. No node can act on an old map.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

from leveret.errors import JobsUnavailableError
from leveret.job_service.shards.memory import Memory, Topic
from leveret.job_service.shards.shard import Shard, TopicStoppedError

Answer = TypeVar("Answer")

POLL_S: Final = 0.05  # between two tries, for a topic that is being moved
SLOTS_KEPT: Final = 100_000
_PRIME: Final = 0x0100_0193
_BASIS: Final = 0x811C_9DC5
# Of one moment: the topics that are not where their hash says, and how many shards hashes go by.
_MAP: Final = (
    "SELECT namespace, topic, shard FROM shard_map"
    " UNION ALL SELECT NULL, NULL, shards FROM map_state"
)


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
        self._count = len(shards)  # that hashes go by
        self._slots: dict[Topic, int] = {}  # hashes are slow in Python; a topic asks again
        self.is_loaded = False

    def shard_of(self, topic: Topic) -> Shard:
        if not self.is_loaded:
            raise JobsUnavailableError(
                f"{self._shards[0].name}, which has the shard map, does not answer"
            )
        index = self._index(topic)
        if index >= len(self._shards):
            raise JobsUnavailableError(
                f"the topic {topic[1]} is on shard {index}, which this node was not given"
            )
        return self._shards[index]

    def is_on(self, topic: Topic, shard: Shard) -> bool:
        """Whether a topic lives on a shard; also where this node was not given its shard."""
        return self._index(topic) == shard.index

    def _index(self, topic: Topic) -> int:
        override = self._overrides.get(topic)
        return self.slot(topic) % self._count if override is None else override

    def slot(self, topic: Topic) -> int:
        """`slot_of`, remembered."""
        found = self._slots.get(topic)
        if found is None:
            if len(self._slots) >= SLOTS_KEPT:
                self._slots.clear()
            found = self._slots[topic] = slot_of(topic)
        return found

    async def reach(
        self, topic: Topic, work: Callable[[Shard], Awaitable[Answer]], deadline_s: float
    ) -> Answer:
        """Do work on the shard of a topic, wherever that is by then."""
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

    async def refresh(self) -> None:
        """Read the map anew, from the first shard or else from the copy in Redis."""
        first = self._shards[0]
        if first.is_up:
            self._take(await self._read(first))
            if self._memory.is_up:
                await self._memory.save_map(self._overrides, self._count)
        elif not self.is_loaded and self._memory.is_up:
            self._overrides, count = await self._memory.saved_map()
            self._count = count or len(self._shards)
            self.is_loaded = True

    async def _read(self, first: Shard) -> list[Any]:
        rows = await first.fetch(_MAP)
        if any(row["topic"] is None for row in rows):
            return rows
        # Nobody has said how many shards there are: whoever comes first does.
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
