"""Wall-clock milliseconds that never step backwards.

The clock reads the machine's time once, when it is made, and counts on with the monotonic clock. So
a correction of the machine's time cannot make a timer fire twice or a message expire early; the
correction counts from the next start. The core gets `now_ms` with each turn and reads no clock.
"""

import time
from collections.abc import Callable


class Clock:
    """The time of one node. Tests use a clock that they move (`leveret.testing.ManualClock`)."""

    moves = True  # the clock advances by itself, so timers of the event loop can follow it

    def __init__(self) -> None:
        # Wall clock at a monotonic clock of zero.
        self._offset_ns: int = time.time_ns() - time.monotonic_ns()

    def now_ms(self) -> int:
        """Return milliseconds since 1970, at least as many as any call before."""
        return (self._offset_ns + time.monotonic_ns()) // 1_000_000

    def on_moved(self, callback: Callable[[], int]) -> None:
        """Register a callback for when a test moves the clock; it returns the next due time, or 0.

        This clock cannot be moved, so it ignores the callback.
        """
