"""All exchange types by name, and the exchanges that every vhost has from the start.

RabbitMQ: the types of the plugins `x-recent-history` and `x-jms-topic` do not exist here.
"""

from typing import Final

from mypy_extensions import i64

from leveret.engine.arguments.packed import pack
from leveret.engine.exchanges.consistent_hash import ConsistentHashExchange
from leveret.engine.exchanges.default import DefaultExchange
from leveret.engine.exchanges.delayed import DelayedExchange
from leveret.engine.exchanges.direct import DirectExchange
from leveret.engine.exchanges.exchange import Exchange
from leveret.engine.exchanges.fanout import FanoutExchange
from leveret.engine.exchanges.federation_upstream import (
    FEDERATION_UPSTREAM,
    FederationUpstreamExchange,
)
from leveret.engine.exchanges.headers import HeadersExchange
from leveret.engine.exchanges.modulus_hash import ModulusHashExchange
from leveret.engine.exchanges.random_choice import LocalRandomExchange, RandomExchange
from leveret.engine.exchanges.super_stream import SUPER_STREAM, SuperStreamExchange
from leveret.engine.exchanges.topic import TopicExchange
from leveret.engine.target import Target
from leveret.errors import PreconditionFailedError
from leveret.wire.tables import Table

DELAYED_KIND: Final = "x-delayed-message"
DELAYED_TYPE: Final = "x-delayed-type"

KINDS: Final = (
    "direct",
    "fanout",
    "headers",
    "topic",
    "x-consistent-hash",
    DELAYED_KIND,
    FEDERATION_UPSTREAM,
    "x-local-random",
    "x-modulus-hash",
    "x-random",
    SUPER_STREAM,
)

# Name and type. All are durable.
PREDECLARED: Final = (
    ("", "direct"),
    ("amq.direct", "direct"),
    ("amq.fanout", "fanout"),
    ("amq.headers", "headers"),
    ("amq.match", "headers"),
    ("amq.rabbitmq.trace", "topic"),
    ("amq.topic", "topic"),
)
TRACE: Final = "amq.rabbitmq.trace"  # the only internal exchange among them


def make_exchange(
    kind: str,
    name: str,
    durable: bool,
    auto_delete: bool,
    internal: bool,
    arguments: Table,
    alternate: str | None,
    seed: i64 = 0,
) -> Exchange:
    """Make an exchange without bindings.

    Raise PreconditionFailedError for an unknown type, and for arguments that the type refuses.
    """
    exchange = _make_exchange(kind, name, arguments, seed)
    exchange.durable = durable
    exchange.auto_delete = auto_delete
    exchange.internal = internal
    exchange.packed_arguments = pack(arguments)
    exchange.alternate = alternate
    return exchange


def predeclared(queues: dict[str, Target]) -> list[Exchange]:
    """Make the exchanges of a new vhost; the default exchange looks into the given queues."""
    exchanges: list[Exchange] = [DefaultExchange(queues)]
    for name, kind in PREDECLARED:
        if name:
            exchange = make_exchange(
                kind,
                name,
                durable=True,
                auto_delete=False,
                internal=name == TRACE,
                arguments={},
                alternate=None,
            )
            exchanges.append(exchange)
    return exchanges


def _make_exchange(kind: str, name: str, arguments: Table, seed: i64) -> Exchange:
    if kind == "direct":
        return DirectExchange(name)
    if kind == "fanout":
        return FanoutExchange(name)
    if kind == "topic":
        return TopicExchange(name)
    if kind == "headers":
        return HeadersExchange(name)
    if kind == "x-consistent-hash":
        return ConsistentHashExchange(name, arguments)
    if kind == "x-random":
        return RandomExchange(name, kind, seed)
    if kind == "x-local-random":
        return LocalRandomExchange(name, seed)
    if kind == "x-modulus-hash":
        return ModulusHashExchange(name)
    if kind == FEDERATION_UPSTREAM:
        return FederationUpstreamExchange(name, arguments)
    if kind == SUPER_STREAM:
        return SuperStreamExchange(name)
    if kind == DELAYED_KIND:
        return DelayedExchange(
            name, _make_exchange(_delayed_type(arguments), name, arguments, seed)
        )
    raise PreconditionFailedError(f"unknown exchange type '{kind}'")


def _delayed_type(arguments: Table) -> str:
    """Return the type by which a delayed exchange routes. RabbitMQ: it cannot be delayed itself."""
    field = arguments.get(DELAYED_TYPE)
    kind = field.value if field is not None else None
    if not isinstance(kind, str):
        raise PreconditionFailedError(
            "Invalid argument, 'x-delayed-type' must be an existing exchange type"
        )
    if kind == DELAYED_KIND:
        raise PreconditionFailedError(
            "Invalid argument, 'x-delayed-message' can't be used for 'x-delayed-type'"
        )
    return kind
