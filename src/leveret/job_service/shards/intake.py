"""Taking jobs in: ids, then the local log and the Redis buffer, then the answer.

The record is written to the log first, which takes microseconds; its sync (if the policy asks for
it) and the push to Redis go on at the same time. If either fails, the call raises and the batch is
taken back:
- the log marks its jobs in place, so that no replay brings them;
- nobody knows what Redis has of them, and a flusher anywhere may have them by now: their ids are
  marked as undone in the shards *before* the call raises, which removes them there and makes every
  later insert of them void;
- where the shard cannot be reached either, that mark is made as soon as it can be. Only then, and
  only if another node reaches both servers meanwhile, can a job of a failed call be delivered.

Idempotency keys are taken in Redis in the same step as the push. Redis knows all keys of the past
unless it lost its memory; then (`mqueue:keys`) the shards are asked first.
"""

import asyncio
import logging
from collections import Counter
from functools import partial
from itertools import zip_longest
from typing import Final

from leveret.errors import JobsError, JobsRateLimitError, JobsUnavailableError
from leveret.job_model import NewJob
from leveret.job_service.shards import entries
from leveret.job_service.shards.entries import Entry
from leveret.job_service.shards.memory import Memory, Topic
from leveret.job_service.shards.moments import ms_of
from leveret.job_service.shards.numbers import Numbers
from leveret.job_service.shards.routing import ShardMap
from leveret.job_service.shards.shard import Shard
from leveret.job_service.shards.tables import Tables
from leveret.job_service.shards.wal import Wal

OUTSTANDING_MAX: Final = 1_000_000  # jobs that this node may have on their way
FORGOTTEN_MAX: Final = 100_000  # keys of failed calls that Redis is still to forget
PUSH_TRIES: Final = 4

log = logging.getLogger(__name__)

KeyOf = tuple[str, str, int]  # namespace, key, id


class BufferFullError(JobsUnavailableError):
    """A buffer in Redis has no room, and took nothing."""


