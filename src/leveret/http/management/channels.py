"""Channels and consumers: lists, and one channel with its consumers.

Fields that RabbitMQ does not have: `next_publish_seqno`, `first_unconfirmed_seqno` and
`connection_details.user_provided_name` of a channel;
of a consumer its unacknowledged messages (`messages_unacknowledged`,
`message_bytes_unacknowledged`), `priority`, `prefetch_bytes` and the count of deliveries
(`delivered`). One channel also lists its unacknowledged messages by delivery tag.
"""

from collections.abc import Iterable
from functools import partial
from typing import Final

import msgspec
from msgspec import UNSET, UnsetType
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from leveret.engine.message import REDELIVERED, Message
from leveret.engine.turns.session import Consumer, Session
from leveret.http.framework.listing import LIST_QUERY, RowReads, answer_list, with_columns
from leveret.http.framework.names import printable
from leveret.http.framework.node import Connections, NodeView
from leveret.http.framework.operations import Operation, Query
from leveret.http.framework.permissions import listed_vhosts
from leveret.http.framework.rates import RateSamples
from leveret.http.framework.request_parts import node_of, part_of
from leveret.http.framework.responses import json_response
from leveret.http.management.connections import connection_of, visible_connections
from leveret.http.management.stats import PublisherStats, rates_of, session_counts, with_rates
from leveret.wire.tables import plain_table

UNACKED_SHOWN_MAX: Final = 100  # messages of a channel that are listed


class ConnectionDetails(msgspec.Struct):
    """The connection of a channel."""

    name: str
    peer_host: str
    peer_port: int
    user_provided_name: str | UnsetType = UNSET


class ChannelDetails(msgspec.Struct):
    """The channel of a consumer."""

    name: str
    number: int
    user: str
    connection_name: str
    peer_host: str
    peer_port: int
    node: str


class QueueName(msgspec.Struct):
    """The queue of a consumer."""

    name: str
    vhost: str


class ConsumerInfo(msgspec.Struct, kw_only=True):
    """One consumer."""

    consumer_tag: str
    queue: QueueName
    channel_details: ChannelDetails
    ack_required: bool
    exclusive: bool
    active: bool
    activity_status: str
    prefetch_count: int
    prefetch_bytes: int
    priority: int
    consumer_timeout: int  # ms; 0: no limit
    arguments: dict[str, object]
    messages_unacknowledged: int
    message_bytes_unacknowledged: int
    delivered: int


class ChannelInfo(msgspec.Struct, kw_only=True):
    """One channel."""

    name: str
    number: int
    node: str
    vhost: str
    user: str
    user_who_performed_action: str
    state: str
    connection_details: ConnectionDetails
    confirm: bool
    transactional: bool
    consumer_count: int
    prefetch_count: int
    global_prefetch_count: int
    prefetch_bytes: int
    messages_unacknowledged: int
    messages_unconfirmed: int
    messages_uncommitted: int
    acks_uncommitted: int
    next_publish_seqno: int | None  # null if the channel does not confirm
    first_unconfirmed_seqno: int | None  # null if nothing is unconfirmed
    pending_raft_commands: int
    message_stats: PublisherStats


class UnackedMessage(msgspec.Struct):
    """A message that was delivered and is not yet settled."""

    delivery_tag: int
    consumer_tag: str | None  # null: taken by basic.get
    queue: str
    exchange: str
    routing_key: str
    redelivered: bool
    payload_bytes: int
    age_ms: int  # since the delivery


class ChannelWithConsumers(ChannelInfo, kw_only=True):
    """One channel with its consumers and its unacknowledged messages."""

    consumer_details: list[ConsumerInfo]
    unacknowledged: list[UnackedMessage]  # oldest first, at most `UNACKED_SHOWN_MAX`
    deliveries: list[dict[str, object]] = []
    publishes: list[dict[str, object]] = []


def channel_name(session: Session) -> str:
    return f"{session.outlet.name} ({session.number})"


