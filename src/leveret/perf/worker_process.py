"""A worker process: a group of producers or of consumers that connects, works and reports.

    run                                   worker process
      start process   ──────────────►       connect
                      ◄──"ready"────
      start time      ──────────────►       work
                      ◄──Sample─────        periodically; the last one when the time is over
      "stop"          ──────────────►       (if the run has no time limit, or on Ctrl+C)
                      ◄──Sample─────        the last one
                      ◄──"bye"──────        connections are closed; or an error as text

The start time is the same for all processes: a time of the monotonic clock shortly in the future.
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
from leveret.perf.measurements import Sample
from leveret.perf.producer import Producer
from leveret.perf.topology import queues_for_worker
from leveret.perf.worker import Worker, raise_error, stop_workers

READY: Final = "ready"
STOP: Final = "stop"
BYE: Final = "bye"
REPORT_S: Final = 0.1  # between reports, if the run ends after a number of messages


def run_producers(load: Load, names: list[str], numbers: Sequence[int], pipe: Connection) -> None:
    """Run the producers with these numbers. Entry point of a process."""
    _run_group(load, pipe, lambda: ProducerGroup(load, names, numbers))


def run_consumers(load: Load, names: list[str], numbers: Sequence[int], pipe: Connection) -> None:
    """Run the consumers with these numbers. Entry point of a process."""
    _run_group(load, pipe, lambda: ConsumerGroup(load, names, numbers))


class ProducerGroup:
    """The producers of one process."""

    def __init__(self, load: Load, names: list[str], numbers: Sequence[int]) -> None:
        self.workers = [
            Producer(load, queues_for_worker(names, n, load.producers), n) for n in numbers
        ]
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


class ConsumerGroup:
    """The consumers of one process."""

    def __init__(self, load: Load, names: list[str], numbers: Sequence[int]) -> None:
        self.workers = [
            Consumer(load, queues_for_worker(names, n, load.consumers)) for n in numbers
        ]
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


def _run_group(
    load: Load, pipe: Connection, make_group: Callable[[], ProducerGroup | ConsumerGroup]
) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent process handles Ctrl+C
    _, files_max = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(
        resource.RLIMIT_NOFILE, (files_max, files_max)
    )  # each connection needs a file descriptor
    try:
        group = make_group()
        pipe.send(READY)
        start_s: float = pipe.recv()
        time.sleep(max(0.0, start_s - time.monotonic()))
        workers: Sequence[Worker] = group.workers
        for worker in workers:
            worker.start_s = start_s
            worker.start()
        _report(load, pipe, group, start_s)
        stop_workers(workers)
        raise_error(workers)
        pipe.send(BYE)
    except (OSError, LeveretError) as error:
        pipe.send(str(error))
    except EOFError:  # the parent process has ended
        pass


def _report(
    load: Load, pipe: Connection, group: ProducerGroup | ConsumerGroup, start_s: float
) -> None:
    """Send samples until the time is over or the parent process says stop."""
    report_s = min(load.interval_s, REPORT_S if load.messages else load.interval_s)
    cpu_s = time.process_time()
    at_s = 0.0
    is_last = False
    while not is_last:
        at_s += report_s
        if load.seconds and at_s >= load.seconds:
            at_s = load.seconds
            is_last = True
        if _wait_for_stop(pipe, start_s + at_s, group.workers):
            is_last = True
            at_s = time.monotonic() - start_s
        pipe.send(group.sample(at_s, start_s, time.process_time() - cpu_s))


def _wait_for_stop(pipe: Connection, until_s: float, workers: Sequence[Worker]) -> bool:
    """Wait until a time or a stop message. Return True for stop. Raise the error of a worker."""
    while (left_s := until_s - time.monotonic()) > 0:
        if pipe.poll(min(0.1, left_s)):
            pipe.recv()
            return True
        raise_error(workers)
    return False
