"""Settles jobs in their tables: ack, nack, extend, cancel, deliver now.

A job that the table does not know may still be in the buffer of its topic, so the table is updated
and asked again. Concurrent acks of one topic share a statement (`batching.py`).
"""

from random import Random
from typing import Any

from leveret.job_model import Handle, Outcome
from leveret.job_service.shards import statements
from leveret.job_service.shards.background.prefetcher import Prefetcher
from leveret.job_service.shards.batching import AckBatcher
from leveret.job_service.shards.counters import Counters
from leveret.job_service.shards.ready_signals import ReadySignals
from leveret.job_service.shards.routing import ShardMap
from leveret.job_service.shards.table_updates import TableUpdater
from leveret.job_service.shards.tables import Tables, cut_error, handle_columns, outcomes_of
from leveret.job_service.shards.timestamps import to_ms
from leveret.job_service.shards.topic_name import TopicName


class Settler:
    """Settles the jobs of all topics."""

    def __init__(
        self,
        routes: ShardMap,
        tables: Tables,
        updater: TableUpdater,
        prefetcher: Prefetcher,
        signals: ReadySignals,
        counters: Counters,
        random: Random,
    ) -> None:
        self._routes = routes
        self._tables = tables
        self._updater = updater
        self._prefetcher = prefetcher
        self._signals = signals
        self._counters = counters
        self._random = random
        self._acks = AckBatcher(self._ack)

    async def _ask(self, topic: TopicName, sql: str, *arguments: object) -> list[Any]:
        return await self._routes.ask(topic, self._tables.settings.deadline_s, sql, *arguments)

    async def _settle(
        self, topic: TopicName, sql: str, handles: list[Handle], *arguments: object
    ) -> list[Any]:
        """Return the row of each handle. Unknown jobs may be in the buffer: then ask again.

        Without a token, only a job that is known to be handed out has a lease.
        """
        if any(handle.token is None for handle in handles):
            await self._updater.update(topic)
        rows = await self._ask(topic, sql, *handle_columns(handles), *arguments)
        unknown = [n for n, row in enumerate(rows) if row["outcome"] == Outcome.UNKNOWN.value]
        if unknown and await self._updater.update(topic):
            again = handle_columns([handles[n] for n in unknown])
            found = await self._ask(topic, sql, *again, *arguments)
            for n, row in zip(unknown, found, strict=True):
                rows[n] = row
        return rows

    async def ack(self, topic: TopicName, handles: list[Handle]) -> list[Outcome]:
        return await self._acks.ack(topic, handles)

    async def _ack(self, topic: TopicName, handles: list[Handle]) -> list[Outcome]:
        given = self._tables.given_time()
        outcomes = outcomes_of(await self._settle(topic, statements.ACK, handles, given))
        self._counters.of(topic).acked += outcomes.count(Outcome.DONE)
        self._signals.notify(topic)  # a dequeue may wait for a free lease
        return outcomes

    async def nack(
        self,
        topic: TopicName,
        handles: list[Handle],
        error: str,
        delay_ms: int | None,
        is_dead: bool,
    ) -> list[Outcome]:
        kept, given = cut_error(error), self._tables.given_time()
        if is_dead:
            rows = await self._settle(topic, statements.NACK_DEAD, handles, kept, given)
        else:
            drawn = self._random.random()
            rows = await self._settle(topic, statements.NACK, handles, kept, delay_ms, drawn, given)
        outcomes = outcomes_of(rows)
        self._counters.of(topic).failed += outcomes.count(Outcome.DONE)
        if not is_dead:  # the shard knows when they are due again, unless the caller has said so
            self._routes.shard_of(topic).due.expect((delay_ms or 0) / 1000)
        await self.on_ready(topic)
        return outcomes

    async def extend(
        self, topic: TopicName, handles: list[Handle], lease_ms: int | None
    ) -> list[tuple[Outcome, int]]:
        given = self._tables.given_time()
        rows = await self._settle(topic, statements.EXTEND, handles, lease_ms, given)
        ends = [to_ms(row["until_at"]) if row["until_at"] else 0 for row in rows]
        if any(ends):
            self._tables.expect_due(self._routes.shard_of(topic), max(ends))
        return list(zip(outcomes_of(rows), ends, strict=True))

    async def cancel(self, topic: TopicName, ids: list[int]) -> list[Outcome]:
        await self._updater.update(topic, takes_back=True)
        sql = "SELECT * FROM leveret_cancel($1, $2, $3::BIGINT[])"
        return outcomes_of(await self._ask(topic, sql, ids))

    async def deliver_now(self, topic: TopicName, ids: list[int]) -> list[Outcome]:
        await self._updater.update(topic)
        given = self._tables.given_time()
        outcomes = outcomes_of(await self._ask(topic, statements.DELIVER_NOW, ids, given))
        await self.on_ready(topic)
        return outcomes

    async def on_ready(self, topic: TopicName) -> None:
        """Wake dequeues that wait for jobs of a topic, also if less urgent ones are prefetched."""
        await self._prefetcher.on_ready(topic)
        self._signals.notify(topic)
