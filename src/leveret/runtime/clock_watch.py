"""Log it when the machine's time is set while the broker runs, because messages expire by it.

A look compares the machine's time with the monotonic time. Their difference changes only when the
time is set, or when the machine was suspended. Small corrections are not reported.
"""

import asyncio
import logging
from typing import Final

from leveret.clock import Clock, duration_text

log = logging.getLogger(__name__)

LOOK_S: Final = 5.0
STEP_MS: Final = 60_000  # smaller steps are not reported


class ClockWatch:
    """Watches the time of the machine of one broker."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._offset_ms = clock.offset_ms()
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Look now and every `LOOK_S`."""
        self.look()
        self._timer = asyncio.get_running_loop().call_later(LOOK_S, self.start)

    def stop(self) -> None:
        """Look no more."""
        if self._timer is not None:
            self._timer.cancel()

    def look(self) -> None:
        """Report a step since the last look."""
        offset_ms = self._clock.offset_ms()
        step_ms, self._offset_ms = offset_ms - self._offset_ms, offset_ms
        if step_ms >= STEP_MS:
            log.warning(
                "the machine's time went forwards by %s, because it was set or the machine was"
                " suspended: messages, leases and unused queues whose time is over expire now; if"
                " the new time is wrong, correct it",
                duration_text(step_ms),
            )
        elif step_ms <= -STEP_MS:
            log.warning(
                "the machine's time was set back by %s: the time of the broker runs at half speed"
                " until both agree, so delays, expiries and leases take up to twice as long; if the"
                " new time is wrong, correct it",
                duration_text(-step_ms),
            )
