"""Changes the number of shards while the service runs.

    begin    note the new number in the map; every shard learns which one it is (`homes`)
    topics   move to where the new number has them, one after the other
    narrow   topics without jobs must hash to their shard by both numbers, or wait
    topics   that were made meanwhile move too
    marks    flush marks of topics that have no jobs any more go to their new shards
    count    the map has the new number
    open     and so has every shard
    tidy     what the move needed and nobody needs any more is deleted

Each step is done again by whoever starts again after a crash; the map and the states of topics say
how far it came. Between `narrow` and `open` no topic that changes its home is taken by any shard,
so that nodes that know the old number and nodes that know the new one never both put jobs into it.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from leveret.errors import ConfigError
from leveret.job_service.shards.memory import Topic
from leveret.job_service.shards.resharding.carrying import CARRY_ROWS, add_marks, read_binary
from leveret.job_service.shards.resharding.moving import Mover
from leveret.job_service.shards.routing import slot_of
from leveret.job_service.shards.sql.loader import GATE_LOCK

LOCK: Final = 0x4C56_0003  # advisory: who changes the number of shards
NODES_WITHIN_S: Final = 20.0  # a node that was stopped is noted for so long
POLL_S: Final = 0.25
_SIZES: Final = "SELECT namespace, topic, count(*) AS n, sum(octet_length(payload)) AS b FROM items"
_NAMES: Final = "SELECT DISTINCT namespace, topic, 1 AS n, 0 AS b FROM items"
_TOPICS: Final = """
SELECT namespace, topic, sum(n)::BIGINT AS jobs, sum(b)::BIGINT AS bytes, max(state) AS state,
    sum(other)::BIGINT AS other FROM (
    SELECT namespace, topic, n, b, NULL AS state, 0 AS other FROM ({items}) AS i
    UNION ALL SELECT namespace, topic, 0, 0, state, 0 FROM topics
    UNION ALL SELECT namespace, topic, 0, 0, NULL, count(*) FROM keys GROUP BY 1, 2
    UNION ALL SELECT namespace, topic, 0, 0, NULL, count(*) FROM turns GROUP BY 1, 2
    UNION ALL SELECT namespace, topic, 0, 0, NULL, count(*) FROM rounds GROUP BY 1, 2
    UNION ALL SELECT namespace, topic, 0, 0, NULL, count(*) FROM schedules GROUP BY 1, 2
) AS s GROUP BY namespace, topic
"""
Tell = Callable[[str, Topic | None], None]  # a step is done, of a topic or of the whole


@dataclass(frozen=True)
class Held:
    """What one shard has of a topic."""

    jobs: int
    bytes: int
    other: int  # rows of other tables
    state: str | None


@dataclass
class Planned:
    """A topic, where it is and where it belongs."""

    topic: Topic
    shard: int
    home: int
    held: dict[int, Held] = field(default_factory=dict)

    @property
    def jobs(self) -> int:
        return self.held[self.shard].jobs if self.shard in self.held else 0

    @property
    def bytes(self) -> int:
        return self.held[self.shard].bytes if self.shard in self.held else 0

    @property
    def moves(self) -> bool:
        return self.shard != self.home

    @property
    def is_settled(self) -> bool:
        """Whether nothing is left to do: it is at home, live, and nowhere else."""
        elsewhere = [held for shard, held in self.held.items() if shard != self.shard]
        if self.moves or any(held.state and (held.jobs or held.other) for held in elsewhere):
            return False
        wanted = {shard: "live" if shard == self.shard else "moved" for shard in self.held}
        return all(held.state in (None, wanted[shard]) for shard, held in self.held.items())

    @property
    def stray(self) -> int | None:
        """A shard with jobs of the topic that nobody would find there; None: there is none."""
        for shard, held in self.held.items():
            if shard != self.shard and (held.state == "live" or (held.jobs and not held.state)):
                return shard
        return None


@dataclass
class Moved:
    """What became of one topic."""

    namespace: str
    topic: str
    source: int
    target: int
    jobs: int = 0
    rows: dict[str, int] = field(default_factory=dict)  # by table, the same on both sides
    carried: int = 0  # rows that were written while it was frozen
    frozen_ms: float = 0.0


class Resharding:
    """One change of the number of shards; `to` 0 is the number that there is."""

    def __init__(self, moving: Mover, to: int, tell: Tell) -> None:
        self.moving = moving
        self.to = to
        self.tell = tell
        self.count = 0  # before

    @property
    def _databases(self) -> list[Any]:
        return self.moving.databases

    # ---- before

    async def look(self) -> None:
        """Learn the number of shards; ConfigError where the databases cannot be right."""
        found = await self._databases[0].fetchrow("SELECT * FROM map_state")
        if found is None:
            raise ConfigError("no node has used these shards yet: start the service first")
        self.count = found["shards"]
        self.to = self.to or self.count
        needed = max(self.count, self.to)
        if len(self._databases) < needed:
            raise ConfigError(f"give all {needed} databases, in their order")
        for index, database in enumerate(self._databases):
            own = await database.fetchval("SELECT shard FROM homes")
            if own is not None and own != index:
                raise ConfigError(f"the database given as shard {index} is shard {own}")
        begun = found["next_shards"]
        if begun is not None and self.to not in (begun, self.count):
            raise ConfigError(
                f"a change to {begun} shards has begun: end it by --to {begun},"
                f" or go back by --to {self.count}"
            )

    async def begin(self, nodes_within_s: float = NODES_WITHIN_S) -> None:
        """Note what is to be; ConfigError where another is at it, or a node lacks a shard."""
        first = self._databases[0]
        if not await first.fetchval("SELECT pg_try_advisory_lock($1)", LOCK):
            raise ConfigError("another reshard of these shards runs")
        await self.look()
        await self._require_nodes(nodes_within_s)
        await self._name_pinned()
        for index, database in enumerate(self._databases):
            await database.execute(
                "INSERT INTO homes VALUES ($1, $2) ON CONFLICT DO NOTHING", index, self.count
            )
        await first.execute("UPDATE map_state SET next_shards = $1", self.to)
        await self._share_origins()
        self.tell("begun", None)

    async def _require_nodes(self, within_s: float) -> None:
        """Every node that lives must have all shards: it is noted in each."""
        end_s = time.monotonic() + within_s
        while missing := await self._nodes_missing():
            if time.monotonic() > end_s:
                raise ConfigError(
                    f"{missing}: give every node all databases, in their order, and start it again"
                )
            await asyncio.sleep(POLL_S)

    async def _nodes_missing(self) -> str | None:
        sql = "SELECT owner FROM node_ids WHERE expires_at > now()"
        noted = [{row["owner"] for row in await each.fetch(sql)} for each in self._databases]
        alive = set().union(*noted)
        for index in range(max(self.count, self.to)):
            if lacking := len(alive - noted[index]):
                return f"{lacking} of {len(alive)} nodes do not know shard {index}"
        return None

    async def _name_pinned(self) -> None:
        """A topic that the map names is known to its shard: its hash may be another's."""
        for row in await self._databases[0].fetch("TABLE shard_map"):
            topic = row["namespace"], row["topic"]
            if await self.moving.state(row["shard"], topic) is None:
                await self.moving.thaw(topic)

    async def _share_origins(self) -> None:
        """What nodes that are away may still bring holds on every shard."""
        known = [row for each in self._databases for row in await each.fetch("TABLE origins")]
        floors = [
            await each.fetchval("SELECT floor FROM floors")
            for each in self._databases[: self.count]
        ]
        for database in self._databases:
            async with database.transaction():
                await database.execute("SELECT pg_advisory_xact_lock($1)", GATE_LOCK)
                await database.executemany(
                    "INSERT INTO origins AS o VALUES ($1, $2, $3) ON CONFLICT (origin) DO UPDATE"
                    " SET low = least(o.low, excluded.low), seen = greatest(o.seen, excluded.seen)",
                    [tuple(row) for row in known],
                )
                await database.execute("UPDATE floors SET floor = least(floor, $1)", min(floors))

    # ---- topics

    async def plan(self, *, with_sizes: bool = True) -> list[Planned]:
        """Every topic that a shard knows; ConfigError where jobs are where nobody finds them."""
        rows = await self._databases[0].fetch("TABLE shard_map")
        overrides = {(row["namespace"], row["topic"]): row["shard"] for row in rows}
        items = f"{_SIZES} GROUP BY 1, 2" if with_sizes else _NAMES
        found: dict[Topic, Planned] = {}
        for index, database in enumerate(self._databases):
            for row in await database.fetch(_TOPICS.format(items=items)):
                topic = row["namespace"], row["topic"]
                slot = slot_of(topic)
                shard = overrides.get(topic, slot % self.count)
                planned = found.setdefault(topic, Planned(topic, shard, slot % self.to))
                planned.held[index] = Held(row["jobs"], row["bytes"], row["other"], row["state"])
        for planned in found.values():
            if planned.stray is not None:
                raise ConfigError(
                    f"jobs of the topic {planned.topic[1]} of {planned.topic[0]} are on shard"
                    f" {planned.stray}, but the map names shard {planned.shard}"
                )
        return [found[topic] for topic in sorted(found)]

    async def move(self, planned: Planned) -> Moved:
        """Bring a topic home, from whatever was done before. Differs: it stays where it is."""
        topic, home, moving = planned.topic, planned.home, self.moving
        moved = Moved(*topic, planned.shard, home, planned.jobs)
        moves = await moving.current(topic) != home
        if moves and await moving.state(home, topic) != "arriving":
            await moving.arrive(topic, home)
        begun_s = time.monotonic()
        try:
            if moves:
                await self._step("frozen", topic, moving.freeze(topic))
                moved.carried = await self._step("carried", topic, moving.carry(topic, home))
                moved.rows = await self._step("verified", topic, moving.verify(topic, home))
                await self._step("switched", topic, moving.switch(topic, home))
        finally:  # whichever shard has it now: it is not left frozen
            await moving.thaw(topic)
            moved.frozen_ms = round((time.monotonic() - begun_s) * 1000, 1)
        self.tell("thawed", topic)
        await self._step("cleaned", topic, moving.clean(topic))
        return moved

    async def _step(self, name: str, topic: Topic, work: Any) -> Any:
        found = await work
        self.tell(name, topic)
        return found

    # ---- the number

    async def narrow(self) -> None:
        """Let no shard take a topic that is not its own by both numbers."""
        await self._set_homes("UPDATE homes SET next_shards = $1")
        self.tell("narrowed", None)

    async def carry_marks(self) -> None:
        """Flush marks that belong to other shards by the new number go there too."""
        for index, source in enumerate(self._databases):
            for home in range(self.to):
                if home != index:
                    await self._carry_marks(source, self._databases[home], home)
        self.tell("marked", None)

    async def _carry_marks(self, source: Any, target: Any, home: int) -> None:
        last = -1
        while True:
            rows = await source.fetch(
                "SELECT id FROM flush_marks WHERE (slot::BIGINT & 4294967295) % $1 = $2"
                " AND id > $3 ORDER BY id LIMIT $4",
                self.to,
                home,
                last,
                CARRY_ROWS,
            )
            if not rows:
                return
            ids = [row["id"] for row in rows]
            sql = "SELECT * FROM flush_marks WHERE id = ANY($1::BIGINT[])"
            await add_marks(target, await read_binary(source, sql, ids))
            last = ids[-1]

    async def set_count(self) -> None:
        """The map has the new number: nodes that read it route by it."""
        await self._databases[0].execute("UPDATE map_state SET shards = $1", self.to)
        self.tell("counted", None)

    async def open(self) -> None:
        """Shards go by the new number."""
        await self._set_homes("UPDATE homes SET shards = $1, next_shards = NULL")
        self.tell("opened", None)

    async def _set_homes(self, sql: str) -> None:
        """On every shard, once nothing is under way that went by what it had before."""
        for database in self._databases:
            async with database.transaction():
                await database.execute("SELECT pg_advisory_xact_lock($1)", GATE_LOCK)
                await database.execute(sql, self.to)

    async def tidy(self) -> None:
        """The map names no topic that is where its hash has it; shards forget who has moved."""
        await self._databases[0].execute(
            "DELETE FROM shard_map WHERE leveret_slot(namespace, topic) % $1 = shard", self.to
        )
        for index, database in enumerate(self._databases):
            await database.execute(
                "DELETE FROM topics WHERE state = 'moved'"
                " AND leveret_slot(namespace, topic) % $1 <> $2",
                self.to,
                index,
            )
        await self._databases[0].execute("UPDATE map_state SET next_shards = NULL")
        self.tell("tidied", None)
