"""Families of queues: one line for each queue, or their sum.

Most values of most queues are 0, and 10,000 queues make long answers. A sparse family has no lines
for queues with the value 0. A family that is not common appears only in the detailed answer.
"""

from dataclasses import dataclass
from typing import Final

from leveret.metrics import queue_lines
from leveret.metrics.family import COUNTER, GAUGE, Family

COARSE: Final = "queue_coarse_metrics"
CONSUMER_COUNT: Final = "queue_consumer_count"
METRICS: Final = "queue_metrics"
DELIVERY: Final = "queue_delivery_metrics"
PUBLISHING: Final = "channel_queue_exchange_metrics"
OURS: Final = "leveret_queue_metrics"


@dataclass(frozen=True, slots=True)
class QueueFamily:
    """A family with one value for each queue."""

    family: Family
    value: int
    is_common: bool = True  # also in the per-object answer, not only in the detailed one
    is_sparse: bool = False  # queues with the value 0 are left out


def _gauge(group: str, name: str, value: int, about: str, **rest: bool) -> QueueFamily:
    family = Family(name=f"rabbitmq_queue_{name}", kind=GAUGE, about=about, group=group)
    return QueueFamily(family, value, **rest)


def _counter(group: str, name: str, value: int, about: str) -> QueueFamily:
    family = Family(name=f"rabbitmq_queue_{name}", kind=COUNTER, about=about, group=group)
    return QueueFamily(family, value)


def _ours(kind: str, name: str, value: int, about: str, *, is_sparse: bool = True) -> QueueFamily:
    family = Family(name=f"leveret_queue_{name}", kind=kind, about=about, group=OURS)
    return QueueFamily(family, value, is_sparse=is_sparse)


