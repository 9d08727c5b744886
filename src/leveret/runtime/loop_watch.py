"""Measure the lag of the event loop: how late a timer fires while there is work.

The first turn after a rest arms the timer, which then fires every `PROBE_S` while there are turns.
An idle broker has no timer. The timer also calls `on_probe`, for work that must follow turns soon.
A loop that blocks for longer than `PROBE_S` is always noticed. The measured lag is at most
`PROBE_S` shorter than the block.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from leveret.histogram import Histogram

log = logging.getLogger(__name__)

PROBE_S: Final = 0.1
SLOW_S: Final = 0.2
LAG_BOUNDS_S: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5)


class LoopWatch:
    """Measures the lag of one event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, turn_number: Callable[[], int]) -> None:
        self.lags = Histogram(LAG_BOUNDS_S)
        self.is_armed = False
        self.on_probe: Callable[[], None] | None = None
        self._loop = loop
        self._turn_number = turn_number
        self._seen = 0  # number of turns when the timer was armed
        self._due_s = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def arm(self) -> None:
        """Start the timer."""
        self.is_armed = True
        self._seen = self._turn_number()
        self._due_s = self._loop.time() + PROBE_S
        self._timer = self._loop.call_at(self._due_s, self._on_due)

    def _on_due(self) -> None:
        lag_s = max(0.0, self._loop.time() - self._due_s)
        self.lags.observe(lag_s)
        if lag_s >= SLOW_S:
            text = (
                "the broker served no client for a moment: the machine is busy, or a step took"
                " long; if this comes often, look for what uses the CPU of this machine"
            )
            log.warning(text, extra={"facts": {"ms": round(lag_s * 1000)}})
        self._timer = None
        self.is_armed = False
        if self.on_probe is not None:
            self.on_probe()
        if self._turn_number() != self._seen:
            self.arm()

    def stop(self) -> None:
        self.is_armed = True  # keeps turns from arming it again
        if self._timer is not None:
            self._timer.cancel()
