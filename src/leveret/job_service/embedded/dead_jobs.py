"""The dead jobs of a topic: a queue beside it, whose messages have the failures in their headers.

The queue is in the order in which jobs died, but a list is in the order of ids. A page of a list
therefore walks through the whole queue in slices, and keeps the jobs of the page.
"""

from collections.abc import Callable
from heapq import nsmallest
from typing import Final

from leveret.engine.commands.picking import PickedMessage, remove
from leveret.engine.insight.filters import READY
from leveret.engine.queues.queue import Queue
from leveret.job_model import BATCH_BYTES_MAX, Job
from leveret.job_service.embedded.block_limit import is_block_full
from leveret.job_service.embedded.envelope import job_id, read_envelope, shown_bytes
from leveret.job_service.embedded.host import Host
from leveret.job_service.embedded.job_search import find_job, find_jobs, pick_message, walk_messages
from leveret.job_service.embedded.topic import Topic
from leveret.slices import Slices

STATE: Final = "dead"
SLICE: Final = 100  # jobs that are changed before other work gets a turn

# Changes a dead job that was found in its queue; False: it stays there.
Change = Callable[[Topic, Queue, PickedMessage], bool]


async def list_dead(topic: Topic, after_id: int, limit: int, slices: Slices) -> list[Job]:
    """Return dead jobs in the order of their ids, starting after an id."""
    queue = topic.dead_queue()
    if queue is None:
        return []
    found: list[tuple[int, int]] = []  # id, and the number of the message
    async for one in walk_messages(topic.vhost, queue, slices, READY):
        id = job_id(one.message)
        if id > after_id:
            found.append((id, int(one.message.seq)))
        if len(found) >= 2 * limit:
            found = nsmallest(limit, found)
    return await _read(queue, nsmallest(limit, found), slices)


async def _read(queue: Queue, places: list[tuple[int, int]], slices: Slices) -> list[Job]:
    """Return the jobs that are still there, up to a number of bytes."""
    jobs: list[Job] = []
    size = 0
    for _, seq in places:
        one = pick_message(queue, seq)
        if one is not None:
            jobs.append(read_envelope(one.message, queue).job(STATE, one.message.body))
            size += shown_bytes(one.message)
        if size >= BATCH_BYTES_MAX:
            break
        await slices.rest_if_over()
    return jobs


async def find_dead(topic: Topic, id: int, slices: Slices) -> Job | None:
    """Return a dead job; None where there is none."""
    queue = topic.dead_queue()
    if queue is None:
        return None
    found = await find_job(topic.vhost, queue, id, slices)
    return (
        None
        if found is None
        else read_envelope(found.message, queue).job(STATE, found.message.body)
    )


async def change_dead(
    host: Host, topic: Topic, ids: list[int] | None, change: Change, slices: Slices
) -> int:
    """Change some or all dead jobs, each in a turn of its own; return how many were changed.

    Each slice is on disk before the next begins: there may be millions of jobs, and other work
    gets a turn in between.
    """
    queue = topic.dead_queue()
    if queue is None:
        return 0
    if ids is None:
        seqs = [
            int(one.message.seq) async for one in walk_messages(topic.vhost, queue, slices, READY)
        ]
    else:
        seqs = list((await find_jobs(topic.vhost, queue, ids, slices)).values())
    count = at = 0
    while at < len(seqs) and not topic.queue.deleted:
        for seq in seqs[at : at + SLICE]:
            at += 1
            with host.turn():
                one = pick_message(queue, seq)
                if one is not None and change(topic, queue, one):
                    count += 1
                topic.serve_waiters()
            if is_block_full(host.broker):
                break
        await host.synced()
        while is_block_full(host.broker):  # by other calls
            await host.synced()
    return count


def redrive(topic: Topic, queue: Queue, one: PickedMessage) -> bool:
    """Make a dead job ready with all its retries, unless its topic has no room."""
    body = one.message.body
    if not topic.has_room(1, len(body)):
        return False
    envelope = read_envelope(one.message, queue)
    envelope.attempts = 0
    envelope.after_ms = queue.turn.now_ms
    remove(queue, [one])
    is_taken = topic.put(envelope, body)
    assert is_taken, "there was room for it"
    queue.ledger.hand_over(one.message)
    topic.note_ended(envelope.id, is_gone=False)
    return True


def delete(topic: Topic, queue: Queue, one: PickedMessage) -> bool:
    """Delete a dead job."""
    remove(queue, [one])
    queue.purged += 1
    queue.ledger.forget(one.message)
    return True
