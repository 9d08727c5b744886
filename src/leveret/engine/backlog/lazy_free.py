"""Messages of purged and deleted queues, freed in slices.

Freeing a million messages at once would stop the event loop for a tenth of a second. They are put
here instead, and every beat of the timers frees some until nothing is left.
"""

from typing import Final

from mypy_extensions import i64

from leveret.engine.timer_queue import NEVER, Timed, TimerQueue

_SLICE: Final = 20_000  # objects freed in one beat: a few milliseconds


class LazyFree(Timed):
    """What waits to be freed."""

    def __init__(self, timers: TimerQueue) -> None:
        super().__init__()
        self._timers = timers
        self._heaps: list[list[object]] = []

    def add(self, held: list[object]) -> None:
        """Take over what a queue held; little of it is freed by the caller's own last reference."""
        if len(held) > _SLICE:
            self._heaps.append(held)
            self._timers.arm(self, 1)

    def on_due(self, now_ms: i64) -> i64:
        heap = self._heaps[-1]
        del heap[-_SLICE:]
        if not heap:
            self._heaps.pop()
        return now_ms if self._heaps else NEVER
