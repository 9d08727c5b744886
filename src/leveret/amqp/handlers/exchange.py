"""Class exchange: declare, delete, bind, unbind."""

from typing import Final

from leveret.amqp.channel import Channel
from leveret.amqp.handlers.queue import require_remembering
from leveret.amqp.methods import (
    EXCHANGE_BIND_OK,
    EXCHANGE_DECLARE_OK,
    EXCHANGE_DELETE_OK,
    EXCHANGE_UNBIND_OK,
)
from leveret.amqp.reader import Reader
from leveret.amqp.writer import Writer
from leveret.auth import CONFIGURE, READ, WRITE
from leveret.engine.exchanges.super_stream import SUPER_STREAM, partition_names
from leveret.engine.vhost import require_not_default

_PASSIVE: Final = 1
_DURABLE: Final = 2
_AUTO_DELETE: Final = 4
_INTERNAL: Final = 8
_NO_WAIT: Final = 16

_IF_UNUSED: Final = 1
_DELETE_NO_WAIT: Final = 2


def on_declare(channel: Channel, reader: Reader) -> None:
    reader.short()
    name = reader.short_string()
    kind = reader.short_string()
    flags = reader.octet()
    arguments = reader.table()
    reader.finish()
    vhost = channel.vhost
    if flags & _PASSIVE:
        require_not_default(name)
        vhost.exchange(name)
    else:
        channel.link.require(CONFIGURE, "exchange", name)
        alternate = arguments.get("alternate-exchange")
        if alternate is not None and isinstance(alternate.value, str):
            channel.link.require(READ, "exchange", name)
            channel.link.require(WRITE, "exchange", alternate.value)
        require_remembering(channel, arguments)
        if kind == SUPER_STREAM:
            for partition in partition_names(name, arguments):
                channel.link.require(CONFIGURE, "queue", partition)
        vhost.declare_exchange(
            name,
            kind,
            (flags & _DURABLE) != 0,
            (flags & _AUTO_DELETE) != 0,
            (flags & _INTERNAL) != 0,
            arguments,
        )
    if not flags & _NO_WAIT:
        channel.reply(Writer(EXCHANGE_DECLARE_OK))


def on_delete(channel: Channel, reader: Reader) -> None:
    reader.short()
    name = reader.short_string()
    flags = reader.octet()
    reader.finish()
    channel.link.require(CONFIGURE, "exchange", name)
    channel.vhost.delete_exchange(name, (flags & _IF_UNUSED) != 0)
    if not flags & _DELETE_NO_WAIT:
        channel.reply(Writer(EXCHANGE_DELETE_OK))


def on_bind(channel: Channel, reader: Reader) -> None:
    reader.short()
    target = reader.short_string()
    source = reader.short_string()
    routing_key = reader.short_string()
    no_wait = reader.bit()
    arguments = reader.table()
    reader.finish()
    _require(channel, target, source)
    vhost = channel.vhost
    vhost.exchange(source)
    vhost.bind(source, vhost.exchange(target), routing_key, arguments)
    if not no_wait:
        channel.reply(Writer(EXCHANGE_BIND_OK))


def on_unbind(channel: Channel, reader: Reader) -> None:
    reader.short()
    target = reader.short_string()
    source = reader.short_string()
    routing_key = reader.short_string()
    no_wait = reader.bit()
    arguments = reader.table()
    reader.finish()
    _require(channel, target, source)
    found = channel.vhost.exchanges.get(target)
    if found is not None:
        channel.vhost.unbind(source, found, routing_key, arguments)
    if not no_wait:
        channel.reply(Writer(EXCHANGE_UNBIND_OK))


def _require(channel: Channel, target: str, source: str) -> None:
    require_not_default(target)
    require_not_default(source)
    channel.link.require(WRITE, "exchange", target)
    channel.link.require(READ, "exchange", source)
