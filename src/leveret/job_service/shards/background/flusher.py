"""Moves jobs from Redis to the tables. Each shard has a flusher: a slow shard delays no other.

A flusher works in rounds. A round reads the buffers of its topics, inserts the jobs in one
transaction with their flush marks, and only then removes them from the buffers. An insert can be
repeated, so any number of nodes may flush the same buffers, and any step may fail. A round begins

- at once when a caller asks for it (`flush`), or if the last round was long ago,
- else shortly after this node has buffered jobs (`signal`), so that one insert takes many jobs, or
  some time later while no node is known to need them soon (`is_quiet`),
- regularly, for jobs that other nodes have left behind.
"""

import asyncio
import logging
from collections.abc import Callable

from leveret.errors import CorruptionError, JobsUnavailableError
from leveret.job_model import PRIORITY_DEFAULT, PRIORITY_MAX
from leveret.job_service.shards.background.prefetcher import Prefetcher
from leveret.job_service.shards.buffered_job import BufferedJob, decode_job
from leveret.job_service.shards.countdown import Deadline
from leveret.job_service.shards.ready_signals import ReadySignals
from leveret.job_service.shards.redis.redis_client import RedisClient
from leveret.job_service.shards.routing import ShardMap
from leveret.job_service.shards.shard import Shard, TopicStoppedError
from leveret.job_service.shards.tables import Tables
from leveret.job_service.shards.topic_name import TopicName
from leveret.job_service.shards.wal import Wal

log = logging.getLogger(__name__)


