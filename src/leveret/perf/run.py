"""Runs a load: queues, the consumers' process, producers, the time, the counts.

Producers are threads of this process and consumers threads of a second one, so that Python's lock
does not couple them. Both processes count at the same moment of the system's monotonic clock; what
comes after it (confirms on their way, messages still in the queue) is not in the result. The queues
have names of their own and are deleted at the end.

    this process                        consumers
      declare queues   ──start──►         connect, consume
      connect          ◄──"ready"──
      publish          ──window──►        receive
      count, stop      ◄──Received──      count, stop
"""

import contextlib
import multiprocessing
import secrets
import signal
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection
from typing import Final

from leveret.errors import Closed, LeveretError
from leveret.perf.client import Client
from leveret.perf.consumer import Consumer
from leveret.perf.latency import Histogram
from leveret.perf.load import Load
from leveret.perf.producer import Producer
from leveret.perf.protocol import Parser
from leveret.perf.result import Received, Result
from leveret.perf.worker import Worker, raise_error, stop

READY_S: Final = 30.0  # within which the consumers' process must be ready, and later be done


def run(load: Load) -> Result:
    """Load the broker and count. Raises LeveretError or OSError where the broker does not play."""
    load.check()
    with _queues(load) as names, _consuming(load, names) as consumers:
        producers = [Producer(load, names[n % load.queues]) for n in range(load.producers)]
        start_s = time.monotonic()
        consumers.send(start_s + load.seconds)
        cpu_s = time.process_time()
        workers: list[Worker] = list(producers)
        for worker in workers:
            worker.start()
        _sleep_until(start_s + load.seconds, workers)
        end_s = time.monotonic()
        counts = [(p.confirms.sent, p.confirms.confirmed, p.confirms.nacked) for p in producers]
        cpu_s = time.process_time() - cpu_s
        stop(workers)
        raise_error(workers)
        received = _take(consumers)
    sent, confirmed, nacked = (sum(column) for column in zip((0, 0, 0), *counts, strict=True))
    latency = Histogram()
    latency.merge(received.latency_buckets, received.latency_max_ns)
    seconds = end_s - start_s
    return Result(seconds, sent, confirmed, nacked, received.count, latency, cpu_s, received.cpu_s)


@contextlib.contextmanager
def _queues(load: Load) -> Iterator[list[str]]:
    """The queues of a run; deleted at the end."""
    control = Client(load, Parser())
    token = secrets.token_hex(4)
    names = [f"leveret.perf.{token}.{n}" for n in range(load.queues)]
    try:
        for name in names:
            control.declare(name, load)
        yield names
        for name in names:
            control.delete(name)
    finally:
        control.close()


@contextlib.contextmanager
def _consuming(load: Load, names: list[str]) -> Iterator[Connection]:
    """The consumers' process, ready to receive; ended with the block."""
    spawning = multiprocessing.get_context("spawn")
    ours, theirs = spawning.Pipe()
    process = spawning.Process(target=consume, args=(load, names, theirs), daemon=True)
    process.start()
    theirs.close()
    try:
        answer = _take_any(ours)
        assert answer == "ready"
        yield ours
    finally:
        ours.close()
        process.terminate()  # it has said all it has to say
        process.join()


def consume(load: Load, names: list[str], pipe: Connection) -> None:
    """The consumers' process: consume until the time that is sent, then send the counts."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl+C is for the other process
    workers: list[Worker] = []
    try:
        consumers = [Consumer(load, names[n % load.queues]) for n in range(load.consumers)]
        workers.extend(consumers)
        pipe.send("ready")
        end_s: float = pipe.recv()
        cpu_s = time.process_time()
        for worker in workers:
            worker.start()
        _sleep_until(end_s, workers)
        received = sum(consumer.deliveries.received for consumer in consumers)
        cpu_s = time.process_time() - cpu_s
        stop(workers)
        raise_error(workers)
        latency = Histogram()
        for consumer in consumers:
            latency.merge(consumer.deliveries.latency.buckets, consumer.deliveries.latency.max_ns)
        pipe.send(Received(received, cpu_s, latency.max_ns, latency.buckets))
    except (OSError, LeveretError) as error:
        pipe.send(str(error))
    except EOFError:  # the other process is gone
        pass


def _sleep_until(end_s: float, workers: list[Worker]) -> None:
    """Sleep, but no longer than the workers work."""
    while time.monotonic() < end_s:
        time.sleep(min(0.1, max(0.0, end_s - time.monotonic())))
        raise_error(workers)


def _take(pipe: Connection) -> Received:
    received = _take_any(pipe)
    assert isinstance(received, Received)
    return received


def _take_any(pipe: Connection) -> object:
    """What the consumers' process sends; its error raised here if that is what it sends."""
    if not pipe.poll(READY_S):
        raise Closed("the consumers do not answer")
    try:
        taken: object = pipe.recv()
    except EOFError:
        raise Closed("the consumers' process has ended") from None
    if isinstance(taken, str) and taken != "ready":
        raise Closed(f"consumers: {taken}")
    return taken
