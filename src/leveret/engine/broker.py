"""The broker: all vhosts, and the turns in which commands are carried out.

A front gives commands (`publishing`, `consuming`, `settling`, and the definitions of `Vhost`), then
ends the turn: `end_turn` lets queues deliver, dead-letters what left them, deletes what is no
longer wanted, until nothing is left to do inside; `perform` hands the turn's columns to the fronts.

Commands that fail raise an `EngineError` and have changed nothing.
"""

from collections.abc import Callable
from typing import Final

from mypy_extensions import i64

from leveret.engine.backlog.page_reader import PageReader
from leveret.engine.commands.consuming import wake_parked
from leveret.engine.commands.content import Content
from leveret.engine.commands.dead_letter import record_death
from leveret.engine.commands.firehose import Firehose
from leveret.engine.commands.publishing import CYCLED, REFUSED, UNROUTED, spread
from leveret.engine.commands.settling import take_back_late
from leveret.engine.history.life_events import DEAD_LETTERED, DROPPED, PARKED, copy_id
from leveret.engine.message import PERSISTENT, Address, Message
from leveret.engine.queues.queue import Queue
from leveret.engine.queues.slots import Slots
from leveret.engine.streams.segments import SegmentStore
from leveret.engine.timer_queue import NEVER, TimerQueue
from leveret.engine.turns.events import EVENT_EXCHANGE, event_header, facts_of, tell
from leveret.engine.turns.loss_counts import (
    AT_LEAST_ONCE,
    AT_MOST_ONCE,
    CYCLE,
    DISABLED,
    UNROUTED_DEATH,
)
from leveret.engine.turns.session import DELIVERY_LIMIT, DUE, EXPIRED, REJECTED, Leaving, Turn
from leveret.engine.vhosts.definition_records import vhost_made
from leveret.engine.vhosts.demolition import Demolition
from leveret.engine.vhosts.making import parked_queue
from leveret.engine.vhosts.policy_enforcer import PolicyEnforcer
from leveret.engine.vhosts.register import Register
from leveret.engine.vhosts.vhost import Vhost
from leveret.errors import NotFoundError
from leveret.journal.journal import Journal
from leveret.wire.properties import decode_properties, encode_header

FIRST_VHOST: Final = "/"  # is there from the start, unless it was deleted


