"""Tasks over HTTP: move, copy, delete and redrive messages of a queue. See docs/insight.md.

    POST   /api/tasks         start a task; with `dry_run`, only report what it would do
    GET    /api/tasks         list running and recently ended tasks
    GET    /api/tasks/{id}    show one task and its progress
    DELETE /api/tasks/{id}    cancel a task; finished work stays done

A user needs *read* on the source and *write* on every target. Users see their own tasks. Users with
the tag `monitoring` see all tasks, and administrators may cancel all tasks.

Shovels are listed too, as tasks of the kind `shovel`. Cancelling one deletes the shovel.
"""

from typing import Final, Literal
from urllib.parse import quote, unquote

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from leveret.auth import READ, WRITE, User
from leveret.engine.commands.moving import COPY, DELETE, MOVE, REDRIVE
from leveret.engine.history.life_events import queue_of_copy, seq_of_copy
from leveret.errors import NotFoundError, PreconditionFailedError
from leveret.http.framework.node import NodeView
from leveret.http.framework.operations import Operation, body_of
from leveret.http.framework.request_parts import node_of, part_of, user_of
from leveret.http.framework.responses import json_response
from leveret.http.insight.filters import FilterBody, filter_of
from leveret.shovels.status import TERMINATED, ShovelStatus
from leveret.tasks import Task, TaskEndpoint, TaskLimitError, TaskRequest
from leveret.tasks.task import FAILED, RUNNING

ID_DIGITS_MAX: Final = 20
SHOVEL: Final = "shovel"
RETRY_AFTER_S: Final = "5"  # if there are too many tasks


class TaskPlace(msgspec.Struct, omit_defaults=True, forbid_unknown_fields=True):
    """A queue or an exchange."""

    vhost: str
    queue: str | None = None
    exchange: str | None = None
    routing_key: str | None = None  # None: the key of each message


