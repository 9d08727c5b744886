"""Enqueues jobs: makes ids, writes the local log and the Redis buffer, then answers.

The record is written to the log first, which takes microseconds. Its sync (if the policy asks for
one) and the push to Redis run at the same time. If either fails, the call raises and the batch is
taken back:
- The log marks its jobs in place, so that no replay inserts them.
- Redis may have the jobs, and a flusher of any node may have read them by now. Their ids are marked
  as undone in the shards *before* the call raises. That removes them there and makes every later
  insert of them void.
- Where the shard cannot be reached either, the mark is made as soon as it can be. Only in that
  case, and only if another node reaches both servers meanwhile, can a job of a failed call be
  delivered.

Concurrent calls that enqueue one small job each to the same topic share a record and a push
(`batching.py`). A lone call does not wait. These calls need no task (`begin`). If the record or the
push fails, all of these calls fail.

Idempotency keys are set in Redis in the same step as the push. Redis knows all keys unless it lost
its data. In that case (`mqueue:keys`) the shards are asked first.
"""

import asyncio
import logging
from collections import Counter
from functools import partial
from itertools import zip_longest
from typing import Any, Final, Protocol

from leveret.errors import JobsError, JobsRateLimitError, JobsUnavailableError
from leveret.job_model import Enqueued, NewJob
from leveret.job_service.shards.batching import CALLERS_MAX, Batcher
from leveret.job_service.shards.buffered_job import BufferedJob, encode_job
from leveret.job_service.shards.id_generator import IdGenerator
from leveret.job_service.shards.redis.redis_client import RedisClient
from leveret.job_service.shards.routing import ShardMap
from leveret.job_service.shards.shard import Shard
from leveret.job_service.shards.sql.loader import PREFETCH_MARGIN_MS
from leveret.job_service.shards.tables import Tables
from leveret.job_service.shards.timestamps import to_ms
from leveret.job_service.shards.topic_name import TopicName
from leveret.job_service.shards.wal import Wal
from leveret.job_service.snowflake import EPOCH_MS, first_of
from leveret.job_service.store import tell_end

OUTSTANDING_MAX: Final = 1_000_000  # jobs of this node that are not in their tables yet
FORGOTTEN_MAX: Final = 100_000  # keys of failed calls that Redis must still delete
PUSH_TRIES: Final = 4
SHARED_BYTES_MAX: Final = 64 * 1024  # payload of a job that shares its push with other calls
# Answers of push.lua and push_lone.lua.
_PUSHED: Final = [b"ok"]
_PUSHED_QUIETLY: Final = [b"ok", b"quiet"]

log = logging.getLogger(__name__)

KnownKey = tuple[str, str, int]  # namespace, key, id


class OnBuffered(Protocol):
    """Is called when a job is enqueued, or could not be."""

    def __call__(self, found: Enqueued | Exception, is_quiet: bool = False) -> None:
        """`is_quiet`: no other node is known to need the job soon."""


class BufferFullError(JobsUnavailableError):
    """A buffer in Redis has no room; nothing of the batch was buffered."""