def channel_info(
    node: NodeView, rates: RateSamples, now_ms: int, session: Session
) -> ChannelInfo | None:
    """Return a channel in the form of the API, or None if it is closed."""
    connected = node.connections.snapshot(session.outlet)
    if connected is None or session.closed:
        return None
    opened = node.connections.channel_snapshot(session)
    counts = session_counts(session, opened)
    name = channel_name(session)
    unconfirmed = session.publish_seq - session.confirmed_seq
    return ChannelInfo(
        name=name,
        number=session.number,
        node=node.node_name,
        vhost=printable(connected.vhost),
        user=printable(connected.user),
        user_who_performed_action=printable(connected.user),
        state=opened.state,
        connection_details=ConnectionDetails(
            connected.name,
            connected.peer_host,
            connected.peer_port,
            node.connections.client_name(session.outlet) or UNSET,
        ),
        confirm=session.confirming,
        transactional=opened.transactional,
        consumer_count=len(session.consumers),
        prefetch_count=session.prefetch,
        global_prefetch_count=session.shared_prefetch,
        prefetch_bytes=session.prefetch_bytes,
        messages_unacknowledged=session.unacked.count,
        messages_unconfirmed=unconfirmed if session.confirming else 0,
        messages_uncommitted=opened.publishes_uncommitted,
        acks_uncommitted=opened.acks_uncommitted,
        next_publish_seqno=session.publish_seq + 1 if session.confirming else None,
        first_unconfirmed_seqno=session.confirmed_seq + 1 if unconfirmed else None,
        pending_raft_commands=0,
        message_stats=with_rates(
            PublisherStats, counts, rates.of(("channel", name), counts, now_ms)
        ),
    )


def consumer_info(node: NodeView, consumer: Consumer) -> ConsumerInfo | None:
    """Return a consumer in the form of the API, or None if it is cancelled."""
    session = consumer.session
    connected = node.connections.snapshot(session.outlet)
    queue = node.broker.slots.queues[consumer.queue]
    if connected is None or session.closed or queue is None:
        return None
    return ConsumerInfo(
        consumer_tag=printable(consumer.tag),
        queue=QueueName(printable(queue.name), printable(queue.vhost)),
        channel_details=ChannelDetails(
            channel_name(session),
            session.number,
            printable(connected.user),
            connected.name,
            connected.peer_host,
            connected.peer_port,
            node.node_name,
        ),
        ack_required=not consumer.no_ack,
        exclusive=consumer.exclusive,
        active=consumer.active,
        activity_status=_activity(consumer, queue.subscribers.single_active),
        prefetch_count=consumer.prefetch,
        prefetch_bytes=consumer.prefetch_bytes,
        priority=consumer.priority,
        consumer_timeout=consumer.timeout_ms,
        arguments=plain_table(consumer.arguments),
        messages_unacknowledged=consumer.unacked,
        message_bytes_unacknowledged=consumer.unacked_bytes,
        delivered=consumer.delivered,
    )


def _activity(consumer: Consumer, is_single: bool) -> str:
    """RabbitMQ: `up`; with a single active consumer, `single_active` or `waiting`."""
    if not is_single:
        return "up"
    return "single_active" if consumer.active else "waiting"


def consumer_infos(node: NodeView, consumers: Iterable[Consumer]) -> list[ConsumerInfo]:
    """Return the consumers that still exist, in the form of the API."""
    found = (consumer_info(node, consumer) for consumer in consumers)
    return [info for info in found if info is not None]


def _sessions(request: Request) -> list[Session]:
    connections = node_of(request).connections
    return [s for outlet in visible_connections(request) for s in connections.sessions(outlet)]


async def list_channels(request: Request) -> Response:
    node = node_of(request)
    describe = partial(channel_info, node, rates_of(request), node.now_ms())
    reads = _reads(node.connections)
    return await answer_list(request, _sessions(request), channel_name, describe, reads)


def _reads(connections: Connections) -> RowReads[Session]:
    """Return the reads of a list that people search by what they know: client's name and user."""

    def place(session: Session) -> str:
        shown = connections.client_name(session.outlet) or session.outlet.name
        return f"{shown} ({session.number:05})"  # channel 2 before channel 10

    return RowReads(
        texts=lambda session: (place(session), connections.owner(session.outlet)[0]),
        sort_keys={
            "name": channel_name,
            "connection_details.user_provided_name": place,
            "messages_unacknowledged": lambda session: session.unacked.count,
            "prefetch_count": lambda session: session.prefetch,
        },
        only={"with_unacknowledged": lambda session: session.unacked.count > 0},
    )


