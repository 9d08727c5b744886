"""The permissions that a user needs to declare a queue or an exchange: the same as over AMQP."""

from starlette.requests import Request

from leveret.auth import CONFIGURE, READ, WRITE
from leveret.engine.exchanges.super_stream import SUPER_STREAM, partition_names
from leveret.engine.vhosts.names import (
    require_known_kind,
    require_not_default,
    require_not_reserved,
)
from leveret.engine.vhosts.vhost import Vhost
from leveret.http.framework.permissions import require, require_way_in
from leveret.wire.tables import Table


def require_may_declare_queue(request: Request, vhost: Vhost, name: str, arguments: Table) -> None:
    """Raise AccessRefusedError unless the user may declare the queue.

    RabbitMQ: with a dead-letter exchange, the user also needs read on the queue and write on the
    exchange.
    """
    require_not_reserved("queue", name)
    require(request, CONFIGURE, vhost, "queue", name)
    if name in vhost.queues:
        return
    _require_remembering(request, vhost, arguments)
    exchange = _text(arguments, "x-dead-letter-exchange")
    if exchange is not None:
        require(request, READ, vhost, "queue", name)
        key = _text(arguments, "x-dead-letter-routing-key")
        require_way_in(request, vhost, exchange, key)


def require_may_declare_exchange(
    request: Request, vhost: Vhost, name: str, kind: str, arguments: Table
) -> None:
    """Raise AccessRefusedError unless the user may declare the exchange.

    The check includes its alternate exchange and the partitions of a super stream.
    """
    require_known_kind(kind)
    require_not_default(name)
    require(request, CONFIGURE, vhost, "exchange", name)
    if name in vhost.exchanges:
        return
    alternate = _text(arguments, "alternate-exchange")
    if alternate is not None:
        require(request, READ, vhost, "exchange", name)
        require_way_in(request, vhost, alternate)
    _require_remembering(request, vhost, arguments)
    if kind == SUPER_STREAM:
        for partition in partition_names(name, arguments):
            require(request, CONFIGURE, vhost, "queue", partition)


def _require_remembering(request: Request, vhost: Vhost, arguments: Table) -> None:
    stream = _text(arguments, "x-remember")
    if stream is not None:
        require(request, CONFIGURE, vhost, "queue", stream)
        require(request, WRITE, vhost, "queue", stream)


def _text(arguments: Table, name: str) -> str | None:
    field = arguments.get(name)
    return field.value if field is not None and isinstance(field.value, str) else None
