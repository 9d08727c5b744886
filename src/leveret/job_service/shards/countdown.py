"""Deadlines of calls to servers: time in which this node stood still does not count.

A node that is frozen, or waits for its disk or a processor, does not read answers that have come. A
plain timer fires as soon as the node goes on, before it has read any of them. Its servers would
count as down. So a deadline is a number of steps with a timer each, and a step does not count if
its timer fires late.
"""

import asyncio
from collections.abc import Callable
from typing import Any, Final

STEPS: Final = 4
LATE_S: Final = 0.1  # by which the timer of a step that does not count is late
LATE_STEPS_MAX: Final = 16  # that do not count; then every step does


class Countdown:
    """Calls a function when a time has passed, unless it is cancelled before."""

    def __init__(self, seconds: float, on_end: Callable[[], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._step_s = seconds / STEPS
        self._on_end = on_end
        self._left = STEPS
        self._late_left = LATE_STEPS_MAX
        self._begin_step()

    def _begin_step(self) -> None:
        self._due_s = self._loop.time() + self._step_s
        self._timer = self._loop.call_at(self._due_s, self._on_due)

    def _on_due(self) -> None:
        if self._late_left > 0 and self._is_late():
            self._late_left -= 1
        else:
            self._left -= 1
        if self._left == 0:
            self._on_end()
        else:
            self._begin_step()

    def _is_late(self) -> bool:
        return self._loop.time() - self._due_s >= LATE_S

    @property
    def stood_still(self) -> bool:
        """Return whether the node has stood still meanwhile."""
        return self._late_left < LATE_STEPS_MAX or self._is_late()

    def cancel(self) -> None:
        self._timer.cancel()


class Deadline:
    """Raises TimeoutError in an `async with` block that takes too long, as `asyncio.timeout`."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._timeout = asyncio.timeout(None)

    async def __aenter__(self) -> None:
        await self._timeout.__aenter__()
        self._countdown = Countdown(self._seconds, self._end)

    @property
    def stood_still(self) -> bool:
        """Return whether the node stood still in the block."""
        return self._countdown.stood_still

    def _end(self) -> None:
        self._timeout.reschedule(asyncio.get_running_loop().time())

    async def __aexit__(self, *exception: Any) -> None:
        self._countdown.cancel()
        await self._timeout.__aexit__(*exception)
