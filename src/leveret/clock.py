"""Wall-clock milliseconds that never step backwards.

The clock reads the machine's time once, when it is made, and counts on from there by the monotonic
clock. A correction of the machine's time therefore cannot make a timer fire twice or a message
expire early; it is seen after the next start. The core is given `now_ms` and never asks.
"""

import time
from collections.abc import Callable


class Clock:
    """The time of one node. Tests pass one that they move by hand (`leveret.testing`)."""

    moves = True  # by itself: a timer of the event loop can be set for a time of this clock

    def __init__(self) -> None:
        # Wall clock at a monotonic clock of zero.
        self._offset_ns: int = time.time_ns() - time.monotonic_ns()

    def now_ms(self) -> int:
        """Milliseconds since 1970, at least as large as any answer before."""
        return (self._offset_ns + time.monotonic_ns()) // 1_000_000

    def on_moved(self, callback: Callable[[], int]) -> None:
        """Call back when somebody moves the clock: the answer is the next time of interest, or 0.

        Nobody can move this one.
        """
