"""The broker: all vhosts, and the turns in which commands are carried out.

A front gives commands (`publishing`, `consuming`, `settling`, and the definitions of `Vhost`), then
ends the turn. `end_turn` lets queues deliver, dead-letters the messages that left them, and deletes
unused queues, until nothing is left to do inside. `perform` hands the turn's columns to the fronts.

A command that fails raises an `EngineError` and has changed nothing.
"""

from collections.abc import Callable
from typing import Final

from mypy_extensions import i64

from leveret.engine.backlog.page_reader import PageReader
from leveret.engine.commands.consuming import resume_suspended
from leveret.engine.commands.content import Content
from leveret.engine.commands.dead_letter import is_long_chain, record_death, spread_of
from leveret.engine.commands.firehose import Firehose
from leveret.engine.commands.publishing import route_and_push
from leveret.engine.commands.settling import take_back_late
from leveret.engine.history.life_events import DEAD_LETTERED, DROPPED, PARKED, copy_id
from leveret.engine.message import PERSISTENT, Address, Message
from leveret.engine.queues.queue import Queue
from leveret.engine.queues.slots import Slots
from leveret.engine.streams.segments import SegmentStore
from leveret.engine.timer_queue import NEVER, TimerQueue
from leveret.engine.turns.events import EVENT_EXCHANGE, encode_event_header, facts_of, note_event
from leveret.engine.turns.loss_counts import (
    AT_LEAST_ONCE,
    AT_MOST_ONCE,
    CHAIN,
    CYCLE,
    DISABLED,
    UNROUTED_DEATH,
)
from leveret.engine.turns.outcomes import CHAINED, CYCLED, QUEUE_FULL, UNROUTED
from leveret.engine.turns.session import Consumer, Session, note_send_fault
from leveret.engine.turns.turn import (
    DEATH_WORK,
    DELIVERY_LIMIT,
    DUE,
    EXPIRED,
    FAULT,
    REJECTED,
    WORK_MAX,
    Leaving,
    Turn,
)
from leveret.engine.vhosts.definition_records import encode_vhost
from leveret.engine.vhosts.policy_enforcer import PolicyEnforcer
from leveret.engine.vhosts.queue_creation import PARKED as PARKED_QUEUE
from leveret.engine.vhosts.queue_creation import ensure_parked_queue
from leveret.engine.vhosts.register import Register
from leveret.engine.vhosts.state import DEFINITION_BYTES_MAX
from leveret.engine.vhosts.vhost import Vhost
from leveret.engine.vhosts.vhost_deletion import VhostDeletion
from leveret.errors import NotFoundError
from leveret.journal.journal import Journal
from leveret.wire.properties import decode_properties, encode_header
from leveret.wire.tables import Table, field_of

# Headers of a message that a fault of the broker or a cycle parked, and what they may hold.
PARK_REASON_HEADER: Final = "x-parked-reason"
PARK_QUEUE_HEADER: Final = "x-parked-queue"
PARK_REASON_LENGTH_MAX: Final = 500  # characters
FIRST_VHOST: Final = "/"  # exists from the start, unless it was deleted


