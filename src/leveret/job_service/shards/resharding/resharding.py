"""Changes the number of shards while the service runs, in these steps:

    begin    write the new number to the map, and to every shard its own index (`homes`)
    topics   move the topics to their new shards, one after the other
    narrow   a topic without jobs must hash to its shard by both numbers, or wait
    topics   move the topics that were created meanwhile
    marks    copy flush marks of topics that have no jobs any more to their new shards
    count    the map has the new number
    open     every shard has the new number
    tidy     delete the records that only the move needed

After a crash the steps are repeated; the map and the states of topics say how far the change came.
Between `narrow` and `open` no shard accepts a topic that changes its shard. Nodes that know the old
number and nodes that know the new one therefore never both enqueue jobs of the same topic.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from leveret.errors import ConfigError
from leveret.job_service.shards.resharding.row_sync import BATCH_ROWS, add_marks, read_binary
from leveret.job_service.shards.resharding.topic_mover import TopicMover
from leveret.job_service.shards.routing import slot_of
from leveret.job_service.shards.sql.loader import GATE_LOCK
from leveret.job_service.shards.topic_name import TopicName

RESHARD_LOCK: Final = 0x4C56_0003  # advisory lock of the process that changes the number of shards
NODES_WITHIN_S: Final = 65.0  # a node that was killed stays recorded so long
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
ReportStep = Callable[[str, TopicName | None], None]  # a step is done, for a topic or for the whole


@dataclass(frozen=True)
class TopicOnShard:
    """The rows and the state of a topic on one shard."""

    jobs: int
    bytes: int
    other: int  # rows of other tables
    state: str | None


@dataclass
class PlannedTopic:
    """A topic, its shard and its new shard."""

    topic: TopicName
    shard: int
    home: int
    on_shards: dict[int, TopicOnShard] = field(default_factory=dict)

    @property
    def jobs(self) -> int:
        return self.on_shards[self.shard].jobs if self.shard in self.on_shards else 0

    @property
    def bytes(self) -> int:
        return self.on_shards[self.shard].bytes if self.shard in self.on_shards else 0

    @property
    def is_moving(self) -> bool:
        return self.shard != self.home

    @property
    def is_settled(self) -> bool:
        """Return whether the move is complete: the topic is live on its new shard alone."""
        elsewhere = [found for shard, found in self.on_shards.items() if shard != self.shard]
        if self.is_moving or any(
            found.state and (found.jobs or found.other) for found in elsewhere
        ):
            return False
        wanted = {shard: "live" if shard == self.shard else "moved" for shard in self.on_shards}
        return all(found.state in (None, wanted[shard]) for shard, found in self.on_shards.items())

    @property
    def stray(self) -> int | None:
        """Return a shard with jobs of the topic that no node would find there, if there is one."""
        for shard, found in self.on_shards.items():
            if shard != self.shard and (found.state == "live" or (found.jobs and not found.state)):
                return shard
        return None


@dataclass
class MovedTopic:
    """The result of moving one topic."""

    namespace: str
    topic: str
    source: int
    target: int
    jobs: int = 0
    rows: dict[str, int] = field(default_factory=dict)  # by table, the same on both shards
    carried: int = 0  # rows that were written while the topic was frozen
    frozen_ms: float = 0.0


class Resharding:
    """One change of the number of shards; `to` 0: keep the current number."""

    def __init__(self, mover: TopicMover, to: int, tell: ReportStep) -> None:
        self.mover = mover
        self.to = to
        self.tell = tell
        self.count = 0  # the number of shards before the change

    @property
    def _databases(self) -> list[Any]:
        return self.mover.databases

    async def read_state(self) -> None:
        """Read the number of shards; ConfigError where the given databases do not fit."""
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
        """Record the change; ConfigError where another change runs, or a node lacks a shard."""
        first = self._databases[0]
        if not await first.fetchval("SELECT pg_try_advisory_lock($1)", RESHARD_LOCK):
            raise ConfigError("another reshard of these shards runs")
        await self.read_state()
        await self._require_nodes(nodes_within_s)
        await self._list_mapped_topics()
        for index, database in enumerate(self._databases):
            await database.execute(
                "INSERT INTO homes VALUES ($1, $2) ON CONFLICT DO NOTHING", index, self.count
            )
        await first.execute("UPDATE map_state SET next_shards = $1", self.to)
        await self._share_origins()
        self.tell("begun", None)

    async def _require_nodes(self, within_s: float) -> None:
        """Raise unless every running node has recorded itself in all shards."""
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

    async def _list_mapped_topics(self) -> None:
        """List every topic of the map on its shard, since its hash may name another."""
        for row in await self._databases[0].fetch("TABLE shard_map"):
            topic = row["namespace"], row["topic"]
            if await self.mover.state(row["shard"], topic) is None:
                await self.mover.thaw(topic)

    async def _share_origins(self) -> None:
        """Copy the reports of all logs to every shard: absent nodes may still insert their jobs."""
        known = [row for each in self._databases for row in await each.fetch("TABLE origins")]
        floors = [
            await each.fetchval("SELECT floor FROM floors")
            for each in self._databases[: self.count]
        ]
        for database in self._databases:
            async with database.transaction():
                await database.execute("SELECT pg_advisory_xact_lock($1)", GATE_LOCK)
                await database.executemany(
                    "INSERT INTO origins AS o (origin, low, seen, lost_high)"
                    " VALUES ($1, $2, $3, $4) ON CONFLICT (origin) DO UPDATE"
                    " SET low = least(o.low, excluded.low), seen = greatest(o.seen, excluded.seen),"
                    " lost_high = greatest(o.lost_high, excluded.lost_high)",
                    [(row["origin"], row["low"], row["seen"], row["lost_high"]) for row in known],
                )
                await database.execute("UPDATE floors SET floor = least(floor, $1)", min(floors))

    async def plan(self, *, with_sizes: bool = True) -> list[PlannedTopic]:
        """Return every topic of the shards; ConfigError where jobs are on a wrong shard."""
        rows = await self._databases[0].fetch("TABLE shard_map")
        overrides = {(row["namespace"], row["topic"]): row["shard"] for row in rows}
        items = f"{_SIZES} GROUP BY 1, 2" if with_sizes else _NAMES
        found: dict[TopicName, PlannedTopic] = {}
        for index, database in enumerate(self._databases):
            for row in await database.fetch(_TOPICS.format(items=items)):
                topic = row["namespace"], row["topic"]
                slot = slot_of(topic)
                shard = overrides.get(topic, slot % self.count)
                planned = found.setdefault(topic, PlannedTopic(topic, shard, slot % self.to))
                planned.on_shards[index] = TopicOnShard(
                    row["jobs"], row["bytes"], row["other"], row["state"]
                )
        for planned in found.values():
            if planned.stray is not None:
                raise ConfigError(
                    f"jobs of the topic {planned.topic[1]} of {planned.topic[0]} are on shard"
                    f" {planned.stray}, but the map names shard {planned.shard}"
                )
        return [found[topic] for topic in sorted(found)]

    async def move(self, planned: PlannedTopic) -> MovedTopic:
        """Move a topic to its new shard; CopyDiffersError: it stays where it is."""
        topic, home, mover = planned.topic, planned.home, self.mover
        moved = MovedTopic(*topic, planned.shard, home, planned.jobs)
        moves = await mover.current(topic) != home
        if moves and await mover.state(home, topic) != "arriving":
            await mover.arrive(topic, home)
        begun_s = time.monotonic()
        try:
            if moves:
                await self._step("frozen", topic, mover.freeze(topic))
                moved.carried = await self._step("carried", topic, mover.carry(topic, home))
                moved.rows = await self._step("verified", topic, mover.verify(topic, home))
                await self._step("switched", topic, mover.switch(topic, home))
        finally:  # the topic must not stay frozen, whichever shard has it now
            await mover.thaw(topic)
            moved.frozen_ms = round((time.monotonic() - begun_s) * 1000, 1)
        self.tell("thawed", topic)
        await self._step("cleaned", topic, mover.clean(topic))
        return moved

    async def _step(self, name: str, topic: TopicName, work: Any) -> Any:
        found = await work
        self.tell(name, topic)
        return found

    async def narrow(self) -> None:
        """Let shards refuse topics that are not theirs by both numbers."""
        await self._set_homes("UPDATE homes SET next_shards = $1")
        self.tell("narrowed", None)

    async def carry_marks(self) -> None:
        """Copy flush marks to the shards that they belong to by the new number."""
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
                BATCH_ROWS,
            )
            if not rows:
                return
            ids = [row["id"] for row in rows]
            sql = "SELECT * FROM flush_marks WHERE id = ANY($1::BIGINT[])"
            await add_marks(target, await read_binary(source, sql, ids))
            last = ids[-1]

    async def set_count(self) -> None:
        """Write the new number to the map; nodes that read it use it."""
        await self._databases[0].execute("UPDATE map_state SET shards = $1", self.to)
        self.tell("counted", None)

    async def open(self) -> None:
        """Write the new number to all shards."""
        await self._set_homes("UPDATE homes SET shards = $1, next_shards = NULL")
        self.tell("opened", None)

    async def _set_homes(self, sql: str) -> None:
        """Change `homes` on every shard when no transaction that saw the old values is running."""
        for database in self._databases:
            async with database.transaction():
                await database.execute("SELECT pg_advisory_xact_lock($1)", GATE_LOCK)
                await database.execute(sql, self.to)

    async def tidy(self) -> None:
        """Delete map entries that equal the hash, and the rows of topics that have moved away."""
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
