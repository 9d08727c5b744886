"""The jobs API for operators: single jobs, dead jobs, topics, statistics, schedules, tokens."""

import asyncio
from typing import Any, Final

from msgspec import structs
from starlette.requests import Request
from starlette.responses import Response

from leveret.auth import CONFIGURE, READ, WRITE
from leveret.auth.job_access import ALL
from leveret.errors import JobsInvalidError, JobsUnavailableError, TokenRefusedError
from leveret.http.framework.operations import OBJECT_BYTES_MAX, Operation, Query
from leveret.http.framework.request_parts import node_of, part_of, user_of
from leveret.http.framework.responses import ErrorBody, json_response
from leveret.http.jobs.access import Call, job_operation, problem
from leveret.http.jobs.bodies import (
    DeadJobsBody,
    DeleteResult,
    HandleBody,
    JobInfo,
    RedriveResult,
    SettleResult,
    TokenInfo,
    TopicChanges,
    decode_body,
    id_of,
    job_info,
    time_of,
)
from leveret.http.jobs.calls import (
    SETTLE_REFUSALS,
    TOPIC_QUERY,
    one_or_many,
    settle,
)
from leveret.http.jobs.parameters import flag_of, number_of, required, topic_of
from leveret.job_model import (
    BATCH_MAX,
    DEAD_SUFFIX,
    PAYLOAD_BYTES_MAX,
    PRIORITY_MAX,
    PRIORITY_MIN,
    Handle,
    Job,
    Outcome,
    Schedule,
    TopicSettings,
    TopicStats,
)
from leveret.job_service import limits
from leveret.job_service.cron import Cron

LIST_DEFAULT: Final = 100
LISTED_STATES: Final = ("ready", "scheduled", "leased")
NEXT: Final = "Jobs-Next"  # header of a list that has more jobs: `after` of the next page
MISSING: Final = "Jobs-Missing"  # header of a list: the shards that did not answer
_BACKOFFS: Final = ("backoff_ms", "backoff_ms_max")
TOKEN_S: Final = 600  # lifetime of a token for the web page
BODY_BYTES_MAX: Final = PAYLOAD_BYTES_MAX * 4 // 3 + 65_536


async def cancel(call: Call) -> Response:
    async def drop(
        call: Call, first: HandleBody, handles: list[Handle]
    ) -> list[tuple[Outcome, int]]:
        ids = [handle.id for handle in handles]
        found = await call.store.cancel(first.namespace, first.topic, ids)
        return [(outcome, 0) for outcome in found]

    return await settle(call, HandleBody, drop, READ)


async def deliver_now(call: Call) -> Response:
    async def wake(
        call: Call, first: HandleBody, handles: list[Handle]
    ) -> list[tuple[Outcome, int]]:
        ids = [handle.id for handle in handles]
        found = await call.store.deliver_now(first.namespace, first.topic, ids)
        return [(outcome, 0) for outcome in found]

    return await settle(call, HandleBody, wake, READ, WRITE)


async def get_job(call: Call) -> Response:
    namespace, topic = topic_of(call.parameters)
    id = id_of(call.parameters.get("id", ""))
    call.require(namespace, topic, READ)
    found = await call.store.find(namespace, topic, id)
    if found is None:
        return problem(404, "there is no such job in this topic")
    if found.state == "dead":
        call.require(namespace, topic + DEAD_SUFFIX, READ)
    return json_response(job_info(found))


async def list_jobs(call: Call) -> Response:
    namespace, topic = topic_of(call.parameters)
    state = call.parameters.get("state", "")
    if state not in LISTED_STATES:
        raise JobsInvalidError(f"state must be one of: {', '.join(LISTED_STATES)}", "state")
    limit = _limit_of(call)
    call.require(namespace, topic, READ)
    after = call.parameters.get("after", "")
    jobs, cursor = await call.store.list_jobs(namespace, topic, state, limit, after)
    return _jobs(call, jobs, {NEXT: cursor} if cursor else {})


def _jobs(call: Call, jobs: list[Job], headers: dict[str, str] | None = None) -> Response:
    """Return a list of jobs, without their payloads if the request does not want them."""
    is_whole = flag_of(call.parameters, "payloads", default=True)
    shown = [job_info(job if is_whole else structs.replace(job, payload=b"")) for job in jobs]
    return json_response(shown, headers=headers)


def _limit_of(call: Call) -> int:
    limit = number_of(call.parameters, "limit", LIST_DEFAULT)
    limits.require_within("limit", limit, 1, BATCH_MAX)
    return limit


async def list_dead(call: Call) -> Response:
    namespace, topic = topic_of(call.parameters)
    limit = _limit_of(call)
    after_id = id_of(call.parameters.get("after", "0"), "after")
    call.require(namespace, topic + DEAD_SUFFIX, READ)
    return _jobs(call, await call.store.dead(namespace, topic, after_id, limit))


async def redrive(call: Call) -> Response:
    body, ids = await _dead_jobs_of(call)
    call.require(body.namespace, body.topic, WRITE)
    return json_response(RedriveResult(await call.store.redrive(body.namespace, body.topic, ids)))