class TaskBody(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Body of POST: the task to start."""

    kind: Literal["move", "copy", "delete", "redrive"]
    vhost: str
    queue: str
    ids: list[str] | None = None  # ids of messages; None: all
    filter: FilterBody | None = None
    to: TaskPlace | None = None  # omitted for delete; for redrive the default is the death record
    limit: int | None = None  # messages
    rate: float | None = None  # messages per second
    keep_attempts: bool = False
    dry_run: bool = False


class TaskInfo(msgspec.Struct, kw_only=True):
    """One task."""

    id: str
    kind: str
    state: str  # running, done, cancelled, failed
    done: int
    total: int
    scanned: int
    rate: float
    skipped: dict[str, int]
    waiting: str | None
    started_at_ms: int
    ended_at_ms: int | None
    user: str
    error: str | None
    source: TaskPlace
    target: TaskPlace | None


class DryRunTarget(msgspec.Struct):
    """How many messages would go to a queue."""

    vhost: str
    queue: str
    messages: int


class DryRunInfo(msgspec.Struct):
    """Answer to `dry_run`: what the task would do."""

    matched: int
    targets: list[DryRunTarget]
    skipped: dict[str, int]


async def start_task(request: Request) -> Response:
    node = node_of(request)
    user = user_of(request)
    body = await body_of(request, TaskBody)
    wanted = _task_request(node, user, body)
    if body.dry_run:
        found = await node.tasks.dry_run(wanted, user)
        targets = [DryRunTarget(found.vhost, name, n) for name, n in found.targets.items()]
        return json_response(DryRunInfo(found.matched, targets, found.skipped))
    try:
        task = node.tasks.start(wanted, user)
    except TaskLimitError as fault:
        raise HTTPException(429, str(fault), {"Retry-After": RETRY_AFTER_S}) from None
    return json_response(task_info(task), status=201, headers={"Location": f"/api/tasks/{task.id}"})


async def list_tasks(request: Request) -> Response:
    user = user_of(request)
    node = node_of(request)
    found = [_shovel_info(shovel) for shovel in node.shovels.all() if _may_see_shovel(user, shovel)]
    found += [task_info(task) for task in node.tasks.all() if _may_see(user, task)]
    return json_response(found)


async def get_task(request: Request) -> Response:
    shovel = _shovel_of(request)
    return json_response(
        _shovel_info(shovel) if shovel is not None else task_info(_task_of(request))
    )


async def cancel_task(request: Request) -> Response:
    user = user_of(request)
    shovel = _shovel_of(request)
    if shovel is not None:
        if not {"administrator", "policymaker"}.intersection(user.tags):
            raise HTTPException(401, "Not policymaker user")
        _require_vhost_access(user, shovel.vhost)
        await node_of(request).shovels.delete(shovel.vhost, shovel.name)
        return Response(status_code=204)
    task = _task_of(request)
    if task.user != user.identity and "administrator" not in user.tags:
        raise HTTPException(401, "Not administrator user")
    await node_of(request).tasks.cancel(task.id)
    return Response(status_code=204)


def _task_of(request: Request) -> Task:
    task = node_of(request).tasks.get(part_of(request, "id"))
    if not _may_see(user_of(request), task):
        raise NotFoundError("no such task")
    return task


def _may_see(user: User, task: Task) -> bool:
    return task.user == user.identity or not {"administrator", "monitoring"}.isdisjoint(user.tags)


def task_info(task: Task) -> TaskInfo:
    return TaskInfo(
        id=task.id,
        kind=task.kind,
        state=task.state,
        done=task.done,
        total=task.total,
        scanned=task.scanned,
        rate=task.rate,
        skipped=task.skipped,
        waiting=task.waiting,
        started_at_ms=task.started_at_ms,
        ended_at_ms=task.ended_at_ms,
        user=task.user,
        error=task.error,
        source=_task_place(task.source),
        target=_task_place(task.target) if task.target is not None else None,
    )


def _task_place(place: TaskEndpoint) -> TaskPlace:
    return TaskPlace(place.vhost, place.queue or None, place.exchange, place.routing_key)


def _shovel_id(shovel: ShovelStatus) -> str:
    return f"{SHOVEL}:{quote(shovel.vhost, safe='')}:{quote(shovel.name, safe='')}"


def _shovel_of(request: Request) -> ShovelStatus | None:
    """Return the shovel of the path, or None if the id is not that of a shovel."""
    kind, _, rest = part_of(request, "id").partition(":")
    if kind != SHOVEL:
        return None
    vhost, _, name = rest.partition(":")
    shovel = node_of(request).shovels.get(unquote(vhost), unquote(name))
    if not _may_see_shovel(user_of(request), shovel):
        raise NotFoundError("no such task")
    return shovel


def _may_see_shovel(user: User, shovel: ShovelStatus) -> bool:
    """Return True for users who may create the shovel, and for users with monitoring."""
    tags = {"administrator", "monitoring", "policymaker"}
    return not tags.isdisjoint(user.tags) and user.may_see(shovel.vhost)


def _shovel_info(shovel: ShovelStatus) -> TaskInfo:
    settings = shovel.settings
    is_ended = shovel.state == TERMINATED
    return TaskInfo(
        id=_shovel_id(shovel),
        kind=SHOVEL,
        state=FAILED if is_ended else RUNNING,
        done=shovel.moved,
        total=shovel.moved + (shovel.remaining or 0),
        scanned=shovel.moved,
        rate=0.0,
        skipped={},
        waiting=None,
        started_at_ms=shovel.started_at_ms,
        ended_at_ms=None,
        user="",
        error=shovel.reason,
        source=TaskPlace(shovel.vhost, settings.src_queue, settings.src_exchange),
        target=TaskPlace(shovel.vhost, settings.dest_queue, settings.dest_exchange),
    )


def _task_request(node: NodeView, user: User, body: TaskBody) -> TaskRequest:
    """Return the request of a task, after all checks of its fields and of the permissions."""
    _require_vhost_access(user, body.vhost)
    queue = node.broker.vhost(body.vhost).queue(body.queue, None)
    if not user.may(READ, body.vhost, "queue", body.queue):
        raise HTTPException(401, "User not authorised to read from the queue")
    if body.limit is not None and body.limit < 0:
        raise HTTPException(400, "'limit' must not be negative")
    if body.rate is not None and not body.rate > 0:
        raise HTTPException(400, "'rate' must be above 0")
    if body.keep_attempts and body.kind != REDRIVE:
        raise HTTPException(400, "'keep_attempts' is for 'redrive'")
    seqs = None
    if body.ids is not None:
        seqs = _seqs(body.ids, queue.ledger.id)
    return TaskRequest(
        kind=body.kind,
        source=TaskEndpoint(body.vhost, body.queue),
        seqs=seqs,
        filter=filter_of(body.filter) if body.filter is not None else None,
        to=_target(node, user, body),
        limit=body.limit,
        rate=body.rate,
        keep_attempts=body.keep_attempts,
    )


def _seqs(ids: list[str], queue: int) -> list[int]:
    """Return the sequence numbers of ids, each once. All ids must belong to one queue."""
    seqs: dict[int, None] = {}
    for text in ids:
        if not text.isdecimal() or not text.isascii() or len(text) > ID_DIGITS_MAX:
            raise HTTPException(400, f"'{text[:ID_DIGITS_MAX]}' is not the id of a message")
        number = int(text)
        if number >= 1 << 63 or queue_of_copy(number) != queue:
            raise HTTPException(400, f"message {text} is not of this queue")
        seqs[seq_of_copy(number)] = None
    return list(seqs)


def _target(node: NodeView, user: User, body: TaskBody) -> TaskEndpoint | None:
    to = body.to
    if body.kind == DELETE:
        if to is not None:
            raise HTTPException(400, "'delete' has no 'to'")
        return None
    if to is None:
        if body.kind in (MOVE, COPY):
            raise HTTPException(400, f"'{body.kind}' needs 'to'")
        return None
    if (to.queue is None) == (to.exchange is None):
        raise HTTPException(400, "'to' has either 'queue' or 'exchange'")
    _require_vhost_access(user, to.vhost)
    vhost = node.broker.vhost(to.vhost)
    if to.queue is not None:
        if vhost.queue(to.queue, None) is node.broker.vhost(body.vhost).queue(body.queue, None):
            raise PreconditionFailedError("source and target are the same queue")
        _require_write(user, to.vhost, "queue", to.queue)
        return TaskEndpoint(to.vhost, to.queue)
    assert to.exchange is not None
    vhost.exchange(to.exchange)
    _require_write(user, to.vhost, "exchange", to.exchange or "amq.default")
    return TaskEndpoint(to.vhost, "", to.exchange, to.routing_key)


def _require_vhost_access(user: User, vhost: str) -> None:
    if not user.may_open(vhost):
        raise HTTPException(401, "User not authorised to access virtual host")


def _require_write(user: User, vhost: str, what: str, name: str) -> None:
    if not user.may(WRITE, vhost, what, name):
        raise HTTPException(401, f"User not authorised to write to the {what}")


OPERATIONS: Final = (
    Operation(
        method="POST",
        path="/api/tasks",
        handler=start_task,
        summary="Move, copy, delete or redrive messages; with dry_run, only report the effects.",
        group="tasks",
        body=TaskBody,
        answer=TaskInfo,
        status=201,
    ),
    Operation(
        method="GET",
        path="/api/tasks",
        handler=list_tasks,
        summary="List running and recently ended tasks, newest first.",
        group="tasks",
        answer=list[TaskInfo],
    ),
    Operation(
        method="GET",
        path="/api/tasks/{id}",
        handler=get_task,
        summary="Return one task with its progress.",
        group="tasks",
        answer=TaskInfo,
    ),
    Operation(
        method="DELETE",
        path="/api/tasks/{id}",
        handler=cancel_task,
        summary="Cancel a task; finished work stays done.",
        group="tasks",
        status=204,
    ),
)
