"""Counts of messages with their rates, in the form of RabbitMQ's API.

A count and its `…_details` always come together, and all keys are always present, with 0 if nothing
happened. RabbitMQ: it omits a key until something happens; its clients accept both.

In each struct the counts come first and the details after them, in the same order, because
`with_rates` builds them so from the results of `RateSamples`.
"""

from collections.abc import Callable, Iterable
from typing import TypeVar

import msgspec
from starlette.requests import Request

from leveret.engine.queues.queue import Queue
from leveret.engine.turns.retired_counts import Churn, TrafficCounts
from leveret.engine.turns.session import Session
from leveret.http.framework.node import ChannelSnapshot
from leveret.http.framework.rates import Rate, RateSamples

Stats = TypeVar("Stats")


class QueueStats(msgspec.Struct, gc=False):
    """Counts of the messages of a queue."""

    publish: int
    deliver: int
    deliver_no_ack: int
    get: int
    get_no_ack: int
    get_empty: int
    ack: int
    redeliver: int
    deliver_get: int
    publish_details: Rate
    deliver_details: Rate
    deliver_no_ack_details: Rate
    get_details: Rate
    get_no_ack_details: Rate
    get_empty_details: Rate
    ack_details: Rate
    redeliver_details: Rate
    deliver_get_details: Rate


class PublisherStats(msgspec.Struct, gc=False):
    """Counts of the messages of a channel, a vhost or the node."""

    publish: int
    confirm: int
    return_unroutable: int
    drop_unroutable: int
    deliver: int
    deliver_no_ack: int
    get: int
    get_no_ack: int
    get_empty: int
    ack: int
    redeliver: int
    deliver_get: int
    publish_details: Rate
    confirm_details: Rate
    return_unroutable_details: Rate
    drop_unroutable_details: Rate
    deliver_details: Rate
    deliver_no_ack_details: Rate
    get_details: Rate
    get_no_ack_details: Rate
    get_empty_details: Rate
    ack_details: Rate
    redeliver_details: Rate
    deliver_get_details: Rate


class ExchangeStats(msgspec.Struct, gc=False):
    """Messages published to an exchange, and copies that it routed to queues."""

    publish_in: int
    publish_out: int
    publish_in_details: Rate
    publish_out_details: Rate


class ChurnRates(msgspec.Struct, gc=False):
    """Numbers of connections, channels and queues that were opened and closed."""

    connection_created: int
    connection_closed: int
    channel_created: int
    channel_closed: int
    queue_declared: int
    queue_created: int
    queue_deleted: int
    connection_created_details: Rate
    connection_closed_details: Rate
    channel_created_details: Rate
    channel_closed_details: Rate
    queue_declared_details: Rate
    queue_created_details: Rate
    queue_deleted_details: Rate


class QueueTotals(msgspec.Struct, gc=False):
    """Numbers of the messages that exist now."""

    messages: int
    messages_ready: int
    messages_unacknowledged: int
    messages_details: Rate
    messages_ready_details: Rate
    messages_unacknowledged_details: Rate


class ByteRates(msgspec.Struct, gc=False):
    """Bytes received from and sent to clients."""

    recv_oct: int
    send_oct: int
    recv_oct_details: Rate
    send_oct_details: Rate


def rates_of(request: Request) -> RateSamples:
    """Return the samples that all requests share."""
    rates: RateSamples = request.app.state.rates
    return rates


def queue_counts(queue: Queue) -> tuple[int, ...]:
    """Return the counts in the order of QueueStats."""
    delivered, no_ack = queue.delivered, queue.delivered_no_ack
    got, got_no_ack = queue.got, queue.got_no_ack
    return (
        queue.published,
        delivered,
        no_ack,
        got,
        got_no_ack,
        queue.got_empty,
        queue.acked,
        queue.redelivered,
        delivered + no_ack + got + got_no_ack,
    )


def session_counts(session: Session, opened: ChannelSnapshot) -> tuple[int, ...]:
    """Return the counts in the order of PublisherStats. Deliveries and gets each use one tag."""
    got = session.got + session.got_no_ack
    return (
        session.published,
        session.confirmed_seq,
        session.returned,
        session.unroutable,
        session.last_tag - got - opened.delivered_no_ack,
        opened.delivered_no_ack,
        session.got,
        session.got_no_ack,
        session.got_empty,
        session.acked,
        session.redelivered,
        session.last_tag,
    )


def total_counts(counts: TrafficCounts) -> tuple[int, ...]:
    """Return the counts in the order of PublisherStats."""
    delivered = counts.delivered + counts.delivered_no_ack
    return (
        counts.published,
        counts.confirmed,
        counts.returned,
        counts.unroutable,
        counts.delivered,
        counts.delivered_no_ack,
        counts.got,
        counts.got_no_ack,
        counts.got_empty,
        counts.acked,
        counts.redelivered,
        delivered + counts.got + counts.got_no_ack,
    )


def churn_counts(churn: Churn) -> tuple[int, ...]:
    """Return the counts in the order of ChurnRates."""
    return (
        churn.connections_opened,
        churn.connections_closed,
        churn.channels_opened,
        churn.channels_closed,
        churn.queues_declared,
        churn.queues_created,
        churn.queues_deleted,
    )


def with_rates(kind: Callable[..., Stats], counts: Iterable[int], rates: Iterable[Rate]) -> Stats:
    """Return one of the structs above, from its counts and their rates in order."""
    return kind(*counts, *rates)
