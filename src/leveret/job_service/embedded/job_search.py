"""Finds jobs in a queue by their headers.

There is no index of waiting jobs, so a search walks through the queue. It does not decode messages
that lack the bytes of the id. It works in slices of the event loop, which all searches share: a
thousand searches delay other calls no more than one.
"""

from collections.abc import AsyncIterator
from typing import Final

from leveret.engine.commands.picking import Lookup, PickedMessage
from leveret.engine.insight.filters import READY, SCHEDULED, UNACKED, Filter
from leveret.engine.insight.walk import FoundMessage, Walk
from leveret.engine.message import Message
from leveret.engine.queues.queue import Queue
from leveret.engine.turns.session import Session
from leveret.engine.vhosts.vhost import Vhost
from leveret.job_service.embedded.envelope import ID, job_id
from leveret.slices import Slices

SLICE: Final = 2_000  # messages looked at between two looks at the clock
FOUND_MAX: Final = 200
BYTES_MAX: Final = 8 * 1024 * 1024


async def find_job(vhost: Vhost, queue: Queue, id: int, slices: Slices) -> FoundMessage | None:
    """Return the message of a job that is ready or scheduled. It stays there until an await."""
    wanted = Filter()
    wanted.require_states([READY, SCHEDULED])
    wanted.require_header(ID, str(id))
    walk = Walk(queue, vhost.stuck, wanted, [])
    while True:
        walk.step(SLICE, 1, BYTES_MAX)
        if walk.found:
            return walk.found[0]
        if walk.is_done():
            return None
        await slices.rest_if_over()


async def find_jobs(vhost: Vhost, queue: Queue, ids: list[int], slices: Slices) -> dict[int, int]:
    """Return, by id, the message numbers of jobs that are ready or scheduled."""
    if len(ids) == 1:
        found = await find_job(vhost, queue, ids[0], slices)
        return {} if found is None else {ids[0]: int(found.message.seq)}
    wanted = set(ids)
    numbers: dict[int, int] = {}
    async for one in walk_messages(vhost, queue, slices, READY, SCHEDULED):
        id = job_id(one.message)
        if id in wanted:
            numbers[id] = int(one.message.seq)
            if len(numbers) == len(wanted):
                break
    return numbers


async def find_leased_jobs(
    vhost: Vhost, queue: Queue, ids: list[int], sessions: list[Session], slices: Slices
) -> dict[int, Message]:
    """Return, by id, the messages of jobs that one of these sessions holds."""
    wanted = set(ids)
    held: dict[int, Message] = {}
    if wanted:
        async for one in walk_messages(vhost, queue, slices, UNACKED, sessions=sessions):
            id = job_id(one.message)
            if id in wanted:
                held[id] = one.message
    return held


async def walk_messages(
    vhost: Vhost, queue: Queue, slices: Slices, *states: str, sessions: list[Session] | None = None
) -> AsyncIterator[FoundMessage]:
    """Return every message of a queue in some states. Each stays there until an await."""
    wanted = Filter()
    wanted.require_states(list(states))
    walk = Walk(queue, vhost.stuck, wanted, sessions or [])
    while not walk.is_done():
        walk.step(SLICE, FOUND_MAX, BYTES_MAX)
        for found in walk.take():
            yield found
        await slices.rest_if_over()


def pick_message(queue: Queue, seq: int) -> PickedMessage | None:
    """Return a message by its number, so that it can be removed in this turn."""
    found = Lookup(queue, [seq], BYTES_MAX).picked
    return found[0] if found else None
