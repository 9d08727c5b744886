"""A queue: the state machine of every message in it.

    push ──► scheduled ──due──► ready ──deliver──► in flight ──ack──► gone
      └────────────────────────►  ▲ │                │ │
                                  │ └─expire, drop───┼─┴─reject──► leaving (dead letter …)
                                  └──requeue, timeout, consumer lost (perhaps scheduled first)

`Ready`, `Scheduled` and the sessions' `Unacked` hold the messages; this module moves them and keeps
the counts. What a queue is made of is in `queue_state`, its limits are in `queue_limits`, what time
does to it is in `queue_time`. A message that leaves other than by an ack goes to the turn's
`leaving` column: the broker dead-letters it after the command, so that no queue calls another.

Invariants: every message of the queue is in exactly one of ready, scheduled, in flight, or among
the vhost's stuck dead letters; `unacked` counts those in flight; after `pump` there is no ready
message that a consumer of the queue could take, and none that is dead at the head of its line.
"""

from typing import Final

from mypy_extensions import i64

from leveret.engine.arguments.queue_arguments import DROP_HEAD, QueueSettings
from leveret.engine.backlog.page_reader import PageReader
from leveret.engine.backlog.ready import Ready
from leveret.engine.history.life_events import REQUEUED
from leveret.engine.message import (
    COUNTED,
    LOGGED,
    NO_EXPIRY,
    PERSISTENT,
    REDELIVERED,
    Address,
    Message,
)
from leveret.engine.queues.emptying import drop_everything, drop_ready
from leveret.engine.queues.lifetimes import (
    expire,
    expire_heads,
    next_due_ms,
    note_arrivals,
    release,
    unused_until_ms,
    update_position,
)
from leveret.engine.queues.limits import drop_heads, is_over, refuse
from leveret.engine.queues.state import BATCH, QueueState
from leveret.engine.queues.telling import note_delivered, note_queued
from leveret.engine.timer_queue import NEVER
from leveret.engine.turns.events import consumer_changed
from leveret.engine.turns.session import DELIVERY_BYTES, DELIVERY_LIMIT, REJECTED, Consumer, Session
from leveret.errors import CorruptionError
from leveret.journal.journal import Journal

NO_TTL: Final = -1


