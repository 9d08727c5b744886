"""Threads for tasks that are plain functions.

They are daemons, unlike those of `concurrent.futures`: a function that never returns must not keep
a worker from ending when its deadline for stopping is over. Whatever a function raises is told,
`SystemExit` included: a thread that ended by it would leave its job at work for ever.
"""

import asyncio
import inspect
import threading
from collections.abc import Callable
from queue import SimpleQueue

from leveret.jobs.client.job import Job

_Item = tuple[Callable[[Job], object], Job, "asyncio.Future[None]"]


class Threads:
    """Runs functions, at most `threads_max` at a time; threads are started when first needed."""

    def __init__(self, threads_max: int, name: str) -> None:
        self._threads_max = threads_max
        self._name = name
        self._waiting: SimpleQueue[_Item | None] = SimpleQueue()
        self._started = 0
        self._busy = 0  # as the event loop sees it

    async def run(self, function: Callable[[Job], object], job: Job) -> None:
        """Call it in a thread; its exception is raised here."""
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
        """Let every thread end after what it does now."""
        for _ in range(self._started):
            self._waiting.put(None)

    def _on_done(self, _done: "asyncio.Future[None]") -> None:
        self._busy -= 1

    def _serve(self, loop: asyncio.AbstractEventLoop) -> None:
        while (item := self._waiting.get()) is not None:
            function, job, done = item
            fault = _fault_of(function, job)
            if loop.is_closed():
                return
            loop.call_soon_threadsafe(_tell, done, fault)


def _fault_of(function: Callable[[Job], object], job: Job) -> Exception | None:
    """Call it; what it raised, as an exception that a future can carry."""
    try:
        found = function(job)
        if inspect.isawaitable(found):
            if inspect.iscoroutine(found):
                found.close()
            raise TypeError("the task returned a coroutine that nobody awaits: make it `async def`")
    except Exception as fault:
        return _carried(fault) if isinstance(fault, StopIteration) else fault
    except BaseException as fault:
        return _carried(fault)
    return None


def _carried(fault: BaseException) -> Exception:
    said = RuntimeError(f"the task raised {type(fault).__name__}: {fault}")
    return said.with_traceback(fault.__traceback__)


def _tell(done: "asyncio.Future[None]", fault: Exception | None) -> None:
    if done.done():
        return  # nobody waits any more
    if fault is None:
        done.set_result(None)
    else:
        done.set_exception(fault)
