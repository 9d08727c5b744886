"""The jobs API: put in, take, settle.

Calls that settle take one object, and answer 404 or 409 where it is not done, or an array, and
answer what became of each: 200 where all are done, 207 otherwise.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from leveret.errors import JobsError, JobsInvalidError
from leveret.http.framework.answers import json
from leveret.http.framework.operations import Needs, Operation, Query, whole_body
from leveret.http.jobs.access import CLIENT_GONE, MEDIA, Call, Problem, job_call, problem
from leveret.http.jobs.shapes import Item, Leased, Settle, Settled, decoded, id_of, leased, settled
from leveret.job_model import (
    BACKOFF_MS_MAX,
    BATCH_BYTES_MAX,
    BATCH_MAX,
    DEQUEUE_DEFAULT,
    Handle,
    LeasedJob,
    NewJob,
    Outcome,
)
from leveret.job_service import limits

# Base64 takes four bytes for three; names and numbers come on top.
BODY_BYTES_MAX: Final = BATCH_BYTES_MAX * 4 // 3 + BATCH_MAX * 2_048
ONE_OR_MANY: Final = Settle | list[Settle]
_STATUSES: Final = {Outcome.UNKNOWN: 404, Outcome.STALE: 409}
_DETAILS: Final = {
    Outcome.UNKNOWN: "there is no such job in this topic",
    Outcome.STALE: "the lease is over, or another one holds the job",
}

KNOWN: Final = "Jobs-Known"  # header of the answer: jobs that were there already, by their keys

# What a call does with jobs of one topic that it treats alike, and when their leases then end.
Action = Callable[[Call, Settle, list[Handle]], Awaitable[list[tuple[Outcome, int]]]]


@job_call
async def enqueue(call: Call) -> Response:
    items: list[Item] = decoded(await whole_body(call.request, BODY_BYTES_MAX), list[Item])
    jobs = [item.job() for item in items]
    limits.require_batch(jobs, call.now_ms())
    for namespace, index in _first_of_each(jobs).items():
        call.require(namespace, index)
    found = await call.store.enqueue(jobs)
    return json(found.ids, headers={KNOWN: str(found.known)})


def _first_of_each(jobs: list[NewJob]) -> dict[str, int]:
    """The index of the first job of each namespace."""
    found: dict[str, int] = {}
    for index, job in enumerate(jobs):
        found.setdefault(job.namespace, index)
    return found


@job_call
async def dequeue(call: Call) -> Response:
    if call.request.method == "HEAD":  # whose answer has no body: nobody would see the jobs
        raise HTTPException(405, "jobs are taken by GET", {"Allow": "GET"})
    query = call.request.query_params
    namespace, topic = place_of(call)
    limit = number_of(query.get("limit"), "limit", DEQUEUE_DEFAULT)
    limits.require_within("limit", limit, 1, BATCH_MAX)
    lease_ms = span_ms_of(query.get("lease"), "lease")
    limits.require_lease(lease_ms)
    wait_ms = span_ms_of(query.get("wait"), "wait") or 0
    limits.require_wait(wait_ms)
    jobs = await call.store.dequeue(namespace, topic, limit, lease_ms, 0)
    if wait_ms and not jobs:
        taking = call.store.dequeue(namespace, topic, limit, lease_ms, wait_ms)
        jobs = await _unless_gone(call.request, taking)
    return json([leased(job) for job in jobs])


async def _unless_gone(
    request: Request, taking: Coroutine[Any, Any, list[LeasedJob]]
) -> list[LeasedJob]:
    """What a call waits for, unless whoever asked has gone: then nobody is handed anything."""
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(_outcome_of(taking))
        gone = tasks.create_task(_gone(request))
        await asyncio.wait((task, gone), return_when=asyncio.FIRST_COMPLETED)
        task.cancel()  # changes nothing where it is done
        gone.cancel()
    if task.cancelled():
        raise HTTPException(CLIENT_GONE, "nobody waits any more")
    outcome = task.result()
    if isinstance(outcome, JobsError):
        raise outcome
    return outcome


async def _outcome_of(
    taking: Coroutine[Any, Any, list[LeasedJob]],
) -> list[LeasedJob] | JobsError:
    """The jobs, or why there are none: a fault would end the group of tasks."""
    try:
        return await taking
    except JobsError as fault:
        return fault


async def _gone(request: Request) -> None:
    message = await request.receive()
    while message["type"] != "http.disconnect":
        message = await request.receive()


@job_call
async def ack(call: Call) -> Response:
    async def done(call: Call, first: Settle, handles: list[Handle]) -> list[tuple[Outcome, int]]:
        found = await call.store.ack(first.namespace, first.topic, handles)
        return [(outcome, 0) for outcome in found]

    return await settle(call, done)


@job_call
async def nack(call: Call) -> Response:
    async def fail(call: Call, first: Settle, handles: list[Handle]) -> list[tuple[Outcome, int]]:
        delay_ms = _span_ms(first.delay, "delay")
        found = await call.store.nack(
            first.namespace, first.topic, handles, first.error, delay_ms, first.dead
        )
        return [(outcome, 0) for outcome in found]

    return await settle(call, fail)


@job_call
async def extend(call: Call) -> Response:
    async def more(call: Call, first: Settle, handles: list[Handle]) -> list[tuple[Outcome, int]]:
        lease_ms = _span_ms(first.lease, "lease")
        return await call.store.extend(first.namespace, first.topic, handles, lease_ms)

    return await settle(call, more)


async def settle(call: Call, act: Action) -> Response:
    """Do something with the jobs that the body names, and answer what became of each."""
    body = decoded(await whole_body(call.request, BODY_BYTES_MAX), ONE_OR_MANY)
    is_batch = isinstance(body, list)
    wanted: list[Settle] = body if isinstance(body, list) else [body]
    limits.require_within("", len(wanted), 1, BATCH_MAX, "the number of jobs in a batch")
    handles = [_handle(call, one, index if is_batch else None) for index, one in enumerate(wanted)]
    found: list[tuple[Outcome, int]] = []
    for first, group in _groups(wanted, handles):
        found += await act(call, first, group)
    if is_batch:
        is_done = all(outcome is Outcome.DONE for outcome, _ in found)
        return json([settled(*one) for one in found], status=200 if is_done else 207)
    outcome, ends_ms = found[0]
    if outcome is not Outcome.DONE:
        return problem(_STATUSES[outcome], _DETAILS[outcome])
    return json(settled(outcome, ends_ms))


def _handle(call: Call, one: Settle, item: int | None) -> Handle:
    try:
        limits.require_topic(one.namespace, one.topic)
        delay_ms = _span_ms(one.delay, "delay")
        if delay_ms is not None:
            limits.require_within("delay", delay_ms, 0, BACKOFF_MS_MAX)
        limits.require_lease(_span_ms(one.lease, "lease"))
    except JobsInvalidError as fault:
        fault.item = item
        raise
    call.require(one.namespace, item)
    token = None if one.token is None else id_of(one.token, "token", item)
    return Handle(id_of(one.id, "id", item), token)


def _groups(wanted: list[Settle], handles: list[Handle]) -> list[tuple[Settle, list[Handle]]]:
    """Neighbours that are treated alike."""
    groups: list[tuple[Settle, list[Handle]]] = []
    for one, handle in zip(wanted, handles, strict=True):
        if groups and _alike(groups[-1][0], one):
            groups[-1][1].append(handle)
        else:
            groups.append((one, [handle]))
    return groups


def _alike(a: Settle, b: Settle) -> bool:
    return (a.namespace, a.topic, a.error, a.delay, a.dead, a.lease) == (
        (b.namespace, b.topic, b.error, b.delay, b.dead, b.lease)
    )


# The query


def place_of(call: Call) -> tuple[str, str]:
    """Namespace and topic, which the call may use."""
    query = call.request.query_params
    names = {}
    for field in ("namespace", "topic"):
        if field not in query:
            raise JobsInvalidError(f"{field} is missing", field)
        names[field] = query[field]
    limits.require_topic(names["namespace"], names["topic"])
    call.require(names["namespace"])
    return names["namespace"], names["topic"]


def number_of(text: str | None, field: str, otherwise: int) -> int:
    if text is None:
        return otherwise
    if not (text.isascii() and text.isdecimal() and len(text) <= 19):
        raise JobsInvalidError(f"{field} is a whole number, not {text}", field)
    return int(text)


def span_ms_of(text: str | None, field: str) -> int | None:
    """Seconds, as milliseconds."""
    if text is None:
        return None
    try:
        return _span_ms(float(text), field)
    except ValueError:
        raise JobsInvalidError(f"{field} is a number of seconds, not {text}", field) from None


def _span_ms(seconds: float | None, field: str) -> int | None:
    if seconds is None:
        return None
    try:
        return round(seconds * 1000)
    except (ValueError, OverflowError):
        raise JobsInvalidError(f"{field} is a number of seconds, not {seconds}", field) from None


PLACE: Final = (
    Query("namespace", "the namespace", required=True),
    Query("topic", "the topic", required=True),
)
REFUSALS: Final = tuple(
    (status, Problem) for status in (400, 401, 403, 404, 405, 413, 429, 500, 503)
)
SETTLE_REFUSALS: Final = (
    *REFUSALS,
    (409, Problem),
    (207, list[Settled]),
)


def _settling(path: str, handler: Any, about: str) -> Operation:
    return Operation(
        method="POST",
        path=path,
        handler=handler,
        about=about,
        group="jobs",
        needs=Needs.JOBS,
        body=ONE_OR_MANY,
        answer=Settled | list[Settled],
        failures=SETTLE_REFUSALS,
        failure_media=MEDIA,
        is_audited=False,
    )


OPERATIONS: Final = (
    Operation(
        method="POST",
        path="/enqueue",
        handler=enqueue,
        about="Put in a batch of jobs, all or none; their ids in the same order.",
        group="jobs",
        needs=Needs.JOBS,
        body=list[Item],
        answer=list[int],
        failures=REFUSALS,
        failure_media=MEDIA,
        is_audited=False,
    ),
    Operation(
        method="GET",
        path="/dequeue",
        handler=dequeue,
        about="Take the most urgent jobs of a topic under a lease.",
        group="jobs",
        needs=Needs.JOBS,
        query=(
            *PLACE,
            Query("limit", f"at most so many; {DEQUEUE_DEFAULT} without it", int),
            Query("wait", "wait for a job, so many seconds", float),
            Query("lease", "how long they are leased, in seconds; else the topic's", float),
        ),
        answer=list[Leased],
        failures=REFUSALS,
        failure_media=MEDIA,
        is_audited=False,
    ),
    _settling("/ack", ack, "Jobs are done."),
    _settling("/nack", nack, "Jobs have failed: they come again later, or are dead."),
    _settling("/extend", extend, "Keep the leases of jobs for longer."),
)
