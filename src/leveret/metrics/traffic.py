"""Families of the messages that passed through the node: published, delivered, settled, lost.

RabbitMQ's names come first. RabbitMQ's counters by protocol have the label `protocol` here too.
"""

from collections.abc import Callable
from typing import Final

from leveret.engine.backlog.arrival_times import UNKNOWN
from leveret.engine.turns.size_counts import BOUNDS
from leveret.histogram import Histogram
from leveret.metrics import queue_lines
from leveret.metrics.family import COUNTER, GAUGE, HISTOGRAM
from leveret.metrics.node_family import PROTOCOL, NodeFamily, Read, Samples, node_family
from leveret.metrics.sources import NodeTotals
from leveret.metrics.text import Number

_DEATH_REASONS: Final = ("rejected", "expired", "maxlen", "delivery_limit")


def _global(name: str, about: str, read: Callable[[NodeTotals], Number]) -> NodeFamily:
    return node_family(
        COUNTER, f"rabbitmq_global_messages_{name}_total", about, lambda r: [(PROTOCOL, read(r))]
    )


def _channel(name: str, about: str, read: Read) -> NodeFamily:
    return node_family(COUNTER, f"rabbitmq_channel_{name}_total", about, read)


def _routed(r: NodeTotals) -> int:
    return r.sums[queue_lines.PUBLISHED] + r.counts.queued


def _delivered_ack(r: NodeTotals) -> int:
    return r.sums[queue_lines.DELIVERED_ACK] + r.counts.delivered


def _delivered(r: NodeTotals) -> int:
    return r.sums[queue_lines.DELIVERED] + r.counts.delivered_no_ack


def _got_ack(r: NodeTotals) -> int:
    return r.sums[queue_lines.GOT_ACK] + r.counts.got


def _got(r: NodeTotals) -> int:
    return r.sums[queue_lines.GOT] + r.counts.got_no_ack


def _got_empty(r: NodeTotals) -> int:
    return r.sums[queue_lines.GOT_EMPTY] + r.counts.got_empty


def _acked(r: NodeTotals) -> int:
    return r.sums[queue_lines.ACKED] + r.counts.acked


def _redelivered(r: NodeTotals) -> int:
    return r.sums[queue_lines.REDELIVERED] + r.counts.redelivered


def _all_delivered(r: NodeTotals) -> int:
    return _delivered_ack(r) + _delivered(r) + _got_ack(r) + _got(r)


_GLOBAL: Final = (
    _global("received", "Messages published.", lambda r: r.counts.published),
    _global("received_confirm", "Messages published with confirms.", lambda r: r.counts.expected),
    _global("routed", "Copies put into queues and streams.", _routed),
    _global("confirmed", "Messages confirmed.", lambda r: r.counts.confirmed),
    _global("delivered", "Messages delivered.", _all_delivered),
    _global(
        "delivered_consume_manual_ack", "Messages delivered to consumers with acks.", _delivered_ack
    ),
    _global(
        "delivered_consume_auto_ack", "Messages delivered to consumers without acks.", _delivered
    ),
    _global("delivered_get_manual_ack", "Messages taken by basic.get with acks.", _got_ack),
    _global("delivered_get_auto_ack", "Messages taken by basic.get without acks.", _got),
    _global("redelivered", "Messages delivered that had been delivered before.", _redelivered),
    _global("acknowledged", "Messages acknowledged.", _acked),
    _global("get_empty", "Times basic.get found nothing.", _got_empty),
    _global(
        "unroutable_dropped",
        "Unroutable messages that were dropped.",
        lambda r: r.counts.unroutable,
    ),
    _global(
        "unroutable_returned",
        "Mandatory messages that were unroutable.",
        lambda r: r.counts.returned,
    ),
)

_CHANNELS: Final = (
    _channel("messages_published", "Messages published.", lambda r: r.counts.published),
    _channel("messages_confirmed", "Messages confirmed.", lambda r: r.counts.confirmed),
    _channel(
        "messages_delivered_ack", "Messages delivered to consumers with acks.", _delivered_ack
    ),
    _channel("messages_delivered", "Messages delivered to consumers without acks.", _delivered),
    _channel("messages_acked", "Messages acknowledged.", _acked),
    _channel("messages_redelivered", "Messages delivered that had been before.", _redelivered),
    _channel("get_ack", "Messages taken by basic.get with acks.", _got_ack),
    _channel("get", "Messages taken by basic.get without acks.", _got),
    _channel("get_empty", "Times basic.get found nothing.", _got_empty),
    _channel(
        "messages_unroutable_dropped",
        "Unroutable messages that were dropped.",
        lambda r: r.counts.unroutable,
    ),
    _channel(
        "messages_unroutable_returned",
        "Mandatory messages that were unroutable.",
        lambda r: r.counts.returned,
    ),
    node_family(
        GAUGE, "rabbitmq_channel_consumers", "Consumers of channels.", lambda r: r.consumers
    ),
    node_family(
        GAUGE,
        "rabbitmq_channel_messages_unacked",
        "Messages delivered to channels and not settled.",
        lambda r: r.unacked,
    ),
    node_family(
        GAUGE,
        "rabbitmq_channel_messages_unconfirmed",
        "Messages that wait for a confirm.",
        lambda r: r.unconfirmed,
    ),
    node_family(
        COUNTER,
        "rabbitmq_connection_incoming_bytes_total",
        "Bytes received.",
        lambda r: r.counts.received_bytes,
    ),
    node_family(
        COUNTER,
        "rabbitmq_connection_outgoing_bytes_total",
        "Bytes sent.",
        lambda r: r.counts.sent_bytes,
    ),
    node_family(
        GAUGE, "rabbitmq_connection_channels", "Channels of connections.", lambda r: r.channels
    ),
)


