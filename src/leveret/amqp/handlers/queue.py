"""Class queue: declare, bind, unbind, purge, delete."""

from typing import Final

from leveret.amqp.channel import Channel
from leveret.amqp.methods import (
    QUEUE_BIND_OK,
    QUEUE_DECLARE_OK,
    QUEUE_DELETE_OK,
    QUEUE_PURGE_OK,
    QUEUE_UNBIND_OK,
)
from leveret.amqp.reader import Reader
from leveret.amqp.writer import Writer
from leveret.auth import CONFIGURE, READ, WRITE
from leveret.engine.commands.publishing import REPLY_NAME, REPLY_PREFIX
from leveret.engine.vhosts.names import require_not_default, require_not_reserved
from leveret.errors import NotFoundError
from leveret.wire.tables import Table

_PASSIVE: Final = 1
_DURABLE: Final = 2
_EXCLUSIVE: Final = 4
_AUTO_DELETE: Final = 8
_NO_WAIT: Final = 16

_IF_UNUSED: Final = 1
_IF_EMPTY: Final = 2
_DELETE_NO_WAIT: Final = 4


def on_declare(channel: Channel, reader: Reader) -> None:
    reader.short()
    name = reader.short_string()
    flags = reader.octet()
    arguments = reader.table()
    reader.finish()
    if name == REPLY_NAME or name.startswith(REPLY_PREFIX):
        _declare_reply(channel, name, flags)
        return
    if flags & _PASSIVE:
        channel.link.require_any("queue", name)
        queue = channel.vhost.queue(name, channel.link)
        queue.used_ms = channel.turn.now_ms
    else:
        name = _name_to_declare(channel, name)
        _require_declare(channel, name, arguments)
        queue = channel.vhost.declare_queue(
            name,
            durable=(flags & _DURABLE) != 0,
            owner=channel.link if flags & _EXCLUSIVE else None,
            user=channel.link,
            auto_delete=(flags & _AUTO_DELETE) != 0,
            arguments=arguments,
        )
    queue.catch_up()
    channel.last_queue = queue.name
    if not flags & _NO_WAIT:
        _declared(channel, queue.name, queue.message_count(), len(queue.consumers))


def _name_to_declare(channel: Channel, name: str) -> str:
    if not name:
        return "amq.gen-" + channel.link.front.token()
    require_not_reserved("queue", name)
    return name


def _require_declare(channel: Channel, name: str, arguments: Table) -> None:
    """RabbitMQ: whoever sets a dead-letter exchange must be allowed to read and to write there."""
    link = channel.link
    link.require(CONFIGURE, "queue", name)
    if name in channel.vhost.queues:
        return
    require_remembering(channel, arguments)
    exchange = arguments.get("x-dead-letter-exchange")
    if exchange is not None and isinstance(exchange.value, str):
        link.require(READ, "queue", name)
        link.require(WRITE, "exchange", exchange.value)


def require_remembering(channel: Channel, arguments: Table) -> None:
    """Whoever remembers in a stream must be allowed to make it, and to write there."""
    stream = arguments.get("x-remember")
    if stream is not None and isinstance(stream.value, str):
        channel.link.require(CONFIGURE, "queue", stream.value)
        channel.link.require(WRITE, "queue", stream.value)


def _declare_reply(channel: Channel, name: str, flags: int) -> None:
    """The names of direct reply-to are no queues; declaring one asks whether somebody listens."""
    if name != REPLY_NAME and name not in channel.vhost.replies:
        raise NotFoundError(f"no queue '{name}' in vhost '{channel.vhost.name}'")
    if not flags & _NO_WAIT:
        _declared(channel, name, 0, 1)


def _declared(channel: Channel, name: str, messages: int, consumers: int) -> None:
    channel.reply(Writer(QUEUE_DECLARE_OK).short_string(name).long(messages).long(consumers))


def named(channel: Channel, name: str) -> str:
    """The queue that a method means: an empty name is the one declared last on the channel."""
    if name:
        return name
    if not channel.last_queue:
        raise NotFoundError("no previously declared queue")
    return channel.last_queue


def on_bind(channel: Channel, reader: Reader) -> None:
    reader.short()
    given = reader.short_string()
    source = reader.short_string()
    routing_key = reader.short_string()
    no_wait = reader.bit()
    arguments = reader.table()
    reader.finish()
    name = named(channel, given)
    if not given and not routing_key:
        routing_key = name
    _require_binding(channel, name, source, routing_key)
    channel.vhost.exchange(source)
    queue = channel.vhost.queue(name, channel.link)
    channel.vhost.bind(source, queue, routing_key, arguments)
    if not no_wait:
        channel.reply(Writer(QUEUE_BIND_OK))


def on_unbind(channel: Channel, reader: Reader) -> None:
    reader.short()
    given = reader.short_string()
    source = reader.short_string()
    routing_key = reader.short_string()
    arguments = reader.table()
    reader.finish()
    name = named(channel, given)
    if not given and not routing_key:
        routing_key = name
    _require_binding(channel, name, source, routing_key)
    queue = channel.vhost.queues.get(name)
    if queue is not None and channel.vhost.has_binding(source, queue, routing_key, arguments):
        channel.vhost.queue(name, channel.link)
        channel.vhost.unbind(source, queue, routing_key, arguments)
    channel.reply(Writer(QUEUE_UNBIND_OK))


def _require_binding(channel: Channel, name: str, source: str, routing_key: str) -> None:
    channel.link.require(WRITE, "queue", name)
    require_source(channel, source, routing_key)


def require_source(channel: Channel, source: str, routing_key: str) -> None:
    """Whoever binds must be allowed to read from the exchange, with this key if it is a topic."""
    require_not_default(source)
    channel.link.require(READ, "exchange", source)
    exchange = channel.vhost.exchanges.get(source)
    if exchange is not None:
        channel.link.require_topic(READ, exchange, routing_key)


def on_purge(channel: Channel, reader: Reader) -> None:
    reader.short()
    given = reader.short_string()
    no_wait = reader.bit()
    reader.finish()
    name = named(channel, given)
    channel.link.require(READ, "queue", name)
    count = channel.vhost.queue(name, channel.link).purge()
    if name not in channel.link.exclusive_queues:
        channel.link.note("queue.purge", name)
    if not no_wait:
        channel.reply(Writer(QUEUE_PURGE_OK).long(count))


def on_delete(channel: Channel, reader: Reader) -> None:
    reader.short()
    given = reader.short_string()
    flags = reader.octet()
    reader.finish()
    name = named(channel, given)
    channel.link.require(CONFIGURE, "queue", name)
    is_own = name in channel.link.exclusive_queues or name not in channel.vhost.queues
    count = channel.vhost.delete_queue(
        name,
        if_unused=(flags & _IF_UNUSED) != 0,
        if_empty=(flags & _IF_EMPTY) != 0,
        user=channel.link,
    )
    if not is_own:
        channel.link.note("queue.delete", name)
    if not flags & _DELETE_NO_WAIT:
        channel.reply(Writer(QUEUE_DELETE_OK).long(count))
