"""Tasks over HTTP: move, copy, delete and redrive messages of a queue. See docs/tasks.md.

    POST   /api/tasks         begin one; with `dry_run` only tell what it would do
    GET    /api/tasks         those that run, and the last that ended
    GET    /api/tasks/{id}    one, with its progress
    DELETE /api/tasks/{id}    cancel it; what is done stays done

A user needs *read* on the source and *write* on every target. Users see their own tasks; those with
the tag `monitoring` see all, and administrators may cancel all.

Shovels are shown among them, as tasks of the kind `shovel` that end when they are cancelled.
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
from leveret.http.framework.answers import json
from leveret.http.framework.login import facts_of, part_of, user_of
from leveret.http.framework.node import NodeView
from leveret.http.framework.operations import Operation, body_of
from leveret.http.insight.filters import Filtering, filter_of
from leveret.shovels.status import TERMINATED, ShovelStatus
from leveret.tasks import Order, Place, Task
from leveret.tasks.task import FAILED, RUNNING

ID_DIGITS_MAX: Final = 20
SHOVEL: Final = "shovel"


class Spot(msgspec.Struct, omit_defaults=True, forbid_unknown_fields=True):
    """A queue, or an exchange."""

    vhost: str
    queue: str | None = None
    exchange: str | None = None
    routing_key: str | None = None  # None: each message's own


class TaskBody(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """What is to be done."""

    kind: Literal["move", "copy", "delete", "redrive"]
    vhost: str
    queue: str
    ids: list[str] | None = None  # messages by id; None: all
    filter: Filtering | None = None
    to: Spot | None = None  # may be left out for delete, and for redrive: the death record tells
    limit: int | None = None  # messages
    rate: float | None = None  # messages a second
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
    source: Spot
    target: Spot | None


class TargetInfo(msgspec.Struct):
    """So many messages would go to a queue."""

    vhost: str
    queue: str
    messages: int


class TrialInfo(msgspec.Struct):
    """What a task would do."""

    matched: int
    targets: list[TargetInfo]
    skipped: dict[str, int]


async def start_task(request: Request) -> Response:
    facts = facts_of(request)
    user = user_of(request)
    body = await body_of(request, TaskBody)
    order = _order(facts, user, body)
    if body.dry_run:
        trial = await facts.tasks.try_out(order, user)
        targets = [TargetInfo(trial.vhost, name, n) for name, n in trial.targets.items()]
        return json(TrialInfo(trial.matched, targets, trial.skipped))
    task = facts.tasks.start(order, user)
    return json(task_info(task), status=201, headers={"Location": f"/api/tasks/{task.id}"})


async def list_tasks(request: Request) -> Response:
    user = user_of(request)
    facts = facts_of(request)
    found = [_shovel_info(shovel) for shovel in facts.shovels.all() if _watches(user, shovel)]
    found += [task_info(task) for task in facts.tasks.all() if _may_see(user, task)]
    return json(found)


async def get_task(request: Request) -> Response:
    shovel = _shovel_of(request)
    return json(_shovel_info(shovel) if shovel is not None else task_info(_task_of(request)))


async def cancel_task(request: Request) -> Response:
    user = user_of(request)
    shovel = _shovel_of(request)
    if shovel is not None:
        if not {"administrator", "policymaker"}.intersection(user.tags):
            raise HTTPException(401, "Not policymaker user")
        _require_open(user, shovel.vhost)
        await facts_of(request).shovels.delete(shovel.vhost, shovel.name)
        return Response(status_code=204)
    task = _task_of(request)
    if task.user != user.name and "administrator" not in user.tags:
        raise HTTPException(401, "Not administrator user")
    await facts_of(request).tasks.cancel(task.id)
    return Response(status_code=204)


def _task_of(request: Request) -> Task:
    task = facts_of(request).tasks.get(part_of(request, "id"))
    if not _may_see(user_of(request), task):
        raise NotFoundError("no such task")
    return task


def _may_see(user: User, task: Task) -> bool:
    return task.user == user.name or not {"administrator", "monitoring"}.isdisjoint(user.tags)


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
        source=_spot(task.source),
        target=_spot(task.target) if task.target is not None else None,
    )


def _spot(place: Place) -> Spot:
    return Spot(place.vhost, place.queue or None, place.exchange, place.routing_key)


# Shovels


def _shovel_id(shovel: ShovelStatus) -> str:
    return f"{SHOVEL}:{quote(shovel.vhost, safe='')}:{quote(shovel.name, safe='')}"


def _shovel_of(request: Request) -> ShovelStatus | None:
    """The shovel that an id is of, if it is of one."""
    kind, _, rest = part_of(request, "id").partition(":")
    if kind != SHOVEL:
        return None
    vhost, _, name = rest.partition(":")
    shovel = facts_of(request).shovels.get(unquote(vhost), unquote(name))
    if not _watches(user_of(request), shovel):
        raise NotFoundError("no such task")
    return shovel


def _watches(user: User, shovel: ShovelStatus) -> bool:
    """Whether a user may see a shovel here: whoever could set it, or watches all."""
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
        source=Spot(shovel.vhost, settings.src_queue, settings.src_exchange),
        target=Spot(shovel.vhost, settings.dest_queue, settings.dest_exchange),
    )


# What is ordered


def _order(facts: NodeView, user: User, body: TaskBody) -> Order:
    """The order, checked: it makes sense, and the user may give it."""
    _require_open(user, body.vhost)
    queue = facts.broker.vhost(body.vhost).queue(body.queue, None)
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
    return Order(
        kind=body.kind,
        source=Place(body.vhost, body.queue),
        seqs=seqs,
        filter=filter_of(body.filter) if body.filter is not None else None,
        to=_target(facts, user, body),
        limit=body.limit,
        rate=body.rate,
        keep_attempts=body.keep_attempts,
    )


def _seqs(ids: list[str], queue: int) -> list[int]:
    """The sequence numbers of ids, each once, which must all be of one queue."""
    seqs: dict[int, None] = {}
    for text in ids:
        if not text.isdecimal() or not text.isascii() or len(text) > ID_DIGITS_MAX:
            raise HTTPException(400, f"'{text[:ID_DIGITS_MAX]}' is not the id of a message")
        number = int(text)
        if number >= 1 << 63 or queue_of_copy(number) != queue:
            raise HTTPException(400, f"message {text} is not of this queue")
        seqs[seq_of_copy(number)] = None
    return list(seqs)


def _target(facts: NodeView, user: User, body: TaskBody) -> Place | None:
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
    _require_open(user, to.vhost)
    vhost = facts.broker.vhost(to.vhost)
    if to.queue is not None:
        if vhost.queue(to.queue, None) is facts.broker.vhost(body.vhost).queue(body.queue, None):
            raise PreconditionFailedError("source and target are the same queue")
        _require_write(user, to.vhost, "queue", to.queue)
        return Place(to.vhost, to.queue)
    assert to.exchange is not None
    vhost.exchange(to.exchange)
    _require_write(user, to.vhost, "exchange", to.exchange or "amq.default")
    return Place(to.vhost, "", to.exchange, to.routing_key)


def _require_open(user: User, vhost: str) -> None:
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
        about="Move, copy, delete or redrive messages; with dry_run, tell what would happen.",
        group="tasks",
        body=TaskBody,
        answer=TaskInfo,
        status=201,
    ),
    Operation(
        method="GET",
        path="/api/tasks",
        handler=list_tasks,
        about="Tasks that run, and the last that ended, the newest first.",
        group="tasks",
        answer=list[TaskInfo],
    ),
    Operation(
        method="GET",
        path="/api/tasks/{id}",
        handler=get_task,
        about="One task, with its progress.",
        group="tasks",
        answer=TaskInfo,
    ),
    Operation(
        method="DELETE",
        path="/api/tasks/{id}",
        handler=cancel_task,
        about="Cancel a task; what it has done stays done.",
        group="tasks",
        status=204,
    ),
)
