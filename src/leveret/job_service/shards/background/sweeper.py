"""Brings to the tables what the local log has and nobody flushed; tells shards how far it is.

After a crash that is what the last run left; in a running node it is what Redis has lost. A job
that another node flushed is known by its mark and needs nothing. Jobs that were taken back are
taken back in the shards too, until that has succeeded.
"""

import asyncio
import logging
from collections.abc import Iterable
from functools import partial
from itertools import islice
from typing import Any, Final

from leveret.errors import JobsError, JobsUnavailableError
from leveret.job_service.shards.bells import Bells
from leveret.job_service.shards.entries import Entry
from leveret.job_service.shards.intake import by_topic
from leveret.job_service.shards.memory import Topic
from leveret.job_service.shards.moments import moment
from leveret.job_service.shards.routing import ShardMap
from leveret.job_service.shards.settings import FLOOR_LAG_MS, FLUSH_BYTES, ORIGIN_KEPT_MS
from leveret.job_service.shards.shard import Shard, TopicStoppedError
from leveret.job_service.shards.tables import Tables
from leveret.job_service.shards.wal import Wal
from leveret.job_service.snowflake import EPOCH_MS, time_ms_of

SWEEP_JOBS: Final = 500
PATIENCE: Final = 10  # by so much later the log is swept while there is much to flush
CLEAN_ROWS: Final = 10_000
MAP_EVERY_S: Final = 10.0  # the shard map is read anew, so that its copy in Redis is not old
_ORIGIN: Final = "SELECT floor_id, is_new FROM leveret_origin($1, $2, $3, $4)"

log = logging.getLogger(__name__)


