"""Handlers of the class queue: declare, bind, unbind, purge, delete."""

from typing import Final

from leveret.amqp.channel import Channel
from leveret.amqp.methods import (
    QUEUE_BIND_OK,
    QUEUE_DECLARE_OK,
    QUEUE_DELETE_OK,
    QUEUE_PURGE_OK,
    QUEUE_UNBIND_OK,
)
from leveret.amqp.reader import MethodReader
from leveret.amqp.writer import MethodWriter
from leveret.auth import CONFIGURE, READ, WRITE
from leveret.engine.commands.direct_reply import REPLY_NAME, REPLY_PREFIX
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


def on_declare(channel: Channel, reader: MethodReader) -> None:
    reader.short()
    name = reader.short_string()
    flags = reader.octet()
    arguments = reader.table()
    reader.finish()
    if name == REPLY_NAME or name.startswith(REPLY_PREFIX):
        _declare_reply(channel, name, flags)
        return
    if flags & _PASSIVE:
        channel.connection.require_any("queue", name)
        queue = channel.vhost.queue(name, channel.connection)
        queue.used_ms = channel.turn.now_ms
    else:
        name = _name_to_declare(channel, name)
        _require_declare(channel, name, arguments)
        queue = channel.vhost.declare_queue(
            name,
            durable=(flags & _DURABLE) != 0,
            owner=channel.connection if flags & _EXCLUSIVE else None,
            user=channel.connection,
            auto_delete=(flags & _AUTO_DELETE) != 0,
            arguments=arguments,
        )
    queue.catch_up()
    channel.last_queue = queue.name
    if queue.durable:
        channel.connection.wait_for_definitions()
    if not flags & _NO_WAIT:
        _declared(channel, queue.name, queue.message_count(), len(queue.consumers))


def _name_to_declare(channel: Channel, name: str) -> str:
    if not name:
        return "amq.gen-" + channel.connection.front.token()
    require_not_reserved("queue", name)
    return name


def _require_declare(channel: Channel, name: str, arguments: Table) -> None:
    """Check the permissions for a declare. RabbitMQ: a dead-letter exchange needs two more."""
    connection = channel.connection
    connection.require(CONFIGURE, "queue", name)
    if name in channel.vhost.queues:
        return
    require_remembering(channel, arguments)
    exchange = arguments.get("x-dead-letter-exchange")
    if exchange is not None and isinstance(exchange.value, str):
        connection.require(READ, "queue", name)
        key = arguments.get("x-dead-letter-routing-key")
        fixed = key.value if key is not None and isinstance(key.value, str) else None
        connection.require_way_in(exchange.value, fixed)


def require_remembering(channel: Channel, arguments: Table) -> None:
    """Require permission to configure and write the stream that `x-remember` names."""
    stream = arguments.get("x-remember")
    if stream is not None and isinstance(stream.value, str):
        channel.connection.require(CONFIGURE, "queue", stream.value)
        channel.connection.require(WRITE, "queue", stream.value)


def _declare_reply(channel: Channel, name: str, flags: int) -> None:
    """Answer the declare of a direct reply-to name: it succeeds if a consumer has that name."""
    if name != REPLY_NAME and name not in channel.vhost.replies:
        raise NotFoundError(f"no queue '{name}' in vhost '{channel.vhost.name}'")
    if not flags & _NO_WAIT:
        _declared(channel, name, 0, 1)


def _declared(channel: Channel, name: str, messages: int, consumers: int) -> None:
    channel.reply(MethodWriter(QUEUE_DECLARE_OK).short_string(name).long(messages).long(consumers))


def queue_name(channel: Channel, name: str) -> str:
    """Return the queue name of a method. An empty name means the last declared queue."""
    if name:
        return name
    if not channel.last_queue:
        raise NotFoundError("no previously declared queue")
    return channel.last_queue


def on_bind(channel: Channel, reader: MethodReader) -> None:
    reader.short()
    given = reader.short_string()
    source = reader.short_string()
    routing_key = reader.short_string()
    no_wait = reader.bit()
    arguments = reader.table()
    reader.finish()
    name = queue_name(channel, given)
    if not given and not routing_key:
        routing_key = name
    _require_binding(channel, name, source, routing_key)
    channel.vhost.exchange(source)
    queue = channel.vhost.queue(name, channel.connection)
    channel.vhost.bind(source, queue, routing_key, arguments)
    if queue.durable:
        channel.connection.wait_for_definitions()
    if not no_wait:
        channel.reply(MethodWriter(QUEUE_BIND_OK))


def on_unbind(channel: Channel, reader: MethodReader) -> None:
    reader.short()
    given = reader.short_string()
    source = reader.short_string()
    routing_key = reader.short_string()
    arguments = reader.table()
    reader.finish()
    name = queue_name(channel, given)
    if not given and not routing_key:
        routing_key = name
    _require_binding(channel, name, source, routing_key)
    queue = channel.vhost.queues.get(name)
    if queue is not None and channel.vhost.has_binding(source, queue, routing_key, arguments):
        channel.vhost.queue(name, channel.connection)
        channel.vhost.unbind(source, queue, routing_key, arguments)
    channel.connection.wait_for_definitions()
    channel.reply(MethodWriter(QUEUE_UNBIND_OK))


def _require_binding(channel: Channel, name: str, source: str, routing_key: str) -> None:
    channel.connection.require(WRITE, "queue", name)
    require_source(channel, source, routing_key)


def require_source(channel: Channel, source: str, routing_key: str) -> None:
    """Require read permission on the exchange; for a topic exchange, on this routing key too."""
    require_not_default(source)
    channel.connection.require(READ, "exchange", source)
    exchange = channel.vhost.exchanges.get(source)
    if exchange is not None:
        channel.connection.require_topic(READ, exchange, routing_key)


def on_purge(channel: Channel, reader: MethodReader) -> None:
    reader.short()
    given = reader.short_string()
    no_wait = reader.bit()
    reader.finish()
    name = queue_name(channel, given)
    channel.connection.require(READ, "queue", name)
    queue = channel.vhost.queue(name, channel.connection)
    count = queue.purge()
    if queue.durable:
        channel.connection.hold_output()
    if name not in channel.connection.exclusive_queues:
        channel.connection.note("queue.purge", name)
    if not no_wait:
        channel.reply(MethodWriter(QUEUE_PURGE_OK).long(count))


def on_delete(channel: Channel, reader: MethodReader) -> None:
    reader.short()
    given = reader.short_string()
    flags = reader.octet()
    reader.finish()
    name = queue_name(channel, given)
    channel.connection.require(CONFIGURE, "queue", name)
    is_own = name in channel.connection.exclusive_queues or name not in channel.vhost.queues
    count = channel.vhost.delete_queue(
        name,
        if_unused=(flags & _IF_UNUSED) != 0,
        if_empty=(flags & _IF_EMPTY) != 0,
        user=channel.connection,
    )
    if not is_own:
        channel.connection.note("queue.delete", name)
    channel.connection.wait_for_definitions()
    if not flags & _DELETE_NO_WAIT:
        channel.reply(MethodWriter(QUEUE_DELETE_OK).long(count))
