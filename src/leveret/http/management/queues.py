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
from leveret.engine.streams.stream import Stream
from leveret.http.framework.listing import (
    LIST_QUERY,
    RowReads,
    answer_list,
    flag_of,
    with_columns,
)
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
    consumer_capacity,
    message_bytes,
    queue_brief,
    queue_detail,
    queue_info,
    rate_reads,
    total_messages,
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
    queues = [queue for vhost in listed_vhosts(request) for queue in vhost.queues.values()]
    if flag_of(request, "disable_stats"):
        with_totals = flag_of(request, "enable_queue_totals")
        brief = partial(queue_brief, node, with_totals)
        return await answer_list(request, queues, _name, brief, _READS)
    rates, now_ms = rates_of(request), node.now_ms()
    sort_keys = {**_READS.sort_keys, **rate_reads(rates, now_ms)}
    reads = msgspec.structs.replace(_READS, sort_keys=sort_keys)
    return await answer_list(
        request, queues, _name, partial(queue_info, node, rates, now_ms), reads
    )


def _name(queue: Queue) -> str:
    return printable(queue.name)


def _place(queue: Queue) -> tuple[str, str]:
    return queue.vhost, queue.name


_READS: Final[RowReads[Queue]] = RowReads(
    natural_order=_place,
    sort_keys={
        "name": _name,
        "vhost": lambda queue: printable(queue.vhost),
        "type": lambda queue: queue.settings.kind,
        "messages": total_messages,
        "messages_ready": lambda queue: queue.message_count(),
        "messages_unacknowledged": lambda queue: queue.unacked,
        "messages_scheduled": lambda queue: len(queue.scheduled),
        "message_bytes": message_bytes,
        "consumers": lambda queue: len(queue.consumers),
        "consumer_capacity": consumer_capacity,
        "consumer_utilisation": consumer_capacity,
        "policy": lambda queue: queue.policy,
    },
    only={
        "with_messages": lambda queue: total_messages(queue) > 0,
        "without_consumers": lambda queue: not queue.consumers,
        "paused": lambda queue: queue.paused,
        "streams": lambda queue: isinstance(queue, Stream),
    },
    totals={
        "messages_ready": lambda queue: queue.message_count(),
        "messages_unacknowledged": lambda queue: queue.unacked,
        "consumers": lambda queue: len(queue.consumers),
    },
)


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
    *_READS.query(),
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
