"""A queue: the state machine of every message in it.

    push ──► scheduled ──due──► ready ──deliver──► in flight ──ack──► gone
      └────────────────────────►  ▲ │                │ │
                                  │ └─expire, drop───┼─┴─reject──► leaving (dead letter …)
                                  └──requeue, timeout, consumer lost (perhaps scheduled first)

`Ready`, `Scheduled` and the `Unacked` of sessions hold the messages. This module moves the messages
and keeps the counts. The fields are in `state`, the length limits in `limits`, everything about
time in `lifetimes`. A message that leaves other than by an ack goes to the turn's `leaving` column.
The broker dead-letters it after the command, so that no queue calls another.

Invariants:

- Every message of the queue is in exactly one place: ready, scheduled, in flight, or among the
  vhost's stuck dead letters.
- `unacked` counts the messages in flight.
- After `pump` no consumer of the queue could take a ready message, and no line has an expired
  message at its head.
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
from leveret.engine.queues.chronicle_notes import note_delivered, note_queued
from leveret.engine.queues.emptying import drop_everything, drop_ready
from leveret.engine.queues.lifetimes import (
    expire,
    expire_heads,
    next_due_ms,
    note_arrivals,
    release_due,
    unused_until_ms,
    update_position,
)
from leveret.engine.queues.limits import drop_heads, is_over, refuse
from leveret.engine.queues.rescue import rescue
from leveret.engine.queues.state import BATCH, QueueState
from leveret.engine.timer_queue import NEVER
from leveret.engine.turns.events import CONSUMER_CREATED, CONSUMER_DELETED, note_consumer
from leveret.engine.turns.outcomes import IN_LOG, QUEUE_FULL, QUEUED
from leveret.engine.turns.session import DELIVERY_BYTES, Consumer, Session
from leveret.engine.turns.turn import DELIVERY_LIMIT, LOG_WAIT_MS, REJECTED
from leveret.errors import CorruptionError
from leveret.journal.journal import BIG_BODY_BYTES, Journal

NO_TTL: Final = -1


class Queue(QueueState):
    """Moves the messages of one queue between its lines, its schedule and its consumers."""

    def message_count(self) -> i64:
        """Return the number of ready messages, as clients are told."""
        return self.ready.count

    def reconfigure(self, settings: QueueSettings) -> None:
        """Use other settings from now on, because a policy has changed.

        RabbitMQ: messages keep the expiry that they have. Messages over a new limit go at once.
        The time until an unused queue expires starts again.
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
        for consumer in self.subscribers.holders():
            consumer.set_timeout(settings.consumer_timeout_ms)
            if consumer.unacked != 0:
                self.turn.late.append(consumer.session)
        self.arm()
        if self.limited:
            self._drop_over_limit()
        self.touch()

    def attach(self, journal: Journal, pages: PageReader) -> None:
        """Write to this log from now on.

        After a start, messages that were in flight are ready and count for the length limit.
        Messages over the limit are dropped in the first turn, when the log takes dead letters.
        """
        self.ledger.journal = journal
        if self.ready.pages is None:
            self.open_pages(pages)
        assert self.ready.pages is not None
        self.ready.pages.journal = journal
        if self.settings.overflow == DROP_HEAD and is_over(self, 0, 0):
            self.turn.timers.arm(self.timer, self.turn.now_ms)

    def purge(self) -> int:
        """Drop every ready message. Messages in flight and scheduled ones stay."""
        self.catch_up()
        return drop_ready(self)

    def close(self) -> None:
        """End the consumers and forget the messages of a queue that is deleted."""
        drop_everything(self)
        self.turn.timers.disarm(self.timer)
        self.end_consumers()

    def push(
        self,
        address: Address,
        header: bytes,
        body: bytes,
        *,
        ttl_ms: i64,
        priority: i64,
        flags: i64,
        delay_ms: i64,
    ) -> i64:
        """Add a message at the end of its priority. Return QUEUED, with IN_LOG, or QUEUE_FULL."""
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
            return QUEUE_FULL
        self.published += 1
        due_ms = turn.now_ms + delay_ms if delay_ms > 0 else NEVER
        outcome: i64 = QUEUED
        if self.ledger.journal is not None:
            outcome = self._keep(message, due_ms)
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
        return outcome

    def _keep(self, message: Message, due_ms: i64) -> i64:
        """Write a message to the log, if it must survive or does not fit in memory.

        Return the outcome of the push. A message that was written only because memory is short
        need not be synced.
        """
        if self.durable and (message.flags & PERSISTENT or self.is_quorum):
            self.ledger.write_message(message, due_ms)
            return QUEUED | IN_LOG
        if self.scheduled.is_full() if due_ms != NEVER else self.ready.is_full(message.priority):
            self.ledger.spill(message)
        return QUEUED

    def has_room(self, more: i64, more_bytes: i64) -> bool:
        """Return True if so many messages more break no limit, after all possible deliveries."""
        if not self.limited or not is_over(self, more, more_bytes):
            return True
        self.pump()
        return not is_over(self, more, more_bytes)

    def _is_full(self, body_bytes: i64) -> bool:
        """Return True if one more message breaks a limit, after all possible deliveries."""
        if not is_over(self, 1, body_bytes):
            return False
        self.pump()
        return is_over(self, 1, body_bytes)

    def _drop_over_limit(self) -> None:
        """Drop from the head. RabbitMQ: messages that a consumer can take do not count."""
        if self.settings.overflow != DROP_HEAD or not is_over(self, 0, 0):
            return
        self.pump()
        drop_heads(self)

    def drop_returned(self) -> None:
        """Drop after a requeue. RabbitMQ: a classic queue does not deliver first."""
        if not self.limited:
            return
        if self.is_quorum:
            self._drop_over_limit()
        elif self.settings.overflow == DROP_HEAD:
            drop_heads(self)

    def pump(self) -> None:
        """Deliver all that can be delivered, drop expired messages, and arm the timer."""
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
        round_robin = self.subscribers.round_robin
        while ready.count != 0:
            consumer = round_robin.next()
            if consumer is None:
                return
            message = ready.pop()
            # A message that expires in the turn of its arrival may still be delivered (TTL 0).
            if message.expires_ms != NO_EXPIRY and message.expires_ms < now_ms:
                expire(self, message)
                continue
            try:
                self._deliver(consumer, message)
            except Exception as fault:
                self._on_undelivered(consumer, message, fault)

    def _on_undelivered(self, consumer: Consumer, message: Message, fault: Exception) -> None:
        """Send the message if it was put in flight before the fault. Otherwise rescue it."""
        session = consumer.session
        if session.unacked.find(message.tag) is message and message not in session.unsent:
            if not session.unsent:
                self.turn.deliveries.append(session)
            session.unsent.append(message)
        rescue(self, message, fault)

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
            note_delivered(self, message, consumer=consumer.tag, no_ack=consumer.no_ack)
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
        if not session.unsent:
            self.turn.deliveries.append(session)
        session.unsent.append(message)

    def hold(self, session: Session, message: Message, body_bytes: i64, timeout_ms: i64) -> None:
        """Put a message in flight."""
        session.unacked.add(message)
        self.unacked += 1
        self.unacked_bytes += body_bytes
        self.unacked_header_bytes += len(message.header)
        message.taken_ms = self.turn.now_ms
        if timeout_ms != 0:
            self.turn.timers.arm(session, self.turn.now_ms + timeout_ms)

    def settle(self, message: Message) -> None:
        """Take a message out of flight, and give its holder room for another."""
        body_bytes: i64 = len(message.body)
        self.unacked -= 1
        self.unacked_bytes -= body_bytes
        self.unacked_header_bytes -= len(message.header)
        holder = message.holder
        assert holder is not None
        message.holder = None
        holder.unacked -= 1
        holder.unacked_bytes -= body_bytes
        if isinstance(holder, Consumer):
            session = holder.session
            session.consumed -= 1
            session.consumed_bytes -= body_bytes
            if holder.suspended:
                self.resume_consumer(holder)
            if session.shared_prefetch != 0 or session.shared_prefetch_bytes != 0:
                self.turn.with_room.append(session)

    def put_back(self, message: Message, *, failed: bool) -> None:
        """Requeue a message at its old place, or schedule it if the queue delays retries.

        A message that failed too often leaves the queue instead. The caller applies the length
        limit (`drop_returned`) when all messages are back, so that they keep their order.
        """
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
        self.touch()

    def discard(self, message: Message) -> None:
        """Let a message leave that a consumer rejected without requeue."""
        self.leave(message, REJECTED)

    def on_due(self, now_ms: i64) -> i64:
        """Handle everything that is due: scheduled messages, expiries, the queue itself."""
        left = BATCH
        is_cut = False
        message = self.scheduled.pop_due(now_ms)
        while message is not None:
            release_due(self, message)
            if self.limited:
                self._drop_over_limit()
            left -= 1
            is_cut = len(message.body) > BIG_BODY_BYTES and self.turn.is_log_full()
            message = self.scheduled.pop_due(now_ms) if left > 0 and not is_cut else None
        expire_heads(self, now_ms)
        if self.limited:
            self._drop_over_limit()
        expires_ms = unused_until_ms(self)
        if expires_ms != NEVER and expires_ms <= now_ms:
            self.turn.doomed.append(self)
            return NEVER
        self.touch()
        due_ms = next_due_ms(self)
        return max(due_ms, now_ms + LOG_WAIT_MS) if is_cut else due_ms

    def arm(self) -> None:
        """Set the timer to the next due time."""
        try:
            due = next_due_ms(self)
        except CorruptionError as fault:
            self.note_damage(fault)
            due = self.turn.now_ms  # look again at the messages that are left
        if due != NEVER:
            self.turn.timers.arm(self.timer, due)

    def catch_up(self) -> None:
        """Deliver the messages of this turn now, for a command that depends on the rest."""
        if self.dirty:
            self.pump()

    def add_consumer(self, consumer: Consumer) -> None:
        """Add a consumer. The caller has checked that it may consume."""
        self.subscribers.add(consumer)
        self.note_consumer(CONSUMER_CREATED, consumer)
        self.touch()

    def remove_consumer(self, consumer: Consumer) -> None:
        """Remove a consumer. Its messages stay in flight until its session settles them."""
        self.subscribers.remove(consumer)
        self._after_removal([consumer])

    def remove_consumers(self, consumers: list[Consumer]) -> None:
        """Remove several consumers, as `remove_consumer` does."""
        self.subscribers.remove_all(consumers)
        self._after_removal(consumers)

    def _after_removal(self, consumers: list[Consumer]) -> None:
        for consumer in consumers:
            self.note_consumer(CONSUMER_DELETED, consumer)
        self.used_ms = self.turn.now_ms
        if not self.subscribers.members:
            if self.auto_delete:
                self.turn.doomed.append(self)
            else:
                self.arm()
        self.touch()

    def note_consumer(self, event: str, consumer: Consumer) -> None:
        """Count a consumer that comes or goes, and note an event for it if events are wanted."""
        user, room = consumer.session.outlet.user_name, self.turn.consumer_room
        if event == CONSUMER_CREATED:
            room.add(user, consumer.tag, consumer.packed_arguments)
        else:
            room.remove(user, consumer.tag, consumer.packed_arguments)
        if self.turn.listens:
            note_consumer(self.turn, event, self.vhost, self.name, consumer)

    def end_consumers(self) -> None:
        """End all consumers, because the queue is deleted."""
        for consumer in self.subscribers.end_all():
            self.note_consumer(CONSUMER_DELETED, consumer)
            self.turn.ended.append(consumer)

    def resume_consumer(self, consumer: Consumer) -> None:
        """Serve a suspended consumer again that may have room."""
        self.subscribers.resume_consumer(consumer)
        self.touch()
