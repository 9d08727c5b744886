"""Run a load: declare the queues, start the worker processes, collect their reports, clean up.

Producers and consumers run in separate processes, so that Python's lock does not couple them with
each other or with the progress display. All processes count at the same times of the monotonic
clock. Confirms and messages that arrive after the end are not in the result.

A load with a number of messages ends when all are sent, settled and received, or when nothing is
received for `SILENCE_S`. Its duration ends with the last message.
"""

import contextlib
import multiprocessing
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection, wait
from typing import Final

from leveret.errors import ClosedError
from leveret.perf.load import Load
from leveret.perf.measurements import ProgressRow, Sample, Tally
from leveret.perf.result import Result
from leveret.perf.topology import declared_topology
from leveret.perf.worker_process import BYE, READY, STOP, run_consumers, run_producers

READY_S: Final = 60.0  # time limit for the processes to start, and to end
AHEAD_S: Final = 0.05  # from the moment all are ready to the start
SILENCE_S: Final = 2.0
_SLACK_S: Final = 30.0  # how late a report may be on a busy machine


def run(load: Load, on_row: Callable[[ProgressRow], None] | None = None) -> Result:
    """Run the load and return the result. Raise LeveretError or OSError if the broker fails.

    Ctrl+C (KeyboardInterrupt) ends the run early, with the result so far.
    """
    load.check()
    with declared_topology(load) as names, contextlib.ExitStack() as stack:
        processes = WorkerProcesses(load, stack, names)
        rows: list[ProgressRow] = []
        try:
            processes.start()
            _watch(load, processes, rows, on_row)
        except KeyboardInterrupt:
            processes.stop()
        seconds = processes.finish()
        return processes.result(seconds, rows)


class WorkerProcesses:
    """The worker processes of a run: consumers first, then producers."""

    def __init__(self, load: Load, stack: contextlib.ExitStack, names: list[str]) -> None:
        self._load = load
        consuming = _divide(load.consumers, load.processes)
        producing = _divide(load.producers, load.processes)
        groups = [(run_consumers, numbers) for numbers in consuming]
        groups += [(run_producers, numbers) for numbers in producing]
        self.consumers = range(len(consuming))
        self.producers = range(len(consuming), len(groups))
        self._open: dict[Connection, int] = {}
        for index, (target, numbers) in enumerate(groups):
            pipe = stack.enter_context(_worker_process(target, (load, names, numbers)))
            self._open[pipe] = index
        for pipe in self._open:
            assert _receive(pipe, READY_S) == READY
        self.tally = Tally(len(groups), load.interval_s)
        self.start_s = 0.0
        self._is_stopping = False

    def start(self) -> None:
        self.start_s = time.monotonic() + AHEAD_S
        for pipe in self._open:
            pipe.send(self.start_s)

    def receive(self, within_s: float) -> bool:
        """Handle messages of the processes. Return False when all processes have finished."""
        for pipe in wait(list(self._open), within_s):
            assert isinstance(pipe, Connection)
            taken = _receive(pipe, READY_S)
            if isinstance(taken, Sample):
                self.tally.add(self._open[pipe], taken)
            elif taken == BYE:
                del self._open[pipe]
        return bool(self._open)

    def stop(self) -> None:
        """Tell all processes to stop now."""
        if not self._is_stopping:
            self._is_stopping = True
            for pipe in self._open:
                with contextlib.suppress(OSError):
                    pipe.send(STOP)

    def finish(self) -> float:
        """Wait for all processes to finish. Return the duration of the run in seconds."""
        deadline_s = time.monotonic() + READY_S
        while self.receive(1.0):
            if time.monotonic() > deadline_s:
                raise ClosedError("the worker processes do not end")
        last_s = self.tally.last_s()
        if self._load.messages and last_s > 0:
            return last_s
        return self.tally.at_s()

    def result(self, seconds: float, rows: list[ProgressRow]) -> Result:
        tally = self.tally
        if not rows or tally.at_s() - rows[-1].at_s > self._load.interval_s / 10:
            rows.append(tally.cut_row(tally.at_s()))
        return Result(
            seconds,
            tally.totals(),
            tally.latency,
            tally.confirm_latency,
            tally.cpu_s(self.producers),
            tally.cpu_s(self.consumers),
            tally.each(self.producers),
            tally.each(self.consumers),
            rows,
        )


def _watch(
    load: Load,
    processes: WorkerProcesses,
    rows: list[ProgressRow],
    on_row: Callable[[ProgressRow], None] | None,
) -> None:
    """Collect reports until the end of the run."""
    tally = processes.tally
    received, changed_s = 0, time.monotonic()
    silent_from_s = processes.start_s + load.seconds + _SLACK_S if load.seconds else None
    while processes.receive(0.5):
        row = tally.maybe_row()
        if row is not None:
            rows.append(row)
            if on_row is not None:
                on_row(row)
        totals = tally.totals()
        if totals["received"] != received:
            received, changed_s = totals["received"], time.monotonic()
        if load.messages and _is_complete(load, processes, time.monotonic() - changed_s):
            processes.stop()
        if silent_from_s is not None and time.monotonic() > silent_from_s:
            raise ClosedError("the worker processes do not report")


def _is_complete(load: Load, processes: WorkerProcesses, silent_s: float) -> bool:
    """Return True if a load with a number of messages is complete."""
    totals = processes.tally.totals()
    if not load.producers:
        return totals["received"] >= load.messages
    if not processes.tally.is_done(processes.producers):
        return False
    if not load.consumers or totals["received"] >= totals["sent"]:
        return True
    return silent_s > SILENCE_S


def _divide(workers: int, processes: int) -> list[list[int]]:
    """Divide the worker numbers among the processes. No process gets none."""
    count = min(workers, processes)
    return [list(range(first, workers, count)) for first in range(count)]


@contextlib.contextmanager
def _worker_process(
    target: Callable[..., None], arguments: tuple[Load, list[str], list[int]]
) -> Iterator[Connection]:
    """Start a worker process, yield its pipe, and end the process."""
    spawning = multiprocessing.get_context("spawn")
    ours, theirs = spawning.Pipe()
    process = spawning.Process(target=target, args=(*arguments, theirs), daemon=True)
    process.start()
    theirs.close()
    try:
        yield ours
    finally:
        ours.close()
        process.terminate()  # it has sent all its reports
        process.join()


def _receive(pipe: Connection, within_s: float) -> object:
    """Receive a message of a worker process. Raise ClosedError if the message is an error."""
    if not pipe.poll(within_s):
        raise ClosedError("a worker process does not answer")
    try:
        taken: object = pipe.recv()
    except EOFError:
        raise ClosedError("a worker process has died") from None
    if isinstance(taken, str) and taken not in (READY, BYE):
        raise ClosedError(taken)
    return taken
