"""The jobs API for clients and workers: enqueue, dequeue, ack, nack, extend.

Calls that settle jobs take one object or an array. For one object they answer 404 or 409 if it
failed. For an array they answer the outcome of each job: 200 if all are done, else 207.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple, TypeVar

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from leveret.auth import READ, WRITE
from leveret.errors import JobsInvalidError, LeveretError
from leveret.http.framework.operations import Operation, Query
from leveret.http.framework.responses import json_response
from leveret.http.jobs.access import (
    CLIENT_GONE,
    REFUSALS,
    Call,
    Caller,
    CallRefusedError,
    JobHandler,
    Problem,
    job_operation,
    names_of,
    problem,
)
from leveret.http.jobs.bodies import (
    AckedAndLeased,
    ExtendBody,
    HandleBody,
    LeasedJobInfo,
    NackBody,
    NewJobBody,
    SettleResult,
    decode_body,
    id_of,
    leased_job_info,
    settle_result,
)
from leveret.http.jobs.parameters import (
    as_ms,
    duration_ms_of,
    number_of,
    read_parameters,
    topic_of,
)
from leveret.job_model import (
    BACKOFF_MS_MAX,
    BATCH_BYTES_MAX,
    BATCH_MAX,
    DEQUEUE_DEFAULT,
    Enqueued,
    Handle,
    LeasedJob,
    NewJob,
    Outcome,
)
from leveret.job_service import limits

# Base64 needs four bytes for three; names and numbers are added.
BODY_BYTES_MAX: Final = BATCH_BYTES_MAX * 4 // 3 + BATCH_MAX * 2_048
_NEW_JOBS: Final = list[NewJobBody]
_ACKED: Final = list[HandleBody]
_STATUSES: Final = {Outcome.UNKNOWN: 404, Outcome.STALE: 409}
_DETAILS: Final = {
    Outcome.UNKNOWN: "there is no such job in this topic",
    Outcome.STALE: "the lease has ended, or another worker holds the job",
}

TOPIC_QUERY: Final = (
    Query("namespace", "the namespace", required=True),
    Query("topic", "the topic", required=True),
)
_DEQUEUE_QUERY: Final = (
    *TOPIC_QUERY,
    Query("limit", f"limit of jobs; default {DEQUEUE_DEFAULT}", int),
    Query("wait", "seconds to wait for a job", float),
    Query("lease", "length of the lease in seconds; default: the setting of the topic", float),
)
_DEQUEUE_NAMES: Final = names_of(_DEQUEUE_QUERY)

# Workers repeat the same query: a cache keeps the parsed ones.
_CACHED_QUERIES: Final = 512
_CACHED_QUERY_BYTES_MAX: Final = 1_024

log = logging.getLogger(__name__)

KNOWN: Final = "Jobs-Known"  # header of the answer: how many jobs existed already, by their keys

# Settles jobs of one topic with the same parameters. Returns each outcome and the end of the lease.
Body = TypeVar("Body", bound=HandleBody)
Action = Callable[[Call, Body, list[Handle]], Awaitable[list[tuple[Outcome, int]]]]


async def enqueue(call: Call) -> Response:
    jobs = new_jobs(call, await call.whole_body(BODY_BYTES_MAX))
    return enqueued_response(await call.store.enqueue(jobs))


def new_jobs(caller: Caller, data: bytes) -> list[NewJob]:
    """Return the jobs in a body. Raise if they break a limit, or the caller may not use a topic."""
    items: list[NewJobBody] = decode_body(data, _NEW_JOBS)
    jobs = [item.job() for item in items]
    limits.require_batch(jobs, caller.now_ms())
    for (namespace, topic), index in _first_of_each(jobs).items():
        caller.require_use(namespace, topic, WRITE, index)
    return jobs


def enqueued_response(found: Enqueued) -> Response:
    return json_response(found.ids, headers={KNOWN: str(found.known)})


def _first_of_each(jobs: list[NewJob]) -> dict[tuple[str, str], int]:
    """Return the index of the first job of each topic."""
    found: dict[tuple[str, str], int] = {}
    namespace: str | None = None
    topic: str | None = None
    for index, job in enumerate(jobs):
        if job.topic != topic or job.namespace != namespace:  # than the job before
            namespace, topic = job.namespace, job.topic
            found.setdefault((namespace, topic), index)
    return found


async def dequeue(call: Call) -> Response:
    if call.request.method == "HEAD":  # its answer has no body: the jobs would be lost
        raise HTTPException(405, "jobs are taken by GET or POST", {"Allow": "GET, POST"})
    jobs = await _take(call, wanted_jobs(call, call.request.scope["query_string"]))
    return json_response([leased_job_info(job) for job in jobs])


async def ack_and_dequeue(call: Call) -> Response:
    """Ack jobs, then lease the next ones: one round trip instead of two.

    If the jobs are acked and no job can be taken, answer the outcomes without a job. The next call
    tells the reason.
    """
    data = await call.whole_body(BODY_BYTES_MAX)
    done, wanted = acked_and_wanted_jobs(call, data, call.request.scope["query_string"])
    found = await _settle_each(call, done, _acked, READ) if done else []
    try:
        jobs = await _take(call, wanted)
    except (LeveretError, CallRefusedError) as fault:
        if not done:
            raise
        log.info("no job is taken after an ack: %s", fault)
        jobs = []
    return json_response(acked_and_leased(found, jobs), status=batch_status(found))


def acked_and_leased(found: list[tuple[Outcome, int]], jobs: list[LeasedJob]) -> AckedAndLeased:
    results = [settle_result(*one) for one in found]
    return AckedAndLeased(results, [leased_job_info(job) for job in jobs])


class WantedJobs(NamedTuple):
    """The parameters of a dequeue."""

    namespace: str
    topic: str
    limit: int
    lease_ms: int | None
    wait_ms: int


def are_acked_together(done: list[HandleBody], handles: list[Handle], wanted: WantedJobs) -> bool:
    """Return whether all acked jobs are of the topic of the wanted ones, and each is named once."""
    if any(one.topic != wanted.topic or one.namespace != wanted.namespace for one in done):
        return False
    return len({handle.id for handle in handles}) == len(handles)


def acked_and_wanted_jobs(
    caller: Caller, data: bytes, query: bytes
) -> tuple[list[HandleBody], WantedJobs]:
    """Return the jobs in a body, which are not checked yet, and the parameters in the query."""
    done: list[HandleBody] = decode_body(data, _ACKED)
    return done, wanted_jobs(caller, query)


def wanted_jobs(caller: Caller, query: bytes) -> WantedJobs:
    """Return the parameters in a query. Answer 400 or 403 if the call may not be made so."""
    is_short = len(query) <= _CACHED_QUERY_BYTES_MAX
    wanted = _cached_wanted_jobs(query) if is_short else _parse_wanted_jobs(query)
    caller.require_use(wanted.namespace, wanted.topic, READ)
    return wanted


def _parse_wanted_jobs(text: bytes) -> WantedJobs:
    given = read_parameters(text, _DEQUEUE_NAMES)
    namespace, topic = topic_of(given)
    limit = number_of(given, "limit", DEQUEUE_DEFAULT)
    limits.require_within("limit", limit, 1, BATCH_MAX)
    lease_ms = duration_ms_of(given, "lease")
    limits.require_lease(lease_ms)
    wait_ms = duration_ms_of(given, "wait") or 0
    limits.require_wait(wait_ms)
    return WantedJobs(namespace, topic, limit, lease_ms, wait_ms)


_cached_wanted_jobs: Final = lru_cache(_CACHED_QUERIES)(_parse_wanted_jobs)


async def _take(call: Call, wanted: WantedJobs) -> list[LeasedJob]:
    namespace, topic, limit, lease_ms, wait_ms = wanted
    jobs = await call.store.dequeue(namespace, topic, limit, lease_ms, 0)
    if wait_ms and not jobs:
        with call.request.app.state.waiting_calls.one_of(call.access.identity):
            taking = call.store.dequeue(namespace, topic, limit, lease_ms, wait_ms)
            jobs = await _unless_disconnected(call.request, taking)
        if jobs:
            await _require_still(call, namespace, topic, jobs)
    return jobs


async def _require_still(call: Call, namespace: str, topic: str, jobs: list[LeasedJob]) -> None:
    """Answer 403, and return the jobs, if the user lost the permission while the call waited."""
    try:
        call.require(namespace, topic, READ)
    except CallRefusedError as refusal:
        handles = [Handle(job.id, job.token) for job in jobs]
        await call.store.nack(namespace, topic, handles, refusal.detail, 0)
        raise


async def _unless_disconnected(
    request: Request, taking: Coroutine[Any, Any, list[LeasedJob]]
) -> list[LeasedJob]:
    """Return the jobs of a waiting call. If the client disconnects, cancel it: no job is leased."""
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(_outcome_of(taking))
        gone = tasks.create_task(_wait_for_disconnect(request))
        await asyncio.wait((task, gone), return_when=asyncio.FIRST_COMPLETED)
        task.cancel()  # has no effect if it is done
        gone.cancel()
    if task.cancelled():
        raise HTTPException(CLIENT_GONE, "the client has disconnected")
    outcome = task.result()
    if isinstance(outcome, LeveretError):
        raise outcome
    return outcome


async def _outcome_of(
    taking: Coroutine[Any, Any, list[LeasedJob]],
) -> list[LeasedJob] | LeveretError:
    """Return the jobs, or the error: a raised error would end the task group."""
    try:
        return await taking
    except LeveretError as fault:
        return fault


async def _wait_for_disconnect(request: Request) -> None:
    message = await request.receive()
    while message["type"] != "http.disconnect":
        message = await request.receive()


async def ack(call: Call) -> Response:
    return await settle(call, HandleBody, _acked, READ)


async def _acked(call: Call, first: HandleBody, handles: list[Handle]) -> list[tuple[Outcome, int]]:
    found = await call.store.ack(first.namespace, first.topic, handles)
    return [(outcome, 0) for outcome in found]


async def nack(call: Call) -> Response:
    async def fail(call: Call, first: NackBody, handles: list[Handle]) -> list[tuple[Outcome, int]]:
        delay_ms = as_ms(first.delay, "delay")
        found = await call.store.nack(
            first.namespace, first.topic, handles, first.error, delay_ms, first.dead
        )
        return [(outcome, 0) for outcome in found]

    return await settle(call, NackBody, fail, READ)


async def extend(call: Call) -> Response:
    async def more(
        call: Call, first: ExtendBody, handles: list[Handle]
    ) -> list[tuple[Outcome, int]]:
        lease_ms = as_ms(first.lease, "lease")
        return await call.store.extend(first.namespace, first.topic, handles, lease_ms)

    return await settle(call, ExtendBody, more, READ)


async def settle(call: Call, kind: type[Body], act: Action[Body], *permissions: str) -> Response:
    """Apply an action to the jobs in the body, which has one of a kind or an array of them.

    Answer the outcome of each job.

    Answer 403 if the call lacks one of the permissions on a topic.
    """
    body: Body | list[Body] = decode_body(await call.whole_body(BODY_BYTES_MAX), one_or_many(kind))
    if isinstance(body, list):
        found = await _settle_each(call, body, act, *permissions)
        return json_response([settle_result(*one) for one in found], status=batch_status(found))
    handle = _handle(body, None)
    call.require(body.namespace, body.topic, *permissions)
    ((outcome, ends_ms),) = await act(call, body, [handle])
    if outcome is not Outcome.DONE:
        return problem(_STATUSES[outcome], _DETAILS[outcome])
    return json_response(settle_result(outcome, ends_ms))


def one_or_many(kind: type[HandleBody]) -> Any:
    return kind | list[kind]  # type: ignore[valid-type]


async def _settle_each(
    call: Call, wanted: list[Body], act: Action[Body], *permissions: str
) -> list[tuple[Outcome, int]]:
    """Apply an action to the jobs of a batch. Check all of them before the first one is changed."""
    handles = settled_handles(call, wanted, *permissions)
    found: list[tuple[Outcome, int]] = []
    for first, group in _groups(wanted, handles):
        found += await act(call, first, group)
    return found


def settled_handles(
    caller: Caller, wanted: Sequence[HandleBody], *permissions: str
) -> list[Handle]:
    """Return the handles of a batch. Raise if they break a limit, or a topic may not be used."""
    limits.require_within("", len(wanted), 1, BATCH_MAX, "the number of jobs in a batch")
    handles = []
    for index, one in enumerate(wanted):
        handles.append(_handle(one, index))
        caller.require(one.namespace, one.topic, *permissions, item=index)
    return handles


def batch_status(found: list[tuple[Outcome, int]]) -> int:
    return 200 if all(outcome is Outcome.DONE for outcome, _ in found) else 207


def _handle(one: HandleBody, item: int | None) -> Handle:
    try:
        limits.require_topic(one.namespace, one.topic)
        if isinstance(one, NackBody):
            delay_ms = as_ms(one.delay, "delay")
            if delay_ms is not None:
                limits.require_seconds("delay", delay_ms, 0, BACKOFF_MS_MAX)
        elif isinstance(one, ExtendBody):
            limits.require_lease(as_ms(one.lease, "lease"))
    except JobsInvalidError as fault:
        fault.item = item
        raise
    token = None if one.token is None else id_of(one.token, "token", item)
    return Handle(id_of(one.id, "id", item), token)


def _groups(wanted: list[Body], handles: list[Handle]) -> list[tuple[Body, list[Handle]]]:
    """Group consecutive jobs with the same parameters.

    A job that is named twice is in two groups: an action knows each of its jobs once.
    """
    groups: list[tuple[Body, list[Handle]]] = []
    ids: set[int] = set()  # in the last group
    for one, handle in zip(wanted, handles, strict=True):
        if handle.id not in ids and groups and _has_same_parameters(groups[-1][0], one):
            groups[-1][1].append(handle)
        else:
            groups.append((one, [handle]))
            ids.clear()
        ids.add(handle.id)
    return groups


def _has_same_parameters(a: HandleBody, b: HandleBody) -> bool:
    return _parameters_of(a) == _parameters_of(b)


def _parameters_of(one: HandleBody) -> tuple[object, ...]:
    if isinstance(one, NackBody):
        return one.namespace, one.topic, one.error, one.delay, one.dead
    if isinstance(one, ExtendBody):
        return one.namespace, one.topic, one.lease
    return one.namespace, one.topic


SETTLE_REFUSALS: Final = (
    *REFUSALS,
    (409, Problem),
    (207, list[SettleResult]),
)


def _settling(path: str, handler: JobHandler, summary: str, kind: type[HandleBody]) -> Operation:
    return job_operation(
        "POST",
        path,
        handler,
        summary,
        body=one_or_many(kind),
        answer=SettleResult | list[SettleResult],
        failures=SETTLE_REFUSALS,
    )


OPERATIONS: Final = (
    job_operation(
        "POST",
        "/enqueue",
        enqueue,
        "Enqueue a batch of jobs, all or none; the answer has their ids in order.",
        body=list[NewJobBody],
        answer=list[int],
    ),
    job_operation(
        "GET",
        "/dequeue",
        dequeue,
        "Lease the most urgent jobs of a topic.",
        query=_DEQUEUE_QUERY,
        answer=list[LeasedJobInfo],
    ),
    job_operation(
        "POST",
        "/dequeue",
        ack_and_dequeue,
        "Ack the jobs in the body, which may be none; then lease the next jobs of a topic.",
        query=_DEQUEUE_QUERY,
        body=_ACKED,
        answer=AckedAndLeased,
        failures=(*REFUSALS, (207, AckedAndLeased)),
    ),
    _settling("/ack", ack, "Ack jobs: they are done.", HandleBody),
    _settling(
        "/nack",
        nack,
        "Nack jobs: they have failed and are retried later, or become dead.",
        NackBody,
    ),
    _settling("/extend", extend, "Extend the leases of jobs.", ExtendBody),
)
