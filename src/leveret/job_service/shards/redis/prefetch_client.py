"""The calls to Redis for prefetched jobs: their lists, leases, and notes of what became of them."""

import asyncio
from collections.abc import Callable
from typing import Any, Final

from redis.exceptions import NoScriptError

from leveret.job_service.shards.prefetched_job import NOTHING_POPPED, Popped, PopRequest
from leveret.job_service.shards.redis import keys as redis_keys
from leveret.job_service.shards.redis.prefetch_keys import (
    acked_name,
    awaited_name,
    lease_names,
    member_of,
    prefetch_names,
    topic_of,
)
from leveret.job_service.shards.redis.redis_client import RedisClient
from leveret.job_service.shards.redis.scripts import load_script
from leveret.job_service.shards.server_health import Time
from leveret.job_service.shards.settings import ShardsSettings
from leveret.job_service.shards.sql.loader import PREFETCH_LEASE_MS_MAX
from leveret.job_service.shards.topic_name import TopicName

NOTES_MAX: Final = 1_000  # of each kind that are written to a shard at a time
LEASES_MAX: Final = 100_000  # of a topic that Redis keeps in a minute; other acks ask the shard
LEASES_KEPT_MS: Final = 2 * PREFETCH_LEASE_MS_MAX
_QUEUES: Final = redis_keys.QUEUES.encode()
_ACKS: Final = redis_keys.ACKS.encode()


class PrefetchClient(RedisClient):
    """The Redis server of the store, which also has its prefetched jobs."""

    def __init__(self, url: str, settings: ShardsSettings, clock: Time) -> None:
        super().__init__(url, settings, clock)
        self._pop: Final = self._script("pop_prefetched", 6)
        self._drop_leases: Final = self._script("drop_leases", 2)
        self._list: Final = self._script("list_prefetched", 3)
        self._take_back: Final = self._script("take_back_prefetched", 1)
        self._remove_noted: Any = self._redis.register_script(load_script("remove_noted"))

    async def pop(self, request: PopRequest) -> Popped:
        """Ack jobs, or take prefetched ones, or both."""
        return _popped_of(await self._run(self._pop, _pop_words(request), request.run))

    def begin_pop(self, request: PopRequest, on_end: Callable[[Popped | Exception], None]) -> None:
        """Begin `pop` without a task; call `on_end` with its result or error."""

        def on_answer(answer: "asyncio.Future[Any]") -> None:
            fault = answer.exception()
            if fault is None:
                on_end(_popped_of(answer.result()))
            elif isinstance(fault, NoScriptError):  # `pop` loads it
                on_end(NOTHING_POPPED)
            else:
                assert isinstance(fault, Exception)
                on_end(self._error_of(fault))

        command = self._pop.command(_pop_words(request))
        self._pipelined.begin(command, request.run).add_done_callback(on_answer)

    async def drop_leases(self, topic: TopicName, now_ms: int, ids: list[int]) -> bytes:
        """Forget leases of prefetched jobs; return the answer of drop_leases.lua."""
        words = (*lease_names(topic, now_ms), *(b"%d" % id for id in ids))
        outcomes: bytes = await self._run_on(self._pipelined, self._drop_leases, words)
        return outcomes

    async def list_prefetched(
        self, topic: TopicName, jobs: list[bytes], priority: int, run: bytes
    ) -> tuple[bool, list[bytes]]:
        """Append prefetched jobs. `priority` is that of the first job.

        Return whether a dequeue may wait for them, and less urgent jobs that are off the list now.
        """
        names = prefetch_names(topic)
        words = (names[0], _QUEUES, awaited_name(topic), names[2], b"%d" % priority, *jobs)
        answer: list[Any] = list(await self._run(self._list, words, run))
        return bool(answer[0]), answer[1:]

    async def take_back(self, topic: TopicName) -> list[bytes]:
        """Take all prefetched jobs of a topic off its list."""
        return await self._run(self._take_back, prefetch_names(topic)[:1], self.run)

    async def prefetched_topics(self) -> list[TopicName]:
        """Return the topics that have prefetched jobs or notes."""
        members: set[bytes] = await self._ask(
            self._redis.sunion(redis_keys.QUEUES, redis_keys.ACKS)
        )
        return [topic_of(member) for member in members]

    async def first_prefetched(self, topic: TopicName) -> bytes | None:
        key = redis_keys.queue_key(*topic)
        entry: bytes | None = await self._ask(self._redis.lindex(key, 0))
        return entry

    async def notes(self, topic: TopicName) -> tuple[list[bytes], list[bytes]]:
        """Return the first notes of prefetched jobs that were handed out, and that were acked."""

        async def work() -> tuple[list[bytes], list[bytes]]:
            async with self._redis.pipeline(transaction=False) as pipe:
                pipe.lrange(redis_keys.handed_key(*topic), 0, NOTES_MAX - 1)
                pipe.lrange(redis_keys.acked_key(*topic), 0, NOTES_MAX - 1)
                handed, acked = await pipe.execute()
                return handed, acked

        return await self._ask(work())

    async def note_acks(self, topic: TopicName, notes: list[bytes]) -> None:
        """Add notes of prefetched jobs that were acked."""

        async def work() -> None:
            async with self._redis.pipeline(transaction=True) as pipe:
                pipe.rpush(acked_name(topic), *notes)
                pipe.sadd(redis_keys.ACKS, member_of(topic))
                await pipe.execute()

        await self._ask(work())

    async def missing_acks(self, topic: TopicName, notes: list[bytes]) -> list[bytes]:
        """Return those of some notes of acks that Redis does not have."""
        missing = dict.fromkeys(notes)
        name, start = acked_name(topic), 0
        while missing:
            end = start + NOTES_MAX
            found: list[bytes] = await self._ask(self._redis.lrange(name, start, end - 1))
            for note in found:
                missing.pop(note, None)
            if len(found) < NOTES_MAX:
                break
            start = end
        return list(missing)

    async def remove_noted(
        self, topic: TopicName, now_ms: int, handed: list[bytes], acked: list[bytes]
    ) -> None:
        """Remove notes that the shard has; forget the topic if nothing else is left of it."""
        listed, handed_to, member = prefetch_names(topic)
        keys = [handed_to, listed, _QUEUES, acked_name(topic), _ACKS, *lease_names(topic, now_ms)]
        words = [member, len(handed), *handed, *acked]
        await self._ask(self._remove_noted(keys=keys, args=words))


def _pop_words(request: PopRequest) -> tuple[bytes, ...]:
    listed, handed, member = prefetch_names(request.topic)
    acks = request.acks
    return (
        listed,
        handed,
        *lease_names(request.topic, request.now_ms),
        acked_name(request.topic),
        _ACKS,
        b"%d" % request.limit,
        b"%d" % request.now_ms,
        b"" if request.lease_ms is None else b"%d" % request.lease_ms,
        b"%d" % request.least_urgent,
        request.run,
        b"%d" % request.shard,
        member,
        b"%d" % (0 if acks is None else acks.left_ms),
        b"%d" % LEASES_MAX,
        b"%d" % LEASES_KEPT_MS,
        *(() if acks is None else acks.notes),
    )


def _popped_of(answer: list[Any]) -> Popped:
    ended, left, outcomes, *entries = answer
    return Popped(ended, left, outcomes, entries)