_ONLY: Final = Query("only", "only rows of these kinds: with_unacknowledged")


async def list_connection_channels(request: Request) -> Response:
    node = node_of(request)
    describe = partial(channel_info, node, rates_of(request), node.now_ms())
    sessions = node.connections.sessions(connection_of(request))
    return await answer_list(request, sessions, channel_name, describe)


async def get_channel(request: Request) -> Response:
    node = node_of(request)
    name = part_of(request, "name")
    connection_name = name.rpartition(" (")[0]
    for outlet in visible_connections(request):
        if outlet.name != connection_name:
            continue
        for session in node.connections.sessions(outlet):
            if channel_name(session) == name:
                return json_response(with_columns(request, _with_consumers(request, session)))
    raise HTTPException(404, "Not Found")


def _with_consumers(request: Request, session: Session) -> ChannelWithConsumers:
    node = node_of(request)
    info = channel_info(node, rates_of(request), node.now_ms(), session)
    if info is None:
        raise HTTPException(404, "Not Found")
    return ChannelWithConsumers(
        **msgspec.structs.asdict(info),
        consumer_details=consumer_infos(node, session.consumers.values()),
        unacknowledged=[
            _unacked_message(node, m) for m in session.unacked.messages()[:UNACKED_SHOWN_MAX]
        ],
    )


def _unacked_message(node: NodeView, message: Message) -> UnackedMessage:
    holder = message.holder
    queue = node.broker.slots.queues[message.queue] if message.queue >= 0 else None
    return UnackedMessage(
        delivery_tag=message.tag,
        consumer_tag=printable(holder.tag) if isinstance(holder, Consumer) else None,
        queue=printable(queue.name) if queue is not None else "",
        exchange=printable(message.address.exchange),
        routing_key=printable(message.address.routing_key),
        redelivered=message.flags & REDELIVERED != 0,
        payload_bytes=len(message.body),
        age_ms=max(0, node.now_ms() - message.taken_ms),
    )


async def list_consumers(request: Request) -> Response:
    node = node_of(request)
    found = [
        consumer
        for vhost in listed_vhosts(request)
        for queue in vhost.queues.values()
        for consumer in queue.consumers
    ]
    return await answer_list(request, found, _tag, partial(consumer_info, node))


def _tag(consumer: Consumer) -> str:
    return printable(consumer.tag)


_GROUP: Final = "channels"
OPERATIONS: Final = (
    Operation(
        method="GET",
        path="/api/channels",
        handler=list_channels,
        summary="List all channels that the user may see.",
        group=_GROUP,
        query=(*LIST_QUERY, _ONLY),
        answer=list[ChannelInfo],
    ),
    Operation(
        method="GET",
        path="/api/vhosts/{vhost}/channels",
        handler=list_channels,
        summary="List the channels of a vhost.",
        group=_GROUP,
        query=(*LIST_QUERY, _ONLY),
        answer=list[ChannelInfo],
    ),
    Operation(
        method="GET",
        path="/api/connections/{name}/channels",
        handler=list_connection_channels,
        summary="List the channels of a connection.",
        group=_GROUP,
        query=LIST_QUERY,
        answer=list[ChannelInfo],
    ),
    Operation(
        method="GET",
        path="/api/channels/{name}",
        handler=get_channel,
        summary="Return one channel with its consumers.",
        group=_GROUP,
        query=LIST_QUERY[:1],
        answer=ChannelWithConsumers,
    ),
    Operation(
        method="GET",
        path="/api/consumers",
        handler=list_consumers,
        summary="List the consumers of all vhosts that the user may see.",
        group="consumers",
        query=LIST_QUERY,
        answer=list[ConsumerInfo],
    ),
    Operation(
        method="GET",
        path="/api/consumers/{vhost}",
        handler=list_consumers,
        summary="List the consumers of a vhost.",
        group="consumers",
        query=LIST_QUERY,
        answer=list[ConsumerInfo],
    ),
)