class Enqueuer:
    """Enqueues the jobs of one node."""

    def __init__(
        self,
        redis: RedisClient,
        shards: list[Shard],
        routes: ShardMap,
        tables: Tables,
        wal: Wal,
        id_generator: IdGenerator,
    ) -> None:
        self._redis = redis
        self._shards = shards
        self._routes = routes
        self._tables = tables
        self._wal = wal
        self._id_generator = id_generator
        self._to_forget: list[KnownKey] = []
        self._singles = Batcher(self._buffer_singles, CALLERS_MAX)
        self._failed_pushes: set[asyncio.Task[None]] = set()
        self._keys_past_redis = False  # keys were written in slow mode that Redis does not know

    async def enqueue(self, jobs: list[NewJob]) -> tuple[list[int], int]:
        """Enqueue a batch, all or nothing.

        Return the ids in the order of the jobs, and how many jobs were known by their keys.
        """
        now_ms = self._tables.clock.now_ms()
        places, distinct = _distinct(jobs)
        for topic in {(job.namespace, job.topic) for job in distinct}:
            await self._routes.shard_of(topic).freshen()
        self._require(distinct)
        await self._count_rate(jobs)
        ids = self._id_generator.make_ids(len(distinct), now_ms)
        batch = self._buffered_jobs(distinct, ids, now_ms)
        self._wal.unanswered.update(ids)  # the sweeper leaves them alone
        try:
            given = await self._write(batch, now_ms)
        finally:
            self._wal.unanswered.difference_update(ids)
        new = sum(id == own for id, own in zip(given, ids, strict=True))
        return [given[place] for place in places], len(jobs) - new

    def begin(self, job: NewJob, on_done: OnBuffered) -> bool:
        """Begin to enqueue a job without a task; call `on_done` at the end.

        Return False if `enqueue` has to be called: only a small job without a key, for a shard
        that was probed lately, needs no task.
        """
        topic = (job.namespace, job.topic)
        if (
            not _is_small(job)
            or self._tables.settings.rate_max is not None
            or self._wal.is_synced_first
            or not self._redis.is_up
        ):
            return False
        shard = self._routes.shard_of(topic)
        if not shard.is_fresh:
            return False
        self._require_shard(shard)
        self._require_room(1)
        now_ms = self._tables.clock.now_ms()
        (id,) = self._id_generator.make_ids(1, now_ms)
        buffered = _buffered_job(job, id, shard.health.server_time_ms(now_ms))
        if self._singles.is_busy(topic):
            self._wal.unanswered.add(id)
            shared = self._singles.join(topic, buffered)
            shared.add_done_callback(partial(self._on_shared_push, id, on_done))
            return True
        raw = encode_job(buffered)
        self._wal.append([buffered], [raw], asyncio.get_running_loop().time())
        self._wal.unanswered.add(id)  # the sweeper leaves it alone
        self._singles.begin_alone(topic)
        pushed = self._redis.begin_push(buffered, raw)
        pushed.add_done_callback(partial(self._on_pushed, buffered, raw, on_done))
        return True

    def _on_shared_push(self, id: int, on_done: OnBuffered, pushed: "asyncio.Future[int]") -> None:
        self._wal.unanswered.discard(id)
        tell_end(on_done, Enqueued([id], 0), pushed)

    def _on_pushed(
        self, job: BufferedJob, raw: bytes, on_done: OnBuffered, pushed: "asyncio.Future[Any]"
    ) -> None:
        self._singles.end_alone((job.namespace, job.topic))
        if not pushed.cancelled() and not pushed.exception():
            answer = pushed.result()
            if answer in (_PUSHED, _PUSHED_QUIETLY):
                self._wal.unanswered.discard(job.id)
                on_done(Enqueued([job.id], 0), answer == _PUSHED_QUIETLY)
                return
        task = asyncio.get_running_loop().create_task(
            self._finish_push(job, raw, on_done, pushed), name="failed push"
        )
        self._failed_pushes.add(task)
        task.add_done_callback(self._failed_pushes.discard)

    async def _finish_push(
        self, job: BufferedJob, raw: bytes, on_done: OnBuffered, pushed: "asyncio.Future[Any]"
    ) -> None:
        """Finish a push that `begin` has sent: try again, or take the job back."""
        try:
            ids = await self._push_logged([job], [raw], job.created_ms, pushed)
        except Exception as fault:
            on_done(fault)
        else:
            on_done(Enqueued(ids, 0))
        finally:
            self._wal.unanswered.discard(job.id)

    def _buffered_jobs(self, jobs: list[NewJob], ids: list[int], now_ms: int) -> list[BufferedJob]:
        """Return jobs with the time of their shard: the clock of the node may be wrong."""
        found, times = [], dict[TopicName, int]()
        for job, id in zip(jobs, ids, strict=True):
            topic = job.namespace, job.topic
            if topic not in times:
                times[topic] = self._routes.shard_of(topic).health.server_time_ms(now_ms)
            found.append(_buffered_job(job, id, times[topic]))
        return found

    async def _write(self, batch: list[BufferedJob], now_ms: int) -> list[int]:
        """Return the id of each job, or of the first job with its key."""
        if self._redis.is_up:
            if len(batch) == 1 and _is_small(batch[0]):
                job = batch[0]
                return [await self._singles.ask((job.namespace, job.topic), job)]
            return await self._buffer(batch, now_ms)
        if self._tables.settings.is_slow_mode:
            return await self._write_through(batch)
        self._redis.require()
        raise AssertionError

    def _require(self, jobs: list[NewJob]) -> None:
        for topic in {(job.namespace, job.topic) for job in jobs}:
            self._require_shard(self._routes.shard_of(topic))
        if not self._tables.settings.is_slow_mode:
            self._redis.require()
        self._require_room(len(jobs))

    def _require_shard(self, shard: Shard) -> None:
        shard.note_use()
        shard.require()
        shard.health.require_changes()
        shard.health.require_clock()

    def _require_room(self, count: int) -> None:
        if len(self._wal.outstanding) + count > OUTSTANDING_MAX:
            raise JobsUnavailableError("too many jobs of this node are not in the shards yet")

    async def _count_rate(self, jobs: list[NewJob]) -> None:
        most = self._tables.settings.rate_max
        if most is None or not self._redis.is_up:
            return
        for namespace, count in Counter(job.namespace for job in jobs).items():
            closed_ms = await self._redis.rate(namespace, count, most)
            if closed_ms:
                raise JobsRateLimitError(namespace, closed_ms / 1000)

    async def _buffer_singles(self, _topic: TopicName, jobs: list[BufferedJob]) -> list[int]:
        return await self._buffer(jobs, self._tables.clock.now_ms())

    async def _buffer(self, batch: list[BufferedJob], now_ms: int) -> list[int]:
        raw = [encode_job(job) for job in batch]
        self._wal.append(batch, raw, asyncio.get_running_loop().time())
        return await self._push_logged(batch, raw, now_ms)

    async def _push_logged(
        self,
        batch: list[BufferedJob],
        raw: list[bytes],
        now_ms: int,
        begun: "asyncio.Future[Any] | None" = None,
    ) -> list[int]:
        """Push jobs that are in the log; take them back if that fails. `begun`: see `_push`."""
        try:
            if self._wal.is_synced_first:
                pushed = await self._push_and_sync(batch, raw, now_ms)
            else:
                pushed = await self._push(batch, raw, now_ms, begun)
        except BufferFullError:
            self._drop(batch)
            raise
        except Exception:
            await self._take_back(batch)
            raise
        repeated = [job for job, first in zip(batch, pushed, strict=True) if first != job.id]
        if repeated:
            self._drop(repeated)
        return pushed

    async def _push_and_sync(
        self, batch: list[BufferedJob], raw: list[bytes], now_ms: int
    ) -> list[int]:
        """Push and sync at the same time; raise the error of either when both have ended."""
        pushed, synced = await asyncio.gather(
            self._push(batch, raw, now_ms), self._wal.synced(), return_exceptions=True
        )
        if isinstance(synced, BaseException):
            raise synced
        if isinstance(pushed, BaseException):
            raise pushed
        return pushed

    async def _push(
        self,
        batch: list[BufferedJob],
        raw: list[bytes],
        now_ms: int,
        begun: "asyncio.Future[Any] | None" = None,
    ) -> list[int]:
        """Return the id of each job, or of the first job with its key.

        `begun`: the answer to the first command, which was sent before.
        """
        given: dict[int, int] = {}
        todo, is_checked = list(zip(batch, raw, strict=True)), False
        for _ in range(PUSH_TRIES):
            jobs = [job for job, _ in todo]
            word, *found = await self._redis.push(
                jobs, [data for _, data in todo], now_ms, is_checked, begun
            )
            begun = None
            if word == b"ask":
                await self._look_up_keys(jobs)
                is_checked = True
                continue
            if word == b"full":
                fault = BufferFullError if not given else JobsUnavailableError
                raise fault(f"the buffer {found[0].decode()} is full: its shard is too slow")
            if not given and not any(found):  # no key was known: every job is new
                return [job.id for job in batch]
            known = {job.id: int(id or job.id) for job, id in zip_longest(jobs, found)}
            undone = await self._forget_void(jobs, known, now_ms) if any(found) else set()
            given.update(known)
            todo = [each for each in todo if known[each[0].id] in undone]
            if not todo:
                return [given[job.id] for job in batch]
        raise JobsUnavailableError("keys of failed calls could not be deleted")

    async def _look_up_keys(self, batch: list[BufferedJob]) -> None:
        """Copy the idempotency keys of the shards to Redis, which has lost them.

        If a shard is down, its keys are not copied, and the next call asks again.
        """
        rows, is_whole = await self._ask_up(batch, "SELECT max(kept_until) AS until FROM keys")
        until_ms = max((to_ms(row["until"]) for row in rows if row["until"]), default=0)
        for namespace, key, id in await self._known_keys(batch):
            await self._redis.remember(namespace, key, id)
        if is_whole:
            await self._redis.keys_since(until_ms)

    async def _ask_up(
        self, batch: list[BufferedJob], sql: str, *arguments: object
    ) -> tuple[list[Any], bool]:
        """Return the rows of the shards that answer, and whether all of them do.

        A key belongs to a namespace, but is usually used for one topic only. So a shard that fails
        stops only keys of its own topics: raise if it is the shard of a job in the batch.
        """
        homes = {self._routes.shard_of((job.namespace, job.topic)) for job in batch}
        up = [shard for shard in self._shards if shard.is_up]
        asked = (shard.fetch(sql, *arguments) for shard in up)
        rows: list[Any] = []
        is_whole = len(up) == len(self._shards)
        answers = await asyncio.gather(*asked, return_exceptions=True)
        for shard, answer in zip(up, answers, strict=True):
            if not isinstance(answer, BaseException):
                rows += answer
            elif shard in homes or not isinstance(answer, JobsUnavailableError):
                raise answer
            else:
                is_whole = False
        return rows, is_whole

    async def _known_keys(self, batch: list[BufferedJob]) -> list[KnownKey]:
        keyed = [(job.namespace, job.idempotency_key) for job in batch if job.idempotency_key]
        if not keyed:
            return []
        rows, _ = await self._ask_up(
            batch,
            "SELECT k.namespace, k.idempotency_key, k.id FROM keys k"
            " JOIN unnest($1::TEXT[], $2::TEXT[]) AS g(ns, key)"
            " ON k.namespace = g.ns AND k.idempotency_key = g.key"
            " WHERE k.kept_until > coalesce($3, now())",
            [namespace for namespace, _ in keyed],
            [key for _, key in keyed],
            self._tables.given_time(),
        )
        return [(row["namespace"], row["idempotency_key"], row["id"]) for row in rows]

    async def _forget_void(
        self, batch: list[BufferedJob], known: dict[int, int], now_ms: int
    ) -> set[int]:
        """Delete keys in Redis that are too old, or stand for jobs that were taken back.

        Return the ids that they stood for.
        """
        ids = [first for id, first in known.items() if first != id]
        oldest = first_of(max(now_ms - self._tables.settings.keys_kept_ms, EPOCH_MS))
        undone = {first for first in ids if first < oldest}
        if ids:
            rows, _ = await self._ask_up(
                batch, "SELECT id FROM flush_marks WHERE id = ANY($1::BIGINT[]) AND is_undone", ids
            )
            undone |= {row["id"] for row in rows}
        keyed = [(j.namespace, j.idempotency_key, known[j.id]) for j in batch if j.idempotency_key]
        await self._redis.forget([key for key in keyed if key[2] in undone])
        return undone

    async def _write_through(self, batch: list[BufferedJob]) -> list[int]:
        """Write to the shards directly (slow mode). The log serves to undo a partial failure."""
        first = {(namespace, key): id for namespace, key, id in await self._known_keys(batch)}
        new = [job for job in batch if (job.namespace, job.idempotency_key or "") not in first]
        given = {
            job.id: first.get((job.namespace, job.idempotency_key or ""), job.id) for job in batch
        }
        if new:
            raw = [encode_job(job) for job in new]
            self._wal.append(new, raw, asyncio.get_running_loop().time())
            try:
                for shard, jobs in self._routes.by_shard(new):
                    given.update(await self._tables.put(shard, jobs))
            except JobsError as error:
                await self._take_back(new)
                if isinstance(error, JobsUnavailableError):
                    raise
                raise JobsUnavailableError(str(error)) from error
            self._wal.settle(job.id for job in new)
            self._keys_past_redis |= any(job.idempotency_key is not None for job in new)
        return [given[job.id] for job in batch]

    def _drop(self, batch: list[BufferedJob]) -> None:
        """Take back jobs that are only in our log."""
        self._wal.undo(job.id for job in batch)
        self._wal.settle(job.id for job in batch)

    async def _take_back(self, batch: list[BufferedJob]) -> None:
        """Take back jobs that may be in Redis or in the tables."""
        self._wal.undo(job.id for job in batch)
        for topic, jobs in by_topic(batch).items():
            try:
                undo = partial(self._tables.undo, jobs=jobs)
                await self._routes.reach(topic, undo, self._tables.settings.deadline_s)
                self._wal.settle(job.id for job in jobs)
            except JobsError as error:
                log.error("%d jobs of a failed call are taken back later: %s", len(jobs), error)
        keyed = [(j.namespace, j.idempotency_key, j.id) for j in batch if j.idempotency_key]
        self._to_forget = (self._to_forget + keyed)[-FORGOTTEN_MAX:]

    async def forget_keys(self) -> None:
        """Correct the keys in Redis when it is back: none may stand for a job taken back."""
        if self._keys_past_redis:
            now_ms, kept_ms = self._tables.clock.now_ms(), self._tables.settings.keys_kept_ms
            await self._redis.keys_until(now_ms + kept_ms)
            self._keys_past_redis = False
        keys, self._to_forget = self._to_forget, []
        try:
            await self._redis.forget(keys)
        except JobsUnavailableError:
            self._to_forget = keys + self._to_forget
            raise


