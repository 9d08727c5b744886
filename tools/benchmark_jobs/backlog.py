"""How long a dequeue takes while few and while very many jobs are ready, and an enqueue beside the
sync that it waits for.
"""

import time
from statistics import median
from typing import Final

from leveret.jobs import NewJob
from tools.benchmark_jobs.contenders import PAYLOAD, LeveretJobs
from tools.benchmark_jobs.measure import Figures, percentile

TOPIC: Final = "backlog"
FEW: Final = 1_000
SAMPLES: Final = 500
_FILL: Final = 1_000  # jobs in one call


async def backlog(contender: LeveretJobs, many: int) -> Figures:
    """p50 and p99 of a dequeue of one job, with FEW ready and with `many`."""
    await _fill(contender, FEW)
    few = await _dequeues(contender, FEW // 2)
    await _fill(contender, many)
    lots = await _dequeues(contender, SAMPLES)
    return {
        f"{FEW:,} ready p50 ms": median(few),
        f"{FEW:,} ready p99 ms": percentile(few, 99),
        f"{many:,} ready p50 ms": median(lots),
        f"{many:,} ready p99 ms": percentile(lots, 99),
        "p99 ratio": percentile(lots, 99) / percentile(few, 99),
    }


async def _fill(contender: LeveretJobs, count: int) -> None:
    jobs = [NewJob(topic=TOPIC, payload=PAYLOAD) for _ in range(_FILL)]
    for _ in range(count // _FILL):
        await contender.client.enqueue_many(jobs)


async def _dequeues(contender: LeveretJobs, count: int) -> list[float]:
    times = []
    for _ in range(count):
        began_s = time.perf_counter()
        jobs = await contender.client.dequeue(TOPIC, limit=1)
        times.append((time.perf_counter() - began_s) * 1e3)
        await contender.client.ack_many(jobs)
    return times
