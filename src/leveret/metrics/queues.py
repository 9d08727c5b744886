"""The families of queues: one line for each queue, or their sum.

Most queues have most figures at 0, and 10,000 of them make long answers. A `sparse` family has
lines only for the queues where there is something to tell; one that is not `common` is left to the
detailed answer.
"""

from dataclasses import dataclass
from typing import Final

from leveret.metrics import queue_lines as figures
from leveret.metrics.family import COUNTER, GAUGE, Family

COARSE: Final = "queue_coarse_metrics"
CONSUMER_COUNT: Final = "queue_consumer_count"
METRICS: Final = "queue_metrics"
DELIVERY: Final = "queue_delivery_metrics"
PUBLISHING: Final = "channel_queue_exchange_metrics"
OURS: Final = "leveret_queue_metrics"


@dataclass(frozen=True, slots=True)
class QueueFamily:
    """A family with a figure of each queue."""

    family: Family
    figure: int
    is_common: bool = True  # in the answer per object, not in the detailed one alone
    is_sparse: bool = False  # queues where it is 0 are left out


def _gauge(group: str, name: str, figure: int, about: str, **rest: bool) -> QueueFamily:
    family = Family(name=f"rabbitmq_queue_{name}", kind=GAUGE, about=about, group=group)
    return QueueFamily(family, figure, **rest)


def _counter(group: str, name: str, figure: int, about: str) -> QueueFamily:
    family = Family(name=f"rabbitmq_queue_{name}", kind=COUNTER, about=about, group=group)
    return QueueFamily(family, figure)


def _ours(kind: str, name: str, figure: int, about: str, *, is_sparse: bool = True) -> QueueFamily:
    family = Family(name=f"leveret_queue_{name}", kind=kind, about=about, group=OURS)
    return QueueFamily(family, figure, is_sparse=is_sparse)


QUEUE_FAMILIES: Final = (
    _gauge(COARSE, "messages_ready", figures.READY, "Messages that wait for a consumer."),
    _gauge(COARSE, "messages_unacked", figures.UNACKED, "Messages delivered and not settled."),
    _gauge(COARSE, "messages", figures.MESSAGES, "Messages that are ready or not settled."),
    _gauge(METRICS, "consumers", figures.CONSUMERS, "Consumers of the queue."),
    _gauge(
        METRICS,
        "consumer_capacity",
        figures.CAPACITY,
        "Whether consumers can take more right now.",
        is_common=False,
    ),
    _gauge(
        METRICS,
        "consumer_utilisation",
        figures.CAPACITY,
        "Whether consumers can take more right now: the same as the capacity.",
    ),
    _gauge(
        METRICS,
        "process_memory_bytes",
        figures.MEMORY_BYTES,
        "Memory that the messages of the queue take, about.",
    ),
    _gauge(
        METRICS,
        "messages_ram",
        figures.IN_MEMORY,
        "Messages that are in memory.",
        is_common=False,
    ),
    _gauge(
        METRICS,
        "messages_ram_bytes",
        figures.IN_MEMORY_BYTES,
        "Bodies that are in memory, about.",
        is_common=False,
    ),
    _gauge(
        METRICS,
        "messages_ready_ram",
        figures.READY_IN_MEMORY,
        "Ready messages that are in memory.",
        is_common=False,
    ),
    _gauge(
        METRICS,
        "messages_unacked_ram",
        figures.UNACKED,
        "Messages not settled that are in memory: all of them.",
        is_common=False,
    ),
    _gauge(
        METRICS,
        "messages_persistent",
        figures.PERSISTENT,
        "Messages of a durable queue. They are not told apart by their delivery mode.",
    ),
    _gauge(
        METRICS,
        "messages_persistent_bytes",
        figures.PERSISTENT_BYTES,
        "Bodies of a durable queue.",
        is_common=False,
    ),
    _gauge(METRICS, "messages_bytes", figures.BYTES, "Bodies, ready or not settled."),
    _gauge(METRICS, "messages_ready_bytes", figures.READY_BYTES, "Bodies that are ready."),
    _gauge(
        METRICS, "messages_unacked_bytes", figures.UNACKED_BYTES, "Bodies that are not settled."
    ),
    _gauge(
        METRICS,
        "messages_paged_out",
        figures.PAGED_OUT,
        "Ready messages that are in the log alone.",
        is_common=False,
    ),
    _gauge(
        METRICS,
        "messages_paged_out_bytes",
        figures.PAGED_OUT_BYTES,
        "Bodies that are in the log alone, about.",
        is_common=False,
    ),
    _counter(PUBLISHING, "messages_published_total", figures.PUBLISHED, "Messages that came in."),
    _counter(DELIVERY, "get_ack_total", figures.GOT_ACK, "Messages taken by basic.get with acks."),
    _counter(DELIVERY, "get_total", figures.GOT, "Messages taken by basic.get without acks."),
    _counter(
        DELIVERY,
        "messages_delivered_ack_total",
        figures.DELIVERED_ACK,
        "Messages delivered to consumers with acks.",
    ),
    _counter(
        DELIVERY,
        "messages_delivered_total",
        figures.DELIVERED,
        "Messages delivered to consumers without acks.",
    ),
    _counter(
        DELIVERY,
        "messages_redelivered_total",
        figures.REDELIVERED,
        "Messages delivered that had been delivered before.",
    ),
    _counter(DELIVERY, "messages_acked_total", figures.ACKED, "Messages acknowledged."),
    _counter(DELIVERY, "get_empty_total", figures.GOT_EMPTY, "Times basic.get found nothing."),
    _ours(
        GAUGE,
        "oldest_ready_age_seconds",
        figures.OLDEST_READY_MS,
        "Age of the oldest ready message, since it came or became due.",
        is_sparse=False,
    ),
    _ours(GAUGE, "messages_scheduled", figures.SCHEDULED, "Messages that wait for a time."),
    _ours(GAUGE, "dead_letters_stuck", figures.STUCK, "Dead letters that nobody takes yet."),
    _ours(GAUGE, "messages_damaged", figures.DAMAGED, "Messages set aside as unreadable."),
    _ours(COUNTER, "duplicates_total", figures.DUPLICATES, "Publishes known before, not queued."),
    _ours(COUNTER, "expired_total", figures.EXPIRED, "Messages whose time to live was over."),
    _ours(
        COUNTER,
        "consumer_timeouts_total",
        figures.TIMED_OUT,
        "Messages taken back from a consumer that held them for too long.",
    ),
    _ours(COUNTER, "parked_total", figures.PARKED, "Messages parked over their delivery limit."),
)

CONSUMERS_ALONE: Final = _gauge(
    CONSUMER_COUNT, "consumers", figures.CONSUMERS, "Consumers of the queue."
)

OLDEST_UNACKED: Final = Family(
    name="leveret_queue_oldest_unacked_age_seconds",
    kind=GAUGE,
    about="Time since the delivery of the message that is held longest.",
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
    about="Messages sent on to the dead-letter exchange, by reason; queues without any left out.",
    group=OURS,
)
INFO: Final = Family(
    name="rabbitmq_queue_info",
    kind=GAUGE,
    about="Always 1; the labels tell the type of the queue.",
    group=METRICS,
)
