"""What the store asks of Redis: buffers, prefetched ids, keys, rates; each within a deadline.

While Redis is known to be down every call raises JobsUnavailableError at once; a probe brings it
back.
No command is ever sent twice: after an error nobody knows whether it was carried out, or how much
of a script, and the caller must think about both cases.
"""

import asyncio
import hashlib
import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import lru_cache
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

from redis.asyncio import BlockingConnectionPool, Redis
from redis.exceptions import NoScriptError, RedisError, ResponseError

from leveret.errors import JobsUnavailableError
from leveret.job_service.shards import entries
from leveret.job_service.shards.entries import Entry
from leveret.job_service.shards.redis import keys as redis_keys
from leveret.job_service.shards.redis.pipeline_connection import Line, head_of, packed
from leveret.job_service.shards.redis.scripts import load_script
from leveret.job_service.shards.settings import FLUSH_BYTES, FLUSH_READ, ShardsSettings

Answer = TypeVar("Answer")
Topic = tuple[str, str]  # namespace, topic

CONNECTIONS_MAX: Final = 32
_COUNT: Final[Topic] = ("", "")  # no topic is called so
_BUFFERS: Final = redis_keys.BUFFERS.encode()
NAMES_KEPT: Final = 4_096  # topics whose keys are kept at hand

log = logging.getLogger(__name__)


