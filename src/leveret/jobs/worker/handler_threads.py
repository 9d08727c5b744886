"""Threads for handlers that are plain functions.

The threads are daemons, unlike the threads of `concurrent.futures`: a handler that never returns
must not keep a worker from ending after its deadline for stopping. Every exception of a handler is
reported, `SystemExit` included: otherwise its job would never end.
"""

import asyncio
import inspect
import threading
from collections.abc import Callable
from queue import SimpleQueue

from leveret.jobs.client.job import Job

_Item = tuple[Callable[[Job], object], Job, "asyncio.Future[None]"]


class HandlerThreads:
    """Runs handlers, at most `threads_max` at a time; starts a thread when it is first needed."""

    def __init__(self, threads_max: int, name: str) -> None:
        self._threads_max = threads_max
        self._name = name
        self._waiting: SimpleQueue[_Item | None] = SimpleQueue()
        self._started = 0
        self._busy = 0  # calls that have not ended

    async def run(self, function: Callable[[Job], object], job: Job) -> None:
        """Call a handler in a thread, and raise its error."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()
        self._busy += 1
        done.add_done_callback(self._on_done)
        if self._started < min(self._busy, self._threads_max):
            self._started += 1
            name = f"{self._name}-{self._started}"
            threading.Thread(target=self._serve, args=(loop,), name=name, daemon=True).start()
        self._waiting.put((function, job, done))
        await done

    def stop(self) -> None:
        """Let every thread end after its current call."""
        for _ in range(self._started):
            self._waiting.put(None)

    def _on_done(self, _done: "asyncio.Future[None]") -> None:
        self._busy -= 1

    def _serve(self, loop: asyncio.AbstractEventLoop) -> None:
        while (item := self._waiting.get()) is not None:
            function, job, done = item
            fault = _call(function, job)
            if loop.is_closed():
                return
            loop.call_soon_threadsafe(_resolve, done, fault)


def _call(function: Callable[[Job], object], job: Job) -> Exception | None:
    """Call a handler; return its exception in a form that a future can carry."""
    try:
        found = function(job)
        if inspect.isawaitable(found):
            if inspect.iscoroutine(found):
                found.close()
            raise TypeError(
                "the task returned a coroutine that is never awaited: declare it with `async def`"
            )
    except Exception as fault:
        return _as_exception(fault) if isinstance(fault, StopIteration) else fault
    except BaseException as fault:
        return _as_exception(fault)
    return None


def _as_exception(fault: BaseException) -> Exception:
    said = RuntimeError(f"the task raised {type(fault).__name__}: {fault}")
    return said.with_traceback(fault.__traceback__)


def _resolve(done: "asyncio.Future[None]", fault: Exception | None) -> None:
    if done.done():
        return  # the call was cancelled
    if fault is None:
        done.set_result(None)
    else:
        done.set_exception(fault)
