"""Measures how long a dequeue takes with few and with very many ready jobs.

Two topics of one node, one with few jobs and one with many, are measured in turns, so that other
load of the machine affects both. Jobs that were taken are enqueued again, so that the backlogs
stay.
"""

import asyncio
import time
from statistics import median
from typing import Final

from leveret.jobs import NewJob, ServiceError
from tools.benchmark_jobs.contenders import PAYLOAD, LeveretJobs
from tools.benchmark_jobs.measure import Figures, percentile

FEW: Final = 1_000
SAMPLES: Final = 1_000
_FILL: Final = 1_000  # jobs in one call
_PAUSE_S: Final = 0.2  # where there is no room for them


async def backlog(contender: LeveretJobs, many: int) -> Figures:
    """p50 and p99 of a dequeue of one job, with FEW ready and with `many`."""
    sizes = {FEW: "few", many: "many"}
    for size, topic in sizes.items():
        await _fill(contender, topic, size)
    times: dict[int, list[float]] = {size: [] for size in sizes}
    for _ in range(SAMPLES):
        for size, topic in sizes.items():
            times[size].append(await _dequeue_ms(contender, topic))
    found: Figures = {}
    for size, some in times.items():
        found[f"{size:,} ready p50 ms"] = median(some)
        found[f"{size:,} ready p99 ms"] = percentile(some, 99)
    return found | {"p99 ratio": percentile(times[many], 99) / percentile(times[FEW], 99)}


async def _fill(contender: LeveretJobs, topic: str, count: int) -> None:
    jobs = [NewJob(topic=topic, payload=PAYLOAD) for _ in range(_FILL)]
    left = count // _FILL
    while left:
        try:
            await contender.client.enqueue_many(jobs)
            left -= 1
        except ServiceError:  # a buffer in Redis is bounded, and its shard may be slower
            await asyncio.sleep(_PAUSE_S)


async def _dequeue_ms(contender: LeveretJobs, topic: str) -> float:
    began_s = time.perf_counter()
    jobs = await contender.client.dequeue(topic, limit=1)
    took_ms = (time.perf_counter() - began_s) * 1e3
    assert len(jobs) == 1
    await contender.client.ack_many(jobs)
    await contender.client.enqueue(topic, PAYLOAD)
    return took_ms
