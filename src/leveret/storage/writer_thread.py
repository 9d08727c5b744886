"""A thread that does jobs one after the other, in the order in which they were given.

`Disk.make_thread` makes it, so that a simulated disk can do the same jobs without a thread.
"""

import queue
import threading
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

Job = TypeVar("Job")
Taken = TypeVar("Taken", contravariant=True)


class JobThread(Protocol[Taken]):
    """The interface of a thread that does jobs."""

    def start(self) -> None:
        """Begin with the jobs."""

    def submit(self, job: Taken) -> None:
        """Do a job after all jobs before it."""

    def finish(self) -> None:
        """Do the remaining jobs and end. Blocks until that is done."""


class WriterThread(Generic[Job]):
    """A real thread. `do` must catch its own errors."""

    def __init__(self, name: str, do: Callable[[Job], None]) -> None:
        self._do = do
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._worker = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._worker.start()

    def submit(self, job: Job) -> None:
        self._jobs.put(job)

    def finish(self) -> None:
        self._jobs.put(None)
        self._worker.join()

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            self._do(job)
