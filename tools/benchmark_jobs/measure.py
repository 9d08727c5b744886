"""One round of one contender: jobs a second, latency, and CPU time."""

import asyncio
import os
import time
from dataclasses import dataclass
from statistics import median
from typing import Final

from tools.benchmark_jobs.contenders import TAKERS, Contender
from tools.benchmark_jobs.servers import cpu_s

BATCH: Final = 100


@dataclass(frozen=True)
class Sizes:
    """How many jobs each part of a round has."""

    alone: int = 300  # one after the other, for latency
    ones: int = 3_000  # by single calls, TAKERS at a time
    many: int = 30_000  # by hundreds


SLOW: Final = Sizes(ones=800, many=3_000)  # for those that take a hundred a second

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
        return {f"{name} /s": jobs / took_s, f"{name} CPU µs": used_s / jobs * 1e6}


async def round_of(contender: Contender, sizes: Sizes) -> Figures:
    """Every figure once. What is put in is taken out again."""
    found: Figures = {}
    found |= await _latency(contender, sizes.alone)
    await contender.take(sizes.alone, BATCH)

    meter = Meter(contender.pids)
    await _side_by_side(contender, sizes.ones)
    found |= meter.figures("enqueue 1", sizes.ones)
    meter = Meter(contender.pids)
    await contender.take(sizes.ones, 1)
    found |= meter.figures("take 1", sizes.ones)

    meter = Meter(contender.pids)
    for _ in range(sizes.many // BATCH):
        await contender.enqueue(BATCH)
    found |= meter.figures("enqueue 100", sizes.many)
    meter = Meter(contender.pids)
    await contender.take(sizes.many, BATCH)
    return found | meter.figures("take 100", sizes.many)


async def _latency(contender: Contender, count: int) -> Figures:
    times = []
    for _ in range(count):
        began_s = time.perf_counter()
        await contender.enqueue(1)
        times.append((time.perf_counter() - began_s) * 1e3)
    return {"enqueue p50 ms": median(times), "enqueue p99 ms": percentile(times, 99)}


async def _side_by_side(contender: Contender, count: int) -> None:
    async def some() -> None:
        for _ in range(count // TAKERS):
            await contender.enqueue(1)

    async with asyncio.TaskGroup() as group:
        for _ in range(TAKERS):
            group.create_task(some())
    for _ in range(count % TAKERS):
        await contender.enqueue(1)


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
