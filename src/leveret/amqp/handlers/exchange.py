"""Handlers of the class exchange: declare, delete, bind, unbind."""

from typing import Final

from leveret.amqp.channel import Channel
from leveret.amqp.handlers.queue import require_remembering, require_source
from leveret.amqp.methods import (
    EXCHANGE_BIND_OK,
    EXCHANGE_DECLARE_OK,
    EXCHANGE_DELETE_OK,
    EXCHANGE_UNBIND_OK,
)
from leveret.amqp.reader import MethodReader
from leveret.amqp.writer import MethodWriter
from leveret.auth import CONFIGURE, READ, WRITE
from leveret.engine.exchanges.super_stream import SUPER_STREAM, partition_names
from leveret.engine.vhosts.names import require_known_kind, require_not_default
from leveret.wire.tables import Table

_PASSIVE: Final = 1
_DURABLE: Final = 2
_AUTO_DELETE: Final = 4
_INTERNAL: Final = 8
_NO_WAIT: Final = 16

_IF_UNUSED: Final = 1
_DELETE_NO_WAIT: Final = 2


def on_declare(channel: Channel, reader: MethodReader) -> None:
    reader.short()
    name = reader.short_string()
    kind = reader.short_string()
    flags = reader.octet()
    arguments = reader.table()
    reader.finish()
    vhost = channel.vhost
    if flags & _PASSIVE:
        require_not_default(name)
        channel.connection.require_any("exchange", name)
        exchange = vhost.exchange(name)
    else:
        require_known_kind(kind)
        require_not_default(name)
        channel.connection.require(CONFIGURE, "exchange", name)
        if name not in vhost.exchanges:
            _require_new(channel, name, kind, arguments)
        exchange = vhost.declare_exchange(
            name,
            kind,
            durable=(flags & _DURABLE) != 0,
            auto_delete=(flags & _AUTO_DELETE) != 0,
            internal=(flags & _INTERNAL) != 0,
            arguments=arguments,
        )
    if exchange.durable:
        channel.connection.wait_for_definitions()
    if not flags & _NO_WAIT:
        channel.reply(MethodWriter(EXCHANGE_DECLARE_OK))


def _require_new(channel: Channel, name: str, kind: str, arguments: Table) -> None:
    """Check the permissions for a new exchange. RabbitMQ: an alternate exchange needs two more."""
    connection = channel.connection
    alternate = arguments.get("alternate-exchange")
    if alternate is not None and isinstance(alternate.value, str):
        connection.require(READ, "exchange", name)
        connection.require_way_in(alternate.value)
    require_remembering(channel, arguments)
    if kind == SUPER_STREAM:
        for partition in partition_names(name, arguments):
            connection.require(CONFIGURE, "queue", partition)


def on_delete(channel: Channel, reader: MethodReader) -> None:
    reader.short()
    name = reader.short_string()
    flags = reader.octet()
    reader.finish()
    require_not_default(name)
    channel.connection.require(CONFIGURE, "exchange", name)
    is_there = name in channel.vhost.exchanges
    channel.vhost.delete_exchange(name, if_unused=(flags & _IF_UNUSED) != 0)
    if is_there:
        channel.connection.note("exchange.delete", name)
    channel.connection.wait_for_definitions()
    if not flags & _DELETE_NO_WAIT:
        channel.reply(MethodWriter(EXCHANGE_DELETE_OK))


def on_bind(channel: Channel, reader: MethodReader) -> None:
    reader.short()
    target = reader.short_string()
    source = reader.short_string()
    routing_key = reader.short_string()
    no_wait = reader.bit()
    arguments = reader.table()
    reader.finish()
    _require(channel, target, source, routing_key, is_new=True)
    vhost = channel.vhost
    vhost.exchange(source)
    vhost.bind(source, vhost.exchange(target), routing_key, arguments)
    channel.connection.wait_for_definitions()
    if not no_wait:
        channel.reply(MethodWriter(EXCHANGE_BIND_OK))


def on_unbind(channel: Channel, reader: MethodReader) -> None:
    reader.short()
    target = reader.short_string()
    source = reader.short_string()
    routing_key = reader.short_string()
    no_wait = reader.bit()
    arguments = reader.table()
    reader.finish()
    _require(channel, target, source, routing_key, is_new=False)
    found = channel.vhost.exchanges.get(target)
    if found is not None:
        channel.vhost.unbind(source, found, routing_key, arguments)
    channel.connection.wait_for_definitions()
    if not no_wait:
        channel.reply(MethodWriter(EXCHANGE_UNBIND_OK))


def _require(channel: Channel, target: str, source: str, routing_key: str, *, is_new: bool) -> None:
    require_not_default(target)
    if is_new:
        channel.connection.require_way_in(target)
    else:
        channel.connection.require(WRITE, "exchange", target)
    require_source(channel, source, routing_key)
