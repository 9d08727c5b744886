"""Runs the jobs of one topic: takes them, calls the handler for each, and settles them.

A runner asks for as many jobs as it has free slots, and waits at the service until there are some.
Each job is one task of the runner's task group. The exception of a handler becomes the error of a
nack. A runner that stops takes no more jobs, lets running jobs finish until the deadline, and gives
back the rest.
"""

import asyncio
import inspect
import logging
import traceback
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from leveret.errors import LeveretError
from leveret.job_model import BACKOFF_MS_MAX, BATCH_MAX, ERROR_BYTES_MAX
from leveret.jobs.client.async_client import AsyncClient
from leveret.jobs.client.errors import CallError, RateLimitError
from leveret.jobs.client.job import Job
from leveret.jobs.worker.handler_threads import HandlerThreads
from leveret.jobs.worker.held_jobs import HeldJob, HeldJobs
from leveret.jobs.worker.settler import Settler

_LOG = logging.getLogger("leveret.jobs")
_PAUSE_S: Final = 0.5  # after a failed dequeue, then doubled
_PAUSE_S_MAX: Final = 10.0
_SETTLE_S_MAX: Final = 10.0  # for the last settlements of a stopping worker
_STOPPED: Final = "the worker stopped before it was done"

Handler = Callable[[Job], Awaitable[None] | None]


class RetryError(LeveretError):
    """A handler raises it to have the job tried again after `delay_s`, instead of the backoff."""

    def __init__(
        self, why: str = "the task asked for another try", *, delay_s: float = 0.0
    ) -> None:
        super().__init__(why)
        self.delay_s = delay_s


class DeadError(LeveretError):
    """A handler raises it to make the job dead at once: another try would not help."""

    def __init__(self, why: str = "the task gave the job up") -> None:
        super().__init__(why)


@dataclass(frozen=True)
class Task:
    """The handler of a topic, and how it is called."""

    namespace: str
    topic: str
    handler: Handler
    concurrency: int
    lease_s: float
    wait_s: float


