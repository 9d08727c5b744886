"""A topic: one queue of the engine, the leases of its jobs, and the calls that wait for jobs.

    enqueue ──► queue (ready or scheduled) ──take──► lease ──ack──► gone
                  ▲                                   │
                  └──── nack, lease ran out ──────────┴──► dead, if it failed too often

A lease is a message in flight in the topic's session. A job that fails is written anew, with the
failure in its headers, and its old message is settled in the same turn. A turn is one block of the
log, so that a kill leaves exactly one of the two.

Methods that change the topic are called inside a turn. Invariant: `leases` has one entry for each
message that the session holds, besides a message that the consumer has just received.
"""

import asyncio
import random
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from leveret.engine.arguments.queue_arguments import REJECT_PUBLISH
from leveret.engine.broker import Broker
from leveret.engine.commands.local_session import LocalSession
from leveret.engine.commands.settling import ack_taken, close_session, give_back
from leveret.engine.message import PERSISTENT, Address, Message
from leveret.engine.queues.getting import take_next
from leveret.engine.queues.queue import NO_TTL, Queue
from leveret.engine.queues.state import BATCH
from leveret.engine.timer_queue import TimedCallback
from leveret.engine.turns.outcomes import QUEUED
from leveret.engine.turns.session import Outlet
from leveret.engine.vhosts.vhost import Vhost
from leveret.errors import EngineError
from leveret.job_model import (
    BATCH_BYTES_MAX,
    DEAD_SUFFIX,
    Handle,
    LeasedJob,
    NewJob,
    Outcome,
    TopicSettings,
    TopicStats,
)
from leveret.job_service.backoff import backoff_ms, is_dead
from leveret.job_service.embedded.block_limit import LATER_MS, is_block_full
from leveret.job_service.embedded.envelope import Envelope, read_envelope
from leveret.job_service.embedded.host import Host
from leveret.job_service.embedded.id_generator import IdGenerator
from leveret.job_service.embedded.leases import Lease, Leases
from leveret.job_service.embedded.plain_jobs import push_plain, pushed_priority
from leveret.job_service.embedded.waiters import NextMessageConsumer, Waiter, Waiters
from leveret.wire.tables import Table, field_of

RAN_OUT: Final = "the lease ran out"
ENDED_KEPT: Final = (
    10_000  # jobs whose last lease has ended: their outcome is known without a search
)
DEAD_AGAIN_MS: Final = 10_000  # until a job that cannot be put among the dead ones is tried again
TOPIC_ARGUMENTS: Final[Table] = {
    "x-queue-type": field_of("classic"),
    "x-jobs": field_of(True),
}
_DEAD_ARGUMENTS: Final[Table] = {"x-queue-type": field_of("classic")}