class Memory:
    """The Redis of the store."""

    def __init__(self, url: str, settings: ShardsSettings) -> None:
        self._settings = settings
        parts = urlsplit(url)
        self.name: Final = f"redis ({parts.hostname or 'local'}:{parts.port or 6379})"
        # `_ask` has the deadline. With `socket_timeout` the library loses cancellations on
        # Python 3.11.
        pool: Any = BlockingConnectionPool.from_url(
            url,
            max_connections=CONNECTIONS_MAX,
            timeout=settings.deadline_s,
            socket_connect_timeout=settings.deadline_s,
        )
        self._redis: Any = Redis.from_pool(pool)
        self.is_up = False
        self.on_up: Callable[[], Awaitable[None]] | None = None
        self._line = Line(pool, settings.deadline_s)
        self._push: Final = _Script(load_script("push"), 1)
        self._push_with_keys: Final = _Script(load_script("push_with_keys"), 2)
        self._pop: Final = _Script(load_script("pop_prefetched"), 2)
        self._trim: Any = self._redis.register_script(load_script("remove_flushed"))
        self._take_back: Any = self._redis.register_script(load_script("take_back_prefetched"))
        self._rate: Any = self._redis.register_script(load_script("count_rate"))
        self._renew: Any = self._redis.register_script(load_script("renew_node_number"))
        self._forget: Any = self._redis.register_script(load_script("forget_keys"))

    def require(self) -> None:
        if not self.is_up:
            raise JobsUnavailableError(f"{self.name} does not answer")

    async def _ask(self, question: Awaitable[Answer]) -> Answer:
        try:
            async with asyncio.timeout(self._settings.deadline_s):
                return await question
        except (RedisError, OSError, TimeoutError) as error:
            raise self._fault_of(error) from error

    def _fault_of(self, error: Exception) -> Exception:
        """What a caller is told, and the breaker learns."""
        if isinstance(error, ResponseError):  # out of memory, read-only, loading
            return JobsUnavailableError(f"{self.name} refuses: {error}")
        if isinstance(error, (RedisError, OSError, TimeoutError)):
            self._open_breaker(error)
            return JobsUnavailableError(f"{self.name} does not answer: {error}")
        return error

    def _open_breaker(self, error: BaseException) -> None:
        if self.is_up:
            log.warning("%s is down: %s", self.name, str(error) or type(error).__name__)
        self.is_up = False

    # ---- health

    async def probe(self) -> None:
        """Ask whether it is there; open or close the breaker by the answer."""
        try:
            await self._ask(self._redis.ping())
            if not self.is_up and self.on_up is not None:
                await self.on_up()
        except JobsUnavailableError as error:
            self._open_breaker(error)
            return
        if not self.is_up:
            log.info("%s is up", self.name)
        self.is_up = True

    async def watch(self) -> None:
        """Probe as long as the node lives."""
        while True:
            await asyncio.sleep(self._settings.probe_s)
            await self.probe()

    async def close(self) -> None:
        self.is_up = False
        await self._line.close()
        await self._redis.aclose()
        await self._redis.connection_pool.disconnect()

    # ---- putting in

    async def push(
        self, jobs: list[Entry], raw: list[bytes], now_ms: int, is_checked: bool
    ) -> list[bytes]:
        """Buffer a batch, or nothing of it; a word and what the keys stood for (push.lua).

        `raw` has the bytes of each job.
        """
        if any(job.idempotency_key is not None for job in jobs):
            return await self._push_keyed(jobs, raw, now_ms, is_checked)
        topics: dict[Topic, list[bytes]] = {}
        for job, data in zip(jobs, raw, strict=True):
            topics.setdefault((job.namespace, job.topic), []).append(data)
        words = [_BUFFERS, b"%d" % self._settings.buffer_max]
        for topic, some in topics.items():
            words += (*_place(topic), b"%d" % len(some), *some)
        return await self._run(self._push, words)

    async def _push_keyed(
        self, jobs: list[Entry], raw: list[bytes], now_ms: int, is_checked: bool
    ) -> list[bytes]:
        words = [_BUFFERS, redis_keys.KEYS_SINCE.encode()]
        words += (b"%d" % self._settings.buffer_max, b"%d" % now_ms, b"%d" % is_checked)
        for job, data in zip(jobs, raw, strict=True):
            key, kept_ms = "", 0
            if job.idempotency_key is not None:
                key = redis_keys.idempotency_key(job.namespace, job.idempotency_key)
                late_ms = max(job.deliver_after_ms - now_ms, 0)
                kept_ms = self._settings.keys_kept_ms + late_ms
            place = _place((job.namespace, job.topic))
            words += (*place, key.encode(), b"%d" % kept_ms, b"%d" % job.id, data)
        return await self._run(self._push_with_keys, words)

    async def _run(self, script: "_Script", words: Sequence[bytes]) -> list[bytes]:
        """Run a script on the line, and load it where Redis does not have it."""
        command = script.command(words)
        try:
            try:
                answer: list[bytes] = await self._line.ask(command)
            except NoScriptError:  # and so nothing was done
                await self._ask(self._redis.script_load(script.text))
                answer = await self._line.ask(command)
        except Exception as error:
            raise self._fault_of(error) from error
        return answer

    async def rate(self, namespace: str, jobs: int, most: int) -> int:
        """Count jobs against a rate; 0, or in how many ms to come back."""
        closed_ms: int = await self._ask(
            self._rate(keys=[redis_keys.rate_key(namespace)], args=[jobs, most])
        )
        return closed_ms

    # ---- idempotency keys

    async def keys_since(self, until_ms: int) -> None:
        """Note until when PostgreSQL may know keys that Redis does not, unless that is noted."""
        await self._ask(self._redis.set(redis_keys.KEYS_SINCE, until_ms, nx=True))

    async def keys_until(self, until_ms: int) -> None:
        """Note that PostgreSQL knows keys until a time that Redis has not seen."""
        await self._ask(self._redis.set(redis_keys.KEYS_SINCE, until_ms))

    async def remember(self, namespace: str, key: str, id: int) -> None:
        """Tell Redis of a key that PostgreSQL knows."""
        name, kept_ms = redis_keys.idempotency_key(namespace, key), self._settings.keys_kept_ms
        await self._ask(self._redis.set(name, id, nx=True, px=kept_ms))

    async def forget(self, keys: list[tuple[str, str, int]]) -> None:
        """Drop keys (namespace, key, id) that still stand for these ids."""
        if keys:
            names = [redis_keys.idempotency_key(namespace, key) for namespace, key, _ in keys]
            await self._ask(self._forget(keys=names, args=[id for _, _, id in keys]))

    # ---- flushing

    async def buffers(self) -> list[Topic]:
        """Topics that have jobs in a buffer."""
        members: set[bytes] = await self._ask(self._redis.smembers(redis_keys.BUFFERS))
        return [_topic(member) for member in members]

    async def buffered(self, topic: Topic) -> int:
        length: int = await self._ask(self._redis.llen(redis_keys.buffer_key(*topic)))
        return length

    async def read(self, topic: Topic, most: int) -> list[bytes]:
        """The first jobs of a buffer, as many as fit into one insert."""
        found: list[bytes] = []
        size = 0
        while len(found) < most and size < FLUSH_BYTES:
            end = min(len(found) + FLUSH_READ, most) - 1
            key = redis_keys.buffer_key(*topic)
            some: list[bytes] = await self._ask(self._redis.lrange(key, len(found), end))
            found += some
            size += sum(map(len, some))
            if len(some) < FLUSH_READ:
                break
        return found

    async def trim(self, topic: Topic, ids: list[int], priority: int | None) -> bool:
        """Take jobs that are in their table off the buffer.

        Whether something less urgent than `priority`, the most urgent of them that is ready, is
        prefetched.
        """
        shown = "" if priority is None else priority
        arguments = [_member(topic), shown, *(entries.encode_id(id) for id in ids)]
        keys = [redis_keys.buffer_key(*topic), redis_keys.BUFFERS, redis_keys.queue_key(*topic)]
        return bool(await self._ask(self._trim(keys=keys, args=arguments)))

    # ---- prefetched

    async def pop(self, topic: Topic, most: int) -> list[int] | None:
        """Prefetched ids; None while jobs wait in the topic's buffer."""
        words = (_place(topic)[0], redis_keys.queue_key(*topic).encode(), b"%d" % most)
        answer = await self._run(self._pop, words)
        return None if answer[0] == b"buffered" else [_id(shown) for shown in answer[1:]]

    async def prefetched(self, topic: Topic) -> int:
        length: int = await self._ask(self._redis.llen(redis_keys.queue_key(*topic)))
        return length

    async def add_prefetched(
        self, topic: Topic, jobs: list[tuple[int, int]], expires_ms: int
    ) -> None:
        """Append ids with their priorities, the most urgent first."""
        key = redis_keys.queue_key(*topic)

        async def work() -> None:
            async with self._redis.pipeline(transaction=True) as pipe:
                pipe.rpush(key, *(f"{id}:{priority}" for id, priority in jobs))
                pipe.pexpire(key, expires_ms)
                await pipe.execute()

        await self._ask(work())

    async def take_back(self, topic: Topic) -> list[int]:
        """All prefetched ids of a topic, off its list."""
        ids: list[bytes] = await self._ask(self._take_back(keys=[redis_keys.queue_key(*topic)]))
        return [_id(shown) for shown in ids]

    # ---- the shard map

    async def save_map(self, overrides: dict[Topic, int], count: int) -> None:
        """Keep a copy; the number of shards is under a topic without a name."""
        kept = {**overrides, _COUNT: count}

        async def work() -> None:
            async with self._redis.pipeline(transaction=True) as pipe:
                pipe.delete(redis_keys.SHARDS)
                pipe.hset(redis_keys.SHARDS, mapping={_member(t): s for t, s in kept.items()})
                await pipe.execute()

        await self._ask(work())

    async def saved_map(self) -> tuple[dict[Topic, int], int]:
        """The copy, and the number of shards; 0 where there is no copy."""
        found: dict[bytes, bytes] = await self._ask(self._redis.hgetall(redis_keys.SHARDS))
        kept = {_topic(member): int(shard) for member, shard in found.items()}
        count = kept.pop(_COUNT, 0)
        return kept, count

    # ---- numbers of nodes

    async def lease_node(self, number: int, owner: str, lease_ms: int) -> bool:
        key = redis_keys.node_key(number)
        return bool(await self._ask(self._redis.set(key, owner, nx=True, px=lease_ms)))

    async def renew_node(self, number: int, owner: str, lease_ms: int) -> bool:
        """Renew a lease, or end it with 0; False if it was not ours any more."""
        key = redis_keys.node_key(number)
        return bool(await self._ask(self._renew(keys=[key], args=[owner, lease_ms])))


class _Script:
    """A script that is run on the line."""

    def __init__(self, text: str, keys: int) -> None:
        self.text: Final = text
        digest = hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()
        self._head = packed((b"EVALSHA", digest.encode(), b"%d" % keys))

    def command(self, words: Sequence[bytes]) -> bytes:
        """With its keys, then its arguments."""
        return head_of(3 + len(words)) + self._head + packed(words)


@lru_cache(NAMES_KEPT)
def _place(topic: Topic) -> tuple[bytes, bytes]:
    """The buffer of a topic, and its member of the set of buffers."""
    return redis_keys.buffer_key(*topic).encode(), _member(topic)


def _member(topic: Topic) -> bytes:
    return "\0".join(topic).encode()


def _id(shown: bytes) -> int:
    return int(shown.partition(b":")[0])


def _topic(member: bytes) -> Topic:
    namespace, _, topic = member.decode().partition("\0")
    return namespace, topic
