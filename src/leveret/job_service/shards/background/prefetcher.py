"""Leases jobs of busy topics ahead and lists them in Redis, so that a dequeue finds them by id.

A topic is busy while workers ask for it often. At most one batch is prefetched, so a more urgent
job waits behind one batch at worst. Usually it does not wait: the node that makes it ready takes
the list back (`Flusher.take_back`). A prefetched job whose lease ends is ready again. The list
cannot hand it out then, because the hand-out checks the row.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from leveret.errors import JobsError
from leveret.job_service.shards.redis.redis_client import RedisClient
from leveret.job_service.shards.routing import ShardMap
from leveret.job_service.shards.tables import Tables, urgency_of
from leveret.job_service.shards.topic_name import TopicName

ROUND_S = 0.05
PAUSE_S = 5.0  # without prefetching, after Redis could not list jobs
_TAKE_BACK = "SELECT leveret_take_back($1, $2, $3::BIGINT[])"
_PREFETCH = (
    "SELECT * FROM leveret_prefetch("
    "$1, $2, $3, coalesce($4, now()), coalesce($4, now()) + $5 * INTERVAL '1 ms')"
)

log = logging.getLogger(__name__)


class Prefetcher:
    """Keeps the lists of busy topics filled."""

    def __init__(self, redis: RedisClient, routes: ShardMap, tables: Tables) -> None:
        self._redis = redis
        self._routes = routes
        self._tables = tables
        self._asked: Counter[TopicName] = Counter()  # dequeues in this second
        self._busy: set[TopicName] = set()
        self._paused_until_s = 0.0  # by the clock of the event loop
        self._locks: dict[TopicName, tuple[asyncio.Lock, int]] = {}  # and how many tasks use each

    @property
    def busy(self) -> int:
        """Return how many topics are busy."""
        return len(self._busy)

    def note(self, topic: TopicName) -> None:
        """Count a dequeue of a topic."""
        self._asked[topic] += 1
        if self._asked[topic] >= self._tables.settings.prefetch_from:
            self._busy.add(topic)

    async def run(self) -> None:
        """Prefetch until cancelled."""
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
    async def alone(self, topic: TopicName) -> AsyncIterator[None]:
        """Lock a topic against other leases of this node.

        Jobs on their way to the list are visible neither there nor as ready, and less urgent jobs
        would be leased before them.
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

    async def prefetch(self, topic: TopicName) -> None:
        """Fill the list of a topic up to one batch, when it is half empty."""
        async with self.alone(topic):
            await self._fill(topic)

    async def _fill(self, topic: TopicName) -> None:
        most = self._tables.settings.prefetch_max
        if not self._redis.is_up or asyncio.get_running_loop().time() < self._paused_until_s:
            return
        ahead = await self._redis.prefetched(topic)
        if ahead > most // 2:
            return
        lease_ms = self._tables.settings.prefetch_lease_ms
        shard = self._routes.shard_of(topic)
        if shard.health.skew_refusal():
            return
        rows = await shard.fetch(
            _PREFETCH,
            *topic,
            most - ahead,
            self._tables.given_time(),
            lease_ms,
        )
        if rows:
            jobs = [(row["job_id"], row["job_priority"]) for row in sorted(rows, key=urgency_of)]
            try:
                await self._redis.add_prefetched(topic, jobs, lease_ms)
            except JobsError:
                # Redis is full, or does not answer. Jobs that are leased ahead but in no list of
                # Redis would be hidden until their leases end. Meanwhile dequeues lease directly.
                self._paused_until_s = asyncio.get_running_loop().time() + PAUSE_S
                await shard.fetch(_TAKE_BACK, *topic, [id for id, _ in jobs])
                raise
