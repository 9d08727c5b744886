"""Handles due jobs, leases that ran out and due schedules. Every node does it.

A node sleeps until the next due time that it knows (`due_times.py`). It looks at a shard from time
to time anyway: another node may have died before it told of a due time, or the clock of the shard
may have been set. While the shard cannot notify this node, it looks regularly.
"""

import asyncio
import logging
import math

from leveret.errors import JobsError
from leveret.job_service.shards import statements
from leveret.job_service.shards.background.note_writer import NoteWriter
from leveret.job_service.shards.background.prefetcher import Prefetcher
from leveret.job_service.shards.background.silent_nodes import SilentNodes
from leveret.job_service.shards.counters import Counters
from leveret.job_service.shards.ready_signals import ReadySignals
from leveret.job_service.shards.routing import ShardMap
from leveret.job_service.shards.schedules import Schedules
from leveret.job_service.shards.settings import WAKE_MAX
from leveret.job_service.shards.shard import Shard
from leveret.job_service.shards.tables import Tables

log = logging.getLogger(__name__)


class Ticker:
    """Looks at each shard when something is due."""

    def __init__(
        self,
        shards: list[Shard],
        routes: ShardMap,
        tables: Tables,
        schedules: Schedules,
        counters: Counters,
        signals: ReadySignals,
        prefetcher: Prefetcher,
        notes: NoteWriter,
    ) -> None:
        self._routes = routes
        self._tables = tables
        self._schedules = schedules
        self._counters = counters
        self._signals = signals
        self._prefetcher = prefetcher
        self._notes = notes
        self._silent_nodes = {shard.index: SilentNodes(shard, tables.settings) for shard in shards}
        self.is_draining = False  # schedules do not fire then

    async def run(self, shard: Shard) -> None:
        """Handle what becomes due on a shard until cancelled."""
        loop = asyncio.get_running_loop()
        looked_s = loop.time()
        while True:
            await self._wait(shard, looked_s)
            looked_s = loop.time()
            if not shard.is_up:
                continue
            try:
                if not self._routes.is_loaded:
                    await self._routes.refresh()
                await self._look(shard)
            except JobsError as error:
                log.info("due jobs on %s have to wait: %s", shard.name, error)
                shard.due.look_soon()
            except Exception:
                log.exception("due jobs on %s could not be handled", shard.name)
                shard.due.look_soon()

    async def _wait(self, shard: Shard, looked_s: float) -> None:
        """Wait until it is time for the next look. Tell other nodes of new due times meanwhile."""
        settings, loop = self._tables.settings, asyncio.get_running_loop()
        while True:
            is_told = shard.is_up and shard.is_listening and not settings.is_time_given
            latest_s = looked_s + (settings.idle_s if is_told else 0.0)
            at_s = max(min(shard.due.next_s, latest_s), looked_s + settings.tick_s)
            if loop.time() >= at_s:
                return
            if shard.due.is_news and loop.time() < shard.due.next_s < math.inf:
                await self._tell(shard)
            await shard.due.wait(at_s)

    async def _tell(self, shard: Shard) -> None:
        """Tell all nodes when the next job is due on a shard."""
        shard.due.is_news = False
        in_s = shard.due.next_s - asyncio.get_running_loop().time()
        try:
            await shard.fetch(statements.TELL_DUE, str(round(in_s * 1000)))
        except JobsError as error:  # the other nodes find it at their next look
            log.info("other nodes are not told of a due time on %s: %s", shard.name, error)
        except Exception:
            log.exception("other nodes could not be told of a due time on %s", shard.name)

    async def _look(self, shard: Shard) -> None:
        """Handle everything that is due on a shard now, and ask when more will be."""
        shard.due.forget()
        due_in_s = await self._ask(shard)
        if due_in_s is not None and due_in_s <= 0:
            await self.handle_due(shard)
            due_in_s = await self._ask(shard)
        if due_in_s is not None:
            shard.due.hear(due_in_s)

    async def _ask(self, shard: Shard) -> float | None:
        rows = await shard.fetch(statements.DUE_IN_S, self._tables.given_time())
        due_in_s: float | None = rows[0]["due_in_s"]
        return due_in_s

    async def handle_due(self, shard: Shard) -> None:
        """Handle everything that is due on a shard now."""
        ended_at, left = await self._notes.write_for_wake(shard)
        rows = await shard.fetch(
            statements.WAKE,
            self._tables.given_time(),
            WAKE_MAX,
            ended_at,
            [namespace for namespace, _ in left],
            [topic for _, topic in left],
        )
        for row in rows:
            topic = row["woken_ns"], row["woken_tp"]
            self._counters.of(topic).expired += int(row["expired"])
            await self._prefetcher.on_ready(topic)
            self._signals.notify(topic)
        # Leases that ran out may wait for acks of a node.
        silent_nodes = self._silent_nodes[shard.index]
        await silent_nodes.look(self._tables.given_time(), self._notes.is_redis_read)
        if not self.is_draining:
            await self._schedules.fire(shard)
