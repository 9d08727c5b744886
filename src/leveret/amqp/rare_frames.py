"""Handle unusual frames: on channel 0, on channels that are closing or not open, out of order.

A closing connection or channel ignores all frames except those that complete the close. Elsewhere
an unexpected frame is an error, with RabbitMQ's text and RabbitMQ's choice between closing the
channel and closing the connection.
"""

from librt.strings import read_i32_be
from mypy_extensions import i64

from leveret.amqp.channel import METHOD, Channel
from leveret.amqp.closing import remove_channel
from leveret.amqp.connection_state import CLOSING, RUNNING, ConnectionState
from leveret.amqp.events import tell_channel
from leveret.amqp.frame_errors import expected_content, expected_method, unknown_frame
from leveret.amqp.handlers.connection import on_connection_method
from leveret.amqp.heartbeat import on_heartbeat
from leveret.amqp.methods import (
    BASIC_PUBLISH,
    CHANNEL_CLOSE,
    CHANNEL_CLOSE_OK,
    CHANNEL_OPEN,
    CHANNEL_OPEN_OK,
    CONNECTION_CLOSE,
    CONNECTION_CLOSE_OK,
    FRAME_BODY,
    FRAME_HEADER,
    FRAME_HEARTBEAT,
    FRAME_METHOD,
    METHOD_WORK,
)
from leveret.amqp.reader import MethodReader
from leveret.amqp.writer import MethodWriter
from leveret.errors import ChannelError, NotAllowedError


def on_unexpected(connection: ConnectionState, channel: Channel, kind: i64, payload: bytes) -> None:
    """Handle a frame that an open channel does not expect now: a heartbeat, or an error."""
    connection.last_method = 0
    if kind == FRAME_HEARTBEAT:
        on_heartbeat(connection, channel.number, payload)
    if kind != FRAME_HEADER and kind != FRAME_BODY:
        connection.last_number = 0
        raise unknown_frame(kind, payload)
    if channel.expects == METHOD:
        raise expected_method()
    connection.last_method = BASIC_PUBLISH
    raise expected_content(channel)


def on_other_frame(connection: ConnectionState, kind: i64, number: i64, payload: bytes) -> None:
    """Handle a frame on channel 0, on a channel that is not open, or on one that is closing."""
    connection.last_method = 0
    if kind == FRAME_HEARTBEAT:
        on_heartbeat(connection, number, payload)
    elif connection.state == CLOSING:
        _on_frame_while_closing(connection, kind, number, payload)
    elif kind not in (FRAME_METHOD, FRAME_HEADER, FRAME_BODY):
        connection.last_number = 0
        raise unknown_frame(kind, payload)
    elif number == 0 or connection.state != RUNNING:
        _on_connection_frame(connection, kind, number, payload)
    elif number in connection.channels:
        _on_closing_channel_frame(connection, connection.channels[number], kind, payload)
    else:
        _on_unopened_channel_frame(connection, kind, number, payload)


def _on_connection_frame(
    connection: ConnectionState, kind: i64, number: i64, payload: bytes
) -> None:
    if kind != FRAME_METHOD or number != 0 or len(payload) < 4:
        raise expected_method()
    connection.last_method = _method_of(payload)
    on_connection_method(connection, connection.last_method, MethodReader(payload))


def _on_frame_while_closing(
    connection: ConnectionState, kind: i64, number: i64, payload: bytes
) -> None:
    """Accept only the answer to our close, or a close that the peer sent at the same time."""
    if kind != FRAME_METHOD or number != 0 or len(payload) < 4:
        return
    method = _method_of(payload)
    if method == CONNECTION_CLOSE:
        connection.send(0, MethodWriter(CONNECTION_CLOSE_OK))
    if method in (CONNECTION_CLOSE, CONNECTION_CLOSE_OK):
        connection.hang_up()


def _on_closing_channel_frame(
    connection: ConnectionState, channel: Channel, kind: i64, payload: bytes
) -> None:
    if kind != FRAME_METHOD:
        return
    method = _method_of(payload)
    if method == CHANNEL_OPEN:
        connection.last_method = method
        raise ChannelError("second 'channel.open' seen")
    if method == CHANNEL_CLOSE:  # both sides have sent close: the answer to ours follows
        connection.send(channel.number, MethodWriter(CHANNEL_CLOSE_OK))
    elif method == CHANNEL_CLOSE_OK:
        remove_channel(connection, channel)


def _on_unopened_channel_frame(
    connection: ConnectionState, kind: i64, number: i64, payload: bytes
) -> None:
    if kind != FRAME_METHOD:
        raise expected_method()
    connection.last_method = _method_of(payload)
    if connection.last_method != CHANNEL_OPEN:
        raise ChannelError("expected 'channel.open'")
    _require_room(connection)
    reader = MethodReader(payload)
    reader.short_string()
    reader.finish()
    _count_channel(connection)
    _open_channel(connection, number)


def _require_room(connection: ConnectionState) -> None:
    """Raise NotAllowedError at `channel_max`. RabbitMQ: the close names no method."""
    if len(connection.channels) >= connection.channel_max:
        connection.last_number = 0
        connection.last_method = 0
        raise NotAllowedError(
            f"number of channels opened ({len(connection.channels)}) has reached the "
            f"negotiated channel_max ({connection.channel_max})"
        )


def _count_channel(connection: ConnectionState) -> None:
    user = connection.user
    assert user is not None
    try:
        connection.front.quotas.open_channel(user.identity)
    except NotAllowedError:
        connection.last_number = 0
        connection.last_method = 0
        raise


def _open_channel(connection: ConnectionState, number: i64) -> None:
    connection.channels[number] = Channel(connection, number)
    turn = connection.front.broker.turn
    turn.churn.channels_opened += 1
    turn.work += METHOD_WORK  # a flood of opens is a flood of methods too
    if turn.listens:
        tell_channel(connection, number, "channel.created")
    connection.forget_last_channel()
    connection.send(number, MethodWriter(CHANNEL_OPEN_OK).long(0))


def _method_of(payload: bytes) -> i64:
    return i64(read_i32_be(payload, 0)) & 0xFFFFFFFF
