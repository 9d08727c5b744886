"""A worker: refunds are paid, reports are written.

    leveret serve --data ./data &
    export LEVERET_JOBS_TOKEN=$(leveret jobs token --data ./data --namespace shop)
    python examples/jobs_worker.py &
    python examples/jobs_enqueue.py

After Ctrl+C or SIGTERM it takes no more jobs, finishes those that run, and ends.
"""

import asyncio
import logging
import time

import msgspec

from leveret.jobs import Job, RetryError, Worker


class Refund(msgspec.Struct):
    """The payload of a refund job."""

    order: int
    amount: str


worker = Worker(namespace="shop")


@worker.task("refund", concurrency=20)
async def refund(job: Job) -> None:
    """A coroutine: twenty at a time on one event loop."""
    wanted = job.decode(Refund)
    if wanted.order % 10 == 0 and job.attempt == 1:
        raise RetryError("the bank is busy", delay_s=1)
    await asyncio.sleep(0.1)  # asks the bank
    logging.info("order %d: %s paid back", wanted.order, wanted.amount)


@worker.task("report", concurrency=2, lease_s=10)
def report(job: Job) -> None:
    """A plain function: two at a time, in threads. Its lease is renewed while it runs."""
    for page in range(3):
        if job.is_lost:
            return  # somebody else has it by now
        time.sleep(0.1)
        logging.info("report %s, page %d", job.json()["name"], page)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    worker.run()
