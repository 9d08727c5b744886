"""Handlers of the class basic, except publish and ack, which `amqp.channel` handles."""

from typing import Final

from leveret.amqp.channel import Channel
from leveret.amqp.handlers.queue import queue_name
from leveret.amqp.methods import (
    BASIC_CANCEL_OK,
    BASIC_CONSUME_OK,
    BASIC_GET_EMPTY,
    BASIC_GET_OK,
    BASIC_QOS_OK,
    BASIC_RECOVER_OK,
)
from leveret.amqp.reader import MethodReader
from leveret.amqp.writer import MethodWriter, signed16
from leveret.auth import READ
from leveret.engine.commands.consuming import cancel, consume, get, require_new_tag, set_prefetch
from leveret.engine.commands.dead_letter import counted_header
from leveret.engine.commands.direct_reply import REPLY_NAME, reply_name
from leveret.engine.commands.settling import SETTLED_MAX, recover, reject
from leveret.engine.message import COUNTED, REDELIVERED, short_string
from leveret.engine.turns.session import DELIVERY_BYTES, Consumer
from leveret.errors import NotAllowedError, PreconditionFailedError, UnsupportedError

_NO_ACK: Final = 2  # 1 is no_local, which RabbitMQ ignores
_EXCLUSIVE: Final = 4
_NO_WAIT: Final = 8

_MULTIPLE: Final = 1
_REQUEUE: Final = 2

_NO_QUEUE: Final = -1


def on_qos(channel: Channel, reader: MethodReader) -> None:
    size = reader.long()
    count = reader.short()
    shared = reader.bit()
    reader.finish()
    set_prefetch(
        channel.connection.front.broker.slots, channel, count=count, size=size, shared=shared
    )
    channel.reply(MethodWriter(BASIC_QOS_OK))


def on_consume(channel: Channel, reader: MethodReader) -> None:
    reader.short()
    given = reader.short_string()
    tag = reader.short_string()
    flags = reader.octet()
    arguments = reader.table()
    reader.finish()
    require_new_tag(channel, tag)  # RabbitMQ: before it looks for the queue
    connection = channel.connection
    most = connection.front.limits.consumer_max_per_channel
    if len(channel.consumers) >= most:
        raise NotAllowedError(f"reached maximum ({most}) of consumers per channel")
    no_ack = (flags & _NO_ACK) != 0
    if given == REPLY_NAME:
        consumer = _consume_replies(channel, tag, no_ack)
    else:
        name = queue_name(channel, given)
        connection.require(READ, "queue", name)
        queue = channel.vhost.queue(name, connection)
        consumer = consume(
            channel,
            queue,
            tag or _new_tag(channel),
            no_ack=no_ack,
            exclusive=(flags & _EXCLUSIVE) != 0,
            arguments=arguments,
            timeout_ms=connection.front.limits.consumer_timeout_ms,
        )
    consumer.wire = short_string(consumer.tag)
    if not flags & _NO_WAIT:
        channel.reply(MethodWriter(BASIC_CONSUME_OK).short_string(consumer.tag))


def _new_tag(channel: Channel) -> str:
    return "amq.ctag-" + channel.connection.front.token()


def _consume_replies(channel: Channel, tag: str, no_ack: bool) -> Consumer:
    """Direct reply-to: register the channel as consumer under a private name, without a queue."""
    if not no_ack:
        raise PreconditionFailedError("reply consumer cannot acknowledge")
    if channel.reply_consumer is not None:
        raise PreconditionFailedError("reply consumer already set")
    tag = tag or _new_tag(channel)
    consumer = Consumer(channel, _NO_QUEUE, tag, no_ack=True, exclusive=False)
    channel.reply_consumer = consumer
    channel.reply_name = reply_name(channel.connection.front.token())
    channel.vhost.replies[channel.reply_name] = consumer
    channel.content = None  # the cached content may carry an older reply name
    return consumer


def on_cancel(channel: Channel, reader: MethodReader) -> None:
    tag = reader.short_string()
    no_wait = reader.bit()
    reader.finish()
    replies = channel.reply_consumer
    if replies is not None and replies.tag == tag:
        channel.vhost.replies.pop(channel.reply_name, None)
        channel.retired_no_ack += replies.delivered
        channel.reply_consumer = None
        channel.content = None
    else:
        cancel(channel.connection.front.broker.slots, channel, tag)
    if not no_wait:
        channel.reply(MethodWriter(BASIC_CANCEL_OK).short_string(tag))


def on_cancel_ok(channel: Channel, reader: MethodReader) -> None:
    """Ignore the answer to `basic.cancel` of the broker."""


def on_get(channel: Channel, reader: MethodReader) -> None:
    reader.short()
    given = reader.short_string()
    no_ack = reader.bit()
    reader.finish()
    name = queue_name(channel, given)
    connection = channel.connection
    connection.require(READ, "queue", name)
    queue = channel.vhost.queue(name, connection)
    message = get(channel, queue, no_ack) if not queue.paused else None
    if message is None:
        channel.reply(MethodWriter(BASIC_GET_EMPTY).short_string(""))
        return
    if channel.turn.traced != 0:
        channel.show([message])
    address = message.address
    method = MethodWriter(BASIC_GET_OK).longlong(message.tag)
    method.octet(1 if message.flags & REDELIVERED else 0)
    method.short_string(address.exchange).short_string(address.routing_key)
    channel.reply(method.long(queue.ready.count))
    header = counted_header(message) if message.flags & COUNTED else message.header
    connection.send_content(signed16(channel.number), header, message.body)
    connection.credit -= len(header) + len(message.body) + DELIVERY_BYTES
    connection.is_full = connection.credit <= 0


def on_ack(channel: Channel, reader: MethodReader) -> None:
    """Handle an ack of unusual length; `Connection` handles all others."""
    tag = reader.longlong()
    multiple = reader.bit()
    reader.finish()
    channel.on_ack(tag, multiple)


def on_reject(channel: Channel, reader: MethodReader) -> None:
    tag = reader.longlong()
    requeue = reader.bit()
    reader.finish()
    _refuse(channel, tag, multiple=False, requeue=requeue, failed=True)


def on_nack(channel: Channel, reader: MethodReader) -> None:
    tag = reader.longlong()
    flags = reader.octet()
    reader.finish()
    multiple = (flags & _MULTIPLE) != 0
    _refuse(channel, tag, multiple=multiple, requeue=(flags & _REQUEUE) != 0, failed=False)


def _refuse(channel: Channel, tag: int, multiple: bool, requeue: bool, failed: bool) -> None:
    if channel.unsent:
        channel.send_deliveries()
    if channel.transactional:
        channel.settle_later(tag, multiple, is_ack=False, requeue=requeue, failed=failed)
    elif multiple and not requeue and channel.unacked.count > SETTLED_MAX:
        channel.settle_in_parts(tag, is_ack=False)
    else:
        reject(
            channel.connection.front.broker.slots,
            channel,
            tag,
            multiple=multiple,
            requeue=requeue,
            failed=failed,
        )


def on_recover(channel: Channel, reader: MethodReader) -> None:
    on_recover_async(channel, reader)
    channel.reply(MethodWriter(BASIC_RECOVER_OK))


def on_recover_async(channel: Channel, reader: MethodReader) -> None:
    requeue = reader.bit()
    reader.finish()
    if not requeue:
        raise UnsupportedError("requeue=false")
    if channel.unsent:
        channel.send_deliveries()
    recover(channel.connection.front.broker.slots, channel)