class Intake:
    """The way in of one node."""

    def __init__(
        self,
        memory: Memory,
        shards: list[Shard],
        routes: ShardMap,
        tables: Tables,
        wal: Wal,
        numbers: Numbers,
    ) -> None:
        self._memory = memory
        self._shards = shards
        self._routes = routes
        self._tables = tables
        self._wal = wal
        self._numbers = numbers
        self._to_forget: list[KeyOf] = []
        self._keys_past_redis = False  # were written, which Redis does not know

    async def take(self, jobs: list[NewJob]) -> tuple[list[int], int]:
        """Take a batch, all or nothing; the ids in the order of the jobs, and how many of them
        were known by their keys.
        """
        now_ms = self._tables.clock.now_ms()
        places, distinct = _distinct(jobs)
        self._require(distinct)
        await self._count_rate(jobs)
        ids = self._numbers.ids(len(distinct), now_ms)
        batch = [_entry(job, id, now_ms) for job, id in zip(distinct, ids, strict=True)]
        self._wal.unanswered.update(ids)  # the sweeper leaves them alone
        try:
            given = await self._bring(batch, now_ms)
        finally:
            self._wal.unanswered.difference_update(ids)
        new = sum(id == own for id, own in zip(given, ids, strict=True))
        return [given[place] for place in places], len(jobs) - new

    async def _bring(self, batch: list[Entry], now_ms: int) -> list[int]:
        """The id of each job, or of the first one with its key."""
        if self._memory.is_up:
            return await self._buffer(batch, now_ms)
        if self._tables.settings.is_slow_mode:
            return await self._write_through(batch)
        self._memory.require()
        raise AssertionError

    def _require(self, jobs: list[NewJob]) -> None:
        for topic in {(job.namespace, job.topic) for job in jobs}:
            self._routes.shard_of(topic).require()
        if not self._tables.settings.is_slow_mode:
            self._memory.require()
        if len(self._wal.outstanding) + len(jobs) > OUTSTANDING_MAX:
            raise JobsUnavailableError("too many jobs of this node are on their way to the shards")

    async def _count_rate(self, jobs: list[NewJob]) -> None:
        most = self._tables.settings.rate_max
        if most is None or not self._memory.is_up:
            return
        for namespace, count in Counter(job.namespace for job in jobs).items():
            closed_ms = await self._memory.rate(namespace, count, most)
            if closed_ms:
                raise JobsRateLimitError(namespace, closed_ms / 1000)

    # ---- by Redis

    async def _buffer(self, batch: list[Entry], now_ms: int) -> list[int]:
        raw = [entries.encode(job) for job in batch]
        self._wal.append(batch, raw, asyncio.get_running_loop().time())
        try:
            if self._wal.is_synced_first:
                pushed = await self._push_and_sync(batch, raw, now_ms)
            else:
                pushed = await self._push(batch, raw, now_ms)
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

    async def _push_and_sync(self, batch: list[Entry], raw: list[bytes], now_ms: int) -> list[int]:
        """Both at the same time; each comes to its end before one that failed is told of."""
        pushed, synced = await asyncio.gather(
            self._push(batch, raw, now_ms), self._wal.synced(), return_exceptions=True
        )
        if isinstance(synced, BaseException):
            raise synced
        if isinstance(pushed, BaseException):
            raise pushed
        return pushed

    async def _push(self, batch: list[Entry], raw: list[bytes], now_ms: int) -> list[int]:
        """The id of each job, or of the first one with its key."""
        given: dict[int, int] = {}
        todo, is_checked = list(zip(batch, raw, strict=True)), False
        for _ in range(PUSH_TRIES):
            jobs = [job for job, _ in todo]
            word, *found = await self._memory.push(
                jobs, [data for _, data in todo], now_ms, is_checked
            )
            if word == b"ask":
                await self._look_up_keys(jobs)
                is_checked = True
                continue
            if word == b"full":
                fault = BufferFullError if not given else JobsUnavailableError
                raise fault(f"the buffer {found[0].decode()} is full: its shard is too slow")
            known = {job.id: int(id or job.id) for job, id in zip_longest(jobs, found)}
            undone = await self._forget_undone(jobs, known) if any(found) else set()
            given.update(known)
            todo = [each for each in todo if known[each[0].id] in undone]
            if not todo:
                return [given[job.id] for job in batch]
        raise JobsUnavailableError("keys of failed calls stay in the way")

    async def _look_up_keys(self, batch: list[Entry]) -> None:
        """Redis has lost keys: tell it what the shards know, and until when that may be so."""
        until_ms = 0
        for shard in self._shards:
            rows = await shard.fetch("SELECT max(kept_until) AS until FROM keys")
            until_ms = max(until_ms, ms_of(rows[0]["until"]) if rows[0]["until"] else 0)
        for namespace, key, id in await self._known_keys(batch):
            await self._memory.remember(namespace, key, id)
        await self._memory.keys_since(until_ms)

    async def _known_keys(self, batch: list[Entry]) -> list[KeyOf]:
        keyed = [(job.namespace, job.idempotency_key) for job in batch if job.idempotency_key]
        if not keyed:
            return []
        found: list[KeyOf] = []
        for shard in self._shards:
            rows = await shard.fetch(
                "SELECT k.namespace, k.idempotency_key, k.id FROM keys k"
                " JOIN unnest($1::TEXT[], $2::TEXT[]) AS g(ns, key)"
                " ON k.namespace = g.ns AND k.idempotency_key = g.key",
                [namespace for namespace, _ in keyed],
                [key for _, key in keyed],
            )
            found += [(row["namespace"], row["idempotency_key"], row["id"]) for row in rows]
        return found

    async def _forget_undone(self, batch: list[Entry], known: dict[int, int]) -> set[int]:
        """Ids that keys stood for, of jobs that were taken back: Redis has forgotten them now."""
        ids = [first for id, first in known.items() if first != id]
        undone: set[int] = set()
        for shard in self._shards if ids else []:
            rows = await shard.fetch(
                "SELECT id FROM flush_marks WHERE id = ANY($1::BIGINT[]) AND is_undone", ids
            )
            undone |= {row["id"] for row in rows}
        keyed = [(j.namespace, j.idempotency_key, known[j.id]) for j in batch if j.idempotency_key]
        await self._memory.forget([key for key in keyed if key[2] in undone])
        return undone

    # ---- past Redis

    async def _write_through(self, batch: list[Entry]) -> list[int]:
        """Slow mode: straight to the shards; the log is there to take back what half failed."""
        first = {(namespace, key): id for namespace, key, id in await self._known_keys(batch)}
        new = [job for job in batch if (job.namespace, job.idempotency_key or "") not in first]
        given = {
            job.id: first.get((job.namespace, job.idempotency_key or ""), job.id) for job in batch
        }
        if new:
            raw = [entries.encode(job) for job in new]
            self._wal.append(new, raw, asyncio.get_running_loop().time())
            try:
                for shard, jobs in self._by_shard(new):
                    given.update(await self._tables.put(shard, jobs))
            except JobsError as error:
                await self._take_back(new)
                raise JobsUnavailableError(str(error)) from error
            self._wal.settle(job.id for job in new)
            self._keys_past_redis |= any(job.idempotency_key is not None for job in new)
        return [given[job.id] for job in batch]

    # ---- taking back

    def _drop(self, batch: list[Entry]) -> None:
        """Jobs that are nowhere but in our log."""
        self._wal.undo(job.id for job in batch)
        self._wal.settle(job.id for job in batch)

    async def _take_back(self, batch: list[Entry]) -> None:
        """Jobs that may be anywhere."""
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
        """Redis is back: no key may stand for a job that was taken back, or be unknown."""
        if self._keys_past_redis:
            now_ms, kept_ms = self._tables.clock.now_ms(), self._tables.settings.keys_kept_ms
            await self._memory.keys_until(now_ms + kept_ms)
            self._keys_past_redis = False
        keys, self._to_forget = self._to_forget, []
        try:
            await self._memory.forget(keys)
        except JobsUnavailableError:
            self._to_forget = keys + self._to_forget
            raise

    def _by_shard(self, jobs: list[Entry]) -> list[tuple[Shard, list[Entry]]]:
        found: dict[int, list[Entry]] = {}
        for job in jobs:
            shard = self._routes.shard_of((job.namespace, job.topic))
            found.setdefault(shard.index, []).append(job)
        return [(self._shards[index], jobs) for index, jobs in found.items()]


def by_topic(jobs: list[Entry]) -> dict[Topic, list[Entry]]:
    found: dict[Topic, list[Entry]] = {}
    for job in jobs:
        found.setdefault((job.namespace, job.topic), []).append(job)
    return found


def topics_of(jobs: list[NewJob]) -> set[Topic]:
    return {(job.namespace, job.topic) for job in jobs}


def _distinct(jobs: list[NewJob]) -> tuple[list[int], list[NewJob]]:
    """The jobs without those that repeat a key of the same batch, and where each is among them."""
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


def _entry(job: NewJob, id: int, now_ms: int) -> Entry:
    return Entry(
        id,
        job.namespace,
        job.topic,
        job.priority,
        max(job.deliver_after_ms, now_ms),
        now_ms,
        job.idempotency_key,
        job.fair_key,
        job.payload,
    )
