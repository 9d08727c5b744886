"""Leases jobs of busy topics ahead and lists them in Redis, so that a dequeue finds them by id.

A topic is busy while workers ask for it often. At most one batch is ahead, so that a job that is
more urgent waits behind that much at worst; mostly it does not, since whoever makes it ready takes
the list back (`Flusher.take_back`). What lies in the list when its lease ends is ready again, and
is never handed out by the list: the hand-out looks at the row.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from leveret.errors import JobsError
from leveret.job_service.shards.memory import Memory, Topic
from leveret.job_service.shards.moments import moment
from leveret.job_service.shards.routing import ShardMap
from leveret.job_service.shards.tables import Tables, urgency

ROUND_S = 0.05

log = logging.getLogger(__name__)


class Prefetcher:
    """Keeps the lists of busy topics filled."""

    def __init__(self, memory: Memory, routes: ShardMap, tables: Tables) -> None:
        self._memory = memory
        self._routes = routes
        self._tables = tables
        self._asked: Counter[Topic] = Counter()  # dequeues in this second
        self._busy: set[Topic] = set()
        self._locks: dict[Topic, tuple[asyncio.Lock, int]] = {}  # and how many want each

    def note(self, topic: Topic) -> None:
        """A worker asks for jobs of a topic."""
        self._asked[topic] += 1
        if self._asked[topic] >= self._tables.settings.prefetch_from:
            self._busy.add(topic)

    async def run(self) -> None:
        """Prefetch as long as the node lives."""
        if not self._tables.settings.prefetch_max:
            return
        rounds = 0
        while True:
            await asyncio.sleep(ROUND_S)
            rounds += 1
            for topic in list(self._busy):
                try:
                    await self.prefetch(topic)
                except JobsError as error:
                    log.info("no jobs of %s are leased ahead: %s", topic[1], error)
                except Exception:
                    log.exception("jobs of %s could not be leased ahead", topic[1])
            if rounds % round(1 / ROUND_S) == 0:
                most = self._tables.settings.prefetch_from
                self._busy = {topic for topic, asked in self._asked.items() if asked >= most}
                self._asked.clear()

    @asynccontextmanager
    async def alone(self, topic: Topic) -> AsyncIterator[None]:
        """Whoever leases jobs of a topic: those on their way to the list are in nobody's sight, and
        less urgent ones would be leased before them.
        """
        lock, users = self._locks.get(topic) or (asyncio.Lock(), 0)
        self._locks[topic] = lock, users + 1
        try:
            async with lock:
                yield
        finally:
            lock, users = self._locks.pop(topic)
            if users > 1:
                self._locks[topic] = lock, users - 1

    async def prefetch(self, topic: Topic) -> None:
        """Fill the list of a topic up to one batch, when it is half empty."""
        async with self.alone(topic):
            await self._fill(topic)

    async def _fill(self, topic: Topic) -> None:
        most = self._tables.settings.prefetch_max
        if not self._memory.is_up:
            return
        ahead = await self._memory.prefetched(topic)
        if ahead > most // 2:
            return
        lease_ms = self._tables.settings.prefetch_lease_ms
        now_ms = self._tables.clock.now_ms()
        rows = await self._routes.shard_of(topic).fetch(
            "SELECT * FROM leveret_prefetch($1, $2, $3, $4, $5)",
            *topic,
            most - ahead,
            moment(now_ms),
            moment(now_ms + lease_ms),
        )
        if rows:
            jobs = [(row["job_id"], row["job_priority"]) for row in sorted(rows, key=urgency)]
            await self._memory.add_prefetched(topic, jobs, lease_ms)
