"""Deadlines of calls on an event loop, with one timer for all of them.

`asyncio.timeout` sets a timer for each call, which takes a tenth of the CPU time of a short call.
Here the timer stays set when a call ends. When it fires, it is set again for the calls that are
still open.
"""

import asyncio


class Deadline:
    """The end of the time of one call, by the clock of the event loop."""

    __slots__ = ("at_s", "cancelling", "has_passed", "task")

    def __init__(self, task: "asyncio.Task[object]", at_s: float) -> None:
        self.task = task
        self.at_s = at_s
        self.has_passed = False
        self.cancelling = task.cancelling()  # cancellations that others have asked for


class Deadlines:
    """The open calls of one client. The task of a call that takes too long is cancelled."""

    def __init__(self) -> None:
        self._open: set[Deadline] = set()
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, limit_s: float) -> Deadline:
        """Return the deadline of a call that begins now, in the current task. `end` ends it."""
        loop = asyncio.get_running_loop()
        task = asyncio.current_task(loop)
        assert task is not None
        deadline = Deadline(task, loop.time() + limit_s)
        self._open.add(deadline)
        if self._timer is None or deadline.at_s < self._timer.when():
            self._set_timer(loop, deadline.at_s)
        return deadline

    def end(self, deadline: Deadline) -> bool:
        """End a call. Return True if its time was over and nobody else has cancelled its task."""
        self._open.discard(deadline)
        return deadline.has_passed and deadline.task.uncancel() <= deadline.cancelling

    def close(self) -> None:
        """Unset the timer if no call is open."""
        if self._timer is not None and not self._open:
            self._timer.cancel()
            self._timer = None

    def _set_timer(self, loop: asyncio.AbstractEventLoop, at_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = loop.call_at(at_s, self._on_time, loop)

    def _on_time(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = None
        now_s = loop.time()
        for deadline in [each for each in self._open if each.at_s <= now_s]:
            self._open.discard(deadline)
            deadline.has_passed = True
            deadline.task.cancel()
        if self._open:
            self._set_timer(loop, min(each.at_s for each in self._open))
