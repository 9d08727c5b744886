"""Queues as the management API shows them: lists, and one queue.

Field names are RabbitMQ's. Ours besides: `durability` (whether a confirm waits for the disk),
`messages_scheduled`, `messages_damaged` and `damage` (what cannot be read, and why), `paused`.
"""

from base64 import b64encode
from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from leveret.engine.queue import Queue
from leveret.engine.streams.stream import Stream
from leveret.errors import NotFound
from leveret.http.access import facts_of, part_of, user_of, vhost_of
from leveret.http.answers import json
from leveret.http.facts import BrokerFacts
from leveret.http.operations import Operation
from leveret.wire.properties import Properties
from leveret.wire.tables import plain_table


class MessageStats(msgspec.Struct):
    """Counts since the queue was made or the node started."""

    publish: int
    deliver: int
    deliver_no_ack: int
    get: int
    get_no_ack: int
    deliver_get: int
    ack: int
    redeliver: int


class QueueInfo(msgspec.Struct):
    """One queue."""

    name: str
    vhost: str
    type: str
    durable: bool
    auto_delete: bool
    exclusive: bool
    arguments: dict[str, object]
    node: str
    state: str
    consumers: int
    messages: int
    messages_ready: int
    messages_unacknowledged: int
    messages_unacked: int
    messages_scheduled: int
    messages_damaged: int
    damage: list[str]
    message_bytes: int
    message_bytes_ready: int
    message_bytes_unacknowledged: int
    durability: str
    paused: bool
    message_stats: MessageStats
    policy: str | None = None
    operator_policy: str | None = None
    effective_policy_definition: dict[str, object] = {}


async def list_queues(request: Request) -> Response:
    user = user_of(request)
    facts = facts_of(request)
    open_to_user = [v for v in facts.broker.vhosts if user.may_open(v)]
    return json([info for vhost in open_to_user for info in _infos(facts, vhost)])


async def list_vhost_queues(request: Request) -> Response:
    vhost = vhost_of(request)
    return json(_infos(facts_of(request), vhost))


async def get_queue(request: Request) -> Response:
    facts = facts_of(request)
    return json(queue_info(facts, _queue_of(request)))


OPERATIONS: Final = (
    Operation(
        method="GET",
        path="/api/queues",
        handler=list_queues,
        about="All queues that the user may see.",
        group="queues",
        answer=list[QueueInfo],
    ),
    Operation(
        method="GET",
        path="/api/queues/{vhost}",
        handler=list_vhost_queues,
        about="The queues of a vhost.",
        group="queues",
        answer=list[QueueInfo],
    ),
    Operation(
        method="GET",
        path="/api/queues/{vhost}/{name}",
        handler=get_queue,
        about="One queue.",
        group="queues",
        answer=QueueInfo,
    ),
)


def _queue_of(request: Request) -> Queue:
    vhost = facts_of(request).broker.vhost(vhost_of(request))
    queue = vhost.queues.get(part_of(request, "name"))
    if queue is None:
        raise NotFound("no such queue")
    return queue


def _infos(facts: BrokerFacts, vhost: str) -> list[QueueInfo]:
    found = facts.broker.vhost(vhost)
    return [queue_info(facts, queue) for _, queue in sorted(found.queues.items())]


def _held_apart(queue: Queue) -> int:
    """Messages in flight that are not among the ready ones; those of a stream stay there."""
    return 0 if isinstance(queue, Stream) else int(queue.unacked)


def queue_info(facts: BrokerFacts, queue: Queue) -> QueueInfo:
    ready = queue.ready
    return QueueInfo(
        name=_text(queue.name),
        vhost=_text(queue.vhost),
        type=queue.settings.kind,
        durable=queue.durable,
        auto_delete=queue.auto_delete,
        exclusive=queue.owner is not None,
        arguments=plain_table(queue.arguments),
        node=facts.node_name,
        state="running",
        consumers=len(queue.consumers),
        messages=queue.message_count() + _held_apart(queue),
        messages_ready=queue.message_count(),
        messages_unacknowledged=queue.unacked,
        messages_unacked=queue.unacked,
        messages_scheduled=len(queue.scheduled),
        messages_damaged=queue.damaged,
        damage=list(queue.damage),
        message_bytes=ready.body_bytes + queue.unacked_bytes,
        message_bytes_ready=ready.body_bytes,
        message_bytes_unacknowledged=queue.unacked_bytes,
        durability=facts.durability,
        paused=queue.paused,
        message_stats=_stats(queue),
        policy=queue.policy,
        operator_policy=queue.operator_policy,
        effective_policy_definition=plain_table(queue.effective_policy),
    )


def _stats(queue: Queue) -> MessageStats:
    delivered = queue.delivered + queue.delivered_no_ack
    return MessageStats(
        publish=queue.published,
        deliver=queue.delivered,
        deliver_no_ack=queue.delivered_no_ack,
        get=queue.got,
        get_no_ack=queue.got_no_ack,
        deliver_get=delivered + queue.got + queue.got_no_ack,
        ack=queue.acked,
        redeliver=queue.redelivered,
    )


def encode_payload(body: bytes, is_binary: bool) -> tuple[str, str]:
    """A body as JSON can carry it: as text where it is UTF-8, unless base64 is asked for."""
    if not is_binary:
        try:
            return body.decode("utf-8"), "string"
        except UnicodeDecodeError:
            pass
    return b64encode(body).decode(), "base64"


def shown_properties(properties: Properties) -> dict[str, object]:
    """Those that are set, by RabbitMQ's names."""
    values: dict[str, object] = {
        "content_type": properties.content_type,
        "content_encoding": properties.content_encoding,
        "delivery_mode": properties.delivery_mode,
        "priority": properties.priority,
        "correlation_id": properties.correlation_id,
        "reply_to": properties.reply_to,
        "expiration": properties.expiration,
        "message_id": properties.message_id,
        "timestamp": properties.timestamp,
        "type": properties.type,
        "user_id": properties.user_id,
        "app_id": properties.app_id,
        "cluster_id": properties.cluster_id,
    }
    shown = {k: _text(v) if isinstance(v, str) else v for k, v in values.items() if v is not None}
    if properties.headers is not None:
        shown["headers"] = plain_table(properties.headers)
    return shown


def _text(text: str) -> str:
    """Bytes that are no text, which AMQP allows in names, are shown as U+FFFD."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
