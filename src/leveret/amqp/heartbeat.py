"""Send heartbeats, and end connections whose peer is silent.

RabbitMQ: the broker sends a heartbeat after half an interval without other output. The connection
ends after three intervals without a byte from the peer.

Time in which the node itself was stopped does not count: bytes of the peer may wait in the buffer
of its socket, which the node has not read yet. A check that runs late shows how long the node was
stopped.
"""

from typing import Final

from mypy_extensions import i64

from leveret.amqp.connection_state import ConnectionState
from leveret.amqp.frame_errors import unknown_frame
from leveret.amqp.methods import FRAME_HEARTBEAT
from leveret.engine.timer_queue import NEVER
from leveret.errors import UnexpectedFrameError

LATE_MS: Final = 100  # a check that is later than this shows that the node was stopped

_FRAME: Final = b"\x08\x00\x00\x00\x00\x00\x00\xce"


def start_heartbeat(connection: ConnectionState) -> None:
    """End the handshake deadline and start heartbeats, when the connection is open."""
    connection.deadline_ms = NEVER
    if connection.heartbeat_s != 0:
        broker = connection.front.broker
        connection.check_ms = broker.turn.now_ms + connection.heartbeat_s * 500
        broker.timers.arm(connection, connection.check_ms)


def on_heartbeat(connection: ConnectionState, number: i64, payload: bytes) -> None:
    """Handle a heartbeat frame of the peer."""
    if payload:
        connection.last_number = 0
        raise unknown_frame(FRAME_HEARTBEAT, payload)
    if number != 0:
        raise UnexpectedFrameError("type 8, all octets = <<>>")
    connection.heartbeat_ms = connection.front.broker.turn.now_ms


def beat(connection: ConnectionState, now_ms: i64) -> i64:
    """Send a heartbeat if it is due, or hang up on a silent peer. Return the next due time."""
    half_ms = connection.heartbeat_s * 500
    late_ms = now_ms - connection.check_ms
    if connection.is_held:
        connection.received_ms = now_ms
    elif late_ms > LATE_MS:
        connection.received_ms = min(now_ms, connection.received_ms + late_ms)
    if now_ms - connection.received_ms >= half_ms * 6:
        connection.note_end(f"no heartbeat for {connection.heartbeat_s * 3} s")
        connection.is_silent = True
        connection.hang_up()
        return NEVER
    if now_ms - connection.sent_ms >= half_ms:
        connection.send_ahead(_FRAME)
        connection.sent_ms = now_ms
    connection.check_ms = min(connection.sent_ms + half_ms, connection.received_ms + half_ms * 6)
    return connection.check_ms
