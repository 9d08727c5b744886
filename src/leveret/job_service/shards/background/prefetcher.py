"""Leases jobs of busy topics ahead, in bulk, and lists them in Redis for dequeues.

A dequeue takes a listed job by one call of Redis, without a transaction: the row has its token and
a lease that is long enough (`sql/step_13_prefetch.sql`). The same call notes in Redis that the job
was handed out. A node writes these notes to the shard, many at a time.

A topic is busy while dequeues for few jobs come often. Concurrent dequeues of a node share one
transaction (`batching.py`), and count as one dequeue for their jobs together. Topics that are not
busy, or whose jobs are used up, cost nothing and are leased directly.

A job is on the list at most `PREFETCH_OFFERED_MS`. It is taken back, and is ready again, when that
time is over, when a more urgent job becomes ready, and when its topic is not busy any more. Jobs
that a list has lost, because Redis did not answer, was restarted or lost its memory, are ready
again when their leases end. Until then it is not known whether they were handed out.

A dequeue of another node may look for jobs after they were leased ahead and before they are listed.
It finds none, marks the topic in Redis and waits. The node that lists the jobs sees the mark and
notifies all nodes.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from typing import Any, Final

from redis.exceptions import ResponseError

from leveret.errors import JobsError, JobsUnavailableError
from leveret.job_model import LeasedJob
from leveret.job_service.shards import statements
from leveret.job_service.shards.background.note_writer import NoteWriter
from leveret.job_service.shards.prefetched_job import (
    NOTHING_POPPED,
    Popped,
    PopRequest,
    QuickAcks,
    decode_prefetched,
    encode_prefetched,
)
from leveret.job_service.shards.redis.prefetch_client import PrefetchClient
from leveret.job_service.shards.routing import ShardMap
from leveret.job_service.shards.shard import Shard, TopicStoppedError
from leveret.job_service.shards.sql.loader import PREFETCH_MARGIN_MS
from leveret.job_service.shards.tables import Tables, urgency_of
from leveret.job_service.shards.timestamps import to_ms
from leveret.job_service.shards.topic_name import TopicName
from leveret.job_service.snowflake import first_of

WINDOW_S: Final = 1.0  # in which dequeues of a topic are counted
FEW: Final = 8  # jobs; a dequeue for more shares the cost of its transaction among them
DRAINED_S: Final = 0.25  # without prefetching, after a topic had few ready jobs
DONE: Final = ord("d")  # outcomes of acks in Redis
UNKNOWN: Final = ord("u")
# How long a call of the shard waits for Redis: a lease must not end because Redis is silent.
DROP_S: Final = 1.0
REFUSED_S: Final = 5.0  # without prefetching, after Redis has refused to list jobs

log = logging.getLogger(__name__)

OnTaken = Callable[[tuple[bytes, list[LeasedJob]] | Exception], None]


class Prefetcher:
    """Keeps the lists of busy topics filled, and takes jobs from them."""

    def __init__(
        self, redis: PrefetchClient, routes: ShardMap, tables: Tables, notes: NoteWriter
    ) -> None:
        self._redis = redis
        self._routes = routes
        self._tables = tables
        self._notes = notes
        self._asked: Counter[TopicName] = Counter()  # dequeues in this window
        self._window_s = 0.0  # when the window began, by the clock of the event loop
        self._busy: set[TopicName] = set()
        self._left: dict[TopicName, int] = {}  # jobs on the lists of topics that were busy here
        self._listed: set[TopicName] = set()  # topics that have lists or notes, of all nodes
        self._drained_until_s: dict[TopicName, float] = {}
        self._refused_until_s = 0.0
        self._refills: dict[TopicName, asyncio.Task[None]] = {}
        # Take-backs that have not ended: their jobs may be on no list, and not ready yet.
        self._take_backs: dict[TopicName, set[asyncio.Future[None]]] = {}
        self.take_backs = 0  # that have ended

    @property
    def busy(self) -> int:
        """Return how many topics are busy."""
        return len(self._busy)

    def is_used(self, topic: TopicName, limit: int) -> bool:
        """Count a dequeue; return whether it should look for prefetched jobs first."""
        self._roll()
        if limit <= FEW:
            self._asked[topic] += 1
            if self._asked[topic] >= self._tables.settings.prefetch_from > 0:
                self._busy.add(topic)
        return self.has_jobs(topic)

    def has_jobs(self, topic: TopicName) -> bool:
        """Return whether jobs of a topic are listed, or will be in a moment."""
        return self._left.get(topic, 0) > 0 or topic in self._refills

    def may_take(self, topic: TopicName) -> bool:
        """Return whether jobs of a topic can be taken off its list."""
        return self.has_jobs(topic) and self._redis.is_up and bool(self._redis.run)

    def is_known(self, topic: TopicName) -> bool:
        """Return whether a topic has lists or notes: prefetched jobs of it may be with workers."""
        return topic in self._listed or self.has_jobs(topic)

    def _roll(self) -> None:
        """Begin a new window if it is time."""
        now_s = asyncio.get_running_loop().time()
        if now_s - self._window_s < WINDOW_S:
            return
        least = self._tables.settings.prefetch_from
        is_next = now_s - self._window_s < 2 * WINDOW_S
        asked = self._asked if is_next else Counter[TopicName]()
        self._busy = {topic for topic, count in asked.items() if count >= least > 0}
        self._asked = Counter()
        self._window_s = now_s
        self._drained_until_s = {t: s for t, s in self._drained_until_s.items() if s > now_s}

    async def take(
        self, topic: TopicName, limit: int, lease_ms: int | None, least_urgent: int
    ) -> list[LeasedJob]:
        """Take prefetched jobs. If the list is empty, wait for jobs that are being listed.

        `least_urgent` is the highest priority number that may be taken.
        """
        found = await self._pop(topic, limit, lease_ms, least_urgent)
        refill = self._refills.get(topic)
        if found or refill is None:
            return found
        await asyncio.wait([refill])
        return await self._pop(topic, limit, lease_ms, least_urgent)

    async def _pop(
        self, topic: TopicName, limit: int, lease_ms: int | None, least_urgent: int
    ) -> list[LeasedJob]:
        if not (self._redis.is_up and self._redis.run):
            self._left.pop(topic, None)
            return []
        request = self._request(topic, None, limit, lease_ms, least_urgent)
        return _leased(request, await self._answer(request))

    async def ack(self, topic: TopicName, acks: QuickAcks) -> bytes:
        """Ack jobs in Redis.

        Return a letter for each: done (d), unknown (u), the shard must be asked (s), as it must be
        if there are no letters.
        """
        request = self._request(topic, acks)
        number = self._notes.begin(topic, request.now_ms)
        popped = NOTHING_POPPED
        try:
            popped = await self._answer(request)
        finally:
            self._notes.end(topic, number, _accepted(acks, popped))
        return popped.outcomes

    def begin_take(
        self,
        topic: TopicName,
        acks: QuickAcks | None,
        limit: int,
        lease_ms: int | None,
        least_urgent: int,
        on_end: OnTaken,
    ) -> None:
        """Begin to ack jobs and to take prefetched ones in one step, without a task.

        Call `on_end` with the letters of the acks and the jobs, or with the error. Without a job
        nothing has changed.
        """
        request = self._request(topic, acks, limit, lease_ms, least_urgent)
        number = None if acks is None else self._notes.begin(topic, request.now_ms)

        def on_popped(popped: Popped | Exception) -> None:
            answered = NOTHING_POPPED if isinstance(popped, Exception) else popped
            if number is not None:
                self._notes.end(topic, number, _accepted(acks, answered))
            if isinstance(popped, Exception):
                on_end(popped)
                return
            if popped.entries:
                self._set_left(topic, popped.left)
            on_end((popped.outcomes, _leased(request, popped)))

        self._redis.begin_pop(request, on_popped)

    def _request(
        self,
        topic: TopicName,
        acks: QuickAcks | None,
        limit: int = 0,
        lease_ms: int | None = None,
        least_urgent: int = 0,
    ) -> PopRequest:
        shard = self._routes.shard_of(topic)
        now_ms = shard.health.server_time_ms(self._tables.clock.now_ms())
        run = self._redis.run
        return PopRequest(topic, acks, limit, lease_ms, least_urgent, now_ms, shard.index, run)

    async def _answer(self, request: PopRequest) -> Popped:
        """Return what Redis answers; nothing if it does not."""
        topic = request.topic
        try:
            popped = await self._redis.pop(request)
        except JobsUnavailableError as error:
            log.info("prefetched jobs cannot be used, so the shard is asked: %s", error)
            if request.limit:
                await self.try_to_take_back(topic)
            return NOTHING_POPPED
        if request.limit or topic in self._left:  # the list of another node stays its own
            self._set_left(topic, popped.left)
        if popped.ended == b"old":
            await self.try_to_take_back(topic)
        return popped

    async def drop_leases(self, topic: TopicName, ids: list[int]) -> bytes:
        """Let Redis forget leases, since the shard is asked to settle the jobs.

        Return a letter for each: unknown (u) if it was acked, or the shard must be asked (s). There
        are no letters if Redis does not answer.
        """
        if not self._redis.is_up:
            return b""
        shard = self._routes.shard_of(topic)
        now_ms = shard.health.server_time_ms(self._tables.clock.now_ms())
        try:
            async with asyncio.timeout(DROP_S):
                return await self._redis.drop_leases(topic, now_ms, ids)
        except (JobsUnavailableError, TimeoutError) as error:
            log.info("leases in Redis are not forgotten: %s", error)
            return b""

    def _set_left(self, topic: TopicName, left: int) -> None:
        if left:
            self._left[topic] = left
        else:
            self._left.pop(topic, None)

    def refill(self, topic: TopicName, lease_ms: int | None) -> None:
        """Begin to fill the list of a busy topic if it is half empty."""
        if topic in self._refills or not self._may_refill(topic):
            return
        task = asyncio.get_running_loop().create_task(self._refill(topic, lease_ms))
        self._refills[topic] = task
        task.add_done_callback(lambda _: self._refills.pop(topic, None))

    def _may_refill(self, topic: TopicName) -> bool:
        if topic not in self._busy or not self._redis.is_up:
            return False
        if self._left.get(topic, 0) > self._tables.settings.prefetch_max // 2:
            return False
        paused_until_s = max(self._refused_until_s, self._drained_until_s.get(topic, 0.0))
        return asyncio.get_running_loop().time() >= paused_until_s

    async def _refill(self, topic: TopicName, lease_ms: int | None) -> None:
        try:
            await self.prefetch(topic, lease_ms)
        except (JobsError, TopicStoppedError) as error:
            log.info("jobs of %s are not leased ahead: %s", topic[1], error)
            self._drained_until_s[topic] = asyncio.get_running_loop().time() + WINDOW_S
        except Exception:
            log.exception("jobs of %s could not be leased ahead", topic[1])

    def note_inserted(self, topic: TopicName, count: int) -> None:
        """Note new jobs in the table: many of them end the pause of a topic that had few."""
        if count >= self._tables.settings.prefetch_max // 2:
            self._drained_until_s.pop(topic, None)

    async def prefetch(self, topic: TopicName, lease_ms: int | None = None) -> None:
        """Fill the list of a topic."""
        run = await self._redis.find_run()
        shard = self._routes.shard_of(topic)
        if not run or shard.health.skew_refusal():
            self._drained_until_s[topic] = asyncio.get_running_loop().time() + WINDOW_S
            return
        wanted = self._tables.settings.prefetch_max - self._left.get(topic, 0)
        fence, given = first_of(self._tables.clock.now_ms()), self._tables.given_time()
        rows = await shard.fetch(statements.PREFETCH, *topic, wanted, lease_ms, fence, given)
        if len(rows) < wanted // 2:
            pause_s = DRAINED_S if rows else WINDOW_S
            self._drained_until_s[topic] = asyncio.get_running_loop().time() + pause_s
        if rows:
            lease_ms_max = rows[0]["lease_ms_max"] + PREFETCH_MARGIN_MS
            self._tables.expect_due(shard, to_ms(rows[0]["offered_until"]) + lease_ms_max)
            await self._list(topic, shard, run, sorted(rows, key=urgency_of))

    async def _list(self, topic: TopicName, shard: Shard, run: bytes, rows: list[Any]) -> None:
        self._listed.add(topic)
        entries = [encode_prefetched(row, run, shard.index) for row in rows]
        first = rows[0]["job_priority"]
        try:
            is_awaited, old = await self._redis.list_prefetched(topic, entries, first, run)
        except JobsUnavailableError as error:
            self._refused_until_s = asyncio.get_running_loop().time() + REFUSED_S
            if isinstance(error.__cause__, ResponseError):  # it is certain that no job is listed
                await self._make_ready(topic, entries, run)
            raise
        self._left[topic] = self._left.get(topic, 0) + len(entries)
        if old:
            await self._make_ready(topic, old, run)
        if is_awaited:
            await self._routes.ask(topic, self._tables.settings.deadline_s, statements.NOTIFY)

    async def take_back(self, topic: TopicName) -> None:
        """Take all jobs of a topic off its list, and make them ready again.

        The jobs of calls that are under way are ready too when it returns.
        """
        self._left.pop(topic, None)
        under_way = self._take_backs.setdefault(topic, set())
        others = list(under_way)
        end: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        under_way.add(end)
        try:
            if self._redis.is_up and (run := await self._redis.find_run()):
                await self._make_ready(topic, await self._redis.take_back(topic), run)
        finally:
            self.take_backs += 1
            end.set_result(None)
            under_way.discard(end)
            if not under_way:
                del self._take_backs[topic]
        if others:
            await asyncio.wait(others)

    def is_taking_back(self, topic: TopicName) -> bool:
        """Return whether jobs of a topic are being taken back."""
        return topic in self._take_backs

    async def _make_ready(self, topic: TopicName, entries: list[bytes], run: bytes) -> None:
        """Make jobs that were taken off a list ready again.

        A job of another run of Redis may have been handed out, so it keeps its lease.
        """
        found = [decode_prefetched(entry) for entry in entries]
        jobs = [each.job for each in found if each.run == run]
        if jobs:
            ids, tokens = [job.id for job in jobs], [job.token for job in jobs]
            deadline_s = self._tables.settings.deadline_s
            await self._routes.ask(topic, deadline_s, statements.TAKE_BACK, ids, tokens)

    async def try_to_take_back(self, topic: TopicName) -> None:
        """Take the jobs of a topic back, or log why Redis or the shard does not allow it."""
        try:
            await self.take_back(topic)
        except JobsError as error:
            log.info("prefetched jobs of %s come back when their leases end: %s", topic[1], error)

    async def on_ready(self, topic: TopicName) -> None:
        """Take the listed jobs back, because a more urgent job may have become ready."""
        if topic in self._listed:
            await self.try_to_take_back(topic)

    async def run(self, shard: Shard) -> None:
        """Keep the lists of the topics of a shard in order until cancelled."""
        while True:
            await self._wait()
            self._roll()
            try:
                await self._notes.save_late(shard)
                if shard.is_up and self._routes.is_loaded:
                    await self._tidy_all(shard)
            except JobsError as error:
                log.info("the lists of prefetched jobs have to wait: %s", error)
            except Exception:
                log.exception("the lists of prefetched jobs could not be kept in order")

    async def _wait(self) -> None:
        """Wait until it is time to look at the lists, or until there are notes to write at once."""
        try:
            async with asyncio.timeout(self._tables.settings.tick_s):
                await self._notes.has_work.wait()
        except TimeoutError:
            pass
        self._notes.has_work.clear()

    async def _tidy_all(self, shard: Shard) -> None:
        # First the topics whose announcements must be renewed in time.
        found = dict.fromkeys([*self._notes.own_topics, *self._left])
        if self._redis.is_up:
            found |= dict.fromkeys(await self._redis.prefetched_topics())
            self._listed = set(found)  # grows when this node lists jobs of further topics
        for topic in found:
            if self._routes.is_on(topic, shard):
                await self._try_to_tidy(topic)
                shard.require()

    async def _try_to_tidy(self, topic: TopicName) -> None:
        """Tidy one topic, or log why that is not possible: the others go on."""
        try:
            await self._tidy(topic)
        except TopicStoppedError:
            log.info("prefetched jobs of %s have to wait: it is being moved", topic[1])
            await self._routes.refresh()
        except JobsError as error:
            log.info("prefetched jobs of %s have to wait: %s", topic[1], error)

    async def _tidy(self, topic: TopicName) -> None:
        await self._notes.write(topic, is_urgent=False, is_lazy=True)
        if not self._redis.is_up:
            return
        first = await self._redis.first_prefetched(topic)
        if first is None:
            self._left.pop(topic, None)
            await self._notes.remove(topic, [], [])
        elif self._is_over(topic, first, await self._redis.find_run()):
            await self.take_back(topic)

    def _is_over(self, topic: TopicName, first: bytes, run: bytes) -> bool:
        """Return whether a list must be taken back. `first` is its first job."""
        shard = self._routes.shard_of(topic)
        job = decode_prefetched(first)
        now_ms = shard.health.server_time_ms(self._tables.clock.now_ms())
        if job.run != run or job.shard != shard.index or job.offered_until_ms <= now_ms:
            return True
        return topic in self._left and topic not in self._busy

    async def close(self) -> None:
        """Cancel the refills that are under way."""
        refills = list(self._refills.values())
        for refill in refills:
            refill.cancel()
        if refills:
            await asyncio.wait(refills, timeout=1.0)

    async def leave(self) -> None:
        """Take back the jobs that this node has listed. Call it before the node stops."""
        for topic in list(self._left):
            await self.try_to_take_back(topic)


def _accepted(acks: QuickAcks | None, popped: Popped) -> list[bytes]:
    """Return the notes of the acks that Redis has accepted."""
    if acks is None or not popped.outcomes:
        return []
    letters = zip(acks.notes, popped.outcomes, strict=True)
    return [note for note, letter in letters if letter == DONE]


def _leased(request: PopRequest, popped: Popped) -> list[LeasedJob]:
    jobs = map(decode_prefetched, popped.entries)
    return [job.leased(request.now_ms, request.lease_ms) for job in jobs]
