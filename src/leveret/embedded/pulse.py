"""The pulse of a manager: one thread that wakes when something in a queue is due, and only then.

Queues arm the pulse with their due times. The thread is started with the first one and waits for
the earliest. Nothing polls. Queues also handle due work in every call, so the thread matters only
to threads that wait, and to messages that fall due while nobody calls.

Manager and queues hold the `Pulse`. The thread holds only its `_PulseState`, which knows queues by
weak reference. When the last holder of the `Pulse` is gone, the thread ends, even if nobody closed
it.
"""

import queue
import threading
import weakref
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Protocol

from leveret.engine.timer_queue import NEVER


class Timed(Protocol):
    """Something that can be woken."""

    def on_pulse(self) -> None:
        """Handle everything that is due."""


class Pulse:
    """The wake-ups of one manager's queues."""

    def __init__(self, clock: Callable[[], int]) -> None:
        self.clock = clock
        self._state = _PulseState(clock)
        weakref.finalize(self, self._state.stop)

    def arm(self, timed: Timed, due_ms: int) -> None:
        """Wake `timed` at this time."""
        self._state.arm(weakref.ref(timed), due_ms)

    def nudge(self) -> None:
        """Let the thread read the clock, which was moved by hand."""
        self._state.signal.put(None)

    def stop(self) -> None:
        """End the thread, and wait for its end."""
        self._state.stop()
        thread = self._state.thread
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    @property
    def wakes(self) -> int:
        """The number of times that the thread was woken: by time, or by an earlier due time."""
        return self._state.wakes


class _PulseState:
    """The state that the thread shares with its `Pulse`."""

    def __init__(self, clock: Callable[[], int]) -> None:
        self.clock = clock
        self.wakes = 0
        self.thread: threading.Thread | None = None
        # A finalizer may send a signal at any point of the program. SimpleQueue needs no lock.
        self.signal: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._is_stopped = False
        # Guards the fields below. No queue is called while it is held.
        self._lock = threading.Lock()
        self._heap: list[tuple[int, int, weakref.ref[Timed]]] = []
        self._serial = 0  # makes heap entries comparable
        self._is_waiting = False  # False: the thread will look at the heap again

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
        waited_at_ms = NEVER
        while not self._is_stopped:
            now_ms, due_ms = self._work_off()
            # A clock that did not move during the wait is moved by hand: wait for `nudge`.
            is_timed = due_ms != NEVER and now_ms != waited_at_ms
            waited_at_ms = NEVER
            try:
                self.signal.get(timeout=(due_ms - now_ms) / 1000 if is_timed else None)
            except queue.Empty:
                waited_at_ms = now_ms
            self.wakes += 1

    def _work_off(self) -> tuple[int, int]:
        """Wake everything that is due. Return the time and the next due time."""
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
