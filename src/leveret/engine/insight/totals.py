"""Sums over all objects of a vhost, for whoever asks: one walk over its queues and exchanges.

Compiled, a walk over 10,000 queues takes about a millisecond.
"""

from mypy_extensions import i64

from leveret.engine.queues.queue import Queue
from leveret.engine.streams.stream import Stream
from leveret.engine.turns.retired_counts import Counts
from leveret.engine.turns.session import Session
from leveret.engine.vhosts.vhost import Vhost


class Depths:
    """How much is in the queues of a vhost."""

    def __init__(self) -> None:
        self.ready: i64 = 0
        self.unacked: i64 = 0
        self.total: i64 = 0
        self.consumers: i64 = 0


def vhost_depths(vhost: Vhost) -> Depths:
    """Messages and consumers of all queues of a vhost."""
    depths = Depths()
    for queue in vhost.queues.values():
        ready = queue.message_count()
        depths.ready += ready
        depths.unacked += queue.unacked
        # What a reader of a stream holds is still in the stream.
        depths.total += ready if isinstance(queue, Stream) else ready + queue.unacked
        depths.consumers += len(queue.consumers)
    return depths


def vhost_counts(vhost: Vhost) -> Counts:
    """What queues and exchanges of a vhost have counted, those that are gone included."""
    counts = Counts()
    counts.add(vhost.gone)
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


def add_session(counts: Counts, session: Session) -> None:
    """Add what a session alone counts: the fate of what it published."""
    counts.expected += session.publish_seq
    counts.confirmed += session.confirmed_seq
    counts.returned += session.returned
    counts.unroutable += session.unroutable


def paged_count(queue: Queue) -> int:
    """Ready messages of a queue that are in the log alone."""
    count: i64 = 0
    for line in queue.ready.all_lines():
        count += line.paged.count
    return count
