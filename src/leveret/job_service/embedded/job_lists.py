"""Lists of the first jobs of a topic by state, for operators. They change nothing."""

from heapq import nsmallest
from typing import Final

from leveret.engine.insight.filters import UNACKED
from leveret.engine.turns.session import Session
from leveret.job_model import BATCH_BYTES_MAX, Job
from leveret.job_service.embedded.envelope import read_envelope
from leveret.job_service.embedded.job_search import walk_messages
from leveret.job_service.embedded.topic import Topic

LEASED: Final = "leased"


async def first_waiting(topic: Topic, state: str, limit: int) -> list[Job]:
    """Return the first jobs that are ready or scheduled, in the order of the queue."""
    jobs: list[Job] = []
    size = 0
    async for one in walk_messages(topic.vhost, topic.queue, state):
        body = one.message.body
        jobs.append(read_envelope(one.message, topic.queue).job(state, body))
        size += len(body)
        if len(jobs) >= limit or size >= BATCH_BYTES_MAX:
            break
    return jobs


async def first_leased(topic: Topic, sessions: list[Session], limit: int) -> list[Job]:
    """Return the jobs whose leases end first, then jobs that consumers over AMQP hold."""
    jobs: list[Job] = []
    size = 0
    for lease in nsmallest(limit, topic.leases.all(), key=lambda lease: lease.expires_ms):
        if size >= BATCH_BYTES_MAX:
            return jobs
        jobs.append(lease.envelope.job(LEASED, lease.message.body, lease.expires_ms))
        size += len(lease.message.body)
    if len(jobs) >= limit:
        return jobs
    async for one in walk_messages(topic.vhost, topic.queue, UNACKED, sessions=sessions):
        if len(jobs) >= limit or size >= BATCH_BYTES_MAX:
            break
        envelope = read_envelope(one.message, topic.queue)
        if envelope.id not in topic.leases:
            jobs.append(envelope.job(LEASED, one.message.body))
            size += len(one.message.body)
    return jobs