class Queue(QueueState):
    """Moves the messages of one queue between its lines, its schedule and its consumers."""

    # The queue as a whole

    def message_count(self) -> i64:
        """Messages that can be had: what clients are told."""
        return self.ready.count

    def reconfigure(self, settings: QueueSettings) -> None:
        """Obey other rules from now on: a policy has changed.

        RabbitMQ: messages keep the expiry that they came with; what is over a new limit goes at
        once; the time until an unused queue goes begins anew.
        """
        if settings.expires_ms != self.settings.expires_ms:
            self.used_ms = self.turn.now_ms
        if settings.lazy != self.settings.lazy and self.ready.pages is not None:
            self.set_window(settings.lazy)
        self.settings = settings
        self.ttl_ms = settings.ttl_ms
        self.counts = settings.kind == "quorum" or settings.delivery_limit >= 0
        self.limited = settings.max_length >= 0 or settings.max_bytes >= 0
        if self.ready.pages is not None:
            self.ready.pages.set_counting(self.counts)
        for consumer in self.subscribers.members:
            consumer.set_timeout(settings.consumer_timeout_ms)
            if consumer.unacked != 0:
                self.turn.late.append(consumer.session)
        self.arm()
        if self.limited:
            self._drop_over_limit()
        self.touch()

    def attach(self, journal: Journal, pages: PageReader) -> None:
        """From now on there is a log."""
        self.ledger.journal = journal
        if self.ready.pages is None:
            self.open_pages(pages)
        assert self.ready.pages is not None
        self.ready.pages.journal = journal

    def purge(self) -> int:
        """Drop every ready message; those in flight and scheduled stay."""
        self.catch_up()
        return drop_ready(self)

    def close(self) -> None:
        """The queue is deleted: end its consumers and forget its messages."""
        drop_everything(self)
        self.turn.timers.disarm(self.timer)
        self.end_consumers()

    # Coming in

    def push(
        self,
        address: Address,
        header: bytes,
        body: bytes,
        ttl_ms: i64,
        priority: i64,
        flags: i64,
        delay_ms: i64,
    ) -> bool:
        """Add a message at the end of its priority; False when the queue refuses it."""
        turn = self.turn
        if self.ttl_ms >= 0 and (ttl_ms < 0 or self.ttl_ms < ttl_ms):
            ttl_ms = self.ttl_ms
        expires_ms: i64 = NO_EXPIRY
        if ttl_ms >= 0:
            expires_ms = turn.now_ms + delay_ms + ttl_ms
            self.has_expiries = True
        seq = self.next_seq
        self.next_seq = seq + 1
        if self.priority_max >= 0:
            priority = self.settings.clamp(priority)
        message = Message(address, header, body, seq, expires_ms, priority, flags, self.slot)
        if self.limited and self.settings.overflow != DROP_HEAD and self._is_full(len(body)):
            refuse(self, message)
            return False
        self.published += 1
        due_ms = turn.now_ms + delay_ms if delay_ms > 0 else NEVER
        if self.ledger.journal is not None:
            self._keep(message, due_ms)
        if self.chronicle is not None:
            note_queued(self, message)
        if due_ms != NEVER:
            self.scheduled.add(message, due_ms)
            self.arm()
        else:
            self.ready.push(message)
            if self.limited:
                self._drop_over_limit()
        if not self.dirty:
            self.dirty = True
            turn.dirty.append(self)
        return True

    def _keep(self, message: Message, due_ms: i64) -> None:
        """Write a message to the log, if it must survive or does not fit in memory."""
        if self.durable and (message.flags & PERSISTENT or self.is_quorum):
            self.ledger.write_message(message, due_ms)
            self.turn.logged = True
        elif self.scheduled.is_full() if due_ms != NEVER else self.ready.is_full(message.priority):
            self.ledger.spill(message)

    def has_room(self, more: i64, more_bytes: i64) -> bool:
        """Whether so many messages can come without breaking a limit, by refusal or by drops."""
        if not self.limited or not is_over(self, more, more_bytes):
            return True
        self.pump()
        return not is_over(self, more, more_bytes)

    def _is_full(self, body_bytes: i64) -> bool:
        """Whether one more message would go over a limit. What can be delivered goes first."""
        if not is_over(self, 1, body_bytes):
            return False
        self.pump()
        return is_over(self, 1, body_bytes)

    def _drop_over_limit(self) -> None:
        """RabbitMQ: what a consumer can take is not counted; then the head goes, young or old."""
        if self.settings.overflow != DROP_HEAD or not is_over(self, 0, 0):
            return
        self.pump()
        drop_heads(self)

    def _drop_returned(self) -> None:
        """RabbitMQ: what comes back to a classic queue counts before a consumer can take it."""
        if self.is_quorum:
            self._drop_over_limit()
        elif self.settings.overflow == DROP_HEAD:
            drop_heads(self)

    # Going out

    def pump(self) -> None:
        """Deliver what can be delivered, drop what is dead, arm the timer."""
        while True:
            try:
                self._pump()
                return
            except CorruptionError as fault:
                self.note_damage(fault)

    def _pump(self) -> None:
        ready = self.ready
        now_ms = self.turn.now_ms
        if self.next_seq != self.arrival_times.next_seq:
            note_arrivals(self, now_ms)
        if not self.paused:
            self._hand_out(ready, now_ms)
        if self.has_expiries and ready.count != 0:
            expire_heads(self, now_ms)
        if self.has_expiries:
            self.arm()

    def _hand_out(self, ready: Ready, now_ms: i64) -> None:
        """Deliver while there is a message and a consumer that can take it."""
        rota = self.subscribers.rota
        while ready.count != 0:
            consumer = rota.next()
            if consumer is None:
                return
            message = ready.pop()
            # A message that dies in the turn in which it came may still be delivered (TTL 0).
            if message.expires_ms != NO_EXPIRY and message.expires_ms < now_ms:
                expire(self, message)
                continue
            self._deliver(consumer, message)

    def _deliver(self, consumer: Consumer, message: Message) -> None:
        session = consumer.session
        tag = session.last_tag + 1
        session.last_tag = tag
        body_bytes: i64 = len(message.body)
        session.outlet.credit -= body_bytes + len(message.header) + DELIVERY_BYTES
        message.tag = tag
        message.holder = consumer
        consumer.delivered += 1
        if self.chronicle is not None:
            note_delivered(self, message, consumer.tag, consumer.no_ack)
        if message.flags & REDELIVERED:
            self.redelivered += 1
            session.redelivered += 1
        if consumer.no_ack:
            self.delivered_no_ack += 1
            session.unacked.skip(tag)
            self.ledger.forget(message)
        else:
            self.delivered += 1
            self.ledger.note_delivered(message)
            consumer.unacked += 1
            consumer.unacked_bytes += body_bytes
            session.consumed += 1
            session.consumed_bytes += body_bytes
            self.hold(session, message, body_bytes, consumer.timeout_ms)
        if not session.outbox:
            self.turn.outboxes.append(session)
        session.outbox.append(message)

    def hold(self, session: Session, message: Message, body_bytes: i64, timeout_ms: i64) -> None:
        """Put a message in flight."""
        self.unacked += 1
        self.unacked_bytes += body_bytes
        message.taken_ms = self.turn.now_ms
        session.unacked.add(message)
        if timeout_ms != 0:
            self.turn.timers.arm(session, self.turn.now_ms + timeout_ms)

    # Coming back

    def settle(self, message: Message) -> None:
        """The message is no longer in flight: give its holder room again."""
        body_bytes: i64 = len(message.body)
        self.unacked -= 1
        self.unacked_bytes -= body_bytes
        holder = message.holder
        assert holder is not None
        message.holder = None
        holder.unacked -= 1
        holder.unacked_bytes -= body_bytes
        if isinstance(holder, Consumer):
            session = holder.session
            session.consumed -= 1
            session.consumed_bytes -= body_bytes
            if holder.parked:
                self.unpark(holder)
            if session.shared_prefetch != 0 or session.shared_prefetch_bytes != 0:
                self.turn.roomy.append(session)

    def put_back(self, message: Message, *, failed: bool) -> None:
        """A message comes back: to its place, to the schedule, or out for too many failures."""
        message.flags |= REDELIVERED
        message.returns += 1
        if self.counts:
            message.flags |= COUNTED
        if failed:
            message.failures += 1
            limit = self.settings.delivery_limit
            if limit >= 0 and message.failures > limit:
                self.leave(message, DELIVERY_LIMIT)
                return
        if self.chronicle is not None:
            self.note(REQUEUED, message, "")
        delay_ms = self.settings.retry_delay_ms(message.failures, failed)
        due_ms = self.turn.now_ms + delay_ms if delay_ms > 0 else NEVER
        if message.flags & LOGGED and (self.counts or due_ms != NEVER):
            self.ledger.write_return(message, due_ms)
        if due_ms != NEVER:
            update_position(self, message)
            self.scheduled.add(message, due_ms)
            self.arm()
        else:
            self.ready.put_back(message)
            if self.limited:
                self._drop_returned()
        self.touch()

    def discard(self, message: Message) -> None:
        """A consumer refused the message for good."""
        self.leave(message, REJECTED)

    # Time

    def on_due(self, now_ms: i64) -> i64:
        """Something is due: scheduled messages, expired ones, or the queue itself."""
        left = BATCH
        message = self.scheduled.pop_due(now_ms)
        while message is not None:
            release(self, message)
            if self.limited:
                self._drop_over_limit()
            left -= 1
            message = self.scheduled.pop_due(now_ms) if left > 0 else None
        expire_heads(self, now_ms)
        if self.limited:
            self._drop_over_limit()
        expires_ms = unused_until_ms(self)
        if expires_ms != NEVER and expires_ms <= now_ms:
            self.turn.doomed.append(self)
            return NEVER
        self.touch()
        return next_due_ms(self)

    def arm(self) -> None:
        """Wake up when something is due next."""
        try:
            due = next_due_ms(self)
        except CorruptionError as fault:
            self.note_damage(fault)
            due = self.turn.now_ms  # look again at what is left
        if due != NEVER:
            self.turn.timers.arm(self.timer, due)

    def catch_up(self) -> None:
        """Deliver now what this turn has brought, for a command that looks at what is left."""
        if self.dirty:
            self.pump()

    # Consumers

    def add_consumer(self, consumer: Consumer) -> None:
        """Let a consumer take part; the caller has checked that it may."""
        self.subscribers.add(consumer)
        self.note_consumer("consumer.created", consumer)
        self.touch()

    def remove_consumer(self, consumer: Consumer) -> None:
        """A consumer is gone; what it holds stays in flight until its session says more."""
        self.subscribers.remove(consumer)
        self.note_consumer("consumer.deleted", consumer)
        self.used_ms = self.turn.now_ms
        if not self.subscribers.members:
            if self.auto_delete:
                self.turn.doomed.append(self)
            else:
                self.arm()
        self.touch()

    def note_consumer(self, event: str, consumer: Consumer) -> None:
        """Tell whoever listens of a consumer that comes or goes."""
        if self.turn.listens:
            consumer_changed(self.turn, event, self.vhost, self.name, consumer)

    def end_consumers(self) -> None:
        """The queue is deleted: all consumers go."""
        for consumer in self.subscribers.end_all():
            self.note_consumer("consumer.deleted", consumer)
            self.turn.ended.append(consumer)

    def unpark(self, consumer: Consumer) -> None:
        """A parked consumer may have room again."""
        self.subscribers.unpark(consumer)
        self.touch()
