"""From Redis to the tables: one flusher for each shard, so that a slow one holds up no other.

A flusher works in rounds: read what waits in the buffers of its topics, insert it in one
transaction with the flush marks, and only then take it off the buffers. Inserts can be repeated, so
any number of nodes may flush the same buffers, and any step may fail. A round begins when somebody
asks (`flush`), a moment after this node has buffered something (`signal`), so that one insert takes
many jobs, and by the clock, for what other nodes left behind.
"""

import asyncio
import logging
from collections.abc import Callable

from leveret.errors import CorruptionError, JobsUnavailableError
from leveret.job_service.shards import entries
from leveret.job_service.shards.bells import Bells
from leveret.job_service.shards.entries import Entry
from leveret.job_service.shards.memory import Memory, Topic
from leveret.job_service.shards.routing import ShardMap
from leveret.job_service.shards.settings import FLUSH_BYTES
from leveret.job_service.shards.shard import Shard, TopicStoppedError
from leveret.job_service.shards.tables import Tables
from leveret.job_service.shards.wal import Wal

log = logging.getLogger(__name__)


class Flusher:
    """Brings the buffers of one shard's topics to its table."""

    def __init__(
        self, shard: Shard, memory: Memory, routes: ShardMap, tables: Tables, wal: Wal, bells: Bells
    ) -> None:
        self.shard = shard
        self._memory = memory
        self._routes = routes
        self._tables = tables
        self._wal = wal
        self._bells = bells
        self._asked: dict[Topic, asyncio.Future[None] | None] = {}  # for the next round
        self._wake = asyncio.Event()
        self._hurry = asyncio.Event()  # somebody waits for the next round
        self.elsewhere: Callable[[Topic], None] = _nowhere  # takes topics that have moved

    def signal(self, topic: Topic) -> None:
        """Something was buffered."""
        self._asked.setdefault(topic, None)
        self._wake.set()
        if self._bells.is_awaited(topic):
            self._hurry.set()

    async def flush(self, topic: Topic) -> None:
        """Return when what the buffer of a topic has now is in its table."""
        asked = self._asked.get(topic)
        if asked is None:
            asked = self._asked[topic] = asyncio.get_running_loop().create_future()
        self._wake.set()
        self._hurry.set()
        async with asyncio.timeout(self._tables.settings.deadline_s):
            await asyncio.shield(asked)

    async def run(self) -> None:
        """Flush as long as the node lives."""
        interval_s = self._tables.settings.flush_interval_ms / 1000
        while True:
            try:
                async with asyncio.timeout(interval_s):
                    await self._wake.wait()
            except TimeoutError:
                await self._look_around()
            else:
                await self._gather()
            self._wake.clear()
            self._hurry.clear()
            await self._round()

    async def _gather(self) -> None:
        """Let more jobs come, unless somebody waits for those that are there."""
        try:
            async with asyncio.timeout(self._tables.settings.flush_delay_ms / 1000):
                await self._hurry.wait()
        except TimeoutError:
            pass

    async def _look_around(self) -> None:
        """Ask for the topics that others have buffered."""
        if not (self._memory.is_up and self.shard.is_up and self._routes.is_loaded):
            return
        try:
            for topic in await self._memory.buffers():
                if self._routes.is_on(topic, self.shard):
                    self._asked.setdefault(topic, None)
        except JobsUnavailableError as error:
            log.info("no look at the buffers: %s", error)

    async def _round(self) -> None:
        asked, self._asked = self._asked, {}
        todo = list(asked)
        fault: Exception | None = None
        while todo and fault is None:
            try:
                todo = await self._flush_some(todo)
                if todo:
                    self._tables.behind.add(self.shard.index)
            except (JobsUnavailableError, TopicStoppedError) as error:
                fault = error
            except Exception as error:
                log.exception("jobs could not be flushed to %s", self.shard.name)
                fault = error
        self._tables.behind.discard(self.shard.index)
        for waiting in asked.values():
            if waiting is not None and not waiting.done():
                _answer(waiting, fault)

    async def _flush_some(self, topics: list[Topic]) -> list[Topic]:
        """One insert; the topics that may have more to flush."""
        settings = self._tables.settings
        taken: dict[Topic, list[Entry]] = {}
        left: list[Topic] = []
        count = size = 0
        for number, topic in enumerate(topics):
            if count >= settings.flush_max or size >= FLUSH_BYTES:
                left += topics[number:]
                break
            raw = await self._memory.read(topic, settings.flush_max - count)
            if not raw:
                continue
            taken[topic] = _decoded(raw)
            count += len(raw)
            size += sum(map(len, raw))
            if count >= settings.flush_max or size >= FLUSH_BYTES:
                left.append(topic)
        if taken:
            await self._insert(taken)
        return left

    async def _insert(self, taken: dict[Topic, list[Entry]]) -> None:
        try:
            await self._tables.put(self.shard, [job for jobs in taken.values() for job in jobs])
        except TopicStoppedError:
            if len(taken) == 1:
                await self._on_stopped(next(iter(taken)))
                raise
            for topic, jobs in taken.items():  # those that are not being moved
                try:
                    await self._insert({topic: jobs})
                except TopicStoppedError:
                    log.info("the topic %s of %s is being moved", topic[1], topic[0])
            return
        now_ms = self._tables.clock.now_ms()
        for topic, jobs in taken.items():
            self._wal.settle([job.id for job in jobs])
            due = [job.priority for job in jobs if job.deliver_after_ms <= now_ms]
            if await self._memory.trim(topic, [job.id for job in jobs], min(due, default=None)):
                await self.take_back(topic)
            self._bells.ring(topic)

    async def _on_stopped(self, topic: Topic) -> None:
        await self._routes.refresh()
        if self._routes.shard_of(topic) is not self.shard:
            self.elsewhere(topic)

    async def take_back(self, topic: Topic) -> None:
        """Prefetched jobs are ready again, so that more urgent ones come first."""
        ids = await self._memory.take_back(topic)
        if not ids:
            return
        try:
            await self.shard.fetch("SELECT leveret_take_back($1, $2, $3::BIGINT[])", *topic, ids)
        except TopicStoppedError:
            log.info("prefetched jobs of %s are ready again when their leases end", topic[1])


def _nowhere(topic: Topic) -> None:
    raise AssertionError("nobody takes topics that have moved")


def _answer(waiting: asyncio.Future[None], fault: Exception | None) -> None:
    if fault is None:
        waiting.set_result(None)
    else:
        waiting.set_exception(fault)
        waiting.exception()  # seen, also where nobody waits any more


def _decoded(raw: list[bytes]) -> list[Entry]:
    """The jobs up to the first that is not one of ours: it blocks its topic, and is told of."""
    found = []
    for data in raw:
        try:
            found.append(entries.decode(data))
        except CorruptionError as error:
            log.error("a buffer in Redis holds what is no job: %s", error)
            break
    return found
