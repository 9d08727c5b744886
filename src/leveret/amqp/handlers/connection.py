"""Handlers of the class connection: the methods that a peer may send on channel 0.

The methods of the handshake lead from one state to the next; `amqp.handshake` carries them out. In
RUNNING a peer may close the connection or renew its credentials. Every other method is an error.
"""

from mypy_extensions import i64

from leveret.amqp.closing import release
from leveret.amqp.connection_base import OPENED
from leveret.amqp.connection_state import (
    LOGGING_IN,
    OPENING,
    RUNNING,
    STARTING,
    STATE_NAMES,
    TUNING,
    ConnectionState,
)
from leveret.amqp.events import tell_opened
from leveret.amqp.handshake import on_open, on_start_ok, on_tune_ok
from leveret.amqp.heartbeat import start_heartbeat
from leveret.amqp.methods import (
    CONNECTION_BLOCKED,
    CONNECTION_CLOSE,
    CONNECTION_CLOSE_OK,
    CONNECTION_OPEN,
    CONNECTION_START_OK,
    CONNECTION_TUNE_OK,
    CONNECTION_UNBLOCKED,
    CONNECTION_UPDATE_SECRET,
    CONNECTION_UPDATE_SECRET_OK,
)
from leveret.amqp.reader import MethodReader
from leveret.amqp.writer import MethodWriter
from leveret.auth import READ
from leveret.engine.commands.settling import end_consumer
from leveret.engine.timer_queue import NEVER
from leveret.engine.turns.session import PERMISSION_LOST
from leveret.errors import ChannelError, LeveretError, NotAllowedError


def tell_blocked(connection: ConnectionState) -> bool:
    """Note that an alarm blocks the connection. Return True if the peer is told."""
    if connection.is_blocked or connection.state != RUNNING:
        return False
    connection.is_blocked = True
    if connection.wants_blocked_notify:
        reason = " & ".join(connection.front.alarms)
        connection.send(0, MethodWriter(CONNECTION_BLOCKED).short_string(f"low on {reason}"))
    return connection.wants_blocked_notify


def tell_unblocked(connection: ConnectionState) -> bool:
    """Note that no alarm blocks the connection. Return True if the peer is told."""
    if not connection.is_blocked:
        return False
    connection.is_blocked = False
    if connection.wants_blocked_notify:
        connection.send(0, MethodWriter(CONNECTION_UNBLOCKED))
    return connection.wants_blocked_notify


def on_connection_method(connection: ConnectionState, method: i64, reader: MethodReader) -> None:
    """Handle a method on channel 0. Raise ChannelError if the state does not allow it."""
    state = connection.state
    if state == RUNNING and method == CONNECTION_CLOSE:
        _on_close(connection, reader)
    elif state == STARTING and method == CONNECTION_START_OK:
        connection.state = LOGGING_IN
        on_start_ok(connection, reader)
    elif state == TUNING and method == CONNECTION_TUNE_OK:
        on_tune_ok(connection, reader)
        connection.state = OPENING
    elif state == OPENING and method == CONNECTION_OPEN:
        on_open(connection, reader)
        _run(connection)
    elif state == RUNNING and method == CONNECTION_UPDATE_SECRET:
        _on_update_secret(connection, reader)
    else:
        raise ChannelError(f"unexpected method in connection state {STATE_NAMES[state]}")


def _run(connection: ConnectionState) -> None:
    """Enter RUNNING: from now on the connection has channels and heartbeats."""
    connection.is_counted = True
    connection.state = RUNNING
    turn = connection.front.broker.turn
    turn.churn.connections_opened += 1
    if turn.listens:
        tell_opened(connection)
    connection.client_table = {}
    start_heartbeat(connection)
    _watch_expiry(connection)
    connection.front.on_event(OPENED, connection, "")


def _on_close(connection: ConnectionState, reader: MethodReader) -> None:
    connection.note_end(f"closed by the peer: {_close_text(reader)}")
    release(connection)
    connection.send(0, MethodWriter(CONNECTION_CLOSE_OK))
    connection.hang_up()


def _close_text(reader: MethodReader) -> str:
    """Return code and text of the peer's close, or an empty string if they are malformed."""
    try:
        return f"{reader.short()} {reader.short_string()}"
    except LeveretError:
        return ""


def _on_update_secret(connection: ConnectionState, reader: MethodReader) -> None:
    """Renew the credentials. The user stays the same, but may lose permissions."""
    secret = reader.long_string().decode("utf-8", "replace")
    reader.short_string()  # the reason, for people
    reader.finish()
    user = connection.user
    vhost = connection.vhost
    assert user is not None
    assert vhost is not None
    renewed = connection.front.authenticator.renew(user, secret)
    if renewed is None:
        raise NotAllowedError("New secret was refused by one of the backends")
    if not renewed.may_open(vhost.name):
        raise NotAllowedError(f"access to vhost '{vhost.name}' refused for user '{renewed.name}'")
    connection.user = renewed
    _watch_expiry(connection)
    on_access_changed(connection)
    connection.send(0, MethodWriter(CONNECTION_UPDATE_SECRET_OK))


def _watch_expiry(connection: ConnectionState) -> None:
    """Arm a timer that ends the connection when its credentials expire."""
    assert connection.user is not None
    connection.expires_ms = connection.user.expires_ms
    if connection.expires_ms != NEVER:
        connection.front.broker.timers.arm(connection, connection.expires_ms)


def on_access_changed(connection: ConnectionState) -> None:
    """Drop cached permissions, and end consumers that may no longer read their queue."""
    user = connection.user
    assert user is not None
    slots = connection.front.broker.slots
    for channel in connection.channels.values():
        channel.forget_routes()
        for consumer in list(channel.consumers.values()):
            queue = slots.queue(consumer.queue)
            if not user.may(READ, channel.vhost.name, "queue", queue.name):
                end_consumer(slots, channel, consumer, PERMISSION_LOST)
