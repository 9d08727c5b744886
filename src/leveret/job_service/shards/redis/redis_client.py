"""The calls of the store to Redis, each within a deadline.

Redis holds buffers of jobs, prefetched jobs, idempotency keys, rates, a copy of the shard map and
the leases of node numbers. While Redis is known to be down, every call raises JobsUnavailableError
at once; a probe finds out when it is back.

No command is ever sent twice. After an error it is not known whether the command was carried out,
or how much of a script, and the caller must handle both cases.
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

from leveret.errors import ConfigError, JobsUnavailableError, system_reason
from leveret.job_model import WAIT_MS_MAX
from leveret.job_service.shards import keepalive
from leveret.job_service.shards.addresses import CLUSTER, SENTINEL
from leveret.job_service.shards.buffered_job import BufferedJob, encode_id
from leveret.job_service.shards.countdown import Deadline
from leveret.job_service.shards.redis import keys as redis_keys
from leveret.job_service.shards.redis.pipelined_connection import (
    PING,
    PipelinedConnection,
    encode_array_head,
    encode_words,
)
from leveret.job_service.shards.redis.prefetch_keys import (
    NAMES_KEPT,
    acked_name,
    awaited_name,
    member_of,
    prefetch_names,
    topic_of,
)
from leveret.job_service.shards.redis.scripts import load_script
from leveret.job_service.shards.server_health import NO_ANSWER, ServerHealth, Time
from leveret.job_service.shards.settings import FLUSH_READ, ShardsSettings
from leveret.job_service.shards.topic_name import TopicName

Answer = TypeVar("Answer")

CONNECTIONS_MAX: Final = 32
_COUNT: Final[TopicName] = ("", "")  # the key of the number of shards: no topic has an empty name
_BUFFERS: Final = redis_keys.BUFFERS.encode()
PROBE_KEPT_MS: Final = 60_000

log = logging.getLogger(__name__)


class RedisClient:
    """The Redis server of the store."""

    def __init__(self, url: str, settings: ShardsSettings, clock: Time) -> None:
        self._settings = settings
        self._buffer_max: Final = b"%d" % settings.buffer_max
        self._clock = clock
        parts = urlsplit(url)
        address = f"{parts.hostname or 'local'}:{parts.port or 6379}"
        # `_ask` limits the time. With `socket_timeout` the library loses cancellations on
        # Python 3.11.
        try:
            pool: Any = BlockingConnectionPool.from_url(
                url,
                max_connections=CONNECTIONS_MAX,
                timeout=settings.deadline_s,
                socket_connect_timeout=settings.deadline_s,
                **_socket_options(parts.scheme),
            )
            pool.make_connection()  # checks the options
        except (TypeError, ValueError, RedisError) as error:
            raise ConfigError(
                f"jobs_redis: the options after ? in the address cannot be used: {error}"
            ) from error
        self._redis: Any = Redis.from_pool(pool)
        self.health: Final = ServerHealth(
            "redis", address, is_skew_measured=not settings.is_time_given
        )
        self.name: Final = self.health.name
        self.on_up: Callable[[], Awaitable[None]] | None = None
        self._pipelined = PipelinedConnection(pool, settings.deadline_s)
        # Large answers and long scripts, which no enqueue shall wait for.
        self._background = PipelinedConnection(pool, settings.deadline_s)
        self._push: Final = self._script("push", 1)
        self._push_lone: Final = self._script("push_lone", 4)
        self._lone_head: Final = lru_cache(NAMES_KEPT)(self._make_lone_head)
        self._push_with_keys: Final = self._script("push_with_keys", 2)
        self._count_waiting: Final = self._script("count_waiting", 5)
        self._read_buffer: Final = self._script("read_buffer", 1)
        self._trim: Final = self._script("remove_flushed", 3)
        self._rate: Any = self._redis.register_script(load_script("count_rate"))
        self._renew: Any = self._redis.register_script(load_script("renew_node_number"))
        self._forget: Any = self._redis.register_script(load_script("forget_keys"))

    def _script(self, name: str, keys: int) -> "_Script":
        return _Script(load_script(name), keys)

    @property
    def is_up(self) -> bool:
        return self.health.is_up

    def require(self) -> None:
        self.health.require()

    async def _ask(self, question: Awaitable[Answer]) -> Answer:
        try:
            async with Deadline(self._settings.deadline_s):
                return await question
        except (RedisError, OSError, TimeoutError) as error:
            raise self._error_of(error) from error

    def _error_of(self, error: Exception) -> Exception:
        """Return the error for the caller; open the breaker where Redis does not answer."""
        if isinstance(error, ResponseError):  # out of memory, read-only, loading
            return self.health.error("refuses", _refusal(error))
        if isinstance(error, (RedisError, OSError, TimeoutError)):
            cause = _cause(error)
            self.health.on_down(cause)
            return self.health.error(NO_ANSWER, cause)
        return error

    async def probe(self) -> None:
        """Ask Redis for its time, and write a key; open or close the breaker by the result."""
        asked_ms = self._clock.now_ms()
        try:
            async with Deadline(self._settings.deadline_s):
                if not self.is_up:
                    await self._require_single()  # first: a Sentinel does not tell the time
                seconds, microseconds = await self._redis.time()
                server_ms = seconds * 1000 + microseconds // 1000
                self.health.note_time(asked_ms, self._clock.now_ms(), server_ms)
                await self._try_to_write()
                if not self.is_up and self.on_up is not None:
                    await self.on_up()
        except (RedisError, OSError, TimeoutError, JobsUnavailableError) as error:
            self.health.on_down(_cause(error))
            return
        self.health.on_up()

    async def _try_to_write(self) -> None:
        """Note if Redis refuses changes: it is full, cannot save to its disk, or is a replica."""
        refusal = ""
        try:
            await self._redis.set(redis_keys.PROBE, b"", px=PROBE_KEPT_MS)
        except ResponseError as error:
            refusal = _refusal(error)
        self.health.note_write_refusal(refusal)

    async def _require_single(self) -> None:
        """Raise if the server is a Sentinel, or part of a Cluster: scripts touch several slots."""
        try:
            facts: dict[str, object] = await self._redis.info("server")
        except ResponseError:  # this user of Redis may not call INFO
            return
        mode = facts.get("redis_mode", "standalone")
        if mode != "standalone":
            raise JobsUnavailableError(SENTINEL if mode == "sentinel" else CLUSTER)

    async def watch(self) -> None:
        """Probe until cancelled."""
        while True:
            await asyncio.sleep(self._settings.probe_s)
            await self.probe()

    async def close(self) -> None:
        self.health.is_up = False
        await self._pipelined.close()
        await self._background.close()
        await self._redis.aclose()
        await self._redis.connection_pool.disconnect()

    async def push(
        self,
        jobs: list[BufferedJob],
        raw: list[bytes],
        now_ms: int,
        is_checked: bool,
        begun: "asyncio.Future[Any] | None" = None,
    ) -> list[bytes]:
        """Buffer a batch, or nothing of it. Return the answer of push.lua or push_with_keys.lua.

        `raw` has the bytes of each job. `is_checked`: PostgreSQL was asked for the keys. `begun`:
        `begin_push` has sent the command for the only job.
        """
        if begun is not None and _is_due(jobs[0]):
            words = [*self._lone_words((jobs[0].namespace, jobs[0].topic)), raw[0]]
            answer = await self._run(self._push_lone, words, begun=begun)
            return answer[:1] if answer[0] == b"ok" else answer
        if any(job.idempotency_key is not None for job in jobs):
            return await self._push_keyed(jobs, raw, now_ms, is_checked)
        topics: dict[TopicName, list[bytes]] = {}
        for job, data in zip(jobs, raw, strict=True):
            topics.setdefault((job.namespace, job.topic), []).append(data)
        words = [_BUFFERS, self._buffer_max]
        for topic, some in topics.items():
            words += (*_buffer_names(topic), b"%d" % len(some), *some)
        return await self._run(self._push, words, begun=begun)

    def begin_push(self, job: BufferedJob, raw: bytes) -> "asyncio.Future[Any]":
        """Send the command that buffers one job without a key. `push` handles its failure.

        The answer is that of push_lone.lua for a job that is due, else that of push.lua.
        """
        topic = (job.namespace, job.topic)
        if _is_due(job):
            command = self._lone_head(topic) + encode_words((raw,))
        else:
            words = (_BUFFERS, self._buffer_max, *_buffer_names(topic), b"1", raw)
            command = self._push.command(words)
        return self._pipelined.begin(command)

    def _lone_words(self, topic: TopicName) -> tuple[bytes, ...]:
        """Return the words of a call of push_lone.lua before the job."""
        buffer, member = _buffer_names(topic)
        listed = prefetch_names(topic)[0]
        return _BUFFERS, buffer, awaited_name(topic), listed, self._buffer_max, member

    def _make_lone_head(self, topic: TopicName) -> bytes:
        return self._push_lone.command(self._lone_words(topic), more=1)

    async def _push_keyed(
        self, jobs: list[BufferedJob], raw: list[bytes], now_ms: int, is_checked: bool
    ) -> list[bytes]:
        words = [_BUFFERS, redis_keys.KEYS_SINCE.encode()]
        words += (self._buffer_max, b"%d" % now_ms, b"%d" % is_checked)
        for job, data in zip(jobs, raw, strict=True):
            key, kept_ms = "", 0
            if job.idempotency_key is not None:
                key = redis_keys.idempotency_key(job.namespace, job.idempotency_key)
                late_ms = max(job.deliver_after_ms - now_ms, 0)
                kept_ms = self._settings.keys_kept_ms + late_ms
            names = _buffer_names((job.namespace, job.topic))
            words += (*names, key.encode(), b"%d" % kept_ms, b"%d" % job.id, data)
        return await self._run(self._push_with_keys, words)

    async def _run(
        self,
        script: "_Script",
        words: Sequence[bytes],
        run: bytes = b"",
        begun: "asyncio.Future[Any] | None" = None,
    ) -> list[bytes]:
        """Run a script on the pipelined connection; load it where Redis does not have it."""
        answer: list[bytes] = await self._run_on(self._pipelined, script, words, run, begun)
        return answer

    async def _run_on(
        self,
        line: PipelinedConnection,
        script: "_Script",
        words: Sequence[bytes],
        run: bytes = b"",
        begun: "asyncio.Future[Any] | None" = None,
    ) -> Any:
        command = script.command(words)
        try:
            try:
                return await (line.ask(command, run) if begun is None else begun)
            except NoScriptError:  # nothing was done
                await self._ask(self._redis.script_load(script.text))
                return await line.ask(command, run)
        except Exception as error:
            raise self._error_of(error) from error

    async def rate(self, namespace: str, jobs: int, most: int) -> int:
        """Count jobs against a limit; return 0, or in how many ms to try again."""
        closed_ms: int = await self._ask(
            self._rate(keys=[redis_keys.rate_key(namespace)], args=[jobs, most])
        )
        return closed_ms

    async def keys_since(self, until_ms: int) -> None:
        """Record until when PostgreSQL may know keys that Redis does not; keep a recorded time."""
        await self._ask(self._redis.set(redis_keys.KEYS_SINCE, until_ms, nx=True))

    async def keys_until(self, until_ms: int) -> None:
        """Record that PostgreSQL knows keys until a time that Redis does not know."""
        await self._ask(self._redis.set(redis_keys.KEYS_SINCE, until_ms))

    async def remember(self, namespace: str, key: str, id: int) -> None:
        """Copy a key that PostgreSQL knows to Redis."""
        name, kept_ms = redis_keys.idempotency_key(namespace, key), self._settings.keys_kept_ms
        await self._ask(self._redis.set(name, id, nx=True, px=kept_ms))

    async def forget(self, keys: list[tuple[str, str, int]]) -> None:
        """Delete keys (namespace, key, id) that still stand for these ids."""
        if keys:
            names = [redis_keys.idempotency_key(namespace, key) for namespace, key, _ in keys]
            await self._ask(self._forget(keys=names, args=[id for _, _, id in keys]))

    async def buffers(self) -> list[TopicName]:
        """Return the topics that have jobs in a buffer."""
        members: set[bytes] = await self._ask(self._redis.smembers(redis_keys.BUFFERS))
        return [topic_of(member) for member in members]

    async def read(self, topic: TopicName, most: int, bytes_max: int) -> list[bytes]:
        """Return the first jobs of a buffer, until there are `most` or they have `bytes_max`."""
        found: list[bytes] = []
        size = 0
        while len(found) < most and size < bytes_max:
            numbers = len(found), min(FLUSH_READ, most - len(found)), bytes_max - size
            words = [_buffer_names(topic)[0], *(b"%d" % number for number in numbers)]
            some = await self._run_on(self._background, self._read_buffer, words)
            if not some:
                break
            found += some
            size += sum(map(len, some))
        return found

    async def trim(self, topic: TopicName, ids: list[int], priority: int | None) -> bool:
        """Remove jobs that are in their table from the buffer.

        `priority` is that of the most urgent removed job that is ready. Return whether a less
        urgent job is prefetched.
        """
        buffer, member = _buffer_names(topic)
        shown = b"" if priority is None else b"%d" % priority
        words = [buffer, _BUFFERS, prefetch_names(topic)[0], member, shown]
        words.append(b"".join([encode_id(id) for id in ids]))
        return bool(await self._run_on(self._background, self._trim, words))

    @property
    def run(self) -> bytes:
        """Return the run of Redis that the last command has reached; empty if it is not known."""
        return self._pipelined.run

    async def find_run(self) -> bytes:
        """Return the run of Redis; ask for it if no command was sent yet."""
        if not self.run:
            try:
                await self._pipelined.ask(PING)
            except Exception as error:
                raise self._error_of(error) from error
        return self.run

    async def waiting(self, topic: TopicName, is_awaited: bool = False) -> tuple[int, int, int]:
        """Return the lengths of a topic's buffer and of its list, and the number of its notes.

        `is_awaited`: where no job is listed, ask the node that lists the next one to notify all
        nodes.
        """
        names, (listed, handed, _) = _buffer_names(topic), prefetch_names(topic)
        mark_ms = b"%d" % WAIT_MS_MAX if is_awaited else b""
        words = (names[0], listed, handed, acked_name(topic), awaited_name(topic), mark_ms)
        answer: list[Any] = list(await self._run(self._count_waiting, words))
        return answer[0], answer[1], answer[2] + answer[3]

    async def save_map(self, overrides: dict[TopicName, int], count: int) -> None:
        """Save a copy of the shard map; the number of shards is under the empty topic name."""
        kept = {**overrides, _COUNT: count}

        async def work() -> None:
            async with self._redis.pipeline(transaction=True) as pipe:
                pipe.delete(redis_keys.SHARDS)
                pipe.hset(redis_keys.SHARDS, mapping={member_of(t): s for t, s in kept.items()})
                await pipe.execute()

        await self._ask(work())

    async def saved_map(self) -> tuple[dict[TopicName, int], int]:
        """Return the copy of the shard map and the number of shards; 0 where there is no copy."""
        found: dict[bytes, bytes] = await self._ask(self._redis.hgetall(redis_keys.SHARDS))
        kept = {topic_of(member): int(shard) for member, shard in found.items()}
        count = kept.pop(_COUNT, 0)
        return kept, count

    async def lease_node_number(self, number: int, owner: str, lease_ms: int) -> bool:
        key = redis_keys.node_key(number)
        return bool(await self._ask(self._redis.set(key, owner, nx=True, px=lease_ms)))

    async def renew_node_number(self, number: int, owner: str, lease_ms: int) -> bool:
        """Renew the lease of a node number, or end it with 0; False where it was not ours."""
        key = redis_keys.node_key(number)
        return bool(await self._ask(self._renew(keys=[key], args=[owner, lease_ms])))


def _socket_options(scheme: str) -> dict[str, object]:
    if scheme == "unix":
        return {}
    return {"socket_keepalive": True, "socket_keepalive_options": keepalive.TCP_OPTIONS}


def _refusal(error: ResponseError) -> str:
    """Return the reason that Redis gives, without the place in a script."""
    return str(error).partition(" script: ")[0]


def _cause(error: Exception) -> str:
    if isinstance(error, TimeoutError) and not str(error):
        return "no answer within the deadline"
    fault = error.__cause__ or error.__context__
    if isinstance(error, RedisError) and isinstance(fault, OSError):
        return system_reason(fault)  # the library quotes the numbers of the system
    return system_reason(error)


class _Script:
    """A script for the pipelined connection."""

    def __init__(self, text: str, keys: int) -> None:
        self.text: Final = text
        digest = hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()
        self._head = encode_words((b"EVALSHA", digest.encode(), b"%d" % keys))

    def command(self, words: Sequence[bytes], more: int = 0) -> bytes:
        """Return the bytes of a call; `words` are the keys, then the arguments.

        `more`: so many further words will follow.
        """
        return encode_array_head(3 + len(words) + more) + self._head + encode_words(words)


def _is_due(job: BufferedJob) -> bool:
    """Return whether a job was due when it was enqueued."""
    return job.deliver_after_ms == job.created_ms


@lru_cache(NAMES_KEPT)
def _buffer_names(topic: TopicName) -> tuple[bytes, bytes]:
    """Return the key of a topic's buffer, and its member of the set of buffers."""
    return redis_keys.buffer_key(*topic).encode(), member_of(topic)
