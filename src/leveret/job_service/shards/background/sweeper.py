"""Inserts jobs of the local log that were not flushed, and reports the log to the shards.

After a crash these are the jobs that the last run left. In a running node they are jobs that Redis
has lost. A job that another node flushed has a flush mark and needs nothing. Jobs that were taken
back are taken back in the shards too, until that has succeeded.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from itertools import islice
from typing import Any, Final

from leveret.errors import JobsError, JobsUnavailableError
from leveret.job_service.shards.buffered_job import BufferedJob
from leveret.job_service.shards.enqueueing import by_topic
from leveret.job_service.shards.ready_signals import ReadySignals
from leveret.job_service.shards.routing import ShardMap
from leveret.job_service.shards.settings import FLUSH_BYTES, ORIGIN_KEPT_MS
from leveret.job_service.shards.shard import Shard, TopicStoppedError
from leveret.job_service.shards.sql.loader import FLOOR_LAG_MS
from leveret.job_service.shards.tables import Tables
from leveret.job_service.shards.topic_name import TopicName
from leveret.job_service.shards.wal import Wal
from leveret.job_service.snowflake import first_of

SWEEP_JOBS: Final = 500
PATIENCE: Final = 10  # factor on the age of swept jobs while a flusher is behind
CLEAN_ROWS: Final = 10_000
CLEAN_MANY: Final = 1_000  # deleted rows, from which a shard is cleaned again in the next round
CLEAN_REPORTS: Final = 4  # of a log at rest, after which a shard is cleaned again
BUSY_SHARE: Final = 0.2  # of the interval at rest: until the next report of a log with a few jobs
TURNS_EVERY_S: Final = 10.0  # between two looks for ranks of idle fair keys
# Announcements of a day ago are of nodes that are gone. The marks above the floor are those of jobs
# that came lately.
_FORGET: Final = (
    "WITH old AS (DELETE FROM ack_nodes"
    " WHERE written_until < coalesce($1, now()) - INTERVAL '1 day') "
    "SELECT leveret_forget_marks($2)"
    " + CASE WHEN $3 THEN leveret_forget_turns(coalesce($1, now()), $2) ELSE 0 END AS forgotten,"
    " EXISTS (SELECT FROM flush_marks WHERE id >= (SELECT floor FROM floors)) AS is_busy,"
    " EXISTS (SELECT FROM keys WHERE kept_until < coalesce($1, now())) AS has_old_keys"
)
_FORGET_KEYS: Final = (
    "WITH old AS (DELETE FROM keys WHERE (namespace, idempotency_key) IN ("
    "SELECT k.namespace, k.idempotency_key FROM keys k WHERE k.kept_until < coalesce($1, now())"
    " ORDER BY k.kept_until LIMIT $2) RETURNING TRUE) SELECT count(*) AS forgotten FROM old"
)
_ORIGIN: Final = (
    "SELECT floor_id, is_new FROM leveret_origin("
    "$1, $2, coalesce($3, now()), coalesce($3, now()) - $4 * INTERVAL '1 ms')"
)

log = logging.getLogger(__name__)


class Sweeper:
    """Compares the local log with the shards."""

    def __init__(
        self, wal: Wal, shards: list[Shard], routes: ShardMap, tables: Tables, signals: ReadySignals
    ) -> None:
        self._wal = wal
        self._shards = shards
        self._routes = routes
        self._tables = tables
        self._signals = signals
        # By shard, by the clock of the event loop.
        self._turns_due_s: dict[int, float] = {}
        self._report_due_s: dict[int, float] = {}
        self._clean_due_s: dict[int, float] = {}  # unless jobs come
        self._cleaned_after: dict[int, int] = {}  # how many jobs had come to the log
        # The shards of jobs that had to wait for them, by id. The log need not be read again.
        self._awaited_shards: dict[int, int] = {}
        self._has_left = False
        # By shard. Held while the log is reported: no report may follow the sign-off.
        self._reporting: defaultdict[int, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def run(self) -> None:
        """Sweep until cancelled."""
        settings, loop = self._tables.settings, asyncio.get_running_loop()
        map_read_s = loop.time()
        while True:
            await asyncio.sleep(settings.sweep_after_s / 2)
            await self._try_to("swept to the end", partial(self.sweep, settings.sweep_after_s))
            for shard in self._shards:
                if shard.is_up and loop.time() >= self._report_due_s.get(shard.index, 0.0):
                    await self._try_to(f"reported to {shard.name}", partial(self._renew, shard))
            # The copy of the shard map in Redis stays fresh.
            if loop.time() - map_read_s >= settings.idle_s:
                map_read_s = loop.time()
                self._awaited_shards.clear()
                await self._try_to("compared with the shard map", self._routes.refresh)

    async def _try_to(self, what: str, work: Callable[[], Awaitable[None]]) -> None:
        """Do one part of a round, or log its error: the other parts are done anyway."""
        try:
            await work()
        except JobsError as error:
            log.info("the local log is not %s: %s", what, error)
        except Exception:
            log.exception("the local log could not be %s", what)

    async def sweep(self, age_s: float) -> None:
        """Insert the jobs that have been in the log for `age_s`."""
        if not self._routes.is_loaded:
            return
        # While a flusher is busy with the buffers, the log would only insert the same jobs.
        patience = PATIENCE if self._tables.behind else 1
        before_s = asyncio.get_running_loop().time() - age_s * patience
        # A call that waits for Redis may still learn that its key is known, or that there is no
        # room. Its jobs must not be in their tables by then.
        old = [
            id
            for id, position in self._wal.outstanding.items()
            if position.added_s <= before_s and id not in self._wal.unanswered
        ]
        failed: set[int] = set()  # shards that did not take jobs
        for chunk in _chunks(old):
            if ids := [id for id in chunk if not self._must_wait(id, failed)]:
                await self._settle_marked(ids)
                await self._put([id for id in ids if id in self._wal.outstanding], failed)
        for ids in _chunks(list(self._wal.undone)):
            await self._undo(ids)

    def _must_wait(self, id: int, failed: set[int]) -> bool:
        index = self._awaited_shards.get(id)
        return index is not None and (index in failed or not self._shards[index].is_up)

    async def _settle_marked(self, ids: list[int]) -> None:
        for shard in self._shards:
            if shard.is_up:
                rows = await shard.fetch(
                    "SELECT id FROM flush_marks WHERE id = ANY($1::BIGINT[])", ids
                )
                self._wal.settle(row["id"] for row in rows)

    async def _put(self, ids: list[int], failed: set[int]) -> None:
        for some in _pieces(self._wal, ids):
            for shard, jobs in self._routes.by_shard(some):
                if shard.is_up and shard.index not in failed:
                    try:
                        await self._put_to(shard, jobs)
                        continue
                    except JobsUnavailableError as error:  # the disk of the shard may be full
                        log.info("jobs of the local log have to wait: %s", error)
                        failed.add(shard.index)
                self._awaited_shards.update((job.id, shard.index) for job in jobs)

    async def _put_to(self, shard: Shard, jobs: list[BufferedJob]) -> None:
        """Insert jobs, as many at a time as the shard takes."""
        left = jobs
        while left:
            count = self._tables.insert_limit(shard).fitting(left)
            await self._put_together(shard, left[:count])
            left = left[count:]

    async def _put_together(self, shard: Shard, jobs: list[BufferedJob]) -> None:
        try:
            await self._tables.put(shard, jobs)
        except TopicStoppedError:
            await self._routes.refresh()
            topics = by_topic(jobs)
            if len(topics) > 1:  # insert the jobs of topics that are not being moved
                for some in topics.values():
                    await self._put_to(self._routes.shard_of(_topic(some)), some)
            return
        self._wal.settle(job.id for job in jobs)
        log.info("%d jobs came to %s from the local log", len(jobs), shard.name)
        for topic in {(job.namespace, job.topic) for job in jobs}:
            self._signals.notify(topic)

    async def _undo(self, ids: list[int]) -> None:
        for some in _pieces(self._wal, ids):
            for topic, jobs in by_topic(some).items():
                if self._routes.shard_of(topic).is_up:
                    undo = partial(self._tables.undo, jobs=jobs)
                    await self._routes.reach(topic, undo, self._tables.settings.deadline_s)
                    self._wal.settle(job.id for job in jobs)

    def low(self) -> int:
        """Return an id below all that this node may still insert."""
        now_ms = self._tables.clock.now_ms()
        found = [first_of(now_ms - FLOOR_LAG_MS)]
        for ids in (self._wal.outstanding, self._wal.undone):
            # Ids rise with the log, apart from a few that were made at the same time.
            found += [id - (FLOOR_LAG_MS << 22) for id in islice(ids, 1)]
        return min(found)

    async def report_log(self, shard: Shard, connection: Any) -> None:
        """Report the local log to a shard that has come up, before any job is inserted there."""
        async with self._reporting[shard.index]:
            if self._has_left:
                return
            row = await connection.fetchrow(_ORIGIN, *self._origin())
        if row["is_new"] and self._wal.outstanding:
            log.warning("%s had forgotten this node: some jobs may be inserted twice", shard.name)
            self._tables.forced.add(shard.index)

    def _origin(self) -> tuple[object, ...]:
        return self._wal.origin, self.low(), self._tables.given_time(), ORIGIN_KEPT_MS

    async def _renew(self, shard: Shard) -> None:
        """Report the local log to a shard, so that it does not count as lost there.

        A shard to which few jobs come is left in peace for a while, one without jobs for longer.
        The marks of the last jobs go when the floor has risen, which takes a while anyway.
        """
        async with self._reporting[shard.index]:
            if self._has_left:
                return
            await shard.fetch(_ORIGIN, *self._origin())
        now_s, idle_s = asyncio.get_running_loop().time(), self._tables.settings.idle_s
        is_at_rest = not self._wal.outstanding and not self._wal.undone
        is_at_rest &= self._cleaned_after.get(shard.index) == self._wal.appended
        self._cleaned_after[shard.index] = self._wal.appended
        if not is_at_rest or now_s >= self._clean_due_s.get(shard.index, 0.0):
            forgotten, is_busy = await self._clean(shard)
            if forgotten >= CLEAN_MANY:
                return
            if is_busy or forgotten or not is_at_rest:
                self._report_due_s[shard.index] = now_s + BUSY_SHARE * idle_s
                return
            self._clean_due_s[shard.index] = now_s + CLEAN_REPORTS * idle_s
        self._report_due_s[shard.index] = now_s + idle_s

    async def _clean(self, shard: Shard) -> tuple[int, bool]:
        """Delete some of the flush marks, keys and ranks that are not needed any more.

        Return how many, and whether there will be more of them soon.
        """
        now_s, given = asyncio.get_running_loop().time(), self._tables.given_time()
        has_turns = now_s >= self._turns_due_s.get(shard.index, 0.0)
        if has_turns:
            self._turns_due_s[shard.index] = now_s + TURNS_EVERY_S
        row = (await shard.fetch(_FORGET, given, CLEAN_ROWS, has_turns))[0]
        forgotten: int = row["forgotten"]
        if row["has_old_keys"]:
            forgotten += (await shard.fetch(_FORGET_KEYS, given, CLEAN_ROWS))[0]["forgotten"]
        return forgotten, row["is_busy"]

    async def leave(self) -> None:
        """Sign off from the shards: the log is empty and the node stops."""
        self._has_left = True
        for shard in self._shards:
            if shard.is_up:
                async with self._reporting[shard.index]:
                    await shard.fetch("DELETE FROM origins WHERE origin = $1", self._wal.origin)


def _topic(jobs: list[BufferedJob]) -> TopicName:
    return jobs[0].namespace, jobs[0].topic


def _chunks(ids: list[int]) -> Iterable[list[int]]:
    for start in range(0, len(ids), SWEEP_JOBS):
        yield ids[start : start + SWEEP_JOBS]


def _pieces(wal: Wal, ids: list[int]) -> Iterable[list[BufferedJob]]:
    """Return jobs of the log, in batches that fit into one insert."""
    piece: list[BufferedJob] = []
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
