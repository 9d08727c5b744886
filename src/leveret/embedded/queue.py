"""One queue of the library: an engine queue with a turn and a session of its own, behind one lock.

    push ──► scheduled ──due──► ready ──pop──► in flight ──ack──► gone
      └────────────────────────►  ▲               │
                                  └── nack, deadline passed ──► dead letter, if it failed too often

The engine queue (`leveret.engine`) moves the messages and keeps the counts. This module adds the
lock, the leases and the waiting threads. Every call reads the clock once and first handles
everything that is due, so that a result never depends on the background thread.

Messages that failed too often leave by the turn's `leaving` column. They are pushed to the
dead-letter queue after the lock is released (`_move_dead_letters`), so that no thread ever holds
the locks of two queues.

Invariants: `_leases` has exactly the receipts of the messages in flight. `_due_ms` is the earliest
time for which the pulse is armed, and nothing in the queue is due before it.
"""

import threading
from collections.abc import Mapping
from time import monotonic
from typing import Final

from leveret.embedded.leases import Leases
from leveret.embedded.pulse import Pulse
from leveret.embedded.received import (
    NO_HEADERS,
    Received,
    Stats,
    decode_headers,
    encode_headers,
)
from leveret.embedded.rules import (
    PRIORITY_MAX,
    PRIORITY_MIN,
    PRIORITY_ZERO,
    Rules,
    require_ms,
    require_within,
)
from leveret.engine.commands.settling import ack, reject
from leveret.engine.message import Address, Message
from leveret.engine.queues.getting import take_next
from leveret.engine.queues.queue import NO_TTL
from leveret.engine.queues.queue import Queue as EngineQueue
from leveret.engine.queues.slots import Slots
from leveret.engine.queues.state import BATCH
from leveret.engine.timer_queue import NEVER, TimerQueue
from leveret.engine.turns.session import Outlet, Session
from leveret.engine.turns.turn import Turn
from leveret.errors import ClosedError, PreconditionFailedError, StaleReceiptError

_NOWHERE: Final = Address("", "")  # messages are pushed to their queue, not routed