class Sweeper:
    """The local log against the shards."""

    def __init__(
        self, wal: Wal, shards: list[Shard], routes: ShardMap, tables: Tables, bells: Bells
    ) -> None:
        self._wal = wal
        self._shards = shards
        self._routes = routes
        self._tables = tables
        self._bells = bells
        self.floor_ms = 0  # the highest floor of all shards: no new id may be of a time before

    async def run(self) -> None:
        """Sweep as long as the node lives."""
        settings, loop = self._tables.settings, asyncio.get_running_loop()
        map_read_s = loop.time()
        while True:
            await asyncio.sleep(settings.sweep_after_s / 2)
            try:
                await self.sweep(settings.sweep_after_s)
                await self._renew()
                if loop.time() - map_read_s >= MAP_EVERY_S:
                    map_read_s = loop.time()
                    await self._routes.refresh()
            except JobsError as error:
                log.info("the local log is not swept to the end: %s", error)
            except Exception:
                log.exception("the local log could not be swept")

    # ---- jobs

    async def sweep(self, age_s: float) -> None:
        """Bring what the log has had for so long to its tables."""
        if not self._routes.is_loaded:
            return
        # While a flusher is busy with what Redis has, the log would bring the same once more.
        patience = PATIENCE if self._tables.behind else 1
        before_s = asyncio.get_running_loop().time() - age_s * patience
        # A call that waits for Redis may yet be told that its key is known, or that there is no
        # room: a job of it that were in its table by then would be a second one, or one too many.
        old = [
            id
            for id, place in self._wal.outstanding.items()
            if place.added_s <= before_s and id not in self._wal.unanswered
        ]
        for ids in _chunks(old):
            await self._settle_marked(ids)
            await self._put([id for id in ids if id in self._wal.outstanding])
        for ids in _chunks(list(self._wal.undone)):
            await self._undo(ids)

    async def _settle_marked(self, ids: list[int]) -> None:
        for shard in self._shards:
            if shard.is_up:
                rows = await shard.fetch(
                    "SELECT id FROM flush_marks WHERE id = ANY($1::BIGINT[])", ids
                )
                self._wal.settle(row["id"] for row in rows)

    async def _put(self, ids: list[int]) -> None:
        for some in _pieces(self._wal, ids):
            for shard, jobs in self._by_shard(some):
                if shard.is_up:
                    await self._put_to(shard, jobs)

    async def _put_to(self, shard: Shard, jobs: list[Entry]) -> None:
        try:
            await self._tables.put(shard, jobs)
        except TopicStoppedError:
            await self._routes.refresh()
            topics = by_topic(jobs)
            if len(topics) > 1:  # those that are not being moved
                for some in topics.values():
                    await self._put_to(self._routes.shard_of(_topic(some)), some)
            return
        self._wal.settle(job.id for job in jobs)
        log.info("%d jobs came to %s from the local log", len(jobs), shard.name)
        for topic in {(job.namespace, job.topic) for job in jobs}:
            self._bells.ring(topic)

    async def _undo(self, ids: list[int]) -> None:
        for some in _pieces(self._wal, ids):
            for topic, jobs in by_topic(some).items():
                if self._routes.shard_of(topic).is_up:
                    undo = partial(self._tables.undo, jobs=jobs)
                    await self._routes.reach(topic, undo, self._tables.settings.deadline_s)
                    self._wal.settle(job.id for job in jobs)

    def _by_shard(self, jobs: list[Entry]) -> list[tuple[Shard, list[Entry]]]:
        found: dict[int, list[Entry]] = {}
        for job in jobs:
            shard = self._routes.shard_of((job.namespace, job.topic))
            found.setdefault(shard.index, []).append(job)
        return [(self._shards[index], jobs) for index, jobs in found.items()]

    # ---- how far we are

    def low(self) -> int:
        """An id below all that this node may still bring."""
        now_ms = self._tables.clock.now_ms()
        found = [(now_ms - FLOOR_LAG_MS - EPOCH_MS) << 22]
        for ids in (self._wal.outstanding, self._wal.undone):
            # Ids rise with the log, up to the few that were made at the same time.
            found += [id - (FLOOR_LAG_MS << 22) for id in islice(ids, 1)]
        return min(found)

    async def introduce(self, shard: Shard, connection: Any) -> None:
        """Tell a shard that has come up of the local log, before any job goes there."""
        now_ms = self._tables.clock.now_ms()
        row = await connection.fetchrow(_ORIGIN, *self._origin(now_ms))
        if row["is_new"] and self._wal.outstanding:
            log.warning("%s had forgotten this node: some jobs may come twice", shard.name)
            self._tables.forced.add(shard.index)
        self.floor_ms = max(self.floor_ms, time_ms_of(row["floor_id"]))
        if row["floor_id"] >= (now_ms - EPOCH_MS) << 22:
            raise JobsUnavailableError(
                f"the clock of this node is behind that of others at {shard.name}"
            )

    def _origin(self, now_ms: int) -> tuple[object, ...]:
        forgotten = moment(now_ms - ORIGIN_KEPT_MS)
        return self._wal.origin, self.low(), moment(now_ms), forgotten

    async def _renew(self) -> None:
        for shard in self._shards:
            if shard.is_up:
                now_ms = self._tables.clock.now_ms()
                rows = await shard.fetch(_ORIGIN, *self._origin(now_ms))
                await self._clean(shard, rows[0]["floor_id"], now_ms)

    async def _clean(self, shard: Shard, floor: int, now_ms: int) -> None:
        """Drop what nobody will ask for any more, a little at a time."""
        await shard.fetch(
            "DELETE FROM flush_marks WHERE id = ANY(ARRAY("
            "SELECT id FROM flush_marks WHERE id < $1 ORDER BY id LIMIT $2))",
            floor,
            CLEAN_ROWS,
        )
        await shard.fetch(
            "DELETE FROM keys WHERE (namespace, idempotency_key) IN ("
            "SELECT k.namespace, k.idempotency_key FROM keys k WHERE k.kept_until < $1"
            " AND NOT EXISTS (SELECT FROM items i WHERE i.id = k.id)"
            " ORDER BY k.kept_until LIMIT $2)",
            moment(now_ms),
            CLEAN_ROWS,
        )

    async def leave(self) -> None:
        """The log is empty and the node stops: shards need not wait for it."""
        for shard in self._shards:
            if shard.is_up:
                await shard.fetch("DELETE FROM origins WHERE origin = $1", self._wal.origin)


def _topic(jobs: list[Entry]) -> Topic:
    return jobs[0].namespace, jobs[0].topic


def _chunks(ids: list[int]) -> Iterable[list[int]]:
    for start in range(0, len(ids), SWEEP_JOBS):
        yield ids[start : start + SWEEP_JOBS]


def _pieces(wal: Wal, ids: list[int]) -> Iterable[list[Entry]]:
    """Jobs from the log, in pieces that fit into one insert."""
    piece: list[Entry] = []
    size = 0
    for id in ids:
        found = wal.read([id])
        piece += found
        size += sum(len(job.payload) for job in found)
        if size >= FLUSH_BYTES:
            yield piece
            piece, size = [], 0
    if piece:
        yield piece
