"""Queues: list, show, declare, delete and purge them.

`queue_info` has the JSON form of a queue; `messages` publishes and gets messages.
"""

from functools import partial
from typing import Any, Final, Literal

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from leveret.auth import CONFIGURE, READ
from leveret.engine.queues.queue import Queue
from leveret.http.framework.listing import LIST_QUERY, answer_list, flag_of, with_columns
from leveret.http.framework.names import Flag, arguments_of, is_set, printable, require_short
from leveret.http.framework.operations import Operation, Query, body_of
from leveret.http.framework.permissions import (
    listed_vhosts,
    queue_in,
    require,
    seen_vhost,
    used_vhost,
)
from leveret.http.framework.request_parts import node_of, part_of
from leveret.http.framework.responses import json_response
from leveret.http.management.declare_permissions import require_may_declare_queue
from leveret.http.management.queue_info import (
    QueueDetail,
    QueueInfo,
    queue_brief,
    queue_detail,
    queue_info,
)
from leveret.http.management.stats import rates_of


class NewQueue(msgspec.Struct):
    """Body of PUT."""

    durable: Flag = False
    auto_delete: Flag = False
    arguments: dict[str, Any] = {}


class PurgeResult(msgspec.Struct):
    """Answer to a purge."""

    messages_deleted: int


class QueueAction(msgspec.Struct):
    """Body of POST …/actions: synchronise mirrors. There are no mirrors."""

    action: Literal["sync", "cancel_sync"]


async def list_queues(request: Request) -> Response:
    node = node_of(request)
    queues = [
        queue for vhost in listed_vhosts(request) for _, queue in sorted(vhost.queues.items())
    ]
    if flag_of(request, "disable_stats"):
        with_totals = flag_of(request, "enable_queue_totals")
        return await answer_list(request, queues, _name, partial(queue_brief, node, with_totals))
    describe = partial(queue_info, node, rates_of(request), node.now_ms())
    return await answer_list(request, queues, _name, describe)


def _name(queue: Queue) -> str:
    return printable(queue.name)


async def get_queue(request: Request) -> Response:
    node = node_of(request)
    queue = queue_in(seen_vhost(request), part_of(request, "name"))
    return json_response(
        with_columns(request, queue_detail(node, rates_of(request), node.now_ms(), queue))
    )


async def declare_queue(request: Request) -> Response:
    vhost = used_vhost(request)
    name = require_short("name", part_of(request, "name"))
    body = await body_of(request, NewQueue)
    arguments = arguments_of(body.arguments)
    require_may_declare_queue(request, vhost, name, arguments)
    is_new = name not in vhost.queues
    node = node_of(request)
    durable = is_set(body.durable)
    with node.turn():
        vhost.declare_queue(
            name, durable=durable, auto_delete=is_set(body.auto_delete), arguments=arguments
        )
    if durable:
        await node.synced()
    return Response(status_code=201 if is_new else 204)


async def delete_queue(request: Request) -> Response:
    vhost = used_vhost(request)
    queue = queue_in(vhost, part_of(request, "name"))
    require(request, CONFIGURE, vhost, "queue", queue.name)
    if_unused, if_empty = flag_of(request, "if-unused"), flag_of(request, "if-empty")
    node = node_of(request)
    with node.turn():
        vhost.delete_queue(queue.name, if_unused=if_unused, if_empty=if_empty)
    if queue.durable:
        await node.synced()
    return Response(status_code=204)


async def purge_queue(request: Request) -> Response:
    vhost = used_vhost(request)
    name = part_of(request, "name")
    queue_in(vhost, name)
    require(request, READ, vhost, "queue", name)
    node = node_of(request)
    with node.turn():
        queue = vhost.queue(name, None)
        count = queue.purge()
    if queue.durable:
        await node.synced()
    return json_response(PurgeResult(count))


async def act_on_queue(request: Request) -> Response:
    vhost = used_vhost(request)
    queue_in(vhost, part_of(request, "name"))
    await body_of(request, QueueAction)
    return Response(status_code=204)


_GROUP: Final = "queues"
_ONE: Final = "/api/queues/{vhost}/{name}"
_LIST_QUERY: Final = (
    *LIST_QUERY,
    Query("disable_stats", "whether to omit all statistics", bool),
    Query("enable_queue_totals", "whether to count messages if statistics are omitted", bool),
)
_list: Final = partial(
    Operation,
    method="GET",
    handler=list_queues,
    group=_GROUP,
    query=_LIST_QUERY,
    answer=list[QueueInfo],
)
OPERATIONS: Final = (
    _list(path="/api/queues", summary="List the queues of all vhosts that the user may see."),
    _list(path="/api/queues/detailed", summary="List all queues, in the same form as /api/queues."),
    _list(path="/api/queues/{vhost}", summary="List the queues of a vhost."),
    Operation(
        method="GET",
        path=_ONE,
        handler=get_queue,
        summary="Return one queue with its consumers.",
        group=_GROUP,
        query=LIST_QUERY[:1],
        answer=QueueDetail,
    ),
    Operation(
        method="PUT",
        path=_ONE,
        handler=declare_queue,
        summary="Declare a queue.",
        group=_GROUP,
        body=NewQueue,
        status=201,
    ),
    Operation(
        method="DELETE",
        path=_ONE,
        handler=delete_queue,
        summary="Delete a queue and its messages.",
        group=_GROUP,
        query=(
            Query("if-unused", "only if it has no consumers", bool),
            Query("if-empty", "only if it has no messages", bool),
        ),
        status=204,
    ),
    Operation(
        method="DELETE",
        path=f"{_ONE}/contents",
        handler=purge_queue,
        summary="Remove all ready messages of a queue.",
        group=_GROUP,
        answer=PurgeResult,
    ),
    Operation(
        method="POST",
        path=f"{_ONE}/actions",
        handler=act_on_queue,
        summary="Accept an action on mirrors and do nothing: there are no mirrors.",
        group=_GROUP,
        body=QueueAction,
        status=204,
    ),
)
