"""What is due: scheduled jobs, leases that ran out, schedules; every node looks for it."""

import asyncio
import logging

from leveret.errors import JobsError
from leveret.job_service.shards.background.flusher import Flusher
from leveret.job_service.shards.bells import Bells
from leveret.job_service.shards.counters import Counters
from leveret.job_service.shards.memory import Memory, Topic
from leveret.job_service.shards.moments import moment
from leveret.job_service.shards.routing import ShardMap
from leveret.job_service.shards.schedules import Schedules
from leveret.job_service.shards.settings import WAKE_MAX
from leveret.job_service.shards.shard import Shard
from leveret.job_service.shards.tables import Tables

log = logging.getLogger(__name__)


class Ticker:
    """Looks at each shard again and again."""

    def __init__(
        self,
        memory: Memory,
        routes: ShardMap,
        tables: Tables,
        flushers: list[Flusher],
        schedules: Schedules,
        counters: Counters,
        bells: Bells,
    ) -> None:
        self._memory = memory
        self._routes = routes
        self._tables = tables
        self._flushers = flushers
        self._schedules = schedules
        self._counters = counters
        self._bells = bells
        self.is_draining = False  # then schedules put nothing in

    async def run(self, shard: Shard) -> None:
        """Look at a shard as long as the node lives."""
        while True:
            await asyncio.sleep(self._tables.settings.tick_s)
            if not shard.is_up:
                continue
            try:
                if not self._routes.is_loaded:
                    await self._routes.refresh()
                await self.look(shard)
            except JobsError as error:
                log.info("what is due on %s waits: %s", shard.name, error)
            except Exception:
                log.exception("what is due on %s could not be woken", shard.name)

    async def look(self, shard: Shard) -> None:
        """Do what is due on a shard now."""
        rows = await shard.fetch(
            "SELECT * FROM leveret_wake(NULL, NULL, $1, $2)",
            moment(self._tables.clock.now_ms()),
            WAKE_MAX,
        )
        for row in rows:
            topic = row["woken_ns"], row["woken_tp"]
            self._counters.of(topic).expired += int(row["expired"])
            await self.made_ready(topic)
        if not self.is_draining:
            await self._schedules.fire(shard)

    async def made_ready(self, topic: Topic) -> None:
        """Jobs of a topic are ready: wake who waits, and let no prefetched one go first.

        Raises nothing for a server that does not answer: what made them ready is done by now.
        """
        try:
            if self._tables.settings.prefetch_max and self._memory.is_up:
                if await self._memory.prefetched(topic):
                    await self._flushers[self._routes.shard_of(topic).index].take_back(topic)
        except JobsError as error:
            log.info("prefetched jobs of %s go first, until their leases end: %s", topic[1], error)
        self._bells.ring(topic)