class TopicRunner:
    """Takes the jobs of one topic and calls its handler for each."""

    def __init__(self, client: AsyncClient, task: Task) -> None:
        self._client = client
        self._task = task
        self._held = HeldJobs(client, task.lease_s)
        self._has_room = asyncio.Event()  # set when a job has ended or was settled
        self._settling = Settler(client, self._held, self._has_room)
        self._is_coroutine = _is_coroutine(task.handler)
        self._threads = HandlerThreads(task.concurrency, f"jobs-{task.topic}")
        self._working = 0
        self._is_stopping = False

    async def run(self, stop: asyncio.Event, stop_s: float) -> None:
        """Run until `stop` is set, then up to `stop_s` longer for running jobs."""
        async with asyncio.TaskGroup() as group:
            keeping = group.create_task(self._held.keep())
            settling = group.create_task(self._settling.run())
            stopping = group.create_task(stop.wait())
            while not stop.is_set():
                await self._take_some(group, stopping)
            self._is_stopping = True
            await self._finish(stop_s)
            self._settling.close()
            await asyncio.wait({settling}, timeout=_SETTLE_S_MAX)
            settling.cancel()
            keeping.cancel()
        self._threads.stop()

    async def _take_some(self, group: asyncio.TaskGroup, stopping: "asyncio.Task[bool]") -> None:
        """Take jobs for the free slots. Return without jobs when the runner is told to stop."""
        free = min(self._task.concurrency - self._working, BATCH_MAX - len(self._settling))
        if free <= 0:
            self._has_room.clear()
            waiting: asyncio.Task[object] = group.create_task(self._has_room.wait())
        else:
            waiting = group.create_task(self._dequeue(free))
        await asyncio.wait({waiting, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if not waiting.done():
            # The service notices the cancelled wait. Jobs that it has just handed out come back
            # when their leases end.
            waiting.cancel()
            return
        found = waiting.result()
        for job in found if isinstance(found, list) else ():
            self._begin_job(job, group)

    async def _dequeue(self, limit: int) -> list[Job]:
        """Return jobs; pause and try again where the service cannot be reached."""
        task = self._task
        pause_s = _PAUSE_S
        while True:
            try:
                return await self._client.dequeue(
                    task.topic,
                    limit=limit,
                    wait_s=task.wait_s,
                    lease_s=task.lease_s,
                    namespace=task.namespace,
                )
            except CallError as fault:
                _LOG.warning("no jobs of %s can be taken: %s", task.topic, fault)
                if isinstance(fault, RateLimitError):
                    pause_s = max(pause_s, fault.retry_after_s)
                await asyncio.sleep(pause_s)
                pause_s = min(pause_s * 2, _PAUSE_S_MAX)

    def _begin_job(self, job: Job, group: asyncio.TaskGroup) -> None:
        hold = self._held.take(job)
        hold.is_cancellable = self._is_coroutine
        self._working += 1
        hold.task = group.create_task(self._run_job(hold), name=f"job {job.id}")

    async def _run_job(self, hold: HeldJob) -> None:
        try:
            await self._call(hold.job)
        except asyncio.CancelledError:
            self._on_cancelled(hold)
        except RetryError as wish:
            self._failed(hold, str(wish), wish.delay_s)
        except DeadError as end:
            self._failed(hold, str(end), None, is_dead=True)
        except KeyboardInterrupt:
            raise
        except BaseException as fault:  # no exception of a handler may end the worker
            _LOG.info("job %d of %s failed", hold.job.id, hold.job.topic, exc_info=fault)
            self._failed(hold, error_text(fault), None)
        else:
            if not hold.job.is_lost:
                self._settling.ack(hold)
        finally:
            hold.task = None
            self._working -= 1
            self._has_room.set()

    async def _call(self, job: Job) -> None:
        if self._is_coroutine:
            found = self._task.handler(job)
            assert found is not None
            await found
        else:
            await self._threads.run(self._task.handler, job)

    def _on_cancelled(self, hold: HeldJob) -> None:
        """Handle a cancelled handler: by this runner, or from outside."""
        if hold.job.is_lost:
            return
        if self._is_stopping:
            self._settling.nack(hold, _STOPPED, 0.0)
        else:
            self._settling.nack(hold, "the task was cancelled", None)

    def _failed(
        self, hold: HeldJob, error: str, delay_s: float | None, is_dead: bool = False
    ) -> None:
        if hold.job.is_lost:
            return
        if delay_s is not None:  # the service would refuse the whole batch for one wrong delay
            delay_s = min(max(0.0, delay_s), BACKOFF_MS_MAX / 1000)
        self._settling.nack(hold, _kept(error), delay_s, is_dead)

    async def _finish(self, stop_s: float) -> None:
        """Wait for running jobs; cancel jobs that do not end in time, and give them back."""
        tasks = {hold.task for hold in self._held if hold.task is not None}
        if not tasks:
            return
        _, late = await asyncio.wait(tasks, timeout=stop_s)
        for task in late:
            task.cancel()
        if late:
            await asyncio.wait(late)


def _is_coroutine(handler: Handler) -> bool:
    """Return whether a call makes a coroutine; so does an object with an async `__call__`."""
    return inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(
        getattr(handler, "__call__", None)  # noqa: B004 - not whether it can be called, but what by
    )


def error_text(fault: BaseException) -> str:
    """Return the error text of a nack: the exception, then its traceback, cut to the limit."""
    first = "".join(traceback.format_exception_only(fault)).strip()
    frames = "".join(traceback.format_tb(fault.__traceback__)[1:])
    return _kept(f"{first}\n{frames}".strip())


def _kept(error: str) -> str:
    """Cut an error to the limit of the service, and replace characters that cannot be sent."""
    return error.encode(errors="replace")[:ERROR_BYTES_MAX].decode(errors="ignore")