class Broker:
    """Vhosts, and what happens in them."""

    def __init__(self, seed: i64) -> None:
        self.seed = seed
        self.timers = TimerQueue()
        self.turn = Turn(self.timers)
        self.slots = Slots()
        self.register = Register(self.turn)
        self.segment_store: SegmentStore | None = None  # None: streams are in memory
        self.vhosts: dict[str, Vhost] = {}
        self.parks = True  # messages over their delivery limit are parked, not dropped
        self.governors: dict[str, PolicyEnforcer] = {}  # of the policies, by vhost
        # Called by a start when all definitions are there, and before any message is.
        self.on_defined: Callable[[], None] | None = None
        self.turn.tracer = Firehose(self.vhosts, self.slots, self.turn)
        self.add_vhost(FIRST_VHOST)

    def add_vhost(self, name: str) -> Vhost:
        """A new vhost, which the log does not know."""
        vhost = Vhost(name, self.turn, self.slots, self.seed)
        vhost.register = self.register
        vhost.segment_store = self.segment_store
        self.vhosts[name] = vhost
        if name == FIRST_VHOST:
            vhost.add_event_exchange()
        governor = PolicyEnforcer(vhost)
        vhost.governor = governor
        self.governors[name] = governor
        return vhost

    def make_vhost(self, name: str) -> Vhost:
        """Make a vhost that outlives the process; the one of this name if there is one."""
        found = self.vhosts.get(name)
        if found is not None:
            return found
        journal = self.turn.journal
        if journal is not None:
            journal.write_definition(vhost_made(name))
        tell(self.turn, "vhost.created", facts_of({"name": name}))
        return self.add_vhost(name)

    def delete_vhost(self, name: str) -> None:
        """Remove a vhost and all that is in it. Whoever works there has been sent away."""
        vhost = self.vhost(name)
        tell(self.turn, "vhost.deleted", facts_of({"name": name}))
        vhost.set_tracing(False)
        del self.vhosts[name]
        self.governors.pop(name).stop()
        Demolition(vhost).start()

    def vhost(self, name: str) -> Vhost:
        found = self.vhosts.get(name)
        if found is None:
            raise NotFoundError(f"vhost {name} not found")
        return found

    def attach(self, journal: Journal, pages: PageReader, segments: SegmentStore) -> None:
        """Write everything durable to a journal from now on, and read it back."""
        self.turn.journal = journal
        self.turn.pages = pages
        self.segment_store = segments
        for vhost in self.vhosts.values():
            vhost.segment_store = segments
        for queue in self.slots.queues:
            if queue is not None:
                queue.attach(journal, pages)

    # Turns

    def begin_turn(self, now_ms: i64) -> None:
        """Commands that follow happen at this time."""
        assert now_ms > NEVER
        self.turn.now_ms = now_ms
        self.turn.outlet = None
        self.turn.number += 1
        if self.turn.traced_messages is not None:
            self.turn.traced_messages.now_ms = now_ms

    def on_pulse(self, now_ms: i64) -> None:
        """Wake what is due."""
        self.begin_turn(now_ms)
        self.timers.run(now_ms)

    def end_turn(self) -> None:
        """Do everything inside the engine that the commands of this turn have caused."""
        turn = self.turn
        while turn.dirty or turn.leaving or turn.doomed or turn.late or turn.roomy or turn.events:
            if turn.late:
                take_back_late(self.slots, turn)
            if turn.roomy:
                roomy = turn.roomy
                turn.roomy = []
                for session in roomy:
                    wake_parked(self.slots, session)
            if turn.dirty:
                self._pump_dirty()
            if turn.leaving:
                leaving = turn.leaving
                turn.leaving = []
                for gone in leaving:
                    self._dispose(gone)
            if turn.doomed:
                self._delete_doomed()
            if turn.events:
                self._publish_events()
        if turn.unlogged:
            self._write_log()

    def perform(self) -> None:
        """Hand the turn's columns to the fronts."""
        turn = self.turn
        if turn.outboxes:
            outboxes = turn.outboxes
            turn.outboxes = []
            for session in outboxes:
                session.send_deliveries()
        if turn.ended:
            ended = turn.ended
            turn.ended = []
            for consumer in ended:
                consumer.session.send_ended(consumer)
        if turn.confirms:
            confirms = turn.confirms
            turn.confirms = []
            for session in confirms:
                session.in_confirms = False
                if session.unsynced_seq > session.confirmed_seq:
                    turn.unsynced.append(session)
                else:
                    session.send_confirms()

    def _publish_events(self) -> None:
        """Tell whoever listens what has happened."""
        events = self.turn.events
        self.turn.events = []
        vhost = self.vhosts.get(FIRST_VHOST)
        exchange = vhost.exchanges.get(EVENT_EXCHANGE) if vhost is not None else None
        if vhost is None or exchange is None:
            return
        for key, facts in events:
            content = Content(event_header(facts, self.turn.now_ms))
            address = Address(EVENT_EXCHANGE, key)
            spread(vhost, exchange, address, content, b"", [], False, False)

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
                target.pump()

    def _delete_doomed(self) -> None:
        """Delete queues that are unused or without consumers; a new consumer saves its queue."""
        doomed = self.turn.doomed
        self.turn.doomed = []
        for target in doomed:
            assert isinstance(target, Queue)
            vhost = self.vhosts.get(target.vhost)
            if not target.consumers and vhost is not None:
                vhost.remove_if_present(target)

    # Leaving a queue

    def _dispose(self, gone: Leaving) -> None:
        """Dead-letter, park, route or drop a message that left its queue."""
        queue = gone.queue
        assert isinstance(queue, Queue)
        vhost = self.vhosts.get(queue.vhost)
        message = gone.message
        if vhost is None:
            queue.ledger.forget(message)  # its vhost is deleted
            return
        turn = self.turn
        if gone.reason == DUE:
            _route_due(vhost, queue, message)
        elif queue.settings.dead_letter_exchange is not None:
            turn.cause_id = copy_id(queue.ledger.id, message.seq)
            result = _dead_letter(vhost, queue, message, gone.reason)
            turn.cause_id = 0
            if result in (UNROUTED, REFUSED) and queue.settings.dead_letter_at_least_once:
                vhost.stuck.add(gone)
                return
            _count_death(queue, gone.reason, result)
            queue.note(DEAD_LETTERED, message, gone.reason)
        elif gone.reason == DELIVERY_LIMIT and self.parks:
            turn.cause_id = copy_id(queue.ledger.id, message.seq)
            _park(vhost, queue, message)
            turn.cause_id = 0
            queue.own_fates().parked += 1
            turn.fates.parked += 1
            queue.note(PARKED, message, gone.reason)
        else:
            turn.fates.note_death(queue.settings.kind, DISABLED, gone.reason)
            queue.count_dropped(gone.reason)
            queue.note(EXPIRED if gone.reason == EXPIRED else DROPPED, message, gone.reason)
            queue.ledger.forget(message)
            return
        queue.ledger.hand_over(message)


def _count_death(queue: Queue, reason: str, result: i64) -> None:
    """A message was sent to the dead-letter exchange; where that led nowhere it is lost."""
    fates = queue.turn.fates
    kind = queue.settings.kind
    if result == UNROUTED or result == CYCLED:
        fates.note_death(kind, DISABLED, reason)
        queue.count_dropped(UNROUTED_DEATH if result == UNROUTED else CYCLE)
        return
    fates.note_dead_lettered(reason)
    queue.own_fates().note_dead_lettered(reason)
    if queue.settings.dead_letter_at_least_once:
        fates.note_death(kind, AT_LEAST_ONCE, reason)
        fates.note_confirmed(kind)
    else:
        fates.note_death(kind, AT_MOST_ONCE, reason)


def _route_due(vhost: Vhost, queue: Queue, message: Message) -> None:
    """A message that a delayed exchange held is due."""
    exchange = vhost.exchanges.get(queue.name)
    if exchange is not None:
        content = Content(message.header)
        spread(vhost, exchange, message.address, content, message.body, [], False, False)


def _dead_letter(vhost: Vhost, queue: Queue, message: Message, reason: str) -> i64:
    name = queue.settings.dead_letter_exchange
    assert name is not None
    exchange = vhost.exchanges.get(name)
    if exchange is None:
        return UNROUTED
    properties = decode_properties(message.header)
    deaths = record_death(properties, queue.name, reason, message.address, vhost.turn.now_ms)
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
    avoid = [] if reason == REJECTED else deaths
    return spread(vhost, exchange, address, content, message.body, avoid, False, False)


def _park(vhost: Vhost, queue: Queue, message: Message) -> None:
    """Keep a message that failed too often where there is no dead-letter exchange."""
    properties = decode_properties(message.header)
    record_death(properties, queue.name, DELIVERY_LIMIT, message.address, vhost.turn.now_ms)
    header = encode_header(properties, len(message.body))
    flags = message.flags & PERSISTENT
    parked_queue(vhost).push(message.address, header, message.body, -1, -1, flags, 0)
