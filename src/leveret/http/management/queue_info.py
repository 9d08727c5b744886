"""Queues in the form of the management API.

Field names are RabbitMQ's. Fields that RabbitMQ does not have: `messages_unacked`, `durability`
(whether a confirm waits for the disk), `messages_scheduled`, `messages_damaged` and `damage`
(unreadable messages, and why), and the counts of messages that were not consumed
(`messages_expired` …). Fields that only Erlang has (reductions, garbage collections of processes)
are left out.

`queue_info` is called for each of ten thousand queues in a list, so it must stay cheap. Its results
are hidden from the garbage collector, which would walk all of them (`gc=False`: no cycles).
"""

from collections.abc import Callable
from functools import partial
from typing import Final

import msgspec
from msgspec import UNSET, UnsetType

from leveret.engine.insight.peek import peek
from leveret.engine.insight.totals import paged_count
from leveret.engine.message import Message
from leveret.engine.queues.queue import Queue
from leveret.engine.streams.stream import Stream
from leveret.engine.turns.session import Outlet
from leveret.http.framework.cluster_nodes import cluster_nodes, names_of, running_names
from leveret.http.framework.names import printable
from leveret.http.framework.node import NodeView
from leveret.http.framework.rates import Rate, RateSamples
from leveret.http.management.channels import ConsumerInfo, consumer_infos
from leveret.http.management.stats import QueueStats, queue_counts, with_rates
from leveret.wire.properties import decode_properties
from leveret.wire.tables import plain_table

_GAUGES: Final = 3  # messages, ready, unacknowledged: these may go down
_NO_DAMAGE: Final[list[str]] = []


class QueueInfo(msgspec.Struct, kw_only=True, gc=False):
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
    consumer_capacity: float  # share of the consumers that can take a message now
    consumer_utilisation: float
    messages: int
    messages_details: Rate
    messages_ready: int
    messages_ready_details: Rate
    messages_unacknowledged: int
    messages_unacknowledged_details: Rate
    messages_unacked: int
    messages_scheduled: int
    messages_damaged: int
    damage: list[str]
    messages_ram: int
    messages_paged_out: int
    messages_expired: int
    messages_dropped: int
    messages_refused: int
    messages_purged: int
    messages_deduplicated: int
    message_bytes: int
    message_bytes_ready: int
    message_bytes_unacknowledged: int
    memory: int
    durability: str
    paused: bool  # True: nothing is delivered until it is resumed
    message_stats: QueueStats
    exclusive_consumer_tag: str | None = None
    single_active_consumer_tag: str | None = None
    owner_pid_details: "OwnerDetails | UnsetType" = UNSET  # only of an exclusive queue
    leader: str | UnsetType = UNSET  # this and the next two: only of quorum queues and streams
    members: list[str] | UnsetType = UNSET
    online: list[str] | UnsetType = UNSET
    policy: str | None = None
    operator_policy: str | None = None
    effective_policy_definition: dict[str, object] = {}


class OwnerDetails(msgspec.Struct):
    """The connection that owns an exclusive queue."""

    name: str
    peer_host: str
    peer_port: int


class QueueDetail(QueueInfo, kw_only=True, gc=False):
    """One queue, with its consumers."""

    consumer_details: list[ConsumerInfo]
    head_message_timestamp: int | None
    incoming: list[dict[str, object]] = []
    deliveries: list[dict[str, object]] = []


class QueueBrief(msgspec.Struct, kw_only=True, gc=False):
    """One queue without statistics (`disable_stats`)."""

    name: str
    vhost: str
    type: str
    durable: bool
    auto_delete: bool
    exclusive: bool
    arguments: dict[str, object]
    node: str
    state: str
    messages: int | UnsetType = UNSET  # this and the next two: only with `enable_queue_totals`
    messages_ready: int | UnsetType = UNSET
    messages_unacknowledged: int | UnsetType = UNSET
    policy: str | None = None


def total_messages(queue: Queue) -> int:
    """Return the messages ready and in flight. Deliveries of a stream are still in the stream."""
    ready = queue.message_count()
    return ready if isinstance(queue, Stream) else ready + queue.unacked


def message_bytes(queue: Queue) -> int:
    """Return the bytes of the messages ready and in flight."""
    return queue.ready.body_bytes + queue.unacked_bytes


def rate_reads(rates: RateSamples, now_ms: int) -> dict[str, Callable[[Queue], float]]:
    """Return the rates of a queue by sort key, such as message_stats.publish_details.rate."""
    names = QueueStats.__struct_fields__
    counters = len(names) // 2
    return {
        f"message_stats.{names[counters + place]}.rate": partial(_rate, rates, now_ms, place)
        for place in range(counters)
    }


def _rate(rates: RateSamples, now_ms: int, place: int, queue: Queue) -> float:
    return _rates(rates, now_ms, queue_counts(queue), queue)[place].rate


def _rates(
    rates: RateSamples, now_ms: int, counts: tuple[int, ...], queue: Queue
) -> tuple[Rate, ...]:
    gauges = (total_messages(queue), queue.message_count(), queue.unacked)
    return rates.of(queue.ledger.id, (*counts, *gauges), now_ms, gauges=_GAUGES)


