"""One queue of the library: the engine's queue machine in a world of its own, behind one lock.

    push ──► scheduled ──due──► ready ──pop──► in flight ──ack──► gone
      └────────────────────────►  ▲               │
                                  └── nack, deadline passed ──► dead letter, if it failed too often

The machine (`leveret.engine`) moves the messages and keeps the counts; here are the lock, the
leases and the threads that wait. Every call reads the clock once and first does what is due by
then, so that an answer never depends on whether the background thread has come by.

Messages that failed too often leave by the turn's `leaving` column and are pushed to the
dead-letter queue after the lock is released (`_bury`): no thread ever holds two queues' locks.

Invariants: `_leases` has exactly the receipts of the messages in flight; `_due_ms` is the earliest
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
    TIME_MS_MAX,
    Rules,
    require_within,
)
from leveret.engine.commands.settling import ack, reject
from leveret.engine.message import Address, Message
from leveret.engine.queues.getting import take_next
from leveret.engine.queues.queue import NO_TTL
from leveret.engine.queues.queue import Queue as Machine
from leveret.engine.queues.slots import Slots
from leveret.engine.queues.state import BATCH
from leveret.engine.timer_queue import NEVER, TimerQueue
from leveret.engine.turns.session import Outlet, Session, Turn
from leveret.errors import ClosedError, PreconditionFailedError, StaleReceiptError

_NOWHERE: Final = Address("", "")  # messages are pushed to their queue, not routed


class Queue:
    """One queue. Any thread may call anything; `QueueManager.queue` makes it."""

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
        # The machine's world: one queue, and one session that holds all that is in flight
        self._turn = Turn(TimerQueue())
        self._turn.now_ms = self._clock()
        self._session = Session(Outlet(), self._turn)
        self._slots = Slots()
        slot = self._slots.take()
        self._settings = rules.settings()
        self._machine = Machine("", name, slot, self._settings, False, False, None, {}, self._turn)
        self._slots.put(slot, self._machine)

    # Messages

    def push(
        self,
        body: bytes,
        *,
        delay_ms: int = 0,
        priority: int = 0,
        headers: Mapping[str, str] | None = None,
    ) -> int:
        """Add a message, ready at once or after a delay; its id. Higher priorities go first.

        Raises PreconditionFailedError where the queue is full.
        """
        if delay_ms:
            require_within("delay_ms", delay_ms, 0, TIME_MS_MAX)
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
                self._bury()

    def _push(
        self, now_ms: int, header: bytes, body: bytes, machine_priority: int, delay_ms: int
    ) -> int:
        message_id = self._machine.next_seq
        self._machine.push(_NOWHERE, header, body, NO_TTL, machine_priority, 0, delay_ms)
        if delay_ms > 0:
            self._arm(now_ms + delay_ms)
        elif self._waiting:
            self._arrived.notify()
        return message_id

    def pop(
        self, *, visibility_timeout_ms: int | None = None, wait_s: float = 0.0
    ) -> Received | None:
        """Take the next message and hold it until the timeout; None if there is none.

        With `wait_s`, waits so long for one. A message that is neither acked, nacked nor extended
        in time goes back to its place and can be popped again.
        """
        timeout_ms = self.rules.visibility_timeout_ms
        if visibility_timeout_ms is not None:
            timeout_ms = visibility_timeout_ms
            require_within("visibility_timeout_ms", timeout_ms, 1, TIME_MS_MAX)
        give_up_s = monotonic() + wait_s if wait_s > 0 else 0.0
        while True:
            try:
                received = self._pop_or_wait(timeout_ms, wait_s)
            finally:
                if self._turn.leaving:
                    self._bury()
            if received is not None or wait_s <= 0:
                return received
            wait_s = give_up_s - monotonic()

    def _pop_or_wait(self, timeout_ms: int, wait_s: float) -> Received | None:
        """Take a message, or wait for one to come, which is then not taken yet."""
        with self._lock:
            now_ms = self._enter()
            message = take_next(self._session, self._machine, False)
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
        """The message is done. Raises Stale where it is no longer held under this receipt."""
        try:
            with self._lock:
                self._enter()
                self._require_held(received)
                self._leases.end(received.receipt)
                ack(self._slots, self._session, received.receipt, False)
        finally:
            if self._turn.leaving:
                self._bury()

    def nack(self, received: Received, *, delay_ms: int = 0) -> None:
        """The message failed: back to its place, at once or after a delay; it counts as a retry.

        Raises Stale where it is no longer held under this receipt.
        """
        require_within("delay_ms", delay_ms, 0, TIME_MS_MAX)
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
                self._bury()

    def extend(self, received: Received, visibility_timeout_ms: int) -> None:
        """Hold the message until so long from now. Raises Stale where it is no longer held."""
        require_within("visibility_timeout_ms", visibility_timeout_ms, 1, TIME_MS_MAX)
        try:
            with self._lock:
                deadline_ms = self._enter() + visibility_timeout_ms
                self._require_held(received)
                self._leases.hold(received.receipt, deadline_ms)
                self._arm(deadline_ms)
        finally:
            if self._turn.leaving:
                self._bury()

    def stats(self) -> Stats:
        """Counts, all of one moment."""
        try:
            with self._lock:
                self._enter()
                machine = self._machine
                return Stats(
                    pushed=machine.published,
                    ready=machine.ready.count,
                    in_flight=machine.unacked,
                    scheduled=len(machine.scheduled),
                    acked=machine.acked,
                    dead=self._dead + len(self._turn.leaving),
                )
        finally:
            if self._turn.leaving:
                self._bury()

    # Inside the lock

    def _enter(self) -> int:
        """Begin a call: read the clock, and do what is due by now."""
        if self._is_closed:
            raise ClosedError(f"queue '{self.name}' is closed")
        now_ms = self._clock()
        self._turn.now_ms = now_ms
        if self._due_ms != NEVER and self._due_ms <= now_ms:
            self._run_due(now_ms)
        return now_ms

    def _run_due(self, now_ms: int) -> None:
        """Make ready what is scheduled for now, and take back what was held too long.

        A bounded number of both: what is left is due still and comes with the next call.
        """
        turn = self._turn
        turn.timers.run(now_ms)
        turn.dirty.clear()  # there are no consumers to serve
        self._machine.dirty = False
        for _ in range(BATCH):
            receipt = self._leases.pop_due(now_ms)
            if receipt is None:
                break
            self._give_back(receipt, 0)
        if self._waiting and self._machine.ready.count != 0:
            self._arrived.notify(self._machine.ready.count)
        self._due_ms = NEVER
        for due_ms in (turn.timers.next_due_ms(), self._leases.next_due_ms()):
            if due_ms != NEVER:
                self._arm(due_ms)

    def _give_back(self, receipt: int, delay_ms: int) -> None:
        """A message failed: the machine puts it back, schedules it, or lets it leave."""
        # The delay of a retry is a rule of the machine's; the rules are this queue's own.
        self._settings.retry_min_ms = delay_ms
        self._settings.retry_max_ms = delay_ms
        reject(self._slots, self._session, receipt, False, True, True)

    def _arm(self, due_ms: int) -> None:
        if self._due_ms == NEVER or due_ms < self._due_ms:
            self._due_ms = due_ms
            self._pulse.arm(self, due_ms)

    def _require_room(self, most: int) -> None:
        if self._machine.ready.count + len(self._machine.scheduled) >= most:
            raise PreconditionFailedError(f"queue '{self.name}' is full: {most} messages wait")

    def _require_held(self, received: Received) -> None:
        if received.queue != self.name or received.receipt not in self._leases:
            raise StaleReceiptError(
                f"message {received.id} of queue '{received.queue}' is no longer held "
                f"under receipt {received.receipt}"
            )

    # Outside the lock

    def _bury(self) -> None:
        """Move what failed too often to the dead-letter queue."""
        with self._lock:
            gone = self._turn.leaving
            self._turn.leaving = []
            self._dead += len(gone)
        if self._dead_letter is not None:
            for leaving in gone:
                self._dead_letter.bury_here(self.name, leaving.message)

    def bury_here(self, queue: str, message: Message) -> None:
        """Take a message that failed too often in another queue, whatever the length limit."""
        headers = decode_headers(message.header)
        headers["x-death-queue"] = queue
        headers["x-death-attempts"] = str(message.returns)
        with self._lock:
            if not self._is_closed:
                now_ms = self._enter()
                self._push(now_ms, encode_headers(headers), message.body, message.priority, 0)
        if self._turn.leaving:
            self._bury()

    def on_pulse(self) -> None:
        """The pulse: something may be due."""
        with self._lock:
            if not self._is_closed:
                self._enter()
        if self._turn.leaving:
            self._bury()

    def catch_up(self) -> None:
        """Do everything that is due by now."""
        self.on_pulse()
        while self._due_ms != NEVER and self._due_ms <= self._clock():
            self.on_pulse()

    def close(self) -> None:
        """End every wait; each call from now on raises Closed."""
        with self._lock:
            self._is_closed = True
            self._due_ms = NEVER
            self._arrived.notify_all()