class Flusher:
    """Flushes the buffers of one shard's topics to its table."""

    def __init__(
        self,
        shard: Shard,
        redis: RedisClient,
        routes: ShardMap,
        tables: Tables,
        wal: Wal,
        signals: ReadySignals,
        prefetcher: Prefetcher,
    ) -> None:
        self.shard = shard
        self._redis = redis
        self._routes = routes
        self._tables = tables
        self._wal = wal
        self._signals = signals
        self._prefetcher = prefetcher
        # Topics of the next round, each with a future if a caller waits for it.
        self._asked: dict[TopicName, asyncio.Future[None] | None] = {}
        self._in_round: set[TopicName] = set()  # topics of the current round
        # Topics of the current round that are being moved, or are on another shard now.
        self._stopped: dict[TopicName, TopicStoppedError] = {}
        # The most urgent priority that this node has buffered, for the next and the current round.
        self._urgent: dict[TopicName, int] = {}
        self._urgent_in_round: dict[TopicName, int] = {}
        self._began_s = 0.0  # when the last round began, by the clock of the event loop
        self._wake = asyncio.Event()
        self._hurry = asyncio.Event()  # a caller waits for the next round
        self._is_needed = asyncio.Event()  # some node may need a job of the next round soon
        # Called for topics that have moved to another shard.
        self.on_moved: Callable[[TopicName], None] = _not_set

    def signal(
        self, topic: TopicName, priority: int = PRIORITY_MAX, *, is_quiet: bool = False
    ) -> None:
        """Plan a flush of a topic that has new jobs in its buffer.

        `priority` is that of the most urgent one. `is_quiet`: no other node is known to need them
        soon. Jobs that are more urgent than usual do not wait longer: other nodes hand out less
        urgent ones meanwhile.
        """
        self._asked.setdefault(topic, None)
        self._urgent[topic] = min(priority, self._urgent.get(topic, PRIORITY_MAX))
        self._wake.set()
        if not is_quiet or priority < PRIORITY_DEFAULT:
            self._is_needed.set()
        if self._signals.is_awaited(topic):
            self._hurry_up()

    def is_behind(self, topic: TopicName) -> bool:
        """Return whether this node has buffered jobs of a topic that are not flushed yet."""
        return topic in self._asked or topic in self._in_round

    def priority_behind(self, topic: TopicName) -> int:
        """Return the most urgent priority of the jobs that this node has buffered."""
        behind = self._urgent.get(topic, PRIORITY_MAX)
        return min(behind, self._urgent_in_round.get(topic, PRIORITY_MAX))

    async def flush(self, topic: TopicName) -> None:
        """Return when the jobs that are in the buffer of a topic now are in its table."""
        asked = self._asked.get(topic)
        if asked is None:
            asked = self._asked[topic] = asyncio.get_running_loop().create_future()
        self._wake.set()
        self._hurry_up()
        async with Deadline(self._tables.settings.deadline_s):
            await asyncio.shield(asked)

    def _hurry_up(self) -> None:
        self._hurry.set()
        self._is_needed.set()

    async def run(self) -> None:
        """Flush until cancelled."""
        interval_s = self._tables.settings.flush_interval_ms / 1000
        while True:
            try:
                async with asyncio.timeout(interval_s):
                    await self._wake.wait()
            except TimeoutError:
                await self._find_buffered()
            else:
                await self._wait_for_more()
            self._wake.clear()
            self._hurry.clear()
            self._is_needed.clear()
            await self._round()

    async def _wait_for_more(self) -> None:
        """Wait for more jobs, unless the last round was long ago or a caller waits."""
        await self._wait_for(self._hurry, self._tables.settings.flush_delay_ms)
        await self._wait_for(self._is_needed, self._tables.settings.flush_rest_ms)

    async def _wait_for(self, event: asyncio.Event, delay_ms: int) -> None:
        """Wait for an event until some time after the last round began."""
        try:
            async with asyncio.timeout_at(self._began_s + delay_ms / 1000):
                await event.wait()
        except TimeoutError:
            pass

    async def _find_buffered(self) -> None:
        """Plan a flush of the topics that other nodes have buffered."""
        if not (self._redis.is_up and self.shard.is_up and self._routes.is_loaded):
            return
        try:
            for topic in await self._redis.buffers():
                if self._routes.is_on(topic, self.shard):
                    self._asked.setdefault(topic, None)
        except JobsUnavailableError as error:
            log.info("the buffers cannot be listed: %s", error)

    async def _round(self) -> None:
        asked, self._asked = self._asked, {}
        self._in_round = set(asked)
        self._stopped = {}
        self._urgent_in_round, self._urgent = self._urgent, {}
        self._began_s = asyncio.get_running_loop().time()
        todo = list(asked)
        fault: Exception | None = None
        while todo and fault is None:
            try:
                todo = await self._flush_some(todo)
                if todo:
                    self._tables.behind.add(self.shard.index)
            except JobsUnavailableError as error:
                fault = error
            except Exception as error:
                log.exception("jobs could not be flushed to %s", self.shard.name)
                fault = error
        self._tables.behind.discard(self.shard.index)
        self._in_round.clear()
        self._urgent_in_round.clear()
        for topic, waiting in asked.items():
            if waiting is not None and not waiting.done():
                _answer(waiting, self._stopped.get(topic, fault))

    async def _flush_some(self, topics: list[TopicName]) -> list[TopicName]:
        """Insert one batch; return the topics that may have more jobs."""
        limit = self._tables.insert_limit(self.shard)
        taken: dict[TopicName, list[BufferedJob]] = {}
        left: list[TopicName] = []
        count = size = 0
        for number, topic in enumerate(topics):
            if count >= limit.jobs or size >= limit.bytes:
                left += topics[number:]
                break
            raw = await self._redis.read(topic, limit.jobs - count, limit.bytes - size)
            if not raw:
                continue
            if jobs := _decoded(raw):
                taken[topic] = jobs
            count += len(raw)
            size += sum(map(len, raw))
            has_more = count >= limit.jobs or size >= limit.bytes
            if has_more and len(jobs) == len(raw):  # else the next job blocks the topic
                left.append(topic)
        if taken:
            await self._insert(taken)
        return [topic for topic in left if topic not in self._stopped]

    async def _insert(self, taken: dict[TopicName, list[BufferedJob]]) -> None:
        try:
            await self._tables.put(self.shard, [job for jobs in taken.values() for job in jobs])
        except TopicStoppedError as error:
            if len(taken) == 1:
                await self._on_stopped(next(iter(taken)), error)
                return
            for topic, jobs in taken.items():  # insert the topics that are not being moved
                await self._insert({topic: jobs})
            return
        now_ms = self._tables.clock.now_ms()
        for topic, jobs in taken.items():
            ids = [job.id for job in jobs]
            due = [job.priority for job in jobs if job.deliver_after_ms <= now_ms]
            self._wal.settle(ids)
            self._prefetcher.note_inserted(topic, len(due))
            self._signals.notify(topic)
            if await self._redis.trim(topic, ids, min(due, default=None)):
                await self._prefetcher.try_to_take_back(topic)

    async def _on_stopped(self, topic: TopicName, error: TopicStoppedError) -> None:
        log.info("the topic %s of %s is being moved", topic[1], topic[0])
        self._stopped[topic] = error
        try:
            await self._routes.refresh()
        except JobsUnavailableError as fault:  # the first shard has the map
            log.info("the shard of the topic %s is not known: %s", topic[1], fault)
            return
        if self._routes.shard_of(topic) is not self.shard:
            self.on_moved(topic)


def _not_set(topic: TopicName) -> None:
    raise AssertionError("the store has not set `on_moved`")


def _answer(waiting: asyncio.Future[None], fault: Exception | None) -> None:
    if fault is None:
        waiting.set_result(None)
    else:
        waiting.set_exception(fault)
        waiting.exception()  # retrieved, so that asyncio does not log it


def _decoded(raw: list[bytes]) -> list[BufferedJob]:
    """Return the jobs up to the first that cannot be decoded, which blocks its topic."""
    found = []
    for data in raw:
        try:
            found.append(decode_job(data))
        except CorruptionError as error:
            text = "a buffer in Redis holds bytes that are not a job, so its topic waits: %s"
            log.error("%s: remove them from Redis", text % error)
            break
    return found
