"""A clock that stands still until a test moves it."""

import asyncio
import threading
from collections.abc import Callable
from typing import Final

from leveret.clock import Clock

START_S: Final = 1_700_000_000.0  # Unix time
_MOVE_WITHIN_S: Final = 60.0


class ManualClock(Clock):
    """The clock of a broker under test. A test may move it from any thread."""

    moves = False

    def __init__(self, start_s: float = START_S) -> None:
        super().__init__()
        self._now_ms = round(start_s * 1000)
        self._lock = threading.Lock()
        self._listeners: list[tuple[asyncio.AbstractEventLoop, Callable[[], int]]] = []

    def now_ms(self) -> int:
        return self._now_ms

    def ahead_ms(self) -> int:
        return 0  # its machine has no other time

    def offset_ms(self) -> int:
        return 0  # nobody sets it

    def on_moved(self, callback: Callable[[], int]) -> None:
        self._listeners.append((asyncio.get_running_loop(), callback))

    def advance(self, seconds: float = 0.0, *, minutes: float = 0.0) -> None:
        """Move the clock forward, and stop at each time at which a timer is due.

        When this returns, all timers that were due have run.
        """
        step_ms = round(seconds * 1000) + round(minutes * 60_000)
        if step_ms < 0:
            raise ValueError("the clock cannot go back")
        with self._lock:
            target_ms = self._now_ms + step_ms
            due_ms = self._run_due()
            while 0 < due_ms <= target_ms:
                self._now_ms = max(self._now_ms, due_ms)
                due_ms = self._run_due()
            self._now_ms = target_ms
            self._run_due()

    def _run_due(self) -> int:
        """Run the due timers of every broker. Return the next due time, or 0."""
        next_ms = [due for due in map(_call, self._listeners) if due > 0]
        return min(next_ms, default=0)


def _call(listener: tuple[asyncio.AbstractEventLoop, Callable[[], int]]) -> int:
    """Run a callback on its event loop and wait for the result."""
    loop, callback = listener
    if loop.is_closed():
        return 0

    async def run() -> int:
        return callback()

    return asyncio.run_coroutine_threadsafe(run(), loop).result(_MOVE_WITHIN_S)
