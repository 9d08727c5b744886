"""All wake-ups of the node in one heap, by due time. Nothing polls.

An object that waits for a time is a `Timed`: message TTLs, delays, leases, consumer timeouts, queue
expiry, heartbeats. The runtime sets one timer of its event loop to `next_due_ms()` and calls
`run()` when that timer fires.

Invariant: a `Timed` whose `wake_ms` is not NEVER has a heap entry for exactly that time.

`arm` only moves a wake-up to an earlier time. To wait longer, an object is woken at the old time
and returns the later one. That costs one early wake-up instead of a heap entry for every change.
"""

from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import Final

from mypy_extensions import i64

NEVER: Final = 0
FAULT_RETRY_MS: Final = 10_000  # after this time an object that failed is woken again

_STALE_MIN: Final = 16  # up to this many stale entries the heap is not searched for them


def earlier(a: i64, b: i64) -> i64:
    """Return the earlier of two times; NEVER counts as later than any time."""
    if a == NEVER or b == NEVER:
        return a + b
    return min(a, b)


class Timed:
    """Base class of everything that can be woken at a time."""

    def __init__(self) -> None:
        self.wake_ms: i64 = NEVER  # time of the wake-up; NEVER if it does not wait

    def on_due(self, now_ms: i64) -> i64:
        """Do the work that is due, and return the next wake-up time or NEVER."""
        raise NotImplementedError


class TimedCallback(Timed):
    """Calls a function outside the engine, which returns the next wake-up time or NEVER."""

    def __init__(self, wake: Callable[[int], int]) -> None:
        super().__init__()
        self._wake = wake

    def on_due(self, now_ms: i64) -> i64:
        return self._wake(now_ms)


class TimerQueue:
    """The heap of wake-ups. Stale entries are dropped when they come up."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Timed]] = []  # due time, serial, object
        self._serial: int = 0  # keeps the comparison of heap entries from reaching `Timed`
        self._stale: i64 = 0  # about how many entries no longer count
        self.faults: list[Exception] = []  # raised by woken objects; `Broker.on_pulse` takes them

    def arm(self, timed: Timed, due_ms: i64) -> None:
        """Wake `timed` at `due_ms` or earlier: a wake-up that is set for an earlier time stays."""
        assert due_ms > NEVER
        if timed.wake_ms != NEVER and timed.wake_ms <= due_ms:
            return
        if timed.wake_ms != NEVER:
            self._note_stale()
        timed.wake_ms = due_ms
        self._serial += 1
        heappush(self._heap, (due_ms, self._serial, timed))

    def disarm(self, timed: Timed) -> None:
        """Cancel the wake-up of `timed`."""
        if timed.wake_ms != NEVER:
            timed.wake_ms = NEVER
            self._note_stale()

    def _note_stale(self) -> None:
        """Count a stale entry, and drop all stale entries when they are the majority.

        Dropping them also frees the objects that they refer to.
        """
        self._stale += 1
        heap = self._heap
        if self._stale > _STALE_MIN and self._stale * 2 > len(heap):
            heap[:] = [entry for entry in heap if entry[2].wake_ms == entry[0]]
            heapify(heap)
            self._stale = 0

    def next_due_ms(self) -> i64:
        """Return when `run` must be called next, or NEVER."""
        heap = self._heap
        while heap:
            due_ms, _, timed = heap[0]
            if timed.wake_ms == due_ms:
                return due_ms
            heappop(heap)
        return NEVER

    def run(self, now_ms: i64) -> None:
        """Wake every object that is due.

        A wake-up that is armed during the run waits for the next run, so that each run ends.
        """
        heap = self._heap
        due: list[Timed] = []
        while heap and heap[0][0] <= now_ms:
            due_ms, _, timed = heappop(heap)
            if timed.wake_ms == due_ms:
                timed.wake_ms = NEVER
                due.append(timed)
        for timed in due:
            try:
                next_ms = timed.on_due(now_ms)
                if next_ms != NEVER:
                    self.arm(timed, next_ms)
            except Exception as fault:  # the other objects are woken all the same
                self.faults.append(fault)
                self.arm(timed, now_ms + FAULT_RETRY_MS)