QUEUE_FAMILIES: Final = (
    _gauge(COARSE, "messages_ready", queue_lines.READY, "Messages that wait for a consumer."),
    _gauge(COARSE, "messages_unacked", queue_lines.UNACKED, "Messages delivered and not settled."),
    _gauge(COARSE, "messages", queue_lines.MESSAGES, "Messages that are ready or not settled."),
    _gauge(METRICS, "consumers", queue_lines.CONSUMERS, "Consumers of the queue."),
    _gauge(
        METRICS,
        "consumer_capacity",
        queue_lines.CAPACITY,
        "1 if consumers can take more messages now.",
        is_common=False,
    ),
    _gauge(
        METRICS,
        "consumer_utilisation",
        queue_lines.CAPACITY,
        "1 if consumers can take more messages now: the same as the capacity.",
    ),
    _gauge(
        METRICS,
        "process_memory_bytes",
        queue_lines.MEMORY_BYTES,
        "Approximate memory of the queue's messages.",
    ),
    _gauge(
        METRICS,
        "messages_ram",
        queue_lines.IN_MEMORY,
        "Messages in memory.",
        is_common=False,
    ),
    _gauge(
        METRICS,
        "messages_ram_bytes",
        queue_lines.IN_MEMORY_BYTES,
        "Approximate size of bodies in memory.",
        is_common=False,
    ),
    _gauge(
        METRICS,
        "messages_ready_ram",
        queue_lines.READY_IN_MEMORY,
        "Ready messages in memory.",
        is_common=False,
    ),
    _gauge(
        METRICS,
        "messages_unacked_ram",
        queue_lines.UNACKED,
        "Unsettled messages in memory: all of them are.",
        is_common=False,
    ),
    _gauge(
        METRICS,
        "messages_persistent",
        queue_lines.PERSISTENT,
        "Messages of a durable queue, whatever their delivery mode.",
    ),
    _gauge(
        METRICS,
        "messages_persistent_bytes",
        queue_lines.PERSISTENT_BYTES,
        "Size of the bodies in a durable queue.",
        is_common=False,
    ),
    _gauge(METRICS, "messages_bytes", queue_lines.BYTES, "Size of ready and unsettled bodies."),
    _gauge(METRICS, "messages_ready_bytes", queue_lines.READY_BYTES, "Size of ready bodies."),
    _gauge(
        METRICS, "messages_unacked_bytes", queue_lines.UNACKED_BYTES, "Size of unsettled bodies."
    ),
    _gauge(
        METRICS,
        "messages_paged_out",
        queue_lines.PAGED_OUT,
        "Ready messages that are only in the log.",
        is_common=False,
    ),
    _gauge(
        METRICS,
        "messages_paged_out_bytes",
        queue_lines.PAGED_OUT_BYTES,
        "Approximate size of bodies that are only in the log.",
        is_common=False,
    ),
    _counter(
        PUBLISHING,
        "messages_published_total",
        queue_lines.PUBLISHED,
        "Messages that entered the queue.",
    ),
    _counter(
        DELIVERY, "get_ack_total", queue_lines.GOT_ACK, "Messages taken by basic.get with acks."
    ),
    _counter(DELIVERY, "get_total", queue_lines.GOT, "Messages taken by basic.get without acks."),
    _counter(
        DELIVERY,
        "messages_delivered_ack_total",
        queue_lines.DELIVERED_ACK,
        "Messages delivered to consumers with acks.",
    ),
    _counter(
        DELIVERY,
        "messages_delivered_total",
        queue_lines.DELIVERED,
        "Messages delivered to consumers without acks.",
    ),
    _counter(
        DELIVERY,
        "messages_redelivered_total",
        queue_lines.REDELIVERED,
        "Messages delivered that had been delivered before.",
    ),
    _counter(DELIVERY, "messages_acked_total", queue_lines.ACKED, "Messages acknowledged."),
    _counter(DELIVERY, "get_empty_total", queue_lines.GOT_EMPTY, "Times basic.get found nothing."),
    _ours(
        GAUGE,
        "oldest_ready_age_seconds",
        queue_lines.OLDEST_READY_MS,
        "Age of the oldest ready message since it arrived or became due.",
        is_sparse=False,
    ),
    _ours(GAUGE, "messages_scheduled", queue_lines.SCHEDULED, "Scheduled messages."),
    _ours(
        GAUGE,
        "dead_letters_stuck",
        queue_lines.STUCK,
        "Dead letters that no target queue accepts yet.",
    ),
    _ours(GAUGE, "messages_damaged", queue_lines.DAMAGED, "Messages set aside as unreadable."),
    _ours(COUNTER, "duplicates_total", queue_lines.DUPLICATES, "Duplicate publishes, not queued."),
    _ours(COUNTER, "expired_total", queue_lines.EXPIRED, "Messages whose time to live was over."),
    _ours(
        COUNTER,
        "consumer_timeouts_total",
        queue_lines.TIMED_OUT,
        "Messages taken back from consumers after the consumer timeout.",
    ),
    _ours(COUNTER, "parked_total", queue_lines.PARKED, "Messages moved to leveret.parked."),
)

CONSUMERS_ALONE: Final = _gauge(
    CONSUMER_COUNT, "consumers", queue_lines.CONSUMERS, "Consumers of the queue."
)

OLDEST_UNACKED: Final = Family(
    name="leveret_queue_oldest_unacked_age_seconds",
    kind=GAUGE,
    about="Time since the delivery of the oldest unsettled message.",
    group=OURS,
)
DROPPED: Final = Family(
    name="leveret_queue_dropped_total",
    kind=COUNTER,
    about="Messages lost, by reason; queues that lost none are left out.",
    group=OURS,
)
DEAD_LETTERED: Final = Family(
    name="leveret_queue_dead_lettered_total",
    kind=COUNTER,
    about="Messages sent to the dead-letter exchange, by reason; queues without any are left out.",
    group=OURS,
)
INFO: Final = Family(
    name="rabbitmq_queue_info",
    kind=GAUGE,
    about="Always 1; the labels hold the type of the queue.",
    group=METRICS,
)
