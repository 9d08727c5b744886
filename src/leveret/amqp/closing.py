"""Close channels and connections, from either side, and release what they hold.

`fail` is the one place that turns an error into a close. After the broker has sent a close, it
waits for the answer: a channel stays in `channels` with `is_closing`, a connection stays in CLOSING
until its deadline.

Invariant: deliveries, consumers, routes, quota counts and exclusive queues of a channel or
connection are released exactly once: when the close is sent or received, not when it is answered.
"""

from mypy_extensions import i64

from leveret.amqp.channel import Channel
from leveret.amqp.connection_base import CLOSED as CONNECTION_CLOSED
from leveret.amqp.connection_base import GONE_EARLY
from leveret.amqp.connection_state import CLOSED, CLOSING, OPENING, RUNNING, ConnectionState
from leveret.amqp.events import tell_channel, tell_closed
from leveret.amqp.methods import CHANNEL_CLOSE, CHANNEL_CLOSE_OK, CONNECTION_CLOSE
from leveret.amqp.reader import MALFORMED_UTF8, MethodReader
from leveret.amqp.reply_codes import CONNECTION_FORCED, RESOURCE_ERROR, Reply, reply_for
from leveret.amqp.writer import MethodWriter
from leveret.engine.commands.settling import close_session, end_consumers
from leveret.engine.insight.totals import add_session
from leveret.engine.queues.queue import Queue
from leveret.engine.turns.session import Session
from leveret.engine.turns.turn import WORK_MAX
from leveret.engine.vhosts.vhost import Vhost
from leveret.errors import FrameError, LeveretError, StorageError


def fail(connection: ConnectionState, error: LeveretError) -> None:
    """Close the channel or the connection, as the error demands."""
    if connection.state == CLOSING or connection.state == CLOSED:
        return
    reply = reply_for(error)
    method = connection.last_method
    if isinstance(error, FrameError) and str(error) == MALFORMED_UTF8:
        method = 0  # RabbitMQ: this error is found while decoding, before the method is known
    channel = connection.channels.get(connection.last_number)
    if reply.is_channel_level and channel is not None:
        close_channel(connection, channel, reply, method)
    elif connection.state == RUNNING or connection.state == OPENING:
        _close(connection, reply, method)
    else:
        connection.note_end(reply.text)
        connection.hang_up_later()


def close_channel(connection: ConnectionState, channel: Channel, reply: Reply, method: i64) -> None:
    """Tell the peer that a channel is closed, and wait for its answer.

    The refused command may have cost up to 50 ms (`ROUTING_STEPS_MAX`), and a peer may have
    thousands of channels. So the rest of its input waits for another turn.
    """
    connection.front.broker.turn.work += WORK_MAX
    if channel.unsent:
        channel.send_deliveries()
    _end_channel(connection, channel)
    channel.is_closing = True
    connection.send(channel.number, _close_method(CHANNEL_CLOSE, reply, method))


def force_close(connection: ConnectionState, text: str) -> None:
    """Close the connection because the node stops or an operator asked for it."""
    if connection.state == RUNNING:
        reply = Reply(CONNECTION_FORCED, f"CONNECTION_FORCED - {text}", False)
        _close(connection, reply, 0)
    elif connection.state != CLOSING:
        connection.hang_up()


def fail_internally(connection: ConnectionState) -> None:
    """End this connection alone: the broker's code failed on the input of its peer."""
    if connection.state == RUNNING:
        _close(connection, Reply(541, "INTERNAL_ERROR", False), connection.last_method)
    else:
        connection.hang_up()


def fail_held(connection: ConnectionState) -> None:
    """Close a connection whose answers may not be sent: the log cannot be written."""
    connection.drop_output()
    if connection.state == RUNNING:
        _close(connection, reply_for(StorageError("the log cannot be written")), 0)
    elif connection.state != CLOSED:
        connection.hang_up()


def refuse_unfinished(connection: ConnectionState) -> None:
    """Close a connection whose incomplete message would take too much memory for too long."""
    if connection.state == RUNNING:
        text = "RESOURCE_ERROR - resource alarm: low on memory for unfinished messages"
        _close(connection, Reply(RESOURCE_ERROR, text, False), 0)
    else:
        connection.hang_up()


def _close(connection: ConnectionState, reply: Reply, method: i64) -> None:
    """Tell the peer that the connection is closed, and wait for its answer."""
    connection.note_end(f"{reply.code} {reply.text}")
    release(connection)
    connection.send(0, _close_method(CONNECTION_CLOSE, reply, method))
    connection.state = CLOSING
    connection.set_deadline(connection.front.limits.close_ms)


def _close_method(close: i64, reply: Reply, method: i64) -> MethodWriter:
    """Return `channel.close` or `connection.close`, with the method that is to blame."""
    writer = MethodWriter(close).short(reply.code).short_string(reply.text)
    return writer.short(method >> 16).short(method & 0xFFFF)


def on_channel_close(connection: ConnectionState, channel: Channel, reader: MethodReader) -> None:
    """Handle `channel.close` of the peer."""
    reader.short()
    reader.short_string()
    reader.long()
    reader.finish()
    _end_channel(connection, channel)
    remove_channel(connection, channel)
    connection.send(channel.number, MethodWriter(CHANNEL_CLOSE_OK))


def on_socket_lost(connection: ConnectionState) -> None:
    """Release the connection after its socket was lost."""
    if connection.credentials is not None:
        connection.credentials.abandon()
    release(connection)
    event = CONNECTION_CLOSED if connection.vhost is not None else GONE_EARLY
    connection.front.on_event(event, connection, connection.end_reason)
    connection.state = CLOSED
    connection.front.broker.timers.disarm(connection)


def remove_channel(connection: ConnectionState, channel: Channel) -> None:
    """Free the number of a channel that both sides have closed."""
    connection.channels.pop(channel.number, None)
    connection.publisher = None
    connection.forget_last_channel()


def _end_channel(connection: ConnectionState, channel: Channel) -> None:
    """Release what a channel holds, once."""
    if channel.closed:
        return
    channel.forget_unfinished()
    channel.forget_routes()
    if channel.reply_consumer is not None:
        channel.vhost.replies.pop(channel.reply_name, None)
    broker = connection.front.broker
    broker.turn.churn.channels_closed += 1
    add_session(channel.vhost.retired_counts, channel)
    close_session(broker.slots, channel)
    if broker.turn.listens:
        tell_channel(connection, channel.number, "channel.closed")
    user = connection.user
    assert user is not None
    connection.front.quotas.close_channel(user.identity)


def release(connection: ConnectionState) -> None:
    """Release everything that the connection holds."""
    # End all consumers first: none may take a message that another channel returns to its queue.
    channels = list(connection.channels.values())
    sessions: list[Session] = [*channels]
    end_consumers(connection.front.broker.slots, sessions)
    for channel in channels:
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
        connection.front.quotas.close_connection(user.identity, vhost)


def _keep_counts(connection: ConnectionState, vhost: Vhost) -> None:
    """Add the byte counts of the connection to the totals of its vhost."""
    connection.is_released = True
    connection.front.broker.turn.churn.connections_closed += 1
    vhost.retired_counts.received_bytes += connection.received_bytes
    vhost.retired_counts.sent_bytes += connection.sent_bytes
