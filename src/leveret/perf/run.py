"""Runs a load: queues, the agents' processes, their reports, the end.

Producers and consumers work in processes of their own, so that Python's lock couples neither them
nor whoever watches. All agents count at the same moments of the system's monotonic clock; what
comes after the end (confirms on their way, messages still in the queue) is not in the result.

A load of so many messages ends when all are sent, settled and received, or when nothing more is
received for `SILENCE_S`; its time is that of the last message, not that of the last look.
"""

import contextlib
import multiprocessing
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection, wait
from typing import Final

from leveret.errors import ClosedError
from leveret.perf.agent import BYE, READY, STOP, consume, produce
from leveret.perf.load import Load
from leveret.perf.result import Result
from leveret.perf.sample import Row, Sample, Tally
from leveret.perf.topology import topology

READY_S: Final = 60.0  # within which the agents must be ready, and later be done
AHEAD_S: Final = 0.05  # between the word that all are ready and the start
SILENCE_S: Final = 2.0
_SLACK_S: Final = 30.0  # by which a report may be late on a busy machine


def run(load: Load, on_row: Callable[[Row], None] | None = None) -> Result:
    """Load the broker and count. Raises LeveretError or OSError where the broker does not play.

    Ctrl+C (KeyboardInterrupt) ends the run early, with the result so far.
    """
    load.check()
    with topology(load) as names, contextlib.ExitStack() as stack:
        agents = Agents(load, stack, names)
        rows: list[Row] = []
        try:
            agents.start()
            _watch(load, agents, rows, on_row)
        except KeyboardInterrupt:
            agents.stop()
        seconds = agents.finish()
        return agents.result(seconds, rows)


class Agents:
    """The processes of a run: consumers first, then producers."""

    def __init__(self, load: Load, stack: contextlib.ExitStack, names: list[str]) -> None:
        self._load = load
        consuming = _shares(load.consumers, load.processes)
        producing = _shares(load.producers, load.processes)
        jobs = [(consume, numbers) for numbers in consuming]
        jobs += [(produce, numbers) for numbers in producing]
        self.consumers = range(len(consuming))
        self.producers = range(len(consuming), len(jobs))
        self._open: dict[Connection, int] = {}
        for index, (target, numbers) in enumerate(jobs):
            pipe = stack.enter_context(_agent(target, (load, names, numbers)))
            self._open[pipe] = index
        for pipe in self._open:
            assert _take(pipe, READY_S) == READY
        self.tally = Tally(len(jobs), load.interval_s)
        self.start_s = 0.0
        self._is_told = False

    def start(self) -> None:
        self.start_s = time.monotonic() + AHEAD_S
        for pipe in self._open:
            pipe.send(self.start_s)

    def take(self, within_s: float) -> bool:
        """Take what has come; False when all have said goodbye."""
        for pipe in wait(list(self._open), within_s):
            assert isinstance(pipe, Connection)
            taken = _take(pipe, READY_S)
            if isinstance(taken, Sample):
                self.tally.add(self._open[pipe], taken)
            elif taken == BYE:
                del self._open[pipe]
        return bool(self._open)

    def stop(self) -> None:
        """Tell all to end now."""
        if not self._is_told:
            self._is_told = True
            for pipe in self._open:
                with contextlib.suppress(OSError):
                    pipe.send(STOP)

    def finish(self) -> float:
        """Wait for the goodbyes; the seconds that the run took."""
        deadline_s = time.monotonic() + READY_S
        while self.take(1.0):
            if time.monotonic() > deadline_s:
                raise ClosedError("the agents do not end")
        last_s = self.tally.last_s()
        if self._load.messages and last_s > 0:
            return last_s
        return self.tally.at_s()

    def result(self, seconds: float, rows: list[Row]) -> Result:
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
    load: Load, agents: Agents, rows: list[Row], on_row: Callable[[Row], None] | None
) -> None:
    """Take reports until the end of the run."""
    tally = agents.tally
    received, changed_s = 0, time.monotonic()
    silent_from_s = agents.start_s + load.seconds + _SLACK_S if load.seconds else None
    while agents.take(0.5):
        row = tally.maybe_row()
        if row is not None:
            rows.append(row)
            if on_row is not None:
                on_row(row)
        totals = tally.totals()
        if totals["received"] != received:
            received, changed_s = totals["received"], time.monotonic()
        if load.messages and _is_complete(load, agents, time.monotonic() - changed_s):
            agents.stop()
        if silent_from_s is not None and time.monotonic() > silent_from_s:
            raise ClosedError("the agents do not report")


def _is_complete(load: Load, agents: Agents, silent_s: float) -> bool:
    """Whether a counted load has come to its end."""
    totals = agents.tally.totals()
    if not load.producers:
        return totals["received"] >= load.messages
    if not agents.tally.is_done(agents.producers):
        return False
    if not load.consumers or totals["received"] >= totals["sent"]:
        return True
    return silent_s > SILENCE_S


def _shares(workers: int, processes: int) -> list[list[int]]:
    """The numbers of the workers of each process, none empty."""
    count = min(workers, processes)
    return [list(range(first, workers, count)) for first in range(count)]


@contextlib.contextmanager
def _agent(
    target: Callable[..., None], arguments: tuple[Load, list[str], list[int]]
) -> Iterator[Connection]:
    """A process that works; ended with the block."""
    spawning = multiprocessing.get_context("spawn")
    ours, theirs = spawning.Pipe()
    process = spawning.Process(target=target, args=(*arguments, theirs), daemon=True)
    process.start()
    theirs.close()
    try:
        yield ours
    finally:
        ours.close()
        process.terminate()  # it has said all it has to say
        process.join()


def _take(pipe: Connection, within_s: float) -> object:
    """What an agent sends; its error raised here if that is what it sends."""
    if not pipe.poll(within_s):
        raise ClosedError("an agent does not answer")
    try:
        taken: object = pipe.recv()
    except EOFError:
        raise ClosedError("an agent has ended") from None
    if isinstance(taken, str) and taken not in (READY, BYE):
        raise ClosedError(taken)
    return taken
