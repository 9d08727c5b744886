"""One topic at work: takes jobs, runs them side by side, settles them, and stops in good order.

A lane asks for as many jobs as it has free places, and waits at the service until there are some.
Each job is one task of the lane's task group; what it raises becomes the error of a nack. Stopping
takes no more jobs, lets those at work finish until the deadline, and gives back the rest.
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
from leveret.jobs.worker.held_jobs import HeldJob, HeldJobs
from leveret.jobs.worker.settling import Settling
from leveret.jobs.worker.threads import Threads

_LOG = logging.getLogger("leveret.jobs")
_PAUSE_S: Final = 0.5  # after a failed dequeue; doubled up to the next
_PAUSE_S_MAX: Final = 10.0
_SETTLE_S_MAX: Final = 10.0  # for the last settlements of a stopping worker
_STOPPED: Final = "the worker stopped before it was done"

Handler = Callable[[Job], Awaitable[None] | None]


class RetryError(LeveretError):
    """Raised by a task: try the job again after `delay_s`, whatever the backoff of its topic."""

    def __init__(
        self, why: str = "the task asked for another try", *, delay_s: float = 0.0
    ) -> None:
        super().__init__(why)
        self.delay_s = delay_s


class DeadError(LeveretError):
    """Raised by a task: no further try will help; the job is dead, with this as its error."""

    def __init__(self, why: str = "the task gave the job up") -> None:
        super().__init__(why)


@dataclass(frozen=True)
class Task:
    """What a worker does with the jobs of a topic."""

    namespace: str
    topic: str
    handler: Handler
    concurrency: int
    lease_s: float
    wait_s: float


class TopicRunner:
    """A task at work."""

    def __init__(self, client: AsyncClient, task: Task) -> None:
        self._client = client
        self._task = task
        self._held = HeldJobs(client, task.lease_s)
        self._has_room = asyncio.Event()  # set whenever a job has ended, or was settled
        self._settling = Settling(client, self._held, self._has_room)
        self._is_coroutine = _is_coroutine(task.handler)
        self._threads = Threads(task.concurrency, f"jobs-{task.topic}")
        self._working = 0
        self._is_stopping = False

    async def run(self, stop: asyncio.Event, stop_s: float) -> None:
        """Work until `stop` is set; then `stop_s` more for what is at work."""
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
        """Fill the free places; returns without jobs when the lane is told to stop."""
        free = min(self._task.concurrency - self._working, BATCH_MAX - len(self._settling))
        if free <= 0:
            self._has_room.clear()
            waiting: asyncio.Task[object] = group.create_task(self._has_room.wait())
        else:
            waiting = group.create_task(self._dequeue(free))
        await asyncio.wait({waiting, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if not waiting.done():
            # The service sees that nobody waits any more. What it handed out in this very moment
            # comes back when its lease ends.
            waiting.cancel()
            return
        found = waiting.result()
        for job in found if isinstance(found, list) else ():
            self._begin(job, group)

    async def _dequeue(self, limit: int) -> list[Job]:
        """Jobs, or none after a pause where the service cannot be asked."""
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

    def _begin(self, job: Job, group: asyncio.TaskGroup) -> None:
        hold = self._held.take(job)
        hold.is_cancellable = self._is_coroutine
        self._working += 1
        hold.task = group.create_task(self._work(hold), name=f"job {job.id}")

    async def _work(self, hold: HeldJob) -> None:
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
        except BaseException as fault:  # whatever it is, it must not end the worker
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
        """By this lane, for a lost lease or at the end of the deadline; or from outside."""
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
        if delay_s is not None:  # as the service takes it: a refusal would concern others, too
            delay_s = min(max(0.0, delay_s), BACKOFF_MS_MAX / 1000)
        self._settling.nack(hold, _kept(error), delay_s, is_dead)

    async def _finish(self, stop_s: float) -> None:
        """Wait for the jobs at work; what is not done by then is cancelled and given back."""
        tasks = {hold.task for hold in self._held if hold.task is not None}
        if not tasks:
            return
        _, late = await asyncio.wait(tasks, timeout=stop_s)
        for task in late:
            task.cancel()
        if late:
            await asyncio.wait(late)


def _is_coroutine(handler: Handler) -> bool:
    """Whether calling it makes a coroutine: an object with such a `__call__` does, too."""
    return inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(
        getattr(handler, "__call__", None)  # noqa: B004 - not whether it can be called, but what by
    )


def error_text(fault: BaseException) -> str:
    """What a nack says: the exception, then where it came from; cut to what the service keeps."""
    first = "".join(traceback.format_exception_only(fault)).strip()
    trail = "".join(traceback.format_tb(fault.__traceback__)[1:])
    return _kept(f"{first}\n{trail}".strip())


def _kept(error: str) -> str:
    """As much of an error as the service keeps, of characters that can be sent."""
    return error.encode(errors="replace")[:ERROR_BYTES_MAX].decode(errors="ignore")
