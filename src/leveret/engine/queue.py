"""A queue: the state machine of every message in it.

    push ──► scheduled ──due──► ready ──deliver──► in flight ──ack──► gone
      └────────────────────────►  ▲ │                │ │
                                  │ └─expire, drop───┼─┴─reject──► leaving (dead letter …)
                                  └──requeue, timeout, consumer lost (perhaps scheduled first)

`Ready`, `Scheduled` and the sessions' `Unacked` hold the messages; this module moves them and keeps
the counts. A message that leaves other than by an ack goes to the turn's `leaving` column: the
broker dead-letters it after the command, so that no queue ever calls another.

Invariants: every message of the queue is in exactly one of ready, scheduled, in flight, or among
the vhost's stuck dead letters; `unacked` counts those in flight; after `pump` there is no ready
message that a consumer of the queue could take, and none that is dead at the head of its line.
"""

from typing import Final

from mypy_extensions import i64

from leveret.engine.ages import UNKNOWN, Ages
from leveret.engine.arguments import DROP_HEAD, REJECT_PUBLISH_DLX, QueueSettings
from leveret.engine.chronicle import (
    ACKED,
    DELETED,
    DELIVERED,
    DROPPED,
    PURGED,
    QUEUED,
    REQUEUED,
    Chronicle,
    copy_id,
)
from leveret.engine.events import consumer_changed
from leveret.engine.fates import REFUSED, Fates
from leveret.engine.ledger import Ledger
from leveret.engine.message import (
    COUNTED,
    LOGGED,
    NO_EXPIRY,
    PERSISTENT,
    REDELIVERED,
    Address,
    Message,
)
from leveret.engine.pulse import NEVER, Timed, earlier
from leveret.engine.ready import LAZY_WINDOW, MESSAGE_BYTES, WINDOW, Ready
from leveret.engine.remembering import note_ready_gone, note_scheduled_gone
from leveret.engine.runs import Pages, QueuePages
from leveret.engine.scheduled import Scheduled
from leveret.engine.session import (
    DELIVERY_BYTES,
    DELIVERY_LIMIT,
    DUE,
    EXPIRED,
    MAXLEN,
    REJECTED,
    Consumer,
    Leaving,
    Outlet,
    Session,
    Turn,
)
from leveret.engine.subscribers import Subscribers
from leveret.engine.target import Target
from leveret.errors import Corrupt
from leveret.journal.journal import Journal
from leveret.journal.records import NOWHERE
from leveret.wire.tables import Table

# Messages moved by one wake-up before other work gets its turn again.
BATCH: Final = 5000

NO_TTL: Final = -1

DAMAGE_TEXTS_MAX: Final = 8  # reasons kept for those who ask; all of them are logged


class QueueTimer(Timed):
    """Wakes its queue by the pulse."""

    def __init__(self, queue: "Queue") -> None:
        super().__init__()
        self.queue = queue

    def on_due(self, now_ms: i64) -> i64:
        while True:
            try:
                return self.queue.on_due(now_ms)
            except Corrupt as fault:
                self.queue.note_damage(fault)


