"""Counts of messages with their rates, in the shapes that RabbitMQ's API has for them.

A count and its `…_details` always come together, and all keys are always there, 0 where nothing
happened (RabbitMQ leaves them out until something does; clients that know RabbitMQ take both).

In each struct the counts come first and the details after, in the same order: that is how they are
built from what `RateSamples` gives.
"""

from collections.abc import Callable, Iterable
from typing import TypeVar

import msgspec
from starlette.requests import Request

from leveret.engine.queues.queue import Queue
from leveret.engine.turns.retired_counts import Churn, Counts
from leveret.engine.turns.session import Session
from leveret.http.framework.node import ChannelSnapshot
from leveret.http.framework.rates import Rate, RateSamples

Stats = TypeVar("Stats")


class QueueStats(msgspec.Struct, gc=False):
    """What happened to the messages of a queue."""

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
    """What happened to messages, seen from publishers and consumers: channels, vhosts, the node."""

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
    """Messages that came to an exchange, and copies that it led to queues."""

    publish_in: int
    publish_out: int
    publish_in_details: Rate
    publish_out_details: Rate


class ChurnRates(msgspec.Struct, gc=False):
    """How many connections, channels and queues come and go."""

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
    """How many messages there are."""

    messages: int
    messages_ready: int
    messages_unacknowledged: int
    messages_details: Rate
    messages_ready_details: Rate
    messages_unacknowledged_details: Rate


class ByteRates(msgspec.Struct, gc=False):
    """Bytes to and from clients."""

    recv_oct: int
    send_oct: int
    recv_oct_details: Rate
    send_oct_details: Rate


def rates_of(request: Request) -> RateSamples:
    """The samples that all requests of the application share."""
    rates: RateSamples = request.app.state.rates
    return rates


def queue_counts(queue: Queue) -> tuple[int, ...]:
    """In the order of QueueStats."""
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
    """In the order of PublisherStats. Every delivery and every get took a tag."""
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


def total_counts(counts: Counts) -> tuple[int, ...]:
    """In the order of PublisherStats."""
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
    """In the order of ChurnRates."""
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
    """One of the structs above, of its counts and their rates in order."""
    return kind(*counts, *rates)
