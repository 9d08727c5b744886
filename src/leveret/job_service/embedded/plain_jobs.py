"""Writes batches of plain jobs to their queue. Plain jobs are of one topic and have no keys.

mypyc compiles this module: a batch passes it job by job.
"""

from typing import Final

from leveret.engine.arguments.queue_arguments import JOB_PRIORITY
from leveret.engine.message import PERSISTENT, Address
from leveret.engine.queues.queue import NO_TTL, Queue
from leveret.engine.turns.outcomes import QUEUED
from leveret.job_model import NewJob

_OCTET_MAX: Final = 255


def are_plain(jobs: list[NewJob]) -> bool:
    """Return whether all jobs are of one topic, and none has a key."""
    if not jobs:
        return False
    namespace, topic = jobs[0].namespace, jobs[0].topic
    for job in jobs:
        if job.topic != topic or job.namespace != namespace:
            return False
        if job.idempotency_key is not None or job.fair_key is not None:
            return False
    return True


def payload_bytes(jobs: list[NewJob]) -> int:
    size = 0
    for job in jobs:
        size += len(job.payload)
    return size


def push_plain(queue: Queue, address: Address, jobs: list[NewJob], headers: list[bytes]) -> None:
    """Write new jobs as ready or scheduled. The queue has room for them."""
    now_ms = queue.turn.now_ms
    for number in range(len(jobs)):
        job = jobs[number]
        after_ms = job.deliver_after_ms
        outcome = queue.push(
            address,
            headers[number],
            job.payload,
            ttl_ms=NO_TTL,
            priority=pushed_priority(queue, job.priority),
            flags=PERSISTENT,
            delay_ms=after_ms - now_ms if after_ms > now_ms else 0,
        )
        assert outcome & QUEUED, "there was room for it"


def pushed_priority(queue: Queue, priority: int) -> int:
    """Return the priority of a job as its queue counts it: higher is more urgent."""
    if queue.settings.has_jobs:
        return JOB_PRIORITY - priority
    return max(0, min(-priority, _OCTET_MAX))