class Queue:
    """One queue, made by `QueueManager.queue`. All methods are safe for threads."""

    def __init__(self, name: str, rules: Rules, dead_letter: "Queue | None", pulse: Pulse) -> None:
        self.name = name
        self.rules = rules
        self._dead_letter = dead_letter
        self._pulse = pulse
        self._clock = pulse.clock
        self._lock = threading.Lock()
        self._arrived = threading.Condition(self._lock)
        self._waiting = 0  # threads in `pop`
        self._is_closed = False
        self._leases = Leases()
        self._due_ms = NEVER
        self._dead = 0
        # One engine queue, and one session that holds all messages in flight
        self._turn = Turn(TimerQueue())
        self._turn.now_ms = self._clock()
        self._session = Session(Outlet(), self._turn)
        self._slots = Slots()
        slot = self._slots.take()
        self._settings = rules.settings()
        self._engine_queue = EngineQueue(
            "",
            name,
            slot,
            self._settings,
            durable=False,
            auto_delete=False,
            owner=None,
            arguments={},
            turn=self._turn,
        )
        self._slots.put(slot, self._engine_queue)

    def push(
        self,
        body: bytes,
        *,
        delay_s: float = 0.0,
        priority: int = 0,
        headers: Mapping[str, str] | None = None,
    ) -> int:
        """Add a message, ready at once or after a delay. Return its id.

        Higher priorities are popped first. Raise PreconditionFailedError if the queue is full.
        """
        delay_ms = require_ms("delay_s", delay_s, least_ms=0) if delay_s else 0
        if priority:
            require_within("priority", priority, PRIORITY_MIN, PRIORITY_MAX)
        header = encode_headers(headers) if headers else b""
        try:
            with self._lock:
                now_ms = self._enter()
                if self.rules.length_max is not None:
                    self._require_room(self.rules.length_max)
                return self._push(now_ms, header, body, priority + PRIORITY_ZERO, delay_ms)
        finally:
            if self._turn.leaving:
                self._move_dead_letters()

    def _push(
        self, now_ms: int, header: bytes, body: bytes, engine_priority: int, delay_ms: int
    ) -> int:
        message_id = self._engine_queue.next_seq
        self._engine_queue.push(
            _NOWHERE,
            header,
            body,
            ttl_ms=NO_TTL,
            priority=engine_priority,
            flags=0,
            delay_ms=delay_ms,
        )
        if delay_ms > 0:
            self._arm(now_ms + delay_ms)
        elif self._waiting:
            self._arrived.notify()
        return message_id

    def pop(
        self, *, visibility_timeout_s: float | None = None, wait_s: float = 0.0
    ) -> Received | None:
        """Take the next message and hold it until the timeout. Return None if there is none.

        With `wait_s`, wait up to that long for a message. A message that is neither acked, nacked
        nor extended in time goes back to its place and can be popped again.
        """
        if visibility_timeout_s is None:
            visibility_timeout_s = self.rules.visibility_timeout_s
        timeout_ms = require_ms("visibility_timeout_s", visibility_timeout_s, least_ms=1)
        give_up_s = monotonic() + wait_s if wait_s > 0 else 0.0
        while True:
            try:
                received = self._pop_or_wait(timeout_ms, wait_s)
            finally:
                if self._turn.leaving:
                    self._move_dead_letters()
            if received is not None or wait_s <= 0:
                return received
            wait_s = give_up_s - monotonic()

    def _pop_or_wait(self, timeout_ms: int, wait_s: float) -> Received | None:
        """Take a message, or wait until one may be there and return None."""
        with self._lock:
            now_ms = self._enter()
            message = take_next(self._session, self._engine_queue, no_ack=False)
            if message is not None:
                return self._lease(message, now_ms + timeout_ms)
            if wait_s > 0 and not self._turn.leaving:
                self._waiting += 1
                try:
                    self._arrived.wait(wait_s)
                finally:
                    self._waiting -= 1
            return None

    def _lease(self, message: Message, deadline_ms: int) -> Received:
        self._leases.hold(message.tag, deadline_ms)
        self._arm(deadline_ms)
        return Received(
            self.name,
            message.seq,
            message.body,
            message.returns + 1,
            message.priority - PRIORITY_ZERO,
            message.tag,
            decode_headers(message.header) if message.header else NO_HEADERS,
        )

    def ack(self, received: Received) -> None:
        """Acknowledge a message. Raise StaleReceiptError if its lease has ended."""
        try:
            with self._lock:
                self._enter()
                self._require_held(received)
                self._leases.end(received.receipt)
                ack(self._slots, self._session, received.receipt, multiple=False)
        finally:
            if self._turn.leaving:
                self._move_dead_letters()

    def nack(self, received: Received, *, delay_s: float = 0.0) -> None:
        """Return a message that failed to its place, at once or after a delay.

        It counts as a retry. Raise StaleReceiptError if its lease has ended.
        """
        delay_ms = require_ms("delay_s", delay_s, least_ms=0)
        try:
            with self._lock:
                now_ms = self._enter()
                self._require_held(received)
                self._leases.end(received.receipt)
                self._give_back(received.receipt, delay_ms)
                if delay_ms > 0:
                    self._arm(now_ms + delay_ms)
                elif self._waiting:
                    self._arrived.notify()
        finally:
            if self._turn.leaving:
                self._move_dead_letters()

    def extend(self, received: Received, visibility_timeout_s: float) -> None:
        """Move the deadline of a message. Raise StaleReceiptError if its lease has ended."""
        timeout_ms = require_ms("visibility_timeout_s", visibility_timeout_s, least_ms=1)
        try:
            with self._lock:
                deadline_ms = self._enter() + timeout_ms
                self._require_held(received)
                self._leases.hold(received.receipt, deadline_ms)
                self._arm(deadline_ms)
        finally:
            if self._turn.leaving:
                self._move_dead_letters()

    def stats(self) -> Stats:
        """Return the counts of one moment."""
        try:
            with self._lock:
                self._enter()
                engine_queue = self._engine_queue
                return Stats(
                    pushed=engine_queue.published,
                    ready=engine_queue.ready.count,
                    in_flight=engine_queue.unacked,
                    scheduled=len(engine_queue.scheduled),
                    acked=engine_queue.acked,
                    dead=self._dead + len(self._turn.leaving),
                )
        finally:
            if self._turn.leaving:
                self._move_dead_letters()

    def _enter(self) -> int:
        """Begin a call: read the clock, and handle everything that is due."""
        if self._is_closed:
            raise ClosedError(f"queue '{self.name}' is closed")
        now_ms = self._clock()
        self._turn.now_ms = now_ms
        if self._due_ms != NEVER and self._due_ms <= now_ms:
            self._run_due(now_ms)
        return now_ms

    def _run_due(self, now_ms: int) -> None:
        """Make scheduled messages ready that are due, and take back messages held too long.

        The number of both is bounded. The rest stays due and is handled by the next call.
        """
        turn = self._turn
        turn.timers.run(now_ms)
        turn.dirty.clear()  # there are no consumers to serve
        self._engine_queue.dirty = False
        for _ in range(BATCH):
            receipt = self._leases.pop_due(now_ms)
            if receipt is None:
                break
            self._give_back(receipt, 0)
        if self._waiting and self._engine_queue.ready.count != 0:
            self._arrived.notify(self._engine_queue.ready.count)
        self._due_ms = NEVER
        for due_ms in (turn.timers.next_due_ms(), self._leases.next_due_ms()):
            if due_ms != NEVER:
                self._arm(due_ms)

    def _give_back(self, receipt: int, delay_ms: int) -> None:
        """Return a message that failed. The engine requeues it, schedules it, or lets it leave."""
        # The engine takes the delay of a retry from the settings, which no other queue shares.
        self._settings.retry_min_ms = delay_ms
        self._settings.retry_max_ms = delay_ms
        reject(self._slots, self._session, receipt, multiple=False, requeue=True, failed=True)

    def _arm(self, due_ms: int) -> None:
        if self._due_ms == NEVER or due_ms < self._due_ms:
            self._due_ms = due_ms
            self._pulse.arm(self, due_ms)

    def _require_room(self, most: int) -> None:
        if self._engine_queue.ready.count + len(self._engine_queue.scheduled) >= most:
            raise PreconditionFailedError(f"queue '{self.name}' is full: {most} messages wait")

    def _require_held(self, received: Received) -> None:
        if received.queue != self.name or received.receipt not in self._leases:
            raise StaleReceiptError(
                f"message {received.id} of queue '{received.queue}' is no longer held "
                f"under receipt {received.receipt}"
            )

    def _move_dead_letters(self) -> None:
        """Move messages that failed too often to the dead-letter queue."""
        with self._lock:
            failed = self._turn.leaving
            self._turn.leaving = []
            self._dead += len(failed)
        if self._dead_letter is not None:
            for leaving in failed:
                self._dead_letter.add_dead_letter(self.name, leaving.message)

    def add_dead_letter(self, queue: str, message: Message) -> None:
        """Add a message that failed too often in another queue, whatever the length limit."""
        headers = decode_headers(message.header)
        headers["x-death-queue"] = queue
        headers["x-death-attempts"] = str(message.returns)
        with self._lock:
            if not self._is_closed:
                now_ms = self._enter()
                self._push(now_ms, encode_headers(headers), message.body, message.priority, 0)
        if self._turn.leaving:
            self._move_dead_letters()

    def on_pulse(self) -> None:
        """Handle everything that is due, called by the pulse."""
        with self._lock:
            if not self._is_closed:
                self._enter()
        if self._turn.leaving:
            self._move_dead_letters()

    def catch_up(self) -> None:
        """Handle everything that is due, in as many steps as needed."""
        self.on_pulse()
        while self._due_ms != NEVER and self._due_ms <= self._clock():
            self.on_pulse()

    def close(self) -> None:
        """End every wait. Later calls raise ClosedError."""
        with self._lock:
            self._is_closed = True
            self._due_ms = NEVER
            self._arrived.notify_all()
