"""Brings the state of topics in Redis to their tables before a call reads or changes a table.

Redis holds jobs that are not in their table yet (the buffer), and knows which prefetched jobs were
handed out or acked. A call that must see all jobs of a topic updates its table first.
"""

import logging

from leveret.errors import JobsUnavailableError
from leveret.job_service.shards.background.flusher import Flusher
from leveret.job_service.shards.background.note_writer import NoteWriter
from leveret.job_service.shards.background.prefetcher import Prefetcher
from leveret.job_service.shards.redis.redis_client import RedisClient
from leveret.job_service.shards.routing import ShardMap
from leveret.job_service.shards.shard import Shard
from leveret.job_service.shards.topic_name import TopicName

log = logging.getLogger(__name__)


class TableUpdater:
    """Updates the tables of all topics; the flushers are those of the shards, in their order."""

    def __init__(
        self,
        redis: RedisClient,
        routes: ShardMap,
        flushers: list[Flusher],
        prefetcher: Prefetcher,
        notes: NoteWriter,
        deadline_s: float,
    ) -> None:
        self._redis = redis
        self._routes = routes
        self._flushers = flushers
        self._prefetcher = prefetcher
        self._notes = notes
        self._deadline_s = deadline_s

    def flusher_of(self, topic: TopicName) -> Flusher:
        return self._flushers[self._routes.shard_of(topic).index]

    def signal(self, topic: TopicName) -> None:
        """Plan a flush of a topic."""
        self.flusher_of(topic).signal(topic)

    async def flush(self, topic: TopicName) -> None:
        """Flush the buffer of a topic to its table."""
        flusher = self.flusher_of(topic)
        flusher.shard.require()
        try:
            await flusher.flush(topic)
        except TimeoutError as error:
            raise flusher.shard.health.error("is too slow") from error

    async def flush_all(self) -> None:
        """Flush the buffers of all topics whose shard answers."""
        if self._redis.is_up and self._routes.is_loaded:
            for topic in await self._redis.buffers():
                if self._routes.shard_of(topic).is_up:
                    await self.flush(topic)

    async def update(self, topic: TopicName, takes_back: bool = False) -> bool:
        """Write the state of a topic in Redis to its table; return whether jobs have changed there.

        Flush the buffer, and write which prefetched jobs were handed out or acked. If `takes_back`,
        make the other prefetched jobs ready again.
        """
        if not self._redis.is_up:
            await self._notes.write(topic)  # those of this node
            return False
        try:
            buffered, listed, notes = await self._redis.waiting(topic, is_awaited=takes_back)
            if notes or topic in self._notes.topics:
                await self._notes.write(topic)
            if takes_back and (listed or self._prefetcher.is_taking_back(topic)):
                await self._prefetcher.take_back(topic)
        except JobsUnavailableError as error:
            log.info("a table is read without the jobs in Redis: %s", error)
            return False
        if buffered:

            async def flush(_shard: Shard) -> None:
                await self.flush(topic)

            await self._routes.reach(topic, flush, self._deadline_s)
        return buffered > 0 or (listed > 0 and takes_back)
