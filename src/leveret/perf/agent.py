"""A process of producers or of consumers: connects, waits for the start, works, reports, ends.

    run                                   agent
      start process   ──────────────►       connect
                      ◄──"ready"────
      start time      ──────────────►       work
                      ◄──Sample─────        every report, the last one at the end of the time
      "stop"          ──────────────►       (where the end is not a time)
                      ◄──Sample─────        the last one
                      ◄──"bye"──────        connections closed; or the error, as text

The start is a moment of the system's monotonic clock a little ahead, the same for all agents.
"""

import resource
import signal
import time
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from typing import Final

from leveret.errors import LeveretError
from leveret.perf.consumer import Consumer
from leveret.perf.latency import Histogram
from leveret.perf.load import Load
from leveret.perf.producer import Producer
from leveret.perf.sample import Sample
from leveret.perf.topology import queues_of
from leveret.perf.worker import Worker, raise_error, stop

READY: Final = "ready"
STOP: Final = "stop"
BYE: Final = "bye"
REPORT_S: Final = 0.1  # between reports where the end is a number of messages


def produce(load: Load, names: list[str], numbers: Sequence[int], pipe: Connection) -> None:
    """The process of these producers."""
    _serve(load, pipe, lambda: Producers(load, names, numbers))


def consume(load: Load, names: list[str], numbers: Sequence[int], pipe: Connection) -> None:
    """The process of these consumers."""
    _serve(load, pipe, lambda: Consumers(load, names, numbers))


class Producers:
    """Producers as one side of a run."""

    def __init__(self, load: Load, names: list[str], numbers: Sequence[int]) -> None:
        self.workers = [Producer(load, queues_of(names, n, load.producers), n) for n in numbers]
        self._before = Histogram()

    def sample(self, at_s: float, start_s: float, cpu_s: float) -> Sample:
        latency = _merged([worker.confirms.latency for worker in self.workers])
        confirms = [worker.confirms for worker in self.workers]
        is_done = all(worker.done for worker in self.workers)
        found = Sample(
            at_s,
            {
                "sent": sum(int(each.sent) for each in confirms),
                "confirmed": sum(int(each.confirmed) for each in confirms),
                "nacked": sum(int(each.nacked) for each in confirms),
                "returned": sum(int(each.returned) for each in confirms),
                "received": 0,
            },
            confirm_latency=latency.since(self._before),
            confirm_latency_max_ns=latency.max_ns,
            cpu_s=cpu_s,
            is_done=is_done,
            last_s=max(worker.last_s for worker in self.workers) - start_s if is_done else 0.0,
            each=[int(each.sent) for each in confirms],
        )
        self._before = latency
        return found


class Consumers:
    """Consumers as one side of a run."""

    def __init__(self, load: Load, names: list[str], numbers: Sequence[int]) -> None:
        self.workers = [Consumer(load, queues_of(names, n, load.consumers)) for n in numbers]
        self._before = Histogram()

    def sample(self, at_s: float, start_s: float, cpu_s: float) -> Sample:
        deliveries = [worker.deliveries for worker in self.workers]
        latency = _merged([each.latency for each in deliveries])
        each = [int(one.received) for one in deliveries]
        last_s = int(max(one.now_ns for one in deliveries)) / 1e9 - start_s if any(each) else 0.0
        found = Sample(
            at_s,
            {"sent": 0, "confirmed": 0, "nacked": 0, "returned": 0, "received": sum(each)},
            latency=latency.since(self._before),
            latency_max_ns=latency.max_ns,
            cpu_s=cpu_s,
            last_s=last_s,
            each=each,
        )
        self._before = latency
        return found


def _merged(latencies: list[Histogram]) -> Histogram:
    merged = Histogram()
    for latency in latencies:
        merged.merge(latency.buckets, latency.max_ns)
    return merged


def _serve(load: Load, pipe: Connection, make: Callable[[], Producers | Consumers]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl+C is for the other process
    _, files_max = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (files_max, files_max))  # one for each connection
    try:
        side = make()
        pipe.send(READY)
        start_s: float = pipe.recv()
        time.sleep(max(0.0, start_s - time.monotonic()))
        workers: Sequence[Worker] = side.workers
        for worker in workers:
            worker.start_s = start_s
            worker.start()
        _report(load, pipe, side, start_s)
        stop(workers)
        raise_error(workers)
        pipe.send(BYE)
    except (OSError, LeveretError) as error:
        pipe.send(str(error))
    except EOFError:  # the other process is gone
        pass


def _report(load: Load, pipe: Connection, side: Producers | Consumers, start_s: float) -> None:
    """Send samples until the time is over or the other process says so."""
    report_s = min(load.interval_s, REPORT_S if load.messages else load.interval_s)
    cpu_s = time.process_time()
    at_s = 0.0
    is_over = False
    while not is_over:
        at_s += report_s
        if load.seconds and at_s >= load.seconds:
            at_s = load.seconds
            is_over = True
        if _was_told(pipe, start_s + at_s, side.workers):
            is_over = True
            at_s = time.monotonic() - start_s
        pipe.send(side.sample(at_s, start_s, time.process_time() - cpu_s))


def _was_told(pipe: Connection, until_s: float, workers: Sequence[Worker]) -> bool:
    """Wait until a time, but no longer than the workers work; whether we were told to stop."""
    while (left_s := until_s - time.monotonic()) > 0:
        if pipe.poll(min(0.1, left_s)):
            pipe.recv()
            return True
        raise_error(workers)
    return False