class Broker:
    """All vhosts, and the turn."""

    def __init__(self, seed: i64, definition_bytes_max: i64 = DEFINITION_BYTES_MAX) -> None:
        self.seed = seed
        self.definition_bytes_max = definition_bytes_max  # of each vhost
        self.timers = TimerQueue()
        self.turn = Turn(self.timers)
        self.slots = Slots()
        self.register = Register(self.turn)
        self.segment_store: SegmentStore | None = None  # None: streams are in memory
        self.vhosts: dict[str, Vhost] = {}
        self.parks = True  # messages over their delivery limit are parked, not dropped
        self.parks_cycles = True  # dead letters that would only come back are parked, not dropped
        self.enforcers: dict[str, PolicyEnforcer] = {}  # by vhost
        # Called by a start after all definitions are restored, before any message is.
        self.on_defined: Callable[[], None] | None = None
        self.turn.tracer = Firehose(self.vhosts, self.slots, self.turn)
        self.add_vhost(FIRST_VHOST)

    def add_vhost(self, name: str) -> Vhost:
        """Add a vhost without writing it to the log."""
        vhost = Vhost(name, self.turn, self.slots, self.seed)
        vhost.register = self.register
        vhost.segment_store = self.segment_store
        vhost.definition_bytes_max = self.definition_bytes_max
        self.vhosts[name] = vhost
        if name == FIRST_VHOST:
            vhost.add_event_exchange()
        vhost.enforcer = self.enforcers[name] = PolicyEnforcer(vhost)
        return vhost

    def make_vhost(self, name: str) -> Vhost:
        """Return the vhost of this name. If there is none, make it and write it to the log."""
        found = self.vhosts.get(name)
        if found is not None:
            return found
        journal = self.turn.journal
        if journal is not None:
            journal.write_definition(encode_vhost(name))
        note_event(self.turn, "vhost.created", facts_of({"name": name}))
        return self.add_vhost(name)

    def delete_vhost(self, name: str) -> None:
        """Remove a vhost and everything in it. Its connections have been closed before."""
        vhost = self.vhost(name)
        note_event(self.turn, "vhost.deleted", facts_of({"name": name}))
        vhost.set_tracing(False)
        self._forget_leaving(name)
        del self.vhosts[name]
        self.enforcers.pop(name).stop()
        VhostDeletion(vhost).start()

    def _forget_leaving(self, vhost: str) -> None:
        """Forget messages that are leaving a deleted vhost: a new vhost may get its name."""
        kept: list[Leaving] = []
        for one in self.turn.leaving:
            queue = one.queue
            assert isinstance(queue, Queue)
            if queue.vhost == vhost:
                queue.ledger.forget(one.message)
            else:
                kept.append(one)
        self.turn.leaving = kept

    def vhost(self, name: str) -> Vhost:
        found = self.vhosts.get(name)
        if found is None:
            raise NotFoundError(f"vhost {name} not found")
        return found

    def attach(self, journal: Journal, pages: PageReader, segments: SegmentStore) -> None:
        """Write everything durable to this journal from now on, and read it back from `pages`."""
        self.turn.journal = journal
        self.turn.pages = pages
        self.segment_store = segments
        for vhost in self.vhosts.values():
            vhost.segment_store = segments
        for queue in self.slots.queues:
            if queue is not None:
                queue.attach(journal, pages)

    def begin_turn(self, now_ms: i64) -> None:
        """Begin a turn: the following commands happen at this time."""
        assert now_ms > NEVER
        self.turn.now_ms = now_ms
        self.turn.outlet = None
        self.turn.work = 0
        self.turn.number += 1
        if self.turn.traced_messages is not None:
            self.turn.traced_messages.now_ms = now_ms

    def on_pulse(self, now_ms: i64) -> None:
        """Begin a turn, and wake everything that is due."""
        self.begin_turn(now_ms)
        self.timers.run(now_ms)
        for fault in self.timers.faults:
            self.turn.note_fault("waking an object that was due", fault)
        self.timers.faults.clear()

    def end_turn(self) -> None:
        """Carry out everything inside the engine that the commands of this turn have caused.

        After the work of `WORK_MAX`, and while the log is full, the messages in `leaving` wait for
        another turn, which the caller must run. A crash before that finds them in their queues.
        """
        turn = self.turn
        while (
            turn.dirty
            or (turn.leaving and turn.work < WORK_MAX and not turn.is_log_full())
            or turn.doomed
            or turn.late
            or turn.with_room
            or turn.events
        ):
            if turn.late:
                take_back_late(self.slots, turn)
            if turn.with_room:
                # Remove repetitions: a session is in the list once for each message it settled.
                with_room = dict.fromkeys(turn.with_room)
                turn.with_room = []
                for session in with_room:
                    assert isinstance(session, Session)
                    try:
                        resume_suspended(self.slots, session)
                    except Exception as fault:
                        turn.note_fault("waking the consumers of a session", fault)
            if turn.dirty:
                self._pump_dirty()
            if turn.leaving:
                self._dispose_leaving()
            if turn.doomed:
                self._delete_doomed()
            if turn.events:
                self._publish_events()
        if turn.unlogged:
            self._write_log()

    def _dispose_leaving(self) -> None:
        """Dispose of messages that left their queues, until this turn has done enough work."""
        turn = self.turn
        leaving = turn.leaving
        turn.leaving = []
        for at, one in enumerate(leaving):
            if turn.work >= WORK_MAX or turn.is_log_full():
                turn.leaving = leaving[at:] + turn.leaving
                return
            try:
                turn.work += DEATH_WORK if _is_sent_on(one) else 1
                if one.fault is not None:
                    self._confine(one, one.fault)
                else:
                    self._dispose(one)
            except Exception as fault:
                self._confine(one, fault)

    def perform(self) -> None:
        """Let the fronts send the deliveries, cancellations and confirms of the turn.

        A fault ends the session that has it. The others get theirs.
        """
        turn = self.turn
        if turn.deliveries:
            sessions = turn.deliveries
            turn.deliveries = []
            for session in sessions:
                try:
                    session.send_deliveries()
                except Exception as fault:
                    note_send_fault(turn, session, "deliveries", fault)
        if turn.ended:
            ended = turn.ended
            turn.ended = []
            for consumer in ended:
                assert isinstance(consumer, Consumer)
                try:
                    consumer.session.send_ended(consumer)
                except Exception as fault:
                    note_send_fault(turn, consumer.session, "the end of a consumer", fault)
        if turn.confirms:
            confirms = turn.confirms
            turn.confirms = []
            for session in confirms:
                session.in_confirms = False
                if session.unsynced_seq > session.confirmed_seq:
                    turn.unsynced.append(session)
                    continue
                try:
                    session.send_confirms()
                except Exception as fault:
                    note_send_fault(turn, session, "confirms", fault)

    def _publish_events(self) -> None:
        """Publish the events of the turn."""
        events = self.turn.events
        self.turn.events = []
        vhost = self.vhosts.get(FIRST_VHOST)
        exchange = vhost.exchanges.get(EVENT_EXCHANGE) if vhost is not None else None
        if vhost is None or exchange is None:
            return
        for key, facts in events:
            try:
                content = Content(encode_event_header(facts, self.turn.now_ms))
                address = Address(EVENT_EXCHANGE, key)
                route_and_push(vhost, exchange, address, content, b"")
            except Exception as fault:
                self.turn.note_fault(f"publishing the event '{key}'", fault)

    def _write_log(self) -> None:
        for ledger in self.turn.unlogged:
            ledger.write()
        self.turn.unlogged.clear()

    def _pump_dirty(self) -> None:
        dirty = self.turn.dirty
        self.turn.dirty = []
        for target in dirty:
            assert isinstance(target, Queue)
            target.dirty = False
            if not target.deleted:
                try:
                    target.pump()
                except Exception as fault:
                    self.turn.note_fault(f"delivering from queue '{target.name}'", fault)

    def _delete_doomed(self) -> None:
        """Delete queues that are unused or lost their consumers. A new consumer keeps its queue."""
        doomed = self.turn.doomed
        self.turn.doomed = []
        for target in doomed:
            assert isinstance(target, Queue)
            vhost = self.vhosts.get(target.vhost)
            if not target.consumers and vhost is not None:
                try:
                    vhost.remove_if_present(target)
                except Exception as fault:
                    self.turn.note_fault(f"deleting queue '{target.name}'", fault)

    def _confine(self, leaving: Leaving, fault: Exception) -> None:
        """Park a message that could not be disposed of, so that the fault stops nothing else.

        If parking fails too, the message waits among the stuck dead letters of its vhost, and is
        tried again. Copies that reached a queue before the fault stay there.
        """
        queue = leaving.queue
        assert isinstance(queue, Queue)
        turn = self.turn
        turn.cause_id = 0
        turn.publish_id = 0
        message = leaving.message
        vhost = self.vhosts.get(queue.vhost)
        if vhost is None:
            return
        turn.note_fault(f"handling message {message.seq} that left queue '{queue.name}'", fault)
        reason = f"{type(fault).__name__}: {fault}"[:PARK_REASON_LENGTH_MAX]
        try:
            turn.cause_id = copy_id(queue.ledger.id, message.seq)
            _park(vhost, message, _header_with_reason(queue, message, reason))
            _note_parked(queue, message, FAULT)
            queue.ledger.hand_over(message)
        except Exception as second:
            turn.cause_id = 0
            turn.note_fault(f"parking message {message.seq} of queue '{queue.name}'", second)
            vhost.stuck.add(leaving)

    def _dispose(self, leaving: Leaving) -> None:
        """Dead-letter, park, route or drop a message that left its queue."""
        queue = leaving.queue
        assert isinstance(queue, Queue)
        vhost = self.vhosts.get(queue.vhost)
        message = leaving.message
        if vhost is None:
            queue.ledger.forget(message)  # the vhost is deleted
            return
        turn = self.turn
        if leaving.reason == DUE:
            _route_due(vhost, queue, message)
        elif queue.settings.dead_letter_exchange is not None:
            turn.cause_id = copy_id(queue.ledger.id, message.seq)
            if queue.settings.dead_letter_at_least_once and leaving.accepted is None:
                leaving.accepted = []
            result = _dead_letter(vhost, queue, leaving)
            if result == CYCLED and self.parks_cycles and _park_cycle(vhost, queue, leaving):
                _note_parked(queue, message, CYCLE)
            else:
                turn.cause_id = 0
                is_lost = result == UNROUTED or result & QUEUE_FULL != 0
                if is_lost and queue.settings.dead_letter_at_least_once:
                    vhost.stuck.add(leaving)
                    return
                _count_death(queue, leaving.reason, result)
                queue.note(DEAD_LETTERED, message, leaving.reason)
        elif leaving.reason == DELIVERY_LIMIT and self.parks:
            turn.cause_id = copy_id(queue.ledger.id, message.seq)
            _park(vhost, message, _header_with_death(vhost, queue, message))
            _note_parked(queue, message, leaving.reason)
        else:
            turn.losses.note_death(queue.settings.kind, DISABLED, leaving.reason)
            queue.count_dropped(leaving.reason)
            queue.note(EXPIRED if leaving.reason == EXPIRED else DROPPED, message, leaving.reason)
            queue.ledger.forget(message)
            return
        queue.ledger.hand_over(message)