async def delete_dead(call: Call) -> Response:
    body, ids = await _dead_jobs_of(call)
    return json_response(
        DeleteResult(await call.store.delete_dead(body.namespace, body.topic, ids))
    )


async def _dead_jobs_of(call: Call) -> tuple[DeadJobsBody, list[int] | None]:
    body: DeadJobsBody = decode_body(await call.whole_body(OBJECT_BYTES_MAX), DeadJobsBody)
    limits.require_topic(body.namespace, body.topic)
    call.require(body.namespace, body.topic + DEAD_SUFFIX, READ)
    if body.ids is None:
        return body, None
    limits.require_within("ids", len(body.ids), 1, BATCH_MAX, "the number of ids")
    return body, [id_of(id, "ids", item) for item, id in enumerate(body.ids)]


def _topic_of(call: Call) -> tuple[str, str]:
    namespace, topic = part_of(call.request, "namespace"), part_of(call.request, "topic")
    limits.require_topic(namespace, topic)
    return namespace, topic


async def get_settings(call: Call) -> Response:
    namespace, topic = _topic_of(call)
    call.require(namespace, topic, READ)
    return json_response(await call.store.settings(namespace, topic))


async def put_settings(call: Call) -> Response:
    changes: TopicChanges = decode_body(await call.whole_body(OBJECT_BYTES_MAX), TopicChanges)
    namespace, topic = _topic_of(call)
    call.require(namespace, topic, CONFIGURE)
    given = changes.given()
    limits.require_settings(TopicSettings(**given))
    if len(given) < len(TopicSettings.__struct_fields__):
        kept = await call.store.settings(namespace, topic)
        settings = structs.replace(kept, **given)
    else:
        settings = TopicSettings(**given)
    if not given.keys().isdisjoint(_BACKOFFS):
        limits.require_backoffs(settings)
    await call.store.set_settings(namespace, topic, settings)
    return Response(status_code=204)


async def get_stats(call: Call) -> Response:
    wanted = call.parameters.get("namespace")
    if wanted is not None:
        limits.require_name("namespace", wanted)
        call.require_namespace(wanted)
        found = await call.store.stats(wanted)
    elif call.access.user is not None or ALL in call.access.namespaces:
        found = await call.store.stats(None)
    else:
        names = sorted(call.access.namespaces)
        each = await asyncio.gather(*(call.store.stats(name) for name in names))
        found = [one for some in each for one in some]
    slices = call.slices()
    shown = []
    for one in found:
        if call.may_read(one.namespace, one.topic):
            shown.append(one)
        await slices.rest_if_over()
    return json_response(shown, headers=_missing(call))


def _missing(call: Call) -> dict[str, str]:
    """Return the header that names the shards whose topics a list lacks."""
    servers = call.store.report().servers
    down = [server.public_name for server in servers if server.is_shard and not server.is_up]
    return {MISSING: ", ".join(down)} if down else {}


async def list_schedules(call: Call) -> Response:
    namespace = required("namespace", call.parameters)
    limits.require_name("namespace", namespace)
    call.require_namespace(namespace)
    found = await call.store.schedules(namespace)
    now_ms = call.now_ms()
    slices = call.slices()
    shown = []
    for one in found:
        if call.may_read(namespace, one.topic):
            shown.append(_with_next(one, now_ms))
        await slices.rest_if_over()
    return json_response(shown, headers=_missing(call))


def _with_next(schedule: Schedule, now_ms: int) -> Schedule:
    """Return a schedule with the time at which it fires next."""
    if schedule.is_paused:
        return schedule
    next_ms = Cron(schedule.cron, schedule.timezone).next_ms(now_ms)
    return structs.replace(schedule, next_ms=next_ms)


async def put_schedule(call: Call) -> Response:
    namespace, name = _schedule_of(call)
    schedule: Schedule = decode_body(await call.whole_body(BODY_BYTES_MAX), Schedule)
    for field, given, expected in (
        ("namespace", schedule.namespace, namespace),
        ("name", schedule.name, name),
    ):
        if given != expected:
            raise JobsInvalidError(f"{field} differs from the path", field)
    limits.require_topic(namespace, schedule.topic)
    limits.require_within("priority", schedule.priority, PRIORITY_MIN, PRIORITY_MAX)
    if len(schedule.payload) > PAYLOAD_BYTES_MAX:
        raise JobsInvalidError(f"a payload can have at most {PAYLOAD_BYTES_MAX} bytes", "payload")
    if Cron(schedule.cron, schedule.timezone).next_ms(call.now_ms()) is None:
        raise JobsInvalidError("cron is never due", "cron")
    schedule.next_ms = None
    await _require_old_schedule(call, namespace, name)
    call.require_use(namespace, schedule.topic, WRITE)
    limits.require_schedule_room(schedule, await call.store.schedules(namespace))
    await call.store.set_schedule(schedule)
    return Response(status_code=204)