class Topic:
    """One topic of one namespace."""

    def __init__(
        self, host: Host, ids: IdGenerator, vhost: Vhost, queue: Queue, settings: TopicSettings
    ) -> None:
        self.vhost = vhost
        self.queue = queue
        self.settings = settings
        self.leases = Leases()
        self.waiters = Waiters()
        self._host = host
        self._ids = ids
        self._chance: Callable[[], float] = random.random
        self._address = Address("", queue.name)
        outlet = Outlet()
        outlet.name = f"jobs {vhost.name}/{queue.name}"
        broker = host.broker
        self.session = LocalSession(outlet, broker.turn, self._on_message, _ignore, self._on_ended)
        self._consumer = NextMessageConsumer(self.session, outlet, queue, broker.slots)
        self._waking = TimedCallback(self._on_due)
        self._is_told = False  # the log says that dead jobs cannot be kept as such
        self._ended: OrderedDict[int, bool] = OrderedDict()  # whether the job is gone, by id
        self._rewritten = 0  # jobs that were written again
        # Counters since the node started.
        self.enqueued = 0
        self.handed_out = 0
        self.acked = 0
        self.failed = 0
        self.expired = 0

    @property
    def _broker(self) -> Broker:
        return self._host.broker

    def dead_queue(self) -> Queue | None:
        """Return the queue of dead jobs; None where no job has died yet."""
        return self.vhost.queues.get(self.queue.name + DEAD_SUFFIX)

    def stats(self) -> TopicStats:
        queue = self.queue
        dead_queue = self.dead_queue()
        return TopicStats(
            namespace=self.vhost.name,
            topic=queue.name,
            ready=queue.ready.count,
            scheduled=len(queue.scheduled),
            leased=len(self.leases),
            dead=0 if dead_queue is None else dead_queue.ready.count,
            oldest_ready_ms=queue.oldest_ready_ms() or None,
            enqueued=self.enqueued,
            handed_out=self.handed_out,
            acked=self.acked,
            failed=self.failed,
            expired=self.expired,
        )

    def has_room(self, count: int, size: int) -> bool:
        return self.queue.has_room(count, size)

    def put_new(self, job: NewJob, header: bytes) -> bool:
        """Write a new job as ready or scheduled; False where the queue refuses it."""
        if job.fair_key is not None:
            self._open_fair_lines()
        return self._push(header, job.payload, job.priority, job.deliver_after_ms)

    def put_plain(self, jobs: list[NewJob], headers: list[bytes]) -> None:
        """Write new jobs without fair keys. The queue has room for them."""
        push_plain(self.queue, self._address, jobs, headers)
        self.enqueued += len(jobs)

    def put(self, envelope: Envelope, payload: bytes) -> bool:
        """Write a job again as ready or scheduled; False where the queue refuses it."""
        if envelope.fair_key is not None:
            self._open_fair_lines()
        self._rewritten += 1
        header = envelope.header(len(payload))
        return self._push(header, payload, envelope.priority, envelope.after_ms)

    def _open_fair_lines(self) -> None:
        if self.queue.settings.has_jobs:
            self.queue.ready.open_fair_lines()

    def _push(self, header: bytes, payload: bytes, priority: int, after_ms: int) -> bool:
        outcome = self.queue.push(
            self._address,
            header,
            payload,
            ttl_ms=NO_TTL,
            priority=pushed_priority(self.queue, priority),
            flags=PERSISTENT,
            delay_ms=max(after_ms - self.queue.turn.now_ms, 0),
        )
        return outcome & QUEUED != 0

    def take(self, limit: int, lease_ms: int | None) -> list[LeasedJob]:
        """Lease the most urgent jobs."""
        leased: list[LeasedJob] = []
        size = 0
        while len(leased) < limit and size < BATCH_BYTES_MAX and self._has_slot():
            message = (
                None if self.queue.paused else take_next(self.session, self.queue, no_ack=False)
            )
            if message is None:
                break
            size += len(message.body)
            leased.append(self._lease(message, lease_ms))
        return leased

    def _has_slot(self) -> bool:
        most = self.settings.concurrency_max
        return most is None or len(self.leases) < most

    def _lease(self, message: Message, lease_ms: int | None) -> LeasedJob:
        now_ms = self.queue.turn.now_ms
        envelope = read_envelope(message, self.queue)
        if not envelope.id or envelope.id in self.leases:
            envelope.id = self._ids.next(now_ms)
        expires_ms = now_ms + (self.settings.lease_ms if lease_ms is None else lease_ms)
        lease = Lease(envelope.id, self._ids.next(now_ms), message, envelope, expires_ms)
        self.leases.hold(lease)
        self._arm(expires_ms)
        self.handed_out += 1
        return LeasedJob(
            id=lease.id,
            token=lease.token,
            payload=message.body,
            priority=envelope.priority,
            attempt=envelope.attempts + 1,
            deliver_after_ms=envelope.after_ms,
            created_ms=envelope.created_ms,
            lease_expires_ms=expires_ms,
            fair_key=envelope.fair_key,
        )

    async def wait(self, limit: int, lease_ms: int | None, wait_ms: int) -> list[LeasedJob]:
        """Lease jobs as soon as there are some; return none after `wait_ms`."""
        waiter = Waiter(limit, lease_ms)
        self.waiters.add(waiter)
        with self._host.turn():
            self.serve_waiters()
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(wait_ms / 1000):
                    return await asyncio.shield(waiter.jobs)
            return waiter.jobs.result() if waiter.jobs.done() else []
        except asyncio.CancelledError:
            if waiter.jobs.done() and not waiter.jobs.cancelled():
                self._give_back(waiter.jobs.result())
            raise
        finally:
            waiter.jobs.cancel()
            self.waiters.remove(waiter)
            self._quit_waiting()

    def _quit_waiting(self) -> None:
        if self.waiters.first() is None and not self.queue.deleted:
            with self._host.turn():
                self._consumer.stop()

    def _give_back(self, jobs: list[LeasedJob]) -> None:
        """Return jobs to the queue that a call was given just when it was cancelled."""
        with self._host.turn():
            for job in jobs:
                lease = self.leases.get(job.id)
                if lease is not None and lease.token == job.token:
                    self.leases.end(lease)
                    self.session.unacked.take(lease.message.tag)
                    give_back(self._broker.slots, [lease.message], failed=False)
            self.serve_waiters()

    def serve_waiters(self) -> None:
        """Lease jobs to the waiting calls; start the consumer where there are too few."""
        waiter = self.waiters.first()
        while waiter is not None and self._has_slot():
            jobs = self.take(waiter.limit, waiter.lease_ms)
            if not jobs:
                self._consumer.start()
                return
            waiter.jobs.set_result(jobs)
            waiter = self.waiters.first()

    def _on_message(self, messages: list[Message]) -> None:
        """Keep the message. A turn is running, so the message is handed out in the next one."""
        self._consumer.keep(messages)
        asyncio.get_running_loop().call_soon(self._serve_message)

    def _on_ended(self) -> None:
        """End all waits: the queue was deleted. The next call creates the topic again."""
        self.session.consumers.clear()  # another queue may get its slot
        self.waiters.answer_all()

    def _serve_message(self) -> None:
        with self._host.turn():
            waiter = self.waiters.first()
            if waiter is None or self.queue.deleted or not self._has_slot():
                self._consumer.stop()
                return
            jobs = [
                self._lease(message, waiter.lease_ms) for message in self._consumer.stop_and_take()
            ]
            jobs += self.take(waiter.limit - len(jobs), waiter.lease_ms)
            if jobs:
                waiter.jobs.set_result(jobs)
            self.serve_waiters()

    async def change_each(
        self, count: int, change: Callable[[int], bool], *, is_heavy: bool
    ) -> None:
        """Call `change` with each number below `count`, in as few turns as the log allows.

        It returns whether its change must be on disk before this call returns. `is_heavy`: it
        usually writes a job again.
        """
        at = 0
        while at < count:
            while is_heavy and is_block_full(self._broker):
                await self._host.synced()
            with self._host.turn():
                before, must_sync = self._rewritten, False
                while at < count:
                    must_sync |= change(at)
                    at += 1
                    if self._rewritten != before and is_block_full(self._broker):
                        break
                self.serve_waiters()
                synced = self._host.begin_sync() if must_sync or at < count else None
            if synced is not None:
                await synced

    def lease_of(self, handle: Handle) -> Lease | Outcome | None:
        """Return the live lease that a handle names, or the outcome where there is none.

        None: the job is not leased here and must be searched for.
        """
        lease = self.leases.get(handle.id)
        if lease is not None and not self._is_held(lease):
            self.leases.end(lease)  # the engine requeued it by a timeout of the queue
            lease = None
        if lease is None:
            is_gone = self._ended.get(handle.id)
            if is_gone is None:
                return None
            return Outcome.UNKNOWN if is_gone else Outcome.STALE
        if handle.token is not None and handle.token != lease.token:
            return Outcome.STALE
        if lease.expires_ms <= self.queue.turn.now_ms:
            self._expire(lease)
            return Outcome.STALE
        return lease

    def _is_held(self, lease: Lease) -> bool:
        return self.session.unacked.find(lease.message.tag) is lease.message

    def ack_and_take(
        self, handles: list[Handle], limit: int, lease_ms: int | None, *, may_find_none: bool
    ) -> list[LeasedJob] | None:
        """Settle jobs as done, and lease the most urgent ones.

        Return None, with nothing changed, if one of these jobs has no live lease, if other calls
        wait for jobs or for the end of a lease, or if no job is found and `may_find_none` is not
        set.
        """
        if self.waiters.first() is not None or self.settings.concurrency_max is not None:
            return None
        leases = {handle.id: self._live_lease(handle) for handle in handles}
        if None in leases.values() or len(leases) < len(handles):
            return None
        jobs = self.take(limit, lease_ms)
        if not (jobs or may_find_none):
            return None
        for lease in leases.values():
            assert lease is not None
            self.ack(lease)
        return jobs

    def _live_lease(self, handle: Handle) -> Lease | None:
        """Return the live lease that a handle names; None if there is none."""
        lease = self.leases.get(handle.id)
        if lease is None or not self._is_held(lease):
            return None
        if handle.token is not None and handle.token != lease.token:
            return None
        return lease if lease.expires_ms > self.queue.turn.now_ms else None

    def ack(self, lease: Lease) -> None:
        """Settle a job as done."""
        self._settle(lease, is_gone=True)
        self.acked += 1

    def extend(self, lease: Lease, lease_ms: int | None) -> int:
        """Extend a lease; return its new end."""
        length_ms = self.settings.lease_ms if lease_ms is None else lease_ms
        lease.expires_ms = self.queue.turn.now_ms + length_ms
        self.leases.hold(lease)
        self._arm(lease.expires_ms)
        return lease.expires_ms

    def fail(self, lease: Lease, error: str, delay_ms: int | None, is_last: bool) -> None:
        """Settle a job as failed, for another attempt or as dead."""
        self.failed += 1
        if is_last:
            self._put_back(lease, error, 0, is_last)
            return
        if delay_ms is None:
            attempts = lease.envelope.attempts + 1
            delay_ms = backoff_ms(self.settings, attempts, self._chance())
        self._put_back(lease, error, delay_ms)

    def _expire(self, lease: Lease) -> None:
        self.expired += 1
        self._put_back(lease, RAN_OUT, 0)

    def _put_back(self, lease: Lease, error: str, delay_ms: int, is_last: bool = False) -> None:
        """Write a failed job anew, in its queue or the dead queue, and settle its old message."""
        envelope = lease.envelope
        now_ms = self.queue.turn.now_ms
        body = lease.message.body
        if self.queue.deleted:
            self._settle(lease, is_gone=True)
            return
        envelope.note_failure(error, now_ms)
        envelope.after_ms = now_ms + delay_ms
        if is_last or is_dead(self.settings, envelope.attempts):
            if self._put_dead(envelope, body):
                self._settle(lease, is_gone=True)
                return
            envelope.after_ms = now_ms + DEAD_AGAIN_MS
        if self.queue.has_room(1, len(body)) and self.put(envelope, body):
            self._settle(lease, is_gone=False)
        else:  # the queue is full: requeue the old message, so that the job is not lost
            self._end(lease, is_gone=False)
            self.session.unacked.take(lease.message.tag)
            give_back(self._broker.slots, [lease.message], failed=True)

    def _put_dead(self, envelope: Envelope, body: bytes) -> bool:
        """Write a dead job. Return False if its queue cannot be made, or is full and refuses it."""
        dead = self.dead_queue()
        if dead is None:
            name = self.queue.name + DEAD_SUFFIX
            try:
                dead = self.vhost.declare_queue(name, durable=True, arguments=_DEAD_ARGUMENTS)
            except EngineError as fault:  # the vhost has a limit
                self._note_not_dead(str(fault))
                return False
        if dead.settings.overflow == REJECT_PUBLISH and not dead.has_room(1, len(body)):
            self._note_not_dead(f"the queue '{dead.name}' in vhost '{self.vhost.name}' is full")
            return False
        self._rewritten += 1
        address = Address("", dead.name)
        dead.push(
            address,
            envelope.header(len(body)),
            body,
            ttl_ms=NO_TTL,
            priority=0,
            flags=PERSISTENT,
            delay_ms=0,
        )
        self._is_told = False
        return True

    def _note_not_dead(self, why: str) -> None:
        """Log once why dead jobs stay in the topic."""
        if not self._is_told:
            self._is_told = True
            what = f"dead jobs of the topic '{self.queue.name}' are tried again"
            self.queue.turn.note_unusable(what, why)

    def _settle(self, lease: Lease, *, is_gone: bool) -> None:
        self._end(lease, is_gone=is_gone)
        self.session.unacked.take(lease.message.tag)
        ack_taken(self._broker.slots, [lease.message])

    def _end(self, lease: Lease, *, is_gone: bool) -> None:
        if lease.id in self.leases:
            self.leases.end(lease)
        self.note_ended(lease.id, is_gone=is_gone)

    def note_ended(self, id: int, *, is_gone: bool) -> None:
        """Remember that a job is not leased any more."""
        self._ended.pop(id, None)
        self._ended[id] = is_gone
        if len(self._ended) > ENDED_KEPT:
            self._ended.popitem(last=False)

    def _arm(self, due_ms: int) -> None:
        self.queue.turn.timers.arm(self._waking, due_ms)

    def _on_due(self, now_ms: int) -> int:
        """Expire leases that ran out. At most BATCH in one turn; the rest follows in another."""
        for _ in range(BATCH):
            if is_block_full(self._broker):
                self.serve_waiters()
                return now_ms + LATER_MS
            lease = self.leases.pop_due(now_ms)
            if lease is None:
                break
            if self._is_held(lease):
                self._expire(lease)
        self.serve_waiters()
        return self.leases.next_due_ms()

    def close(self) -> None:
        """End all leases and all waits: the topic is gone, or the node stops."""
        self.queue.turn.timers.disarm(self._waking)
        self.waiters.answer_all()
        close_session(self._broker.slots, self.session)


def _ignore(seq: int, is_taken: bool) -> None:
    """Do nothing: the session of a topic publishes nothing."""
