"""The handlers that run now: which of them hang, and which one blocks the event loop.

A handler that exceeds its time limit is cancelled, and its message fails. A thread cannot be
cancelled, and a coroutine may ignore it. These handlers hang: they keep their place among the
handlers that may run at once, and the health of the bus names them.
"""

import asyncio
import contextlib
import functools
import time
from collections.abc import Callable
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from typing import Any, Final

NAMED_MAX: Final = 20  # hung handlers that a health report names


@dataclass(frozen=True, eq=False)
class RunningHandler:
    """One call of a handler."""

    name: str
    message_id: str
    timeout_s: float
    task: "asyncio.Task[Any] | None"
    since_s: float  # of the monotonic clock

    def describe(self, now_s: float) -> str:
        """Name the handler, its message and how long it runs."""
        return f"{self.name} with message {self.message_id} for {now_s - self.since_s:.0f} s"


class RunningHandlers:
    """All calls of handlers that have not ended."""

    def __init__(self) -> None:
        self._running: set[RunningHandler] = set()

    def begin(self, name: str, message_id: str, timeout_s: float) -> RunningHandler:
        """Note that a handler is called."""
        now_s = time.monotonic()
        running = RunningHandler(name, message_id, timeout_s, asyncio.current_task(), now_s)
        self._running.add(running)
        return running

    def end(self, running: RunningHandler) -> None:
        """Note that it has ended."""
        self._running.discard(running)

    @property
    def count(self) -> int:
        """The number of handlers that run."""
        return len(self._running)

    def hung(self) -> tuple[str, ...]:
        """Describe the handlers that run longer than they may."""
        now_s = time.monotonic()
        late = [each for each in self._running if now_s - each.since_s > each.timeout_s]
        late.sort(key=lambda each: each.since_s)
        return tuple(each.describe(now_s) for each in late[:NAMED_MAX])

    def name_of(self, task: "asyncio.Task[Any] | None") -> str:
        """Return the name of the handler that a task runs, or of the task."""
        for running in tuple(self._running):
            if task is not None and running.task is task:
                return f"the handler {running.name} with message {running.message_id}"
        return "a callback" if task is None else f"the task {task.get_name()}"


class HandlerThreads:
    """Threads for handlers that are plain functions. A hung handler keeps its thread."""

    def __init__(self, executor: Executor, threads_max: int) -> None:
        self._executor = executor
        self._free = asyncio.Semaphore(threads_max)

    async def acquire(self) -> None:
        """Wait for a free thread."""
        await self._free.acquire()

    def submit(self, call: Callable[[], Any], on_end: Callable[[], None]) -> "asyncio.Future[Any]":
        """Run a function in the acquired thread. Call `on_end` when it has really ended."""
        loop = asyncio.get_running_loop()
        running = self._executor.submit(call)
        running.add_done_callback(functools.partial(self._release_slot, loop, on_end))
        return asyncio.wrap_future(running)

    def _release_slot(
        self, loop: asyncio.AbstractEventLoop, on_end: Callable[[], None], _: "Future[Any]"
    ) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits
            loop.call_soon_threadsafe(on_end)
            loop.call_soon_threadsafe(self._free.release)