def _is_sent_on(leaving: Leaving) -> bool:
    """Return True if a message goes to a dead-letter exchange, which is slow; False if unknown."""
    queue = leaving.queue
    assert isinstance(queue, Queue)
    return queue.settings.dead_letter_exchange is not None


def _count_death(queue: Queue, reason: str, result: i64) -> None:
    """Count a message that was sent to its dead-letter exchange, or lost there."""
    losses = queue.turn.losses
    kind = queue.settings.kind
    if result == UNROUTED or result == CYCLED or result == CHAINED:
        losses.note_death(kind, DISABLED, reason)
        lost = CYCLE if result == CYCLED else CHAIN
        queue.count_dropped(UNROUTED_DEATH if result == UNROUTED else lost)
        return
    losses.note_dead_lettered(reason)
    queue.own_losses().note_dead_lettered(reason)
    if queue.settings.dead_letter_at_least_once:
        losses.note_death(kind, AT_LEAST_ONCE, reason)
        losses.note_confirmed(kind)
    else:
        losses.note_death(kind, AT_MOST_ONCE, reason)


def _route_due(vhost: Vhost, queue: Queue, message: Message) -> None:
    """Route a message that a delayed exchange held until now."""
    exchange = vhost.exchanges.get(queue.name)
    if exchange is not None:
        content = Content(message.header)
        route_and_push(vhost, exchange, message.address, content, message.body)


