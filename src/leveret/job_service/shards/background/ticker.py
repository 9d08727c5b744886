"""Handles due jobs, leases that ran out and due schedules. Every node does it."""

import asyncio
import logging

from leveret.errors import JobsError
from leveret.job_service.shards.background.prefetcher import Prefetcher
from leveret.job_service.shards.counters import Counters
from leveret.job_service.shards.ready_signals import ReadySignals
from leveret.job_service.shards.routing import ShardMap
from leveret.job_service.shards.schedules import Schedules
from leveret.job_service.shards.settings import WAKE_MAX
from leveret.job_service.shards.shard import Shard
from leveret.job_service.shards.tables import Tables

log = logging.getLogger(__name__)


class Ticker:
    """Checks each shard regularly."""

    def __init__(
        self,
        routes: ShardMap,
        tables: Tables,
        schedules: Schedules,
        counters: Counters,
        signals: ReadySignals,
        prefetcher: Prefetcher,
    ) -> None:
        self._routes = routes
        self._tables = tables
        self._schedules = schedules
        self._counters = counters
        self._signals = signals
        self._prefetcher = prefetcher
        self.is_draining = False  # schedules do not fire then

    async def run(self, shard: Shard) -> None:
        """Check a shard until cancelled."""
        while True:
            await asyncio.sleep(self._tables.settings.tick_s)
            if not shard.is_up:
                continue
            try:
                if not self._routes.is_loaded:
                    await self._routes.refresh()
                await self.handle_due(shard)
            except JobsError as error:
                log.info("due jobs on %s have to wait: %s", shard.name, error)
            except Exception:
                log.exception("due jobs on %s could not be handled", shard.name)

    async def handle_due(self, shard: Shard) -> None:
        """Handle everything that is due on a shard now."""
        rows = await shard.fetch(
            "SELECT * FROM leveret_wake(NULL, NULL, coalesce($1, now()), $2)",
            self._tables.given_time(),
            WAKE_MAX,
        )
        for row in rows:
            topic = row["woken_ns"], row["woken_tp"]
            self._counters.of(topic).expired += int(row["expired"])
            await self._prefetcher.on_ready(topic)
            self._signals.notify(topic)
        if not self.is_draining:
            await self._schedules.fire(shard)
