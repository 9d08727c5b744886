"""Measures a topic that has no jobs, while a client waits for one at another node."""

import asyncio
import time
from statistics import median
from typing import Final

import asyncpg

from tools.benchmark_jobs.contenders import PAYLOAD, WITHIN_S, LeveretJobs
from tools.benchmark_jobs.measure import Figures, percentile

TOPIC: Final = "idle"
SECONDS: Final = 5.0  # of each count of transactions
SAMPLES: Final = 50
_SETTLE_S: Final = 0.2  # from the beginning of a wait until the topic is idle
_REPORTED_S: Final = 12.0  # PostgreSQL counts the last transactions of a connection 10 s later
_COUNT: Final = "SELECT sum(xact_commit + xact_rollback) FROM pg_stat_database WHERE datname <> $1"


async def idle(here: LeveretJobs, there: LeveretJobs, dsn: str) -> Figures:
    """Count transactions that waiting costs. Time the way of a job from one node to the other.

    Both nodes work in the background all the time; so the transactions without a waiting client
    are subtracted.
    """
    await asyncio.sleep(_REPORTED_S)
    base = await _transactions(dsn)
    waiting = asyncio.get_running_loop().create_task(there.client.dequeue(TOPIC, wait_s=60.0))
    await asyncio.sleep(_REPORTED_S)
    busy = await _transactions(dsn)
    times = []
    for _ in range(SAMPLES):
        began_s = time.perf_counter()
        await here.client.enqueue(TOPIC, PAYLOAD)
        (job,) = await asyncio.wait_for(waiting, WITHIN_S)
        times.append((time.perf_counter() - began_s) * 1e3)
        await there.client.ack(job)
        waiting = asyncio.get_running_loop().create_task(there.client.dequeue(TOPIC, wait_s=60.0))
        await asyncio.sleep(_SETTLE_S)
    waiting.cancel()
    return {
        "transactions/s without a waiting client": base,
        "with one": busy,
        "job from another node p50 ms": median(times),
        "p95 ms": percentile(times, 95),
    }


async def _transactions(dsn: str) -> float:
    """Return the transactions per second of all databases but that of the counter itself."""
    connection = await asyncpg.connect(dsn)
    own = await connection.fetchval("SELECT current_database()")
    first = await connection.fetchval(_COUNT, own)
    await asyncio.sleep(SECONDS)
    await connection.execute("SELECT pg_stat_clear_snapshot()")
    last = await connection.fetchval(_COUNT, own)
    await connection.close()
    return float(last - first) / SECONDS
