"""Wall-clock milliseconds that follow the machine's time and never step backwards.

    the machine's time is set forwards    the clock follows at once
    the machine's time is set back        the clock runs at half speed until it is right again

So no timer fires twice, and time never stands still: while the clock is ahead, a delay takes at
most twice as long. Time in which the machine was suspended counts. `docs/adr` has the reasons. The
core gets `now_ms` with each turn and reads no clock.
"""

import time
from collections.abc import Callable
from typing import Final

_MS: Final = 1_000_000  # nanoseconds
_MINUTE_MS: Final = 60_000


class Clock:
    """The time of one node. Tests use a clock that they move (`leveret.testing.ManualClock`)."""

    moves = True  # the clock advances by itself, so timers of the event loop can follow it

    def __init__(
        self,
        wall_ns: Callable[[], int] = time.time_ns,
        monotonic_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._wall_ns = wall_ns
        self._monotonic_ns = monotonic_ns
        self._now_ns = wall_ns()
        self._at_ns = monotonic_ns()  # monotonic time of the last reading

    def now_ms(self) -> int:
        """Return milliseconds since 1970, at least as many as any call before."""
        wall_ns, at_ns = self._wall_ns(), self._monotonic_ns()
        slow_ns = self._now_ns + (at_ns - self._at_ns) // 2
        self._now_ns = wall_ns if wall_ns > slow_ns else slow_ns
        self._at_ns = at_ns
        return self._now_ns // _MS

    def raise_to(self, now_ms: int) -> None:
        """Show no less than this time from now on: the time of a log that another node wrote."""
        if self.now_ms() < now_ms:
            self._now_ns = now_ms * 1_000_000

    def ahead_ms(self) -> int:
        """Return by how much this time is ahead of the machine's. Until it is 0, it is slowed."""
        return self.now_ms() - self._wall_ns() // _MS

    def offset_ms(self) -> int:
        """Return the machine's time less a time that nobody sets: it changes when it is set."""
        return (self._wall_ns() - self._monotonic_ns()) // _MS

    def on_moved(self, callback: Callable[[], int]) -> None:
        """Register a callback for when a test moves the clock; it returns the next due time, or 0.

        This clock cannot be moved, so it ignores the callback.
        """


def duration_text(ms: int) -> str:
    """Return a duration in the unit that suits it, rounded."""
    if ms < 2 * _MINUTE_MS:
        return f"{round(ms / 1000)} s"
    minutes = round(ms / _MINUTE_MS)
    return f"{minutes} min" if minutes < 120 else f"{round(minutes / 60)} h"
