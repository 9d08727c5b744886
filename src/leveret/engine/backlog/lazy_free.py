"""Free the messages of purged and deleted queues in slices.

Freeing a million messages at once would stop the event loop for a tenth of a second. The messages
wait here instead, and each wake-up frees one slice.
"""

from typing import Final

from mypy_extensions import i64

from leveret.engine.timer_queue import NEVER, Timed, TimerQueue

_SLICE: Final = 20_000  # objects freed by one wake-up: a few milliseconds


class LazyFree(Timed):
    """Lists of objects that wait to be freed."""

    def __init__(self, timers: TimerQueue) -> None:
        super().__init__()
        self._timers = timers
        self._lists: list[list[object]] = []

    def add(self, held: list[object]) -> None:
        """Take over the objects of a queue. A short list is left to its caller's last reference."""
        if len(held) > _SLICE:
            self._lists.append(held)
            self._timers.arm(self, 1)

    def on_due(self, now_ms: i64) -> i64:
        held = self._lists[-1]
        del held[-_SLICE:]
        if not held:
            self._lists.pop()
        return now_ms if self._lists else NEVER
