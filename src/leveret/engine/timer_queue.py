"""The pulse: one timer for the whole node, armed for the earliest due time, never polling.

Whatever waits for time (message TTL, delays, leases, consumer timeouts, queue expiry, heartbeats)
is a `Timed` and asks to be woken. The runtime arms one timer of its event loop for `next_due_ms()`
and calls `run()` when it fires.

Invariant: a `Timed` whose `wake_ms` is not 0 has an entry for exactly that time in the heap. Moving
a wake-up to a later time is left to the wake-up itself: it costs one early wake instead of a heap
entry for every change.
"""

from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import Final

from mypy_extensions import i64

NEVER: Final = 0

_STALE_MIN: Final = 16  # so few stale entries are not worth a look at the whole heap


def earlier(a: i64, b: i64) -> i64:
    """The earlier of two times, either of which may be NEVER."""
    if a == NEVER or b == NEVER:
        return a + b
    return min(a, b)


class Timed:
    """Something that wants to be woken at a time."""

    def __init__(self) -> None:
        self.wake_ms: i64 = NEVER  # when it will be woken; NEVER when it does not wait

    def on_due(self, now_ms: i64) -> i64:
        """Do what is due; the next wake-up time, or NEVER."""
        raise NotImplementedError


class TimedCallback(Timed):
    """Wakes somebody outside of the engine, who says when to wake them next."""

    def __init__(self, wake: Callable[[int], int]) -> None:
        super().__init__()
        self._wake = wake

    def on_due(self, now_ms: i64) -> i64:
        return self._wake(now_ms)


class TimerQueue:
    """The heap of wake-ups. Entries that no longer count are dropped when they come up."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Timed]] = []
        self._serial: int = 0  # makes heap entries comparable without comparing `Timed`s
        self._stale: i64 = 0  # entries that no longer count, about

    def arm(self, timed: Timed, due_ms: i64) -> None:
        """Wake `timed` at `due_ms` at the latest; an earlier wake-up stays."""
        assert due_ms > NEVER
        if timed.wake_ms != NEVER and timed.wake_ms <= due_ms:
            return
        if timed.wake_ms != NEVER:
            self._note_stale()
        timed.wake_ms = due_ms
        self._serial += 1
        heappush(self._heap, (due_ms, self._serial, timed))

    def disarm(self, timed: Timed) -> None:
        """Forget the wake-up."""
        if timed.wake_ms != NEVER:
            timed.wake_ms = NEVER
            self._note_stale()

    def _note_stale(self) -> None:
        """An entry no longer counts; when most do not, they are dropped with what they refer to."""
        self._stale += 1
        heap = self._heap
        if self._stale > _STALE_MIN and self._stale * 2 > len(heap):
            heap[:] = [entry for entry in heap if entry[2].wake_ms == entry[0]]
            heapify(heap)
            self._stale = 0

    def next_due_ms(self) -> i64:
        """When the runtime must call `run` next, or NEVER."""
        heap = self._heap
        while heap:
            due_ms, _, timed = heap[0]
            if timed.wake_ms == due_ms:
                return due_ms
            heappop(heap)
        return NEVER

    def run(self, now_ms: i64) -> None:
        """Wake everything that is due.

        What a wake-up arms for now or earlier waits for the next run, so that one run ends.
        """
        heap = self._heap
        due: list[Timed] = []
        while heap and heap[0][0] <= now_ms:
            due_ms, _, timed = heappop(heap)
            if timed.wake_ms == due_ms:
                timed.wake_ms = NEVER
                due.append(timed)
        for timed in due:
            next_ms = timed.on_due(now_ms)
            if next_ms != NEVER:
                self.arm(timed, next_ms)