def queue_info(node: NodeView, rates: RateSamples, now_ms: int, queue: Queue) -> QueueInfo | None:
    """Return a queue in the form of the API, or None if it is deleted."""
    if queue.deleted:
        return None
    ready, unacked, total = queue.message_count(), queue.unacked, total_messages(queue)
    ready_bytes, unacked_bytes = queue.ready.body_bytes, queue.unacked_bytes
    counts = queue_counts(queue)
    *details, grows, ready_grows, unacked_grows = _rates(rates, now_ms, counts, queue)
    capacity = consumer_capacity(queue)
    paged_out = 0 if isinstance(queue, Stream) else paged_count(queue)
    info = QueueInfo(
        name=printable(queue.name),
        vhost=printable(queue.vhost),
        type=queue.settings.kind,
        durable=queue.durable,
        auto_delete=queue.auto_delete,
        exclusive=queue.owner is not None,
        arguments=plain_table(queue.arguments),
        node=node.node_name,
        state="running",
        paused=queue.paused,
        consumers=len(queue.consumers),
        consumer_capacity=capacity,
        consumer_utilisation=capacity,
        messages=total,
        messages_details=grows,
        messages_ready=ready,
        messages_ready_details=ready_grows,
        messages_unacknowledged=unacked,
        messages_unacknowledged_details=unacked_grows,
        messages_unacked=unacked,
        messages_scheduled=len(queue.scheduled),
        messages_damaged=queue.damaged,
        damage=list(queue.damage) if queue.damage else _NO_DAMAGE,
        messages_ram=total - paged_out,
        messages_paged_out=paged_out,
        messages_expired=queue.expired,
        messages_dropped=queue.dropped,
        messages_refused=queue.refused,
        messages_purged=queue.purged,
        messages_deduplicated=queue.deduplicated,
        message_bytes=ready_bytes + unacked_bytes,
        message_bytes_ready=ready_bytes,
        message_bytes_unacknowledged=unacked_bytes,
        memory=queue.memory_bytes(),
        durability=node.durability if queue.durable else "none",
        message_stats=with_rates(QueueStats, counts, details),
        policy=queue.policy,
        operator_policy=queue.operator_policy,
        effective_policy_definition=(
            plain_table(queue.effective_policy) if queue.effective_policy else {}
        ),
    )
    if queue.consumers:
        _add_consumers(info, queue)
    if queue.settings.kind != "classic":
        nodes = cluster_nodes(node)
        info.leader = node.node_name
        info.members = names_of(nodes)
        info.online = running_names(nodes)
    if queue.owner is not None:
        _add_owner(node, info, queue.owner)
    return info


def consumer_capacity(queue: Queue) -> float:
    """Return the share of the consumers that can take a message now."""
    if not queue.consumers:
        return 0.0
    free = sum(1 for consumer in queue.consumers if consumer.active and not consumer.suspended)
    return free / len(queue.consumers)


def _add_consumers(info: QueueInfo, queue: Queue) -> None:
    subscribers = queue.subscribers
    if subscribers.has_exclusive:
        info.exclusive_consumer_tag = printable(queue.consumers[0].tag)
    if subscribers.single_active and subscribers.active is not None:
        info.single_active_consumer_tag = printable(subscribers.active.tag)


def _add_owner(node: NodeView, info: QueueInfo, outlet: Outlet) -> None:
    owner = node.connections.snapshot(outlet)
    if owner is not None:
        info.owner_pid_details = OwnerDetails(owner.name, owner.peer_host, owner.peer_port)


def queue_detail(node: NodeView, rates: RateSamples, now_ms: int, queue: Queue) -> QueueDetail:
    """Return a queue with the fields that only the request for one queue has."""
    info = queue_info(node, rates, now_ms, queue)
    assert info is not None, "the caller has just found the queue"
    return QueueDetail(
        **msgspec.structs.asdict(info),
        consumer_details=consumer_infos(node, queue.consumers),
        head_message_timestamp=_head_timestamp(queue),
    )


def _head_timestamp(queue: Queue) -> int | None:
    """Return the timestamp property of the next message, or None."""
    if queue.ready.count == 0:
        return None
    found: list[Message] = peek(queue, 1, 1)
    return decode_properties(found[0].header).timestamp if found else None


def queue_brief(node: NodeView, with_totals: bool, queue: Queue) -> QueueBrief | None:
    """Return a queue without statistics, or None if it is deleted."""
    if queue.deleted:
        return None
    return QueueBrief(
        name=printable(queue.name),
        vhost=printable(queue.vhost),
        type=queue.settings.kind,
        durable=queue.durable,
        auto_delete=queue.auto_delete,
        exclusive=queue.owner is not None,
        arguments=plain_table(queue.arguments),
        node=node.node_name,
        state="running",
        messages=total_messages(queue) if with_totals else UNSET,
        messages_ready=queue.message_count() if with_totals else UNSET,
        messages_unacknowledged=queue.unacked if with_totals else UNSET,
        policy=queue.policy,
    )
