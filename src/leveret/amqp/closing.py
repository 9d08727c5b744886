"""Closing channels and connections, by either side, and giving back what they hold.

Errors become closes in one place, `fail`. A close of ours waits for its answer: a channel stays in
`channels` with `is_closing`, a connection is in CLOSING until its deadline.

Invariant: what a channel or connection holds (deliveries, consumers, routes, places in quotas,
exclusive queues) is given back exactly once, when it is told to close and not when it answers.
"""

from mypy_extensions import i64

from leveret.amqp.channel import Channel
from leveret.amqp.connection_state import CLOSED, CLOSING, OPENING, RUNNING, ConnectionState
from leveret.amqp.events import tell_channel, tell_closed
from leveret.amqp.frames import close_method
from leveret.amqp.link import CLOSED as CONNECTION_CLOSED
from leveret.amqp.link import GONE_EARLY
from leveret.amqp.methods import CHANNEL_CLOSE, CHANNEL_CLOSE_OK, CONNECTION_CLOSE
from leveret.amqp.reader import MALFORMED_UTF8, Reader
from leveret.amqp.reply_codes import CONNECTION_FORCED, Reply, reply_for
from leveret.amqp.writer import Writer
from leveret.engine.commands.settling import close_session, end_consumers
from leveret.engine.insight.totals import add_session
from leveret.engine.queues.queue import Queue
from leveret.engine.vhosts.vhost import Vhost
from leveret.errors import FrameError, LeveretError

# By the broker


def fail(connection: ConnectionState, error: LeveretError) -> None:
    """Turn an error into the close that it means."""
    if connection.state == CLOSING or connection.state == CLOSED:
        return
    reply = reply_for(error)
    method = connection.last_method
    if isinstance(error, FrameError) and str(error) == MALFORMED_UTF8:
        method = 0  # RabbitMQ: found while decoding, before it knows which method it is
    channel = connection.channels.get(connection.last_number)
    if reply.is_channel_level and channel is not None:
        close_channel(connection, channel, reply, method)
    elif connection.state == RUNNING or connection.state == OPENING:
        _close(connection, reply, method)
    else:
        connection.note_end(reply.text)
        connection.hang_up_later()


def close_channel(connection: ConnectionState, channel: Channel, reply: Reply, method: i64) -> None:
    """Tell the peer that a channel is closed, and wait for its answer."""
    if channel.outbox:
        channel.send_deliveries()
    _end_channel(connection, channel)
    channel.is_closing = True
    connection.send(channel.number, close_method(CHANNEL_CLOSE, reply, method))


def force_close(connection: ConnectionState, text: str) -> None:
    """The broker closes the connection: it shuts down, or an operator wants it."""
    if connection.state == RUNNING:
        reply = Reply(CONNECTION_FORCED, f"CONNECTION_FORCED - {text}", False)
        _close(connection, reply, 0)
    elif connection.state != CLOSING:
        connection.hang_up()


def fail_internally(connection: ConnectionState) -> None:
    """Something broke while handling this peer's input: end this connection, and only it."""
    if connection.state == RUNNING:
        _close(connection, Reply(541, "INTERNAL_ERROR", False), connection.last_method)
    else:
        connection.hang_up()


def _close(connection: ConnectionState, reply: Reply, method: i64) -> None:
    """Tell the peer that the connection is closed, and wait for its answer."""
    connection.note_end(f"{reply.code} {reply.text}")
    release(connection)
    connection.send(0, close_method(CONNECTION_CLOSE, reply, method))
    connection.state = CLOSING
    connection.set_deadline(connection.front.limits.close_ms)


# By the peer


def on_channel_close(connection: ConnectionState, channel: Channel, reader: Reader) -> None:
    """`channel.close`."""
    reader.short()
    reader.short_string()
    reader.long()
    reader.finish()
    _end_channel(connection, channel)
    remove_channel(connection, channel)
    connection.send(channel.number, Writer(CHANNEL_CLOSE_OK))


def lost(connection: ConnectionState) -> None:
    """The socket is gone."""
    release(connection)
    event = CONNECTION_CLOSED if connection.vhost is not None else GONE_EARLY
    connection.front.on_event(event, connection, connection.end_reason)
    connection.state = CLOSED
    connection.front.broker.timers.disarm(connection)


# Giving back


def remove_channel(connection: ConnectionState, channel: Channel) -> None:
    """Both sides know that a channel is closed: its number is free."""
    connection.channels.pop(channel.number, None)
    connection.publisher = None
    connection.forget_last_channel()


def _end_channel(connection: ConnectionState, channel: Channel) -> None:
    """Give back what a channel holds."""
    if channel.closed:
        return
    channel.forget_unfinished()
    channel.forget_routes()
    if channel.reply_consumer is not None:
        channel.vhost.replies.pop(channel.reply_name, None)
    broker = connection.front.broker
    broker.turn.churn.channels_closed += 1
    add_session(channel.vhost.gone, channel)
    close_session(broker.slots, channel)
    if broker.turn.listens:
        tell_channel(connection, channel.number, "channel.closed")
    user = connection.user
    assert user is not None
    connection.front.quotas.close_channel(user.name)


def release(connection: ConnectionState) -> None:
    """Give back everything that the connection holds."""
    # All its consumers go first: none may take what another channel gives back.
    for channel in connection.channels.values():
        end_consumers(connection.front.broker.slots, channel)
    for channel in list(connection.channels.values()):
        _end_channel(connection, channel)
    connection.channels.clear()
    connection.publisher = None
    connection.forget_last_channel()
    vhost = connection.vhost
    if vhost is None:
        return
    if not connection.is_released:
        _keep_counts(connection, vhost)
    for target in list(connection.exclusive_queues.values()):
        assert isinstance(target, Queue)
        vhost.remove_queue(target)
    _uncount(connection, vhost.name)


def _uncount(connection: ConnectionState, vhost: str) -> None:
    user = connection.user
    assert user is not None
    if connection.is_counted:
        connection.is_counted = False
        if connection.front.broker.turn.listens:
            tell_closed(connection)
        connection.front.quotas.close_connection(user.name, vhost)


def _keep_counts(connection: ConnectionState, vhost: Vhost) -> None:
    """The totals of the vhost keep what the connection has counted."""
    connection.is_released = True
    connection.front.broker.turn.churn.connections_closed += 1
    vhost.gone.received_bytes += connection.received_bytes
    vhost.gone.sent_bytes += connection.sent_bytes