def _dead_letter(vhost: Vhost, queue: Queue, leaving: Leaving) -> i64:
    message = leaving.message
    reason = leaving.reason
    name = queue.settings.dead_letter_exchange
    assert name is not None
    exchange = vhost.exchanges.get(name)
    if exchange is None:
        return UNROUTED
    properties = decode_properties(message.header)
    deaths = record_death(properties, queue.name, reason, message.address, vhost.turn.now_ms)
    if reason != REJECTED and is_long_chain(deaths):
        return CHAINED
    key = queue.settings.dead_letter_key
    if key is None:
        address = Address(name, message.address.routing_key)
        address.keys = message.address.keys
        address.shown = message.address.shown
    else:
        address = Address(name, key)
        assert properties.headers is not None
        properties.headers.pop("CC", None)
    content = Content(encode_header(properties, len(message.body)))
    avoid = None if reason == REJECTED else deaths
    return route_and_push(
        vhost,
        exchange,
        address,
        content,
        message.body,
        deaths=avoid,
        came_by=message.address,
        accepted=leaving.accepted,
    )


def _header_with_death(vhost: Vhost, queue: Queue, message: Message) -> bytes:
    """Return the header of a message over its delivery limit, with this death recorded."""
    properties = decode_properties(message.header)
    record_death(properties, queue.name, DELIVERY_LIMIT, message.address, vhost.turn.now_ms)
    return encode_header(properties, len(message.body))


