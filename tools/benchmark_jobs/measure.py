"""One round of one contender: jobs a second, latency, and CPU time."""

import asyncio
import os
import time
from dataclasses import dataclass
from statistics import median
from typing import Final

from tools.benchmark_jobs.contenders import Contender, side_by_side
from tools.benchmark_jobs.servers import cpu_s

BATCH: Final = 100
CLIENTS: Final = (1, 32)
# Servers are at rest if they use at most this share of a core in so many seconds.
REST_S: Final = 0.5
REST_SHARE: Final = 0.05
REST_TRIES: Final = 40


@dataclass(frozen=True)
class Sizes:
    """How many jobs each part of a round has."""

    alone: int = 2_000  # by one client, one after the other; fewer would miss work in between
    worked_alone: int = 400  # by a worker, one after the other
    many: int = 3_200  # by 32 clients, or a worker with that concurrency
    batched: int = 20_000  # by hundreds; those that are left over are taken by a worker


SLOW: Final = Sizes(many=960, batched=1_000)  # for those that do some hundred a second

Figures = dict[str, float]


def percentile(times: list[float], percent: float) -> float:
    ordered = sorted(times)
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]


class Meter:
    """Time and CPU of a stretch: this process and the servers."""

    def __init__(self, pids: list[int]) -> None:
        self._pids = pids
        self._began_s = time.perf_counter()
        self._own_s = time.process_time()
        self._servers_s = cpu_s(pids)

    def figures(self, name: str, jobs: int) -> Figures:
        took_s = time.perf_counter() - self._began_s
        used_s = time.process_time() - self._own_s + cpu_s(self._pids) - self._servers_s
        return {f"{name} /s": jobs / took_s, f"{name}, CPU µs": used_s / jobs * 1e6}


def clients_text(clients: int) -> str:
    return "1 client" if clients == 1 else f"{clients} clients"


async def round_of(contender: Contender, sizes: Sizes) -> Figures:
    """Every figure once. Every job that is enqueued is taken again."""
    found: Figures = {}
    for clients in CLIENTS:
        count = sizes.alone if clients == 1 else sizes.many
        meter = Meter(contender.pids)
        times = await _enqueue_ones(contender, clients, count)
        found |= meter.figures(f"enqueue 1, {clients_text(clients)}", count)
        if clients == 1:
            found["enqueue p50 ms"] = median(times)
            found["enqueue p99 ms"] = percentile(times, 99)
        if contender.has_raw:
            meter = Meter(contender.pids)
            await contender.take(clients, count)
            found |= meter.figures(f"take and ack, {clients_text(clients)}", count)
        else:
            await _clear(contender, count)
    for concurrency in contender.concurrencies:
        count = sizes.worked_alone if concurrency == 1 else sizes.many
        await _enqueue_batches(contender, count)
        meter = Meter(contender.pids)
        await contender.work(concurrency, count)
        found |= meter.figures(f"worker, concurrency {concurrency}", count)
    meter = Meter(contender.pids)
    await _enqueue_batches(contender, sizes.batched)
    found |= meter.figures(f"enqueue {BATCH}, 1 client", sizes.batched)
    await _clear(contender, sizes.batched)
    return found


async def _clear(contender: Contender, count: int) -> None:
    if contender.concurrencies:
        await contender.work(contender.concurrencies[-1], count)
    else:
        await contender.take(CLIENTS[-1], count)


async def _enqueue_batches(contender: Contender, count: int) -> None:
    for start in range(0, count, BATCH):
        await contender.enqueue(min(BATCH, count - start))


async def _enqueue_ones(contender: Contender, clients: int, count: int) -> list[float]:
    """Return how long each call took, in ms."""
    left = count
    times: list[float] = []

    async def client() -> None:
        nonlocal left
        while left > 0:
            left -= 1
            began_s = time.perf_counter()
            await contender.enqueue(1)
            times.append((time.perf_counter() - began_s) * 1e3)

    await side_by_side([client] * clients)
    return times


async def until_at_rest(pids: list[int]) -> None:
    """Return when servers do nothing any more: some finish work in the background."""
    for _ in range(REST_TRIES):
        before_s = cpu_s(pids)
        await asyncio.sleep(REST_S)
        if cpu_s(pids) - before_s <= REST_S * REST_SHARE:
            return


def sync_ms(directory: str, count: int = 200) -> float:
    """The median of a small write with fdatasync there: what a log cannot be faster than."""
    path = os.path.join(directory, "sync.probe")
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    times = []
    try:
        for _ in range(count):
            began_s = time.perf_counter()
            os.write(descriptor, b"x" * 512)
            os.fdatasync(descriptor)
            times.append((time.perf_counter() - began_s) * 1e3)
    finally:
        os.close(descriptor)
        os.unlink(path)
    return median(times)
