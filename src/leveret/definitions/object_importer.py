"""Declare the exchanges, queues and bindings of a document of definitions in a vhost.

Objects that exist stay as they are. RabbitMQ: names that begin with `amq.` are skipped, and so are
bindings without one of their ends.
"""

from typing import Final

from leveret.definitions.rows import Row, flag, text
from leveret.definitions.vhosts import NAME_BYTES_MAX
from leveret.engine.target import Target
from leveret.engine.vhosts.names import RESERVED, without_line_breaks
from leveret.engine.vhosts.vhost import Vhost
from leveret.errors import PreconditionFailedError
from leveret.wire.tables import Table, encode_table, table_of

_QUEUE: Final = "queue"
_EXCHANGE: Final = "exchange"


def put_exchange(vhost: Vhost, row: Row) -> None:
    name = object_name(row, "name")
    if not name or name.startswith(RESERVED) or name in vhost.exchanges:
        return
    vhost.declare_exchange(
        name,
        text(row, "type"),
        durable=flag(row, "durable", True),
        auto_delete=flag(row, "auto_delete", False),
        internal=flag(row, "internal", False),
        arguments=arguments_of(row),
    )


def put_queue(vhost: Vhost, row: Row) -> None:
    name = object_name(row, "name")
    if not name.startswith(RESERVED) and name not in vhost.queues:
        vhost.declare_queue(
            name,
            durable=flag(row, "durable", True),
            auto_delete=flag(row, "auto_delete", False),
            arguments=arguments_of(row),
        )


def put_binding(vhost: Vhost, row: Row) -> None:
    source = object_name(row, "source")
    target = target_of(vhost, row)
    if target is not None and source and source in vhost.exchanges:
        vhost.bind(source, target, short_text(row, "routing_key"), arguments_of(row))


def target_of(vhost: Vhost, row: Row) -> Target | None:
    """Return the queue or exchange to which a binding leads, if it exists."""
    destination = object_name(row, "destination")
    if text(row, "destination_type") == _QUEUE:
        return vhost.queues.get(destination)
    return vhost.exchanges.get(destination)


def require_target_kind(row: Row) -> None:
    if text(row, "destination_type") not in (_QUEUE, _EXCHANGE):
        raise PreconditionFailedError("destination_type must be queue or exchange")


def short_text(row: Row, key: str) -> str:
    """Return a text that AMQP can carry as a short string."""
    found = text(row, key)
    if len(found.encode("utf-8", "surrogateescape")) > NAME_BYTES_MAX:
        raise PreconditionFailedError(f"{key} has more than {NAME_BYTES_MAX} bytes: {found}")
    return found


def object_name(row: Row, key: str) -> str:
    """Return the name under which a queue or an exchange is declared."""
    return without_line_breaks(short_text(row, key))


def arguments_of(row: Row) -> Table:
    value = row.get("arguments") or {}
    if not isinstance(value, dict):
        raise PreconditionFailedError(f"arguments must be an object: {value}")
    try:
        table = table_of(value)
        encode_table(table)
    except ValueError as fault:
        raise PreconditionFailedError(f"arguments: {fault}") from None
    return table