def _deaths(reason: str) -> Read:
    def read(r: NodeTotals) -> Samples:
        deaths = r.sources.facts.broker.turn.losses.deaths
        found = [
            ({"queue_type": f"rabbit_{kind}_queue", "dead_letter_strategy": strategy}, count)
            for (kind, strategy, why), count in deaths.items()
            if why == reason
        ]
        empty = {"queue_type": "rabbit_classic_queue", "dead_letter_strategy": "disabled"}
        return found or [(empty, 0)]

    return read


def _confirmed_deaths(r: NodeTotals) -> Samples:
    confirmed = r.sources.facts.broker.turn.losses.deaths_confirmed
    empty = {"queue_type": "rabbit_quorum_queue", "dead_letter_strategy": "at_least_once"}
    return [
        ({**empty, "queue_type": f"rabbit_{kind}_queue"}, n) for kind, n in confirmed.items()
    ] or [(empty, 0)]


def _by_reason(counts: dict[str, int]) -> Samples:
    reasons = dict.fromkeys(_DEATH_REASONS, 0)
    return [({"reason": reason}, n) for reason, n in {**reasons, **counts}.items()]


def _dropped(r: NodeTotals) -> Samples:
    """Return all lost messages by reason. Channels count the unroutable ones."""
    losses = r.sources.facts.broker.turn.losses
    return _by_reason({**losses.dropped, "unroutable": r.counts.unroutable})


def _age_s(r: NodeTotals, since_ms: int) -> float:
    return max(0, r.now_ms - since_ms) / 1000 if since_ms != UNKNOWN else 0


_FATES: Final = (
    *(
        node_family(
            COUNTER,
            f"rabbitmq_global_messages_dead_lettered_{reason}_total",
            f"Messages that left a queue because of: {reason}.",
            _deaths(reason),
        )
        for reason in _DEATH_REASONS
    ),
    node_family(
        COUNTER,
        "rabbitmq_global_messages_dead_lettered_confirmed_total",
        "Dead letters that their target has confirmed.",
        _confirmed_deaths,
    ),
    node_family(COUNTER, "leveret_dropped_total", "Messages lost, by reason.", _dropped),
    node_family(
        COUNTER,
        "leveret_dead_lettered_total",
        "Messages sent to a dead-letter exchange, by reason.",
        lambda r: _by_reason(r.sources.facts.broker.turn.losses.dead_lettered),
    ),
    node_family(
        COUNTER,
        "leveret_parked_total",
        "Messages moved to leveret.parked.",
        lambda r: r.sources.facts.broker.turn.losses.parked,
    ),
    node_family(
        COUNTER,
        "leveret_parked_cycles_total",
        "Messages moved to leveret.parked because they would only have come back to a queue in "
        "which they died.",
        lambda r: r.sources.facts.broker.turn.losses.parked_cycles,
    ),
    node_family(
        COUNTER,
        "leveret_faults_total",
        "Faults of the broker that were confined to one message or object. The node's log has each "
        "fault.",
        lambda r: r.sources.facts.broker.turn.fault_count,
    ),
    node_family(
        COUNTER,
        "leveret_consumer_timeouts_total",
        "Messages taken back from consumers after the consumer timeout.",
        lambda r: r.sources.facts.broker.turn.losses.timed_out,
    ),
    node_family(
        COUNTER,
        "leveret_duplicates_total",
        "Duplicate publishes, not queued.",
        lambda r: r.sums[queue_lines.DUPLICATES] + r.counts.duplicates,
    ),
    node_family(
        GAUGE,
        "leveret_messages",
        "Messages by state.",
        lambda r: [
            ({"state": "ready"}, r.sums[queue_lines.READY]),
            ({"state": "unacked"}, r.sums[queue_lines.UNACKED]),
            ({"state": "scheduled"}, r.sums[queue_lines.SCHEDULED]),
            ({"state": "dead_letter_stuck"}, r.sums[queue_lines.STUCK]),
            ({"state": "damaged"}, r.sums[queue_lines.DAMAGED]),
        ],
    ),
    node_family(
        GAUGE,
        "leveret_messages_in_log",
        "Ready messages that are only in the log.",
        lambda r: r.sums[queue_lines.PAGED_OUT],
    ),
    node_family(
        GAUGE,
        "leveret_oldest_ready_age_seconds",
        "Age of the oldest ready message of all queues; 0 if there is none.",
        lambda r: _age_s(r, r.oldest_ready_ms),
    ),
    node_family(
        GAUGE,
        "leveret_oldest_unacked_age_seconds",
        "Time since the delivery of the oldest unsettled message; 0 if there is none.",
        lambda r: _age_s(r, r.oldest_unacked_ms),
    ),
)


def message_sizes(r: NodeTotals) -> Histogram:
    """Return RabbitMQ's histogram of message sizes, sampled once per socket read."""
    sizes = r.sources.facts.broker.turn.sizes
    found = Histogram(BOUNDS)
    found.counts = list(sizes.counts)
    found.sum = float(int(sizes.total_bytes))
    found.count = sum(found.counts)
    return found


MESSAGE_SIZES: Final = node_family(
    HISTOGRAM,
    "rabbitmq_message_size_bytes",
    "Sizes of published messages, sampled: the last message of each socket read.",
    message_sizes,
)


# The per-object answer has lines for each channel and connection instead (`objects`).
SUMS_OF_CHANNELS: Final = _CHANNELS
TRAFFIC_FAMILIES: Final = (*_GLOBAL, MESSAGE_SIZES, *_FATES)