class Queue(Target):
    """Messages, their consumers, and the rules of one queue."""

    def __init__(
        self,
        vhost: str,
        name: str,
        slot: i64,
        settings: QueueSettings,
        durable: bool,
        auto_delete: bool,
        owner: Outlet | None,
        arguments: Table,
        turn: Turn,
    ) -> None:
        super().__init__(name)
        self.vhost = vhost
        self.slot = slot
        self.settings = settings
        self.durable = durable
        self.auto_delete = auto_delete
        self.owner = owner  # the connection that alone may use it, if it is exclusive
        self.arguments = arguments
        self.turn = turn
        self.is_quorum = settings.kind == "quorum"
        self.is_classic = settings.kind == "classic"
        self.holds_for: str | None = None  # the delayed exchange that it holds messages for
        self.deleted = False
        self.paused = False  # nothing is delivered; see `leveret.engine.pausing`
        self.ledger = Ledger(turn.journal, durable, turn.unlogged)
        self.chronicle: Chronicle | None = None  # is told what happens, if the queue remembers
        # Rules, unpacked from the settings
        self.ttl_ms: i64 = settings.ttl_ms
        self.priority_max: i64 = settings.priority_max
        self.counts = settings.kind == "quorum" or settings.delivery_limit >= 0
        self.limited = settings.max_length >= 0 or settings.max_bytes >= 0
        # Messages
        self.next_seq: i64 = 0
        self.ready = Ready(
            prioritised=settings.priority_max > 0, returns_first=settings.kind == "quorum"
        )
        self.scheduled = Scheduled()
        if turn.pages is not None:
            self.open_pages(turn.pages)
        self.ages = Ages()
        self.unacked: i64 = 0
        self.unacked_bytes: i64 = 0
        self.stuck: i64 = 0  # dead letters that nobody takes, kept and counted here
        self.damage: list[str] = []  # why messages were set aside as unreadable, if any were
        # Consumers
        self.subscribers = Subscribers(settings.single_active, self.is_quorum)
        # Time
        self.timer = QueueTimer(self)
        self.used_ms: i64 = turn.now_ms  # last use that keeps an unused queue from expiring
        self.has_expiries = False  # a message with an expiry has been pushed
        self.dirty = False
        # Statistics
        self.published: i64 = 0
        self.delivered: i64 = 0
        self.delivered_no_ack: i64 = 0
        self.got: i64 = 0
        self.got_no_ack: i64 = 0
        self.got_empty: i64 = 0
        self.acked: i64 = 0
        self.redelivered: i64 = 0
        self.expired: i64 = 0
        self.dropped: i64 = 0
        self.refused: i64 = 0
        self.purged: i64 = 0
        self.moved: i64 = 0  # to other queues, by tasks
        self.fates: Fates | None = None  # of messages that were not acknowledged, if any left
        if settings.expires_ms >= 0:
            self.arm()

    @property
    def damaged(self) -> int:
        """How many messages are set aside because they cannot be read."""
        return self.ready.damaged_count()

    @property
    def consumers(self) -> list[Consumer]:
        """Everybody subscribed, in order of arrival."""
        return self.subscribers.members

    def memory_bytes(self) -> i64:
        """What the messages take in memory, about; what is in the log alone takes little."""
        in_flight = self.unacked_bytes + self.unacked * MESSAGE_BYTES
        return in_flight + self.ready.memory_bytes() + self.scheduled.memory_bytes()

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
            self._set_window(settings.lazy)
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

    def _set_window(self, lazy: bool) -> None:
        """How much of the queue is in memory; what is there stays there."""
        self.ready.window = LAZY_WINDOW if lazy else WINDOW
        self.scheduled.window = LAZY_WINDOW if lazy else WINDOW

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
            self._refuse(message)
            return False
        self.published += 1
        due_ms = turn.now_ms + delay_ms if delay_ms > 0 else NEVER
        if self.ledger.journal is not None:
            self._keep(message, due_ms)
        if self.chronicle is not None:
            self._note_queued(message)
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
        if not self.limited or not self._is_over(more, more_bytes):
            return True
        self.pump()
        return not self._is_over(more, more_bytes)

    def _is_full(self, body_bytes: i64) -> bool:
        """Whether one more message would go over a limit. What can be delivered goes first."""
        if not self._is_over(1, body_bytes):
            return False
        self.pump()
        return self._is_over(1, body_bytes)

    def _is_over(self, more: i64, more_bytes: i64) -> bool:
        limits = self.settings
        ready = self.ready
        if limits.max_length >= 0 and ready.count + self.stuck + more > limits.max_length:
            return True
        return limits.max_bytes >= 0 and ready.body_bytes + more_bytes > limits.max_bytes

    def _refuse(self, message: Message) -> None:
        self.refused += 1
        if self.chronicle is not None:
            self._note_queued(message)
        if self.settings.overflow == REJECT_PUBLISH_DLX:
            self._leave(message, MAXLEN)
        else:
            self.count_dropped(REFUSED)
            self.note(DROPPED, message, MAXLEN)
            self.ledger.forget(message)

    def _drop_over_limit(self) -> None:
        """RabbitMQ: what a consumer can take is not counted; then the head goes, young or old."""
        if self.settings.overflow != DROP_HEAD or not self._is_over(0, 0):
            return
        self.pump()
        left = BATCH
        while self.ready.count != 0 and self._is_over(0, 0):
            if left == 0:  # the limit is new: the rest in another turn
                self.turn.pulse.arm(self.timer, self.turn.now_ms)
                return
            left -= 1
            try:
                message = self.ready.pop()
            except Corrupt as fault:
                self.note_damage(fault)
                continue
            self.dropped += 1
            self._leave(message, MAXLEN)

    # Going out

    def pump(self) -> None:
        """Deliver what can be delivered, drop what is dead, arm the timer."""
        while True:
            try:
                self._pump()
                return
            except Corrupt as fault:
                self.note_damage(fault)

    def note_damage(self, fault: Corrupt) -> None:
        """A part of the queue cannot be read: it has been set aside, the rest goes on."""
        if len(self.damage) < DAMAGE_TEXTS_MAX:
            self.damage.append(str(fault))
        self.turn.faults.append(f"queue '{self.name}' in vhost '{self.vhost}': {fault}")
        self.ready.damaged.extend(self.scheduled.damaged)
        self.scheduled.damaged.clear()

    def _pump(self) -> None:
        ready = self.ready
        now_ms = self.turn.now_ms
        if self.next_seq != self.ages.next_seq:
            self._note_arrivals(now_ms)
        if not self.paused:
            self._hand_out(ready, now_ms)
        if self.has_expiries and ready.count != 0:
            self._expire_heads(now_ms)
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
                self._expire(message)
                continue
            self._deliver(consumer, message)

    def _note_arrivals(self, now_ms: i64) -> None:
        """Something came in this turn: its time is marked, if it is not close to the last one."""
        ages = self.ages
        if ages.wants_mark(now_ms):
            if self.unacked == 0 and self.ready.oldest_rank() >= ages.next_seq:
                ages.clear()
            journal = self.ledger.journal
            if journal is not None and self.durable and journal.size() != 0:
                journal.came(self.ledger.id, [ages.next_seq, now_ms])
            ages.mark(now_ms)
        ages.next_seq = self.next_seq

    def oldest_ready_ms(self) -> i64:
        """When the oldest ready message came or became due; UNKNOWN, also where there is none."""
        rank = self.ready.oldest_rank()
        return self.ages.arrived_ms(rank) if rank >= 0 else UNKNOWN

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
            self._note_delivered(message, consumer.tag, consumer.no_ack)
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
            self._hold(session, message, body_bytes, consumer.timeout_ms)
        if not session.outbox:
            self.turn.outboxes.append(session)
        session.outbox.append(message)

    def _hold(self, session: Session, message: Message, body_bytes: i64, timeout_ms: i64) -> None:
        """Put a message in flight."""
        self.unacked += 1
        self.unacked_bytes += body_bytes
        message.taken_ms = self.turn.now_ms
        session.unacked.add(message)
        if timeout_ms != 0:
            self.turn.pulse.arm(session, self.turn.now_ms + timeout_ms)

    def get(self, session: Session, no_ack: bool) -> Message | None:
        """Take the next message for a session that asks for one."""
        while True:
            try:
                return self._get(session, no_ack)
            except Corrupt as fault:
                self.note_damage(fault)

    def _get(self, session: Session, no_ack: bool) -> Message | None:
        self.used_ms = self.turn.now_ms
        self.catch_up()
        self._expire_heads(self.turn.now_ms)
        if self.ready.count == 0:
            self.got_empty += 1
            session.got_empty += 1
            return None
        message = self.ready.pop()
        self._expire_heads(self.turn.now_ms)
        if self.has_expiries:
            self.arm()
        session.last_tag += 1
        message.tag = session.last_tag
        if self.chronicle is not None:
            self._note_delivered(message, "", no_ack)
        if message.flags & REDELIVERED:
            self.redelivered += 1
            session.redelivered += 1
        if no_ack:
            self.got_no_ack += 1
            session.got_no_ack += 1
            session.unacked.skip(message.tag)
            self.ledger.forget(message)
        else:
            self.got += 1
            session.got += 1
            self.ledger.note_delivered(message)
            body_bytes: i64 = len(message.body)
            message.holder = session.getter
            session.getter.unacked += 1
            session.getter.unacked_bytes += body_bytes
            timeout_ms = self.settings.consumer_timeout_ms
            self._hold(session, message, body_bytes, timeout_ms if timeout_ms > 0 else 0)
        return message

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
                self._leave(message, DELIVERY_LIMIT)
                return
        if self.chronicle is not None:
            self.note(REQUEUED, message, "")
        delay_ms = self.settings.retry_delay_ms(message.failures, failed)
        due_ms = self.turn.now_ms + delay_ms if delay_ms > 0 else NEVER
        if message.flags & LOGGED and (self.counts or due_ms != NEVER):
            self.ledger.write_return(message, due_ms)
        if due_ms != NEVER:
            self._update_position(message)
            self.scheduled.add(message, due_ms)
            self.arm()
        else:
            self.ready.put_back(message)
            if self.limited:
                self._drop_over_limit()
        self.touch()

    def discard(self, message: Message) -> None:
        """A consumer refused the message for good."""
        self._leave(message, REJECTED)

    # Leaving

    def _leave(self, message: Message, reason: str) -> None:
        self.turn.leaving.append(Leaving(message, self, reason))

    def own_fates(self) -> Fates:
        """The counts of this queue, which begin with the first that there is to count."""
        if self.fates is None:
            self.fates = Fates()
        return self.fates

    def count_dropped(self, reason: str) -> None:
        """A message is lost, for the queue and for the node."""
        self.own_fates().note_dropped(reason)
        self.turn.fates.note_dropped(reason)

    def _expire(self, message: Message) -> None:
        self.expired += 1
        self._leave(message, EXPIRED)

    def _expire_heads(self, now_ms: i64) -> None:
        """Drop what is dead at the head of a line; a message behind a living one waits."""
        left = BATCH
        while left > 0 and self.ready.count != 0:
            try:
                message = self.ready.pop_expired(now_ms)
            except Corrupt as fault:
                self.note_damage(fault)
                continue
            if message is None:
                return
            self._expire(message)
            left -= 1

    def purge(self) -> int:
        """Drop every ready message; those in flight and scheduled stay."""
        self.catch_up()
        old = self.ready
        if self.chronicle is not None:
            note_ready_gone(self.chronicle, self.ledger.id, self.name, self.ready, PURGED)
        self._forget_ready()
        self.ready = Ready(prioritised=old.prioritised, returns_first=old.returns_first)
        self.ready.pages = old.pages
        self.ready.window = old.window
        if old.lanes is not None:
            self.ready.open_lanes()
        self.ready.damaged = old.damaged  # unread and unexplained: a purge is not meant for them
        self.purged += old.count
        self.turn.trash.add(old.messages_held())
        return old.count

    # Time

    def on_due(self, now_ms: i64) -> i64:
        """Something is due: scheduled messages, expired ones, or the queue itself."""
        left = BATCH
        message = self.scheduled.pop_due(now_ms)
        while message is not None:
            self._release(message)
            left -= 1
            message = self.scheduled.pop_due(now_ms) if left > 0 else None
        self._expire_heads(now_ms)
        if self.limited:
            self._drop_over_limit()
        expires_ms = self._unused_until_ms()
        if expires_ms != NEVER and expires_ms <= now_ms:
            self.turn.doomed.append(self)
            return NEVER
        self.touch()
        return self._next_due_ms()

    def _release(self, message: Message) -> None:
        """A scheduled message is due."""
        if self.holds_for is not None:
            self._leave(message, DUE)
        elif message.returns != 0:
            self.ready.put_back(message)
        else:
            self._renumber(message)
            if self.ledger.journal is not None and message.position == NOWHERE:
                self._keep_due(message)
            self.ready.push(message)
        if self.limited:
            self._drop_over_limit()

    def _renumber(self, message: Message) -> None:
        """A message that was scheduled takes its place behind what is there.

        One that stands in the log is written again under its new number: the next start finds it
        at this place, whatever came after it.
        """
        if self.chronicle is not None:
            number = copy_id(self.ledger.id, message.seq)
            next_number = copy_id(self.ledger.id, self.next_seq)
            self.chronicle.note_due(number, next_number, self.name, message.address)
        if message.flags & LOGGED:
            self.ledger.hand_over(message)
            message.flags &= ~LOGGED
            message.seq = self.next_seq
            self.ledger.write_message(message, NEVER)
        else:
            self.ledger.skip(message.seq)
            message.seq = self.next_seq
            self._update_position(message)
        message.rank = self.next_seq
        self.next_seq += 1

    def _keep_due(self, message: Message) -> None:
        """A transient message is due: where its line goes on in the log, it goes there too."""
        if self.ready.is_full(message.priority):
            self.ledger.spill(message)

    def _update_position(self, message: Message) -> None:
        """The position of a message in memory is going to be used: it may have been copied."""
        journal = self.ledger.journal
        if journal is not None and journal.is_moving:
            message.position = journal.where(message.position)

    def _unused_until_ms(self) -> i64:
        """When the queue goes for want of use; NEVER while it has consumers or is paused."""
        if self.settings.expires_ms < 0 or self.subscribers.members or self.paused:
            return NEVER
        return self.used_ms + self.settings.expires_ms

    def _next_due_ms(self) -> i64:
        due = earlier(self._unused_until_ms(), self.scheduled.next_due_ms())
        return earlier(due, self.ready.next_expiry_ms()) if self.has_expiries else due

    def arm(self) -> None:
        """Wake up when something is due next."""
        try:
            due = self._next_due_ms()
        except Corrupt as fault:
            self.note_damage(fault)
            due = self.turn.now_ms  # look again at what is left
        if due != NEVER:
            self.turn.pulse.arm(self.timer, due)

    def catch_up(self) -> None:
        """Deliver now what this turn has brought, for a command that looks at what is left."""
        if self.dirty:
            self.pump()

    def touch(self) -> None:
        """Look at the queue at the end of the turn."""
        if not self.dirty:
            self.dirty = True
            self.turn.dirty.append(self)

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

    def _forget_ready(self) -> None:
        """Everything ready is gone, whether it is in memory or in the log."""
        if self.ledger.journal is None:
            return
        for message in self.ready.messages():
            self.ledger.forget(message)
        for run in self.ready.paged_runs():
            self.ledger.forget_run(run)

    def attach(self, journal: Journal, pages: Pages) -> None:
        """From now on there is a log."""
        self.ledger.journal = journal
        if self.ready.pages is None:
            self.open_pages(pages)
        assert self.ready.pages is not None
        self.ready.pages.journal = journal

    # Remembering

    def note(self, event: str, message: Message, reason: str) -> None:
        """Tell the chronicle, if there is one, what happened to a message."""
        if self.chronicle is not None:
            number = copy_id(self.ledger.id, message.seq)
            self.chronicle.note(event, number, number, self.name, reason, "", message.address)

    def _note_queued(self, message: Message) -> None:
        assert self.chronicle is not None
        self.chronicle.note_content(
            QUEUED,
            copy_id(self.ledger.id, message.seq),
            self.turn.publish_id,
            self.turn.cause_id,
            self.name,
            message.address,
            message.header,
            message.body,
        )

    def _note_delivered(self, message: Message, consumer: str, no_ack: bool) -> None:
        assert self.chronicle is not None
        number = copy_id(self.ledger.id, message.seq)
        self.chronicle.note(DELIVERED, number, number, self.name, "", consumer, message.address)
        if no_ack:
            self.note(ACKED, message, "automatic")

    def open_pages(self, pages: Pages) -> None:
        """From now on messages beyond the window stay in the log."""
        self.ready.pages = QueuePages(pages, self.slot, self.ledger.returned, self.counts)
        self.ready.pages.journal = self.ledger.journal
        self.scheduled.pages = self.ready.pages
        if self.settings.lazy:
            self._set_window(True)

    def close(self) -> None:
        """The queue is deleted: end its consumers and forget its messages."""
        self.ledger.closed = True
        if self.chronicle is not None:
            note_ready_gone(self.chronicle, self.ledger.id, self.name, self.ready, DELETED)
            note_scheduled_gone(self.chronicle, self.ledger.id, self.name, self.scheduled)
        self._forget_ready()
        if self.ledger.journal is not None:
            for run in self.ready.damaged:
                self.ledger.forget_run(run)
        for message in self.scheduled.messages():
            self.ledger.forget(message)
        if self.ledger.journal is not None and self.scheduled.distant.count != 0:
            self.ledger.drop_counts(self.scheduled.distant.counts())
        self.deleted = True
        self.turn.trash.add(self.ready.messages_held())
        self.turn.trash.add(self.scheduled.clear())
        self.ready = Ready(prioritised=False, returns_first=False)
        self.turn.pulse.disarm(self.timer)
        self.end_consumers()