def by_topic(jobs: list[BufferedJob]) -> dict[TopicName, list[BufferedJob]]:
    found: dict[TopicName, list[BufferedJob]] = {}
    for job in jobs:
        found.setdefault((job.namespace, job.topic), []).append(job)
    return found


def _distinct(jobs: list[NewJob]) -> tuple[list[int], list[NewJob]]:
    """Leave out jobs that repeat a key of the batch; return the position of each, and the rest."""
    if all(job.idempotency_key is None for job in jobs):
        return list(range(len(jobs))), jobs
    places: list[int] = []
    distinct: list[NewJob] = []
    first: dict[tuple[str, str], int] = {}
    for job in jobs:
        if job.idempotency_key is None:
            place = len(distinct)
        else:
            place = first.setdefault((job.namespace, job.idempotency_key), len(distinct))
        places.append(place)
        if place == len(distinct):
            distinct.append(job)
    return places, distinct


def _is_small(job: NewJob | BufferedJob) -> bool:
    """Return whether a job is small and has no key."""
    return job.idempotency_key is None and len(job.payload) <= SHARED_BYTES_MAX


def _buffered_job(job: NewJob, id: int, now_ms: int) -> BufferedJob:
    after_ms = job.deliver_after_ms
    if after_ms <= now_ms - PREFETCH_MARGIN_MS:
        after_ms = now_ms  # a later time is left to the shard, which knows better what time it is
    return BufferedJob(
        id,
        job.namespace,
        job.topic,
        job.priority,
        after_ms,
        now_ms,
        job.idempotency_key,
        job.fair_key,
        job.payload,
    )
