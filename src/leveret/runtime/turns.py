"""Run turns of the engine on the event loop, and set the loop's timer for the `TimerQueue`.

Every input (received bytes, a timer, an HTTP command) is a turn: `begin`, commands, `end`. `end`
carries out the effects of the commands, lets the fronts encode them, and calls the flushers that
write the output. If work is left over (a peer got new credit, a timer is due at once, the turn has
done its share of work), another turn follows soon. The loop serves other clients in between.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from leveret.clock import Clock
from leveret.engine.broker import Broker
from leveret.engine.timer_queue import NEVER
from leveret.engine.turns.turn import LOG_WAIT_MS
from leveret.runtime.loop_watch import LoopWatch

# The machine's time may be set forwards during a wait: timers are at most this late then.
WAIT_S_MAX: Final = 10.0

log = logging.getLogger(__name__)


class TurnRunner:
    """Runs the turns of one broker on one event loop."""

    def __init__(self, broker: Broker, clock: Clock, loop: asyncio.AbstractEventLoop) -> None:
        self._broker = broker
        self._clock = clock
        self._loop = loop
        self.watch: LoopWatch | None = None  # measures the lag of the loop
        self._flushers: list[Callable[[], None]] = []
        self._is_soon = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = NEVER  # the time that the timer is set for
        self._has_stopped = False
        clock.on_moved(self._on_moved)

    def add_flusher(self, flush: Callable[[], None]) -> None:
        """Call `flush` at the end of every turn."""
        self._flushers.append(flush)

    def remove_flusher(self, flush: Callable[[], None]) -> None:
        """Undo `add_flusher`. Call this outside `end`."""
        self._flushers.remove(flush)

    def begin(self) -> None:
        self._broker.begin_turn(self._clock.now_ms())

    def end(self) -> None:
        """Carry out the effects of the turn. A fault must not stop the timer."""
        try:
            self._carry_out()
        finally:
            due_ms = self._broker.timers.next_due_ms()
            if due_ms != NEVER and (self._timer_ms == NEVER or due_ms < self._timer_ms):
                self._set_timer(due_ms)

    def _carry_out(self) -> None:
        broker = self._broker
        turn = broker.turn
        broker.end_turn()
        broker.perform()
        while turn.dirty or turn.ended:  # effects may close channels, which requeue messages
            broker.end_turn()
            broker.perform()
        for flush in self._flushers:
            flush()
        if turn.faults:
            for fault in turn.faults:
                log.error("%s", fault)
            turn.faults.clear()
        if turn.dirty or (turn.leaving and not turn.is_log_full()):
            self.soon()
        elif turn.leaving and not self._is_soon:
            self._is_soon = True
            self._loop.call_later(LOG_WAIT_MS / 1000, self._turn)
        if self.watch is not None and not self.watch.is_armed:
            self.watch.arm()

    def soon(self) -> None:
        """Run another turn in the next iteration of the loop."""
        if not self._is_soon:
            self._is_soon = True
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        self._is_soon = False
        if self._has_stopped:
            return
        self.begin()
        self.end()

    def on_pulse(self) -> None:
        """Run a turn that wakes everything that is due."""
        if self._has_stopped:
            return
        self._drop_timer()
        self._broker.on_pulse(self._clock.now_ms())
        self.end()

    def _on_moved(self) -> int:
        """Handle due timers after a test moved the clock. Return the next due time, or NEVER."""
        self.on_pulse()
        return self._broker.timers.next_due_ms()

    def _set_timer(self, due_ms: int) -> None:
        if not self._clock.moves or self._has_stopped:
            return
        self._drop_timer()
        self._timer_ms = due_ms
        wait_ms = due_ms - self._clock.now_ms()
        wait_s = min(max(0, wait_ms) / 1000, WAIT_S_MAX)
        self._timer = self._loop.call_later(wait_s, self.on_pulse)

    def stop(self) -> None:
        """Run no more turns by timer: they might need files that are being closed."""
        self._has_stopped = True
        self._drop_timer()

    def _drop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._timer_ms = NEVER
