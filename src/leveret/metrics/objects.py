"""Families of channels, connections, exchanges and vhosts: one line for each object.

A node has fewer of these than queues, so plain functions make their lines. Labels are RabbitMQ's,
with names instead of Erlang process ids.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from leveret.engine.exchanges.exchange import Exchange
from leveret.engine.turns.session import Session
from leveret.engine.vhosts.vhost import Vhost
from leveret.http.framework.node import ConnectionSnapshot
from leveret.metrics.family import COUNTER, GAUGE, Family
from leveret.metrics.queue_lines import escaped
from leveret.metrics.text import Number, number_text

CLUSTER: Final = "rabbitmq_cluster_"

Thing = TypeVar("Thing")


@dataclass(frozen=True, slots=True)
class ObjectFamily(Generic[Thing]):
    """A family with one value for each object of a kind."""

    family: Family
    read: Callable[[Thing], Number]


def lines(family: ObjectFamily[Thing], name: str, things: list[tuple[str, Thing]]) -> bytes:
    """Return one line for each object. Objects come with their labels."""
    read = family.read
    return "".join(f"{name}{labels} {number_text(read(t))}\n" for labels, t in things).encode()


def channel_labels(session: Session) -> str:
    name = escaped(session.outlet.name)
    return f'{{channel="{name} ({session.number})",connection="{name}"}}'


def connection_labels(connected: ConnectionSnapshot) -> str:
    return (
        f'{{connection="{escaped(connected.name)}",user="{escaped(connected.user)}",'
        f'vhost="{escaped(connected.vhost)}"}}'
    )


def exchange_labels(vhost: str, exchange: Exchange) -> str:
    return f'{{vhost="{escaped(vhost)}",exchange="{escaped(exchange.name)}"}}'


def vhost_labels(vhost: Vhost) -> str:
    return f'{{vhost="{escaped(vhost.name)}"}}'


def _channel(
    kind: str, name: str, about: str, read: Callable[[Session], Number], group: str
) -> ObjectFamily[Session]:
    return ObjectFamily(Family(name=f"rabbitmq_{name}", kind=kind, about=about, group=group), read)


_CHANNEL: Final = "channel_metrics"
_EXCHANGED: Final = "channel_exchange_metrics"
_QUEUED: Final = "channel_queue_metrics"


def _without_acks(session: Session) -> int:
    """Return the deliveries to consumers without acks, including consumers that are gone."""
    live = sum(c.delivered for c in session.consumers.values() if c.no_ack)
    return session.retired_no_ack + live


CHANNELS: Final = (
    _channel(
        GAUGE,
        "channel_consumers",
        "Consumers of the channel.",
        lambda s: len(s.consumers),
        _CHANNEL,
    ),
    _channel(
        GAUGE,
        "channel_messages_unacked",
        "Messages delivered to the channel and not settled.",
        lambda s: s.unacked.count,
        _CHANNEL,
    ),
    _channel(
        GAUGE,
        "channel_messages_unconfirmed",
        "Messages that wait for a confirm.",
        lambda s: s.publish_seq - s.confirmed_seq,
        _CHANNEL,
    ),
    _channel(
        GAUGE,
        "consumer_prefetch",
        "Prefetch limit of each consumer; 0 means no limit.",
        lambda s: s.prefetch,
        _CHANNEL,
    ),
    _channel(
        GAUGE,
        "channel_prefetch",
        "Prefetch limit of the channel; 0 means no limit.",
        lambda s: s.shared_prefetch,
        _CHANNEL,
    ),
    _channel(
        COUNTER,
        "channel_messages_published_total",
        "Messages published.",
        lambda s: s.published,
        _EXCHANGED,
    ),
    _channel(
        COUNTER,
        "channel_messages_confirmed_total",
        "Messages confirmed.",
        lambda s: s.confirmed_seq,
        _EXCHANGED,
    ),
    _channel(
        COUNTER,
        "channel_messages_unroutable_returned_total",
        "Mandatory messages that were unroutable.",
        lambda s: s.returned,
        _EXCHANGED,
    ),
    _channel(
        COUNTER,
        "channel_messages_unroutable_dropped_total",
        "Unroutable messages that were dropped.",
        lambda s: s.unroutable,
        _EXCHANGED,
    ),
    _channel(
        COUNTER,
        "channel_messages_delivered_ack_total",
        "Messages delivered to consumers with acks.",
        lambda s: s.last_tag - s.got - s.got_no_ack - _without_acks(s),
        _QUEUED,
    ),
    _channel(
        COUNTER,
        "channel_messages_delivered_total",
        "Messages delivered to consumers without acks.",
        _without_acks,
        _QUEUED,
    ),
    _channel(
        COUNTER,
        "channel_messages_redelivered_total",
        "Messages delivered that had been delivered before.",
        lambda s: s.redelivered,
        _QUEUED,
    ),
    _channel(
        COUNTER,
        "channel_messages_acked_total",
        "Messages acknowledged.",
        lambda s: s.acked,
        _QUEUED,
    ),
    _channel(
        COUNTER,
        "channel_get_ack_total",
        "Messages taken by basic.get with acks.",
        lambda s: s.got,
        _QUEUED,
    ),
    _channel(
        COUNTER,
        "channel_get_total",
        "Messages taken by basic.get without acks.",
        lambda s: s.got_no_ack,
        _QUEUED,
    ),
    _channel(
        COUNTER,
        "channel_get_empty_total",
        "Times basic.get found nothing.",
        lambda s: s.got_empty,
        _QUEUED,
    ),
)


def _connection(
    kind: str, name: str, about: str, read: Callable[[ConnectionSnapshot], Number], group: str
) -> ObjectFamily[ConnectionSnapshot]:
    family = Family(name=f"rabbitmq_connection_{name}", kind=kind, about=about, group=group)
    return ObjectFamily(family, read)


_BYTES: Final = "connection_coarse_metrics"
_PACKETS: Final = "connection_metrics"

CONNECTIONS: Final = (
    _connection(
        COUNTER, "incoming_bytes_total", "Bytes received.", lambda c: c.received_bytes, _BYTES
    ),
    _connection(COUNTER, "outgoing_bytes_total", "Bytes sent.", lambda c: c.sent_bytes, _BYTES),
    _connection(COUNTER, "incoming_packets_total", "Reads.", lambda c: c.received_count, _PACKETS),
    _connection(COUNTER, "outgoing_packets_total", "Writes.", lambda c: c.sent_count, _PACKETS),
    _connection(
        GAUGE,
        "pending_packets",
        "1 while sent data waits for the peer to read it.",
        lambda c: 1 if c.pending_bytes else 0,
        _PACKETS,
    ),
    _connection(GAUGE, "channels", "Open channels.", lambda c: c.channels, _PACKETS),
)

EXCHANGES: Final[tuple[ObjectFamily[Exchange], ...]] = (
    ObjectFamily(
        Family(
            name="rabbitmq_exchange_messages_published_total",
            kind=COUNTER,
            about="Messages published to the exchange.",
            group="exchange_metrics",
        ),
        lambda e: e.published_in,
    ),
)

# Only in the answer if asked for by name; RabbitMQ gives them for the whole cluster.
BINDINGS: Final[ObjectFamily[Exchange]] = ObjectFamily(
    Family(
        name=f"{CLUSTER}exchange_bindings",
        kind=GAUGE,
        about="Bindings of the exchange.",
        group="exchange_bindings",
    ),
    lambda e: len(e.bindings),
)
EXCHANGE_NAMES: Final[ObjectFamily[Exchange]] = ObjectFamily(
    Family(
        name=f"{CLUSTER}exchange_name",
        kind=GAUGE,
        about="Always 1; the labels name the exchange.",
        group="exchange_names",
    ),
    lambda e: 1,
)
VHOSTS: Final[ObjectFamily[Vhost]] = ObjectFamily(
    Family(
        name=f"{CLUSTER}vhost_status",
        kind=GAUGE,
        about="1 while the vhost is running.",
        group="vhost_status",
    ),
    lambda v: 1,
)
