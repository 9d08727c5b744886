"""The disk of a simulated node: files in memory, and a thread that is part of the simulation."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final, Generic, TypeVar

from leveret.storage.writer_thread import JobThread
from leveret.testing.disk import FakeDisk
from tests.simulated.loop import NodeLoop

Job = TypeVar("Job")

WRITE_S: Final = (0.0001, 0.004)  # a job of the log's thread takes this long, at random


class SimulatedThread(Generic[Job]):
    """Does jobs in order, each after a while, as a thread with a disk would."""

    def __init__(self, loop: NodeLoop, disk: SimulatedDisk, do: Callable[[Job], None]) -> None:
        self._loop = loop
        self._disk = disk
        self._do = do
        self._jobs: deque[Job] = deque()
        self._is_busy = False

    def start(self) -> None:
        """Do nothing: the schedule runs the jobs."""

    def submit(self, job: Job) -> None:
        self._jobs.append(job)
        self._go_on()

    def finish(self) -> None:
        while self._jobs:
            self._do(self._jobs.popleft())

    def _go_on(self) -> None:
        if not self._is_busy and self._jobs:
            self._is_busy = True
            schedule = self._loop.schedule
            took_s = schedule.rng.uniform(*WRITE_S) * self._disk.slowness
            schedule.after(self._disk.hang_s + took_s, self._do_next)

    def _do_next(self) -> None:
        if not self._loop.when_running(self._do_next):
            return
        self._is_busy = False
        if not self._loop.is_alive or not self._jobs:
            return
        if self._disk.hang_s > 0:  # it began to hang meanwhile
            self._go_on()
            return
        self._do(self._jobs.popleft())
        self._go_on()


class SimulatedDisk(FakeDisk):
    """A disk in memory for one simulated node."""

    loop: NodeLoop  # of the process that uses the disk
    hang_s = 0.0  # jobs wait this long; 0: the disk works
    slowness = 1.0  # jobs take so many times as long

    def make_thread(self, name: str, do: Callable[[Job], None]) -> JobThread[Job]:
        return SimulatedThread(self.loop, self, do)