async def delete_schedule(call: Call) -> Response:
    namespace, name = _schedule_of(call)
    await _require_old_schedule(call, namespace, name)
    if not await call.store.delete_schedule(namespace, name):
        return problem(404, "there is no such schedule")
    return Response(status_code=204)


def _schedule_of(call: Call) -> tuple[str, str]:
    namespace, name = part_of(call.request, "namespace"), part_of(call.request, "name")
    limits.require_name("namespace", namespace)
    limits.require_name("name", name)
    call.require_namespace(namespace)
    return namespace, name


async def _require_old_schedule(call: Call, namespace: str, name: str) -> None:
    """Answer 403 unless the call may write to the topic of the schedule that it replaces."""
    if call.access.user is None:
        return
    is_known = False
    for old in await call.store.schedules(namespace):
        if old.name == name:
            call.require(namespace, old.topic, WRITE)
            is_known = True
    if not is_known and (missing := _missing(call)):
        down = missing[MISSING]
        raise JobsUnavailableError(f"the schedule may be on a shard that is down: {down}")


async def create_token(request: Request) -> Response:
    """Return a token for the logged-in user, with the permissions of that user."""
    try:
        token, ends_ms = node_of(request).jobs.sign_for(user_of(request), TOKEN_S)
    except TokenRefusedError as fault:
        return json_response(ErrorBody("conflict", str(fault)), status=409)
    return json_response(TokenInfo(token, time_of(ends_ms)))


_TOPIC: Final = "/topics/{namespace}/{topic}"
_SCHEDULE: Final = "/schedules/{namespace}/{name}"
_SETTLED: Final[dict[str, Any]] = {
    "body": one_or_many(HandleBody),
    "answer": SettleResult | list[SettleResult],
    "failures": SETTLE_REFUSALS,
}

_LIST_QUERY: Final = (
    Query("limit", f"limit of jobs; default {LIST_DEFAULT}", int),
    Query("payloads", "whether to return payloads; default true", bool),
)

OPERATIONS: Final = (
    job_operation(
        "POST",
        "/cancel",
        cancel,
        "Remove jobs that are ready or scheduled.",
        is_audited=True,
        **_SETTLED,
    ),
    job_operation(
        "POST",
        "/deliver-now",
        deliver_now,
        "Make scheduled jobs ready.",
        is_audited=True,
        **_SETTLED,
    ),
    job_operation(
        "GET",
        "/job",
        get_job,
        "Return one job in any state, with its failures.",
        query=(*TOPIC_QUERY, Query("id", "the id of the job", required=True)),
        answer=JobInfo,
    ),
    job_operation(
        "GET",
        "/jobs",
        list_jobs,
        "List jobs that are ready, scheduled or leased, page by page.",
        query=(
            *TOPIC_QUERY,
            Query("state", "ready, scheduled or leased", required=True),
            Query("after", "the header Jobs-Next of the page before"),
            *_LIST_QUERY,
        ),
        answer=list[JobInfo],
    ),
    job_operation(
        "GET",
        "/dead",
        list_dead,
        "List dead jobs with their failures, in the order of their ids.",
        query=(
            *TOPIC_QUERY,
            Query("after", "only jobs with a higher id"),
            *_LIST_QUERY,
        ),
        answer=list[JobInfo],
    ),
    job_operation(
        "POST",
        "/dead/redrive",
        redrive,
        "Make dead jobs ready again, with all their retries.",
        body=DeadJobsBody,
        answer=RedriveResult,
        is_audited=True,
    ),
    job_operation(
        "POST",
        "/dead/delete",
        delete_dead,
        "Delete dead jobs.",
        body=DeadJobsBody,
        answer=DeleteResult,
        is_audited=True,
    ),
    job_operation(
        "GET", _TOPIC, get_settings, "Return the settings of a topic.", answer=TopicSettings
    ),
    job_operation(
        "PUT",
        _TOPIC,
        put_settings,
        "Change settings of a topic; those that are omitted keep their values.",
        body=TopicChanges,
        status=204,
        is_audited=True,
    ),
    job_operation(
        "GET",
        "/stats",
        get_stats,
        "Return statistics of topics: of one namespace, or of all that the token allows.",
        query=(Query("namespace", "only this namespace"),),
        answer=list[TopicStats],
    ),
    job_operation(
        "GET",
        "/schedules",
        list_schedules,
        "List the schedules of a namespace.",
        query=(Query("namespace", "the namespace", required=True),),
        answer=list[Schedule],
    ),
    job_operation(
        "PUT",
        _SCHEDULE,
        put_schedule,
        "Create jobs repeatedly, by a cron expression.",
        body=Schedule,
        status=204,
        is_audited=True,
    ),
    job_operation("DELETE", _SCHEDULE, delete_schedule, "Delete a schedule.", is_audited=True),
    Operation(
        method="POST",
        path="/api/jobs/token",
        handler=create_token,
        summary="Return a token of the jobs service for the logged-in user.",
        group="jobs",
        answer=TokenInfo,
    ),
)
