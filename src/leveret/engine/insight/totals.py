"""Sums over the queues and exchanges of a vhost.

Compiled, a pass over 10,000 queues takes about a millisecond.
"""

from mypy_extensions import i64

from leveret.engine.queues.queue import Queue
from leveret.engine.streams.stream import Stream
from leveret.engine.turns.retired_counts import TrafficCounts
from leveret.engine.turns.session import Session
from leveret.engine.vhosts.vhost import Vhost


class Depths:
    """Messages and consumers in the queues of a vhost."""

    def __init__(self) -> None:
        self.ready: i64 = 0
        self.unacked: i64 = 0
        self.total: i64 = 0
        self.consumers: i64 = 0


def vhost_depths(vhost: Vhost) -> Depths:
    """Return the number of messages and consumers of all queues of a vhost."""
    depths = Depths()
    for queue in vhost.queues.values():
        ready = queue.message_count()
        depths.ready += ready
        depths.unacked += queue.unacked
        # Messages that a reader of a stream holds are still in the stream.
        depths.total += ready if isinstance(queue, Stream) else ready + queue.unacked
        depths.consumers += len(queue.consumers)
    return depths


def vhost_counts(vhost: Vhost) -> TrafficCounts:
    """Return the counts of all queues and exchanges of a vhost, deleted ones included."""
    counts = TrafficCounts()
    counts.add(vhost.retired_counts)
    for queue in vhost.queues.values():
        counts.delivered += queue.delivered
        counts.delivered_no_ack += queue.delivered_no_ack
        counts.got += queue.got
        counts.got_no_ack += queue.got_no_ack
        counts.got_empty += queue.got_empty
        counts.acked += queue.acked
        counts.redelivered += queue.redelivered
    for exchange in vhost.exchanges.values():
        counts.published += exchange.published_in
    return counts


def add_session(counts: TrafficCounts, session: Session) -> None:
    """Add the counts of confirms, returns and unroutable messages of a session."""
    counts.expected += session.publish_seq
    counts.confirmed += session.confirmed_seq
    counts.returned += session.returned
    counts.unroutable += session.unroutable


def paged_count(queue: Queue) -> int:
    """Return the number of ready messages of a queue that are in the log alone."""
    count: i64 = 0
    for line in queue.ready.all_lines():
        count += line.paged.count
    return count
