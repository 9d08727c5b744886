"""The pulse of a manager: one thread that wakes when something in a queue is due, and only then.

Queues say when they want to be woken (`arm`); the thread, started by the first of them, waits for
the earliest of these times. Nothing polls. Queues also look at the clock in every call, so the
thread matters only to those who wait, and to messages whose time comes while nobody calls.

`Pulse` is what manager and queues hold; the thread holds only its `_Beat`, and that knows queues by
weak reference. When the last holder is gone the thread ends, whether or not anybody closed it.
"""

import queue
import threading
import weakref
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Protocol

from leveret.engine.timer_queue import NEVER


class Timed(Protocol):
    """What can be woken."""

    def on_pulse(self) -> None:
        """Do what is due."""


class Pulse:
    """The wake-ups of one manager's queues."""

    def __init__(self, clock: Callable[[], int]) -> None:
        self.clock = clock
        self._beat = _Beat(clock)
        weakref.finalize(self, self._beat.stop)

    def arm(self, timed: Timed, due_ms: int) -> None:
        """Wake `timed` at this time."""
        self._beat.arm(weakref.ref(timed), due_ms)

    def nudge(self) -> None:
        """The clock was moved by hand: look at it."""
        self._beat.signal.put(None)

    def stop(self) -> None:
        """End the thread; it is gone when this returns."""
        self._beat.stop()
        thread = self._beat.thread
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    @property
    def wakes(self) -> int:
        """How often the thread has been woken: by time, or by something due earlier than before."""
        return self._beat.wakes


class _Beat:
    """What the thread and the outside share."""

    def __init__(self, clock: Callable[[], int]) -> None:
        self.clock = clock
        self.wakes = 0
        self.thread: threading.Thread | None = None
        # A signal may come from a finalizer, in the middle of anything: this takes no lock.
        self.signal: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._is_stopped = False
        self._lock = threading.Lock()  # guards what follows; no queue is called while it is held
        self._heap: list[tuple[int, int, weakref.ref[Timed]]] = []
        self._serial = 0  # makes heap entries comparable
        self._is_waiting = False  # else the thread looks at the heap again by itself

    def arm(self, timed: weakref.ref[Timed], due_ms: int) -> None:
        with self._lock:
            self._serial += 1
            heappush(self._heap, (due_ms, self._serial, timed))
            if self.thread is None and not self._is_stopped:
                self.thread = threading.Thread(target=self._run, name="leveret-pulse", daemon=True)
                self.thread.start()
            is_earlier = self._is_waiting and self._heap[0][0] == due_ms
        if is_earlier:
            self.signal.put(None)

    def stop(self) -> None:
        self._is_stopped = True
        self.signal.put(None)

    def _run(self) -> None:
        stood_at_ms = NEVER
        while not self._is_stopped:
            now_ms, due_ms = self._work_off()
            # A clock that stood still while we waited is moved by hand: whoever does will say so.
            is_timed = due_ms != NEVER and now_ms != stood_at_ms
            stood_at_ms = NEVER
            try:
                self.signal.get(timeout=(due_ms - now_ms) / 1000 if is_timed else None)
            except queue.Empty:
                stood_at_ms = now_ms
            self.wakes += 1

    def _work_off(self) -> tuple[int, int]:
        """Wake all that is due; the time, and when something is due next."""
        while True:
            now_ms = self.clock()
            due: list[weakref.ref[Timed]] = []
            with self._lock:
                while self._heap and self._heap[0][0] <= now_ms:
                    due.append(heappop(self._heap)[2])
                self._is_waiting = not due
                if not due:
                    return now_ms, self._heap[0][0] if self._heap else NEVER
            for timed in due:
                _wake(timed)


def _wake(reference: weakref.ref[Timed]) -> None:
    timed = reference()
    if timed is not None:
        timed.on_pulse()
