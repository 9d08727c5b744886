"""The embedded store: the calls of the contract, on topics by namespace.

A call changes the engine inside one turn, which is one block of the log, and returns when that
block is on disk. A job is not handed out before it is on disk either. Nothing is awaited between a
check and the change, so that two calls cannot get the same job, and two jobs cannot have the same
key.
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Final

from leveret.engine.turns.session import Session
from leveret.errors import (
    JobsDrainingError,
    JobsFullError,
    JobsUnavailableError,
    LeadLostError,
    StorageError,
)
from leveret.job_model import (
    Enqueued,
    Handle,
    Job,
    LeasedJob,
    NewJob,
    Outcome,
    Schedule,
    TopicSettings,
    TopicStats,
)
from leveret.job_service.embedded import dead_jobs, fairness, idempotency_keys
from leveret.job_service.embedded.envelope import read_envelope
from leveret.job_service.embedded.host import Host
from leveret.job_service.embedded.id_generator import IdGenerator
from leveret.job_service.embedded.job_lists import LEASED, list_leased, list_waiting
from leveret.job_service.embedded.job_search import find_job, find_jobs, find_leased_jobs
from leveret.job_service.embedded.leases import Lease
from leveret.job_service.embedded.new_headers import NewHeaders
from leveret.job_service.embedded.plain_jobs import are_plain, payload_bytes
from leveret.job_service.embedded.queued_jobs import (
    Change,
    cancel_jobs,
    change_queued,
    deliver_jobs_now,
)
from leveret.job_service.embedded.rate_limits import RateLimits
from leveret.job_service.embedded.schedules import Schedules
from leveret.job_service.embedded.topic import Topic
from leveret.job_service.embedded.topics import Topics
from leveret.job_service.report import StoreReport
from leveret.job_service.store import AckedAndTaken, OnEnqueued, OnTaken
from leveret.slices import LoopShare, Slices, run_in_slices

NEW_TOPICS_MAX: Final = 10  # that an enqueue creates in one turn


class EmbeddedStore:
    """Jobs on the engine of this node."""

    begins_batches = True

    def __init__(self, host: Host, *, rate: int = 0) -> None:
        self._host = host
        self._ids = IdGenerator(host.broker.register, host.node_name)
        self._headers = NewHeaders()
        self._rates = RateLimits(rate)
        self._topics = Topics(host, self._ids)
        self._schedules = Schedules(host.broker, self._put_scheduled)
        self._is_draining = False
        self._unsafe: set[int] = set()  # jobs that are not on disk yet
        self._share = LoopShare(lambda: int(host.broker.turn.now_ms))  # of all searches and lists

    async def start(self) -> None:
        with self._host.turn():
            self._schedules.load()
            for namespace, topic in fairness.fair_topics(self._host.broker.register):
                self._open_fair_lines(namespace, topic)

    async def stop(self, deadline_s: float) -> None:
        self._is_draining = True
        for topic in self._topics.open():
            topic.waiters.answer_all()
        try:
            async with asyncio.timeout(deadline_s):
                await self._host.synced()
        except LeadLostError:
            return  # answered calls are committed, and calls that wait get this error
        except (StorageError, TimeoutError) as fault:
            raise JobsUnavailableError(f"the log of this node: {fault}") from fault

    def sessions(self) -> list[Session]:
        """Return the sessions that hold leased jobs."""
        return self._topics.sessions()

    def _holders(self, topic: Topic) -> list[Session]:
        """Return the sessions that may hold messages of a topic.

        A node may have many thousand sessions. Without consumers over AMQP the topic has its own.
        """
        if topic.queue.unacked == topic.session.unacked.count:
            return [topic.session]
        return self._host.sessions()

    async def _slices(self, namespace: str | None) -> Slices:
        """Return slices of the event loop. Namespaces take turns, also for the first slice.

        A batch may search for a thousand jobs, each in a slice that is not over.
        """
        slices = Slices(self._share, namespace or "")
        await slices.rest()
        return slices

    def creates_queue(self, namespace: str, topic: str) -> bool:
        vhost = self._host.broker.vhosts.get(namespace)
        return vhost is None or topic not in vhost.queues

    async def enqueue(self, jobs: list[NewJob]) -> Enqueued:
        self._require_ready()
        if new := self._many_new_topics(jobs):
            await run_in_slices((self._topics.at(*name) for name in new), self._host.turn)
            self._require_ready()
        with self._host.turn():
            found = self._put_unsafe(jobs)
        try:
            await self._host.synced()
        finally:
            self._unsafe.difference_update(found.ids)
        return found

    def begin_enqueue(self, jobs: list[NewJob], on_done: OnEnqueued) -> bool:
        self._require_ready()
        if self._many_new_topics(jobs):
            return False
        with self._host.turn():
            found = self._put_unsafe(jobs)
            end = self._host.sync_end()

        def on_synced(fault: Exception | None) -> None:
            self._unsafe.difference_update(found.ids)
            on_done(found if fault is None else fault)

        end.then(on_synced)
        return True

    def _many_new_topics(self, jobs: list[NewJob]) -> list[tuple[str, str]]:
        """Return the topics that a batch creates, if they are too many for one turn."""
        if len(jobs) <= NEW_TOPICS_MAX or are_plain(jobs):
            return []
        names = dict.fromkeys((job.namespace, job.topic) for job in jobs)
        new = [name for name in names if self.creates_queue(*name)]
        return new if len(new) > NEW_TOPICS_MAX else []

    def _require_ready(self) -> None:
        """Raise unless jobs can be enqueued now."""
        self._require_open()
        alarms = self._host.alarms()
        if alarms:
            raise JobsFullError(f"no job can be enqueued now: {'; '.join(alarms)}")

    def _put_unsafe(self, jobs: list[NewJob]) -> Enqueued:
        """Write jobs, inside a turn. They are not on disk yet."""
        if self._rates.is_limited:
            self._rates.take(Counter(job.namespace for job in jobs), self._now_ms)
        found = self._put_all(jobs)
        self._unsafe.update(found.ids)
        return found

    def _put_all(self, jobs: list[NewJob]) -> Enqueued:
        """Write all jobs, or none where one of them does not fit."""
        if are_plain(jobs):
            return self._put_plain(jobs)
        groups: dict[tuple[str, str], list[NewJob]] = {}
        for job in jobs:
            groups.setdefault((job.namespace, job.topic), []).append(job)
        topics = {name: self._topics.at(*name) for name in groups}
        for name, group in groups.items():
            _require_room(topics[name], group)
            if any(job.idempotency_key is not None for job in group):
                idempotency_keys.deduplication_of(topics[name].vhost)  # it may not be declared yet
        now_ms = self._now_ms
        ids: list[int] = []
        known = 0
        for job in jobs:
            topic = topics[job.namespace, job.topic]
            key, first = job.idempotency_key, None
            if key is not None:
                first = idempotency_keys.first_id(topic.vhost, key, now_ms)
                known += first is not None
            ids.append(self._put(topic, job, now_ms) if first is None else first)
        return Enqueued(ids, known)

    def _put_plain(self, jobs: list[NewJob]) -> Enqueued:
        """Write jobs of one topic without keys."""
        topic = self._topics.at(jobs[0].namespace, jobs[0].topic)
        _require_room(topic, jobs)
        now_ms = self._now_ms
        ids = self._ids.next_many(len(jobs), now_ms)
        topic.put_plain(jobs, self._headers.plain_headers(jobs, ids, now_ms))
        return Enqueued(ids, 0)

    def _put(self, topic: Topic, job: NewJob, now_ms: int) -> int:
        id = self._ids.next(now_ms)
        if job.fair_key is not None and topic.queue.ready.fair_lines is None:
            fairness.note_fair(self._host.broker.register, job.namespace, job.topic)
        is_taken = topic.put_new(job, self._headers.header(job, id, now_ms))
        assert is_taken, "there was room for it"
        if job.idempotency_key is not None:
            idempotency_keys.remember(topic.vhost, job.idempotency_key, id)
        topic.enqueued += 1
        return id

    def _put_scheduled(self, job: NewJob) -> None:
        """Enqueue the job of a schedule, inside a turn."""
        self._put_all([job])

    async def dequeue(
        self, namespace: str, topic: str, limit: int, lease_ms: int | None, wait_ms: int
    ) -> list[LeasedJob]:
        self._require_open()
        with self._host.turn():
            found = self._topics.at(namespace, topic)
            jobs = found.take(limit, lease_ms) if found.waiters.first() is None else []
        if not jobs and wait_ms:
            jobs = await found.wait(limit, lease_ms, wait_ms)
        if self._has_unsafe(jobs):
            floor_ms = self._ids.floor_ms
            await self._host.synced()
            self._ids.note_on_disk(floor_ms)
        return jobs

    def _has_unsafe(self, jobs: list[LeasedJob]) -> bool:
        """Return whether a kill may undo a job or its token.

        The client of the job enqueues it again: no worker may have seen it. The token would be that
        of another lease after the start: the worker could ack that.
        """
        if not jobs:
            return False
        if not self._ids.is_safe(jobs[-1].token):  # the last one is the greatest
            return True
        return not self._unsafe.isdisjoint([job.id for job in jobs])

    def begin_take(
        self,
        namespace: str,
        topic: str,
        handles: list[Handle],
        limit: int,
        lease_ms: int | None,
        on_done: OnTaken,
        *,
        may_find_none: bool,
    ) -> bool:
        found = self._topics.get(namespace, topic)
        if self._is_draining or found is None:
            return False
        with self._host.turn():
            jobs = found.ack_and_take(handles, limit, lease_ms, may_find_none=may_find_none)
            if jobs is None:
                return False
            end = self._host.sync_end() if handles or self._has_unsafe(jobs) else None
            floor_ms = self._ids.floor_ms
        taken = AckedAndTaken([Outcome.DONE] * len(handles), jobs)

        def on_synced(fault: Exception | None) -> None:
            if fault is None:
                self._ids.note_on_disk(floor_ms)
            on_done(taken if fault is None else fault)

        if end is None:
            on_done(taken)
        else:
            end.then(on_synced)
        return True

    async def ack(self, namespace: str, topic: str, handles: list[Handle]) -> list[Outcome]:
        return await self._settle(namespace, topic, handles, Topic.ack)

    async def nack(
        self,
        namespace: str,
        topic: str,
        handles: list[Handle],
        error: str,
        delay_ms: int | None,
        is_dead: bool = False,
    ) -> list[Outcome]:
        def fail(found: Topic, lease: Lease) -> None:
            found.fail(lease, error, delay_ms, is_dead)

        return await self._settle(namespace, topic, handles, fail, is_heavy=True)

    async def _settle(
        self,
        namespace: str,
        topic: str,
        handles: list[Handle],
        settle: Callable[[Topic, Lease], None],
        *,
        is_heavy: bool = False,
    ) -> list[Outcome]:
        found = self._topics.known(namespace, topic)
        if found is None:
            return [Outcome.UNKNOWN] * len(handles)
        outcomes: list[Outcome | None] = []

        def change(number: int) -> bool:
            lease = found.lease_of(handles[number])
            if isinstance(lease, Lease):
                settle(found, lease)
                lease = Outcome.DONE
            outcomes.append(lease)
            # The job of a repeated ack is unknown, which its client takes for done: a kill could
            # still undo the first ack.
            return lease is Outcome.DONE or lease is Outcome.UNKNOWN

        await found.change_each(len(handles), change, is_heavy=is_heavy)
        ids = [handle.id for handle in handles]
        open_ids = [id for id, outcome in zip(ids, outcomes, strict=True) if outcome is None]
        existing = await self._existing(found, open_ids) if open_ids else set()
        return [
            outcome or (Outcome.STALE if id in existing else Outcome.UNKNOWN)
            for id, outcome in zip(ids, outcomes, strict=True)
        ]

    async def _existing(self, topic: Topic, ids: list[int]) -> set[int]:
        """Return the jobs that are ready, scheduled, or held by a consumer over AMQP."""
        place = topic.vhost, topic.queue
        slices = await self._slices(topic.vhost.name)
        there = set(await find_jobs(*place, ids, slices))
        left = [id for id in ids if id not in there]
        return there | set(await find_leased_jobs(*place, left, self._holders(topic), slices))

    async def extend(
        self, namespace: str, topic: str, handles: list[Handle], lease_ms: int | None
    ) -> list[tuple[Outcome, int]]:
        ends: list[int] = []

        def extend(found: Topic, lease: Lease) -> None:
            ends.append(found.extend(lease, lease_ms))

        outcomes = await self._settle(namespace, topic, handles, extend)
        each = iter(ends)
        return [(o, next(each) if o is Outcome.DONE else 0) for o in outcomes]

    async def cancel(self, namespace: str, topic: str, ids: list[int]) -> list[Outcome]:
        return await self._each_found(namespace, topic, ids, cancel_jobs)

    async def deliver_now(self, namespace: str, topic: str, ids: list[int]) -> list[Outcome]:
        return await self._each_found(namespace, topic, ids, deliver_jobs_now)

    async def _each_found(
        self,
        namespace: str,
        topic: str,
        ids: list[int],
        change: Change,
    ) -> list[Outcome]:
        """Change jobs that are ready or scheduled."""
        self._require_open()
        found = self._topics.known(namespace, topic)
        if found is None:
            return [Outcome.UNKNOWN] * len(ids)
        place = found.vhost, found.queue
        slices = await self._slices(namespace)
        seqs = await find_jobs(*place, ids, slices)
        left = [id for id in ids if id not in seqs]
        held = await find_leased_jobs(*place, left, self._holders(found), slices)
        outcomes: list[Outcome] = []
        done = await change_queued(self._host, found, seqs, change)
        for id in ids:
            if id in done:
                done.discard(id)  # a batch may name a job twice
                outcomes.append(Outcome.DONE)
            else:
                is_leased = id in found.leases or id in held
                outcomes.append(Outcome.STALE if is_leased else Outcome.UNKNOWN)
        return outcomes

    async def find(self, namespace: str, topic: str, id: int) -> Job | None:
        found = self._topics.known(namespace, topic)
        if found is None:
            return None
        slices = await self._slices(namespace)
        lease = found.leases.get(id)
        if lease is not None:
            return lease.envelope.job(LEASED, lease.message.body, lease.expires_ms)
        message = await find_job(found.vhost, found.queue, id, slices)
        if message is not None:
            envelope = read_envelope(message.message, found.queue)
            return envelope.job(message.state, message.message.body)
        holders = self._holders(found)
        held = await find_leased_jobs(found.vhost, found.queue, [id], holders, slices)
        if held:  # by a consumer over AMQP
            return read_envelope(held[id], found.queue).job(LEASED, held[id].body)
        return await dead_jobs.find_dead(found, id, slices)

    async def list_jobs(
        self, namespace: str, topic: str, state: str, limit: int, after: str
    ) -> tuple[list[Job], str]:
        found = self._topics.known(namespace, topic)
        if found is None:
            return [], ""
        slices = await self._slices(namespace)
        if state == LEASED:
            return await list_leased(found, self._holders(found), limit, after, slices)
        return await list_waiting(found, state, limit, after, slices)

    async def dead(self, namespace: str, topic: str, after_id: int, limit: int) -> list[Job]:
        found = self._topics.known(namespace, topic)
        if found is None:
            return []
        return await dead_jobs.list_dead(found, after_id, limit, await self._slices(namespace))

    async def redrive(self, namespace: str, topic: str, ids: list[int] | None) -> int:
        return await self._each_dead(namespace, topic, ids, dead_jobs.redrive)

    async def delete_dead(self, namespace: str, topic: str, ids: list[int] | None) -> int:
        return await self._each_dead(namespace, topic, ids, dead_jobs.delete)

    async def _each_dead(
        self,
        namespace: str,
        topic: str,
        ids: list[int] | None,
        change: dead_jobs.Change,
    ) -> int:
        self._require_open()
        found = self._topics.known(namespace, topic)
        if found is None:
            return 0
        slices = await self._slices(namespace)
        return await dead_jobs.change_dead(self._host, found, ids, change, slices)

    async def settings(self, namespace: str, topic: str) -> TopicSettings:
        return self._topics.settings(namespace, topic)

    async def set_settings(self, namespace: str, topic: str, settings: TopicSettings) -> None:
        self._require_open()
        with self._host.turn():
            found = self._topics.set_settings(namespace, topic, settings)
            found.serve_waiters()
        await self._host.synced()

    async def stats(self, namespace: str | None) -> list[TopicStats]:
        slices = await self._slices(namespace)
        return [topic.stats() async for topic in self._topics.all(namespace, slices)]

    def report(self) -> StoreReport:
        return StoreReport()

    async def schedules(self, namespace: str) -> list[Schedule]:
        return self._schedules.of(namespace)

    async def set_schedule(self, schedule: Schedule) -> None:
        self._require_open()
        with self._host.turn():
            self._topics.at(schedule.namespace, schedule.topic)
            self._schedules.put(schedule)
        await self._host.synced()

    async def delete_schedule(self, namespace: str, name: str) -> bool:
        self._require_open()
        with self._host.turn():
            is_gone = self._schedules.drop(namespace, name)
        await self._host.synced()
        return is_gone

    @property
    def _now_ms(self) -> int:
        return int(self._host.broker.turn.now_ms)

    def _require_open(self) -> None:
        if self._is_draining:
            raise JobsDrainingError("the service is stopping")

    def _open_fair_lines(self, namespace: str, topic: str) -> None:
        """Open the fair lines of a topic that had them before the restart."""
        vhost = self._host.broker.vhosts.get(namespace)
        queue = vhost.queues.get(topic) if vhost is not None else None
        if queue is None or not queue.settings.has_jobs:
            fairness.forget_fair(self._host.broker.register, namespace, topic)
        else:
            fairness.open_fair_lines(queue)


def _require_room(topic: Topic, jobs: list[NewJob]) -> None:
    """Raise JobsFullError unless the queue of a topic has room for jobs."""
    if not topic.has_room(len(jobs), payload_bytes(jobs)):
        raise JobsFullError(f"the topic {topic.queue.name} is full")
