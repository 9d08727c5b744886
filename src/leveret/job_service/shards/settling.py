"""Settles jobs in their tables: ack, nack, extend, cancel, deliver now.

A job that the table does not know may still be in the buffer of its topic, so the table is updated
and asked again. Concurrent acks of one topic share a statement (`batching.py`).

The ack of a prefetched job asks Redis first, which notes it (`note_writer.py`). Redis refuses an
ack if it does not know the lease, or if the lease ends soon; then the table is asked. So is every
other call. It first makes Redis forget the lease, and learns whether the job was acked just now.
If Redis does not answer, only the node that has answered the ack knows that.
"""

from random import Random
from typing import Any, Final

from leveret.job_model import Handle, Outcome
from leveret.job_service.kept_errors import kept_error
from leveret.job_service.shards import statements
from leveret.job_service.shards.background.note_writer import NoteWriter
from leveret.job_service.shards.background.prefetcher import DONE, UNKNOWN, Prefetcher
from leveret.job_service.shards.batching import AckBatcher
from leveret.job_service.shards.counters import Counters
from leveret.job_service.shards.prefetched_job import QuickAcks
from leveret.job_service.shards.ready_signals import ReadySignals
from leveret.job_service.shards.routing import ShardMap
from leveret.job_service.shards.table_updates import TableUpdater
from leveret.job_service.shards.tables import Tables, handle_columns, outcomes_of
from leveret.job_service.shards.timestamps import to_ms
from leveret.job_service.shards.topic_name import TopicName

_OUTCOMES: Final = {DONE: Outcome.DONE, UNKNOWN: Outcome.UNKNOWN}
# The row of a job that was acked in Redis.
_GONE: Final = {"outcome": Outcome.UNKNOWN.value, "until_at": None}


class Settler:
    """Settles the jobs of all topics."""

    def __init__(
        self,
        routes: ShardMap,
        tables: Tables,
        updater: TableUpdater,
        prefetcher: Prefetcher,
        notes: NoteWriter,
        signals: ReadySignals,
        counters: Counters,
        random: Random,
    ) -> None:
        self._routes = routes
        self._tables = tables
        self._updater = updater
        self._prefetcher = prefetcher
        self._notes = notes
        self._signals = signals
        self._counters = counters
        self._random = random
        self._acks = AckBatcher(self._ack)

    async def _ask(self, topic: TopicName, sql: str, *arguments: object) -> list[Any]:
        return await self._routes.ask(topic, self._tables.settings.deadline_s, sql, *arguments)

    async def _settle(
        self, topic: TopicName, sql: str, handles: list[Handle], *arguments: object
    ) -> list[Any]:
        """Return the row of each handle. Jobs that were acked in Redis are unknown."""
        gone = await self._drop_leases(topic, sql, handles)
        gone |= {n for n, each in enumerate(handles) if self._notes.has_acked(topic, each)}
        left = [handle for number, handle in enumerate(handles) if number not in gone]
        found = iter(await self._settle_rows(topic, sql, left, *arguments) if left else [])
        return [_GONE if number in gone else next(found) for number in range(len(handles))]

    async def _drop_leases(self, topic: TopicName, sql: str, handles: list[Handle]) -> set[int]:
        """Let Redis forget the leases of jobs; return the places of those that were acked there."""
        if sql == statements.ACK and not self._prefetcher.is_known(topic):
            return set()  # saves the question: the ack of a job that is acked already is harmless
        letters = await self._prefetcher.drop_leases(topic, [handle.id for handle in handles])
        return {number for number, letter in enumerate(letters) if letter == UNKNOWN}

    async def _settle_rows(
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
        acks = self.quick_acks(topic, handles)
        if acks is None:
            return await self._acks.ack(topic, handles)
        return await self.finish_acks(topic, handles, await self._prefetcher.ack(topic, acks))

    def quick_acks(self, topic: TopicName, handles: list[Handle]) -> QuickAcks | None:
        """Return acks that Redis may take; None if the shard must be asked."""
        if not self._prefetcher.is_known(topic):
            return None
        self._routes.shard_of(topic).note_use()
        return self._notes.acks_of(topic, handles)

    async def finish_acks(
        self, topic: TopicName, handles: list[Handle], letters: bytes
    ) -> list[Outcome]:
        """Return the outcome of each ack; ask the shard if Redis says so, or has said nothing."""
        if not letters:
            return await self._acks.ack(topic, handles) if handles else []
        self._counters.of(topic).acked += letters.count(DONE)
        outcomes = [_OUTCOMES.get(letter) for letter in letters]
        left = [handle for handle, known in zip(handles, outcomes, strict=True) if known is None]
        found = iter(await self._acks.ack(topic, left) if left else [])
        return [next(found) if known is None else known for known in outcomes]

    def outcomes_of_quick_acks(self, topic: TopicName, letters: bytes) -> list[Outcome]:
        """Return the outcome of each ack, of which none must be asked of the shard."""
        self._counters.of(topic).acked += letters.count(DONE)
        return [_OUTCOMES[letter] for letter in letters]

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
        kept, given = kept_error(error), self._tables.given_time()
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
