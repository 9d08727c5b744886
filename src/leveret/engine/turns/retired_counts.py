"""Counts that outlive the object that counted.

Queues, exchanges, sessions and connections count for themselves. When one ends, its counts are
added to a `TrafficCounts`, so that the totals of a node never go down. `Churn` counts how many
objects were made and deleted. A message touches nothing here.
"""

from mypy_extensions import i64


class Churn:
    """Numbers of connections, channels and queues opened and closed since the start."""

    def __init__(self) -> None:
        self.connections_opened: i64 = 0
        self.connections_closed: i64 = 0
        self.channels_opened: i64 = 0
        self.channels_closed: i64 = 0
        self.queues_declared: i64 = 0  # declares of existing queues included
        self.queues_created: i64 = 0
        self.queues_deleted: i64 = 0


class TrafficCounts:
    """Numbers of messages that were published, confirmed, delivered, acked and so on."""

    def __init__(self) -> None:
        # By exchanges
        self.published: i64 = 0
        # By sessions
        self.expected: i64 = 0  # published with confirms
        self.confirmed: i64 = 0
        self.returned: i64 = 0
        self.unroutable: i64 = 0
        # By queues
        self.queued: i64 = 0
        self.duplicates: i64 = 0
        self.delivered: i64 = 0
        self.delivered_no_ack: i64 = 0
        self.got: i64 = 0
        self.got_no_ack: i64 = 0
        self.got_empty: i64 = 0
        self.acked: i64 = 0
        self.redelivered: i64 = 0
        # By connections
        self.received_bytes: i64 = 0
        self.sent_bytes: i64 = 0

    def add(self, other: "TrafficCounts") -> None:
        self.published += other.published
        self.expected += other.expected
        self.confirmed += other.confirmed
        self.returned += other.returned
        self.unroutable += other.unroutable
        self.queued += other.queued
        self.duplicates += other.duplicates
        self.delivered += other.delivered
        self.delivered_no_ack += other.delivered_no_ack
        self.got += other.got
        self.got_no_ack += other.got_no_ack
        self.got_empty += other.got_empty
        self.acked += other.acked
        self.redelivered += other.redelivered
        self.received_bytes += other.received_bytes
        self.sent_bytes += other.sent_bytes