def _header_with_reason(queue: Queue, message: Message, reason: str) -> bytes:
    """Return the header of a message with the fault that parked it, or unchanged if that fails."""
    try:
        properties = decode_properties(message.header)
        headers: Table = dict(properties.headers) if properties.headers is not None else {}
        headers[PARK_REASON_HEADER] = field_of(reason)
        headers[PARK_QUEUE_HEADER] = field_of(queue.name)
        properties.headers = headers
        properties.expiration = None
        return encode_header(properties, len(message.body))
    except Exception:  # parking the message is more important than its reason
        return message.header


def _park_cycle(vhost: Vhost, queue: Queue, leaving: Leaving) -> bool:
    """Park a dead letter that would only come back to queues it died in. Return False to drop it.

    A chain of deaths that made copies is not parked: one publish could fill the disk. A message of
    the parking queue is not parked either: it would come back there for ever.
    """
    if queue.name == PARKED_QUEUE:
        return False
    message = leaving.message
    properties = decode_properties(message.header)
    reason = leaving.reason
    deaths = record_death(properties, queue.name, reason, message.address, vhost.turn.now_ms)
    if spread_of(deaths) > 1:
        return False
    text = f"{CYCLE}: after {reason} in '{queue.name}' it would come back without a rejection"
    assert properties.headers is not None
    properties.headers[PARK_REASON_HEADER] = field_of(text[:PARK_REASON_LENGTH_MAX])
    properties.headers[PARK_QUEUE_HEADER] = field_of(queue.name)
    _park(vhost, message, encode_header(properties, len(message.body)))
    vhost.turn.losses.parked_cycles += 1
    return True


def _note_parked(queue: Queue, message: Message, reason: str) -> None:
    """Count a parked message, and note its life event."""
    queue.turn.cause_id = 0
    queue.own_losses().parked += 1
    queue.turn.losses.parked += 1
    queue.note(PARKED, message, reason)


def _park(vhost: Vhost, message: Message, header: bytes) -> None:
    """Move a message to the queue for parked messages."""
    flags = message.flags & PERSISTENT
    ensure_parked_queue(vhost).push(
        message.address, header, message.body, ttl_ms=-1, priority=-1, flags=flags, delay_ms=0
    )
