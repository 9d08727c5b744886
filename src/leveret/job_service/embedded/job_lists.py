"""Lists of the jobs of a topic by state, page by page, for operators. They change nothing.

Ready and scheduled jobs are in the order of the queue, and the cursor of a page is the position of
its walk. Leased jobs are in the order of the ends of their leases, then of their ids. A job that a
consumer over AMQP holds has no end of a lease and comes last.
"""

from heapq import nsmallest
from typing import Final

from leveret.engine.insight.filters import STATES, UNACKED, Filter
from leveret.engine.insight.walk import Walk, WalkCursor
from leveret.engine.message import Message
from leveret.engine.turns.session import Session
from leveret.job_model import BATCH_BYTES_MAX, Job
from leveret.job_service.embedded.envelope import job_id, read_envelope, shown_bytes
from leveret.job_service.embedded.job_search import SLICE, walk_messages
from leveret.job_service.embedded.topic import Topic
from leveret.job_service.list_cursor import decode_cursor, encode_cursor
from leveret.slices import Slices

LEASED: Final = "leased"
_WALK_KEY_MAX: Final = 1 << 62
_NO_END_MS: Final = (1 << 63) - 1  # stands for the end of the lease of a job that AMQP holds
# A message that was published over AMQP has no id yet. This and its number stand for it.
_NO_ID: Final = -(1 << 62)
_BEFORE_ALL: Final = (-1, -1)


async def list_waiting(
    topic: Topic, state: str, limit: int, after: str, slices: Slices
) -> tuple[list[Job], str]:
    """Return jobs that are ready or scheduled, and the cursor of the next page."""
    wanted = Filter()
    wanted.require_states([state])
    walk = Walk(topic.queue, topic.vhost.stuck, wanted, [], _walk_cursor(state, after))
    jobs: list[Job] = []
    size = 0
    while not walk.is_done():
        walk.step(SLICE, limit - len(jobs), BATCH_BYTES_MAX - size)
        for one in walk.take():
            body = one.message.body
            jobs.append(read_envelope(one.message, topic.queue).job(state, body))
            size += shown_bytes(one.message)
        if len(jobs) >= limit or size >= BATCH_BYTES_MAX:
            at = walk.cursor
            return jobs, encode_cursor((at.major, at.minor, at.end, at.return_end))
        await slices.rest_if_over()
    return jobs, ""


def _walk_cursor(state: str, after: str) -> WalkCursor:
    cursor = WalkCursor()
    if after:
        numbers = decode_cursor(after, 4)
        keys = [max(-_WALK_KEY_MAX, min(number, _WALK_KEY_MAX)) for number in numbers]
        cursor.state = STATES.index(state)
        cursor.major, cursor.minor, cursor.end, cursor.return_end = keys
    return cursor


async def list_leased(
    topic: Topic, sessions: list[Session], limit: int, after: str, slices: Slices
) -> tuple[list[Job], str]:
    """Return jobs that are leased, and the cursor of the next page."""
    last = tuple(decode_cursor(after, 2)) if after else _BEFORE_ALL
    places: list[tuple[int, int]] = []  # of the first jobs after the cursor
    count = 0  # jobs after the cursor
    for lease in topic.leases.all():
        place = lease.expires_ms, lease.id
        if place > last:
            places.append(place)
            count += 1
        if len(places) >= 2 * limit:
            places = nsmallest(limit, places)
        await slices.rest_if_over()
    held: dict[tuple[int, int], Message] = {}  # by consumers over AMQP
    others = [session for session in sessions if session is not topic.session]
    if others and count <= limit:  # else they are on a later page
        async for one in walk_messages(topic.vhost, topic.queue, slices, UNACKED, sessions=others):
            id = job_id(one.message)
            place = _NO_END_MS, id or _NO_ID + int(one.message.seq)
            if id not in topic.leases and place > last and place not in held:
                held[place] = one.message
                places.append(place)
                count += 1
            if len(places) >= 2 * limit:
                places = nsmallest(limit, places)
                held = {place: held[place] for place in places if place in held}
    jobs: list[Job] = []
    size = read = 0
    places = nsmallest(limit, places)
    for place in places:
        if size >= BATCH_BYTES_MAX:
            break
        read += 1
        if place in held:
            message = held[place]
            jobs.append(read_envelope(message, topic.queue).job(LEASED, message.body))
            size += shown_bytes(message)
        elif (found := topic.leases.get(place[1])) is not None:  # it has not ended meanwhile
            jobs.append(found.envelope.job(LEASED, found.message.body, found.expires_ms))
            size += shown_bytes(found.message)
        await slices.rest_if_over()
    return jobs, "" if read == count else encode_cursor(places[read - 1])
