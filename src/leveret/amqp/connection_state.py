"""The state machine of a connection and its fields.

    AWAIT_HEADER ──AMQP 0 0 9 1──► STARTING ──start-ok──► LOGGING_IN ──login──► TUNING
    TUNING ──tune-ok──► OPENING ──open──► RUNNING
      any error or deadline before RUNNING closes the socket, mostly without a message (RabbitMQ)
    RUNNING ──error──► CLOSING ──close-ok, deadline──► CLOSED
    RUNNING ──close from the peer──► CLOSED

A channel is open while it is in `channels`. A channel that we have closed (`is_closing`) ignores
everything except `channel.close-ok` and `channel.close`.

Invariant: `last_channel` is the open channel of `last_number`, or None. An error closes the channel
`last_number` (0: the connection) and names `last_method` as its cause.
"""

from typing import Final

from mypy_extensions import i64

from leveret.amqp.channel import Channel
from leveret.amqp.connection_base import AmqpFront, ConnectionBase
from leveret.engine.timer_queue import NEVER

AWAIT_HEADER: Final = 0
STARTING: Final = 1
TUNING: Final = 2
OPENING: Final = 3
RUNNING: Final = 4
CLOSING: Final = 5
CLOSED: Final = 6
LOGGING_IN: Final = 7

STATE_NAMES: Final = (
    "starting",
    "starting",
    "tuning",
    "opening",
    "running",
    "closing",
    "closed",
    "starting",
)


class ConnectionState(ConnectionBase):
    """A connection with its channels and states. `Connection` adds the parsing of input."""

    def __init__(self, front: AmqpFront, peer: str, is_loopback: bool) -> None:
        super().__init__(front, peer, is_loopback)
        now_ms = front.broker.turn.now_ms
        self.state: i64 = AWAIT_HEADER
        self.name = peer
        self.channels: dict[int, Channel] = {}
        self.publisher: Channel | None = None  # the channel that published last
        self.is_released = False  # its counts were added to its vhost
        self.is_counted = False  # it counts in the quotas of its user and vhost
        # Time
        self.connected_ms: i64 = now_ms
        self.received_ms: i64 = now_ms
        self.heartbeat_ms: i64 = 0  # time of the last heartbeat; 0: none yet
        self.check_ms: i64 = NEVER  # when the heartbeats are checked next
        self.is_held = False  # we do not read from it now: silence proves nothing
        self.deadline_ms: i64 = now_ms + front.limits.handshake_ms  # until RUNNING, and of CLOSING
        self.expires_ms: i64 = NEVER  # when the credentials of the user expire
        # The frame being handled
        self.last_channel: Channel | None = None
        self.last_number: i64 = 0
        self.last_method: i64 = 0
        # Statistics
        self.received_bytes: i64 = 0
        self.received_count: i64 = 0  # reads

    def find_channel(self, number: i64) -> Channel | None:
        """Return the open channel with this number, and remember it as the last one."""
        self.last_number = number
        self.last_channel = self.channels.get(number)
        return self.last_channel

    def forget_last_channel(self) -> None:
        """Look up the channel of the next frame anew: a channel was opened or closed."""
        self.last_channel = None
        self.last_number = 0

    def hang_up(self) -> None:
        """Close the socket after all output is sent."""
        self.state = CLOSED
        self.drop = True
        self.mark()

    def hang_up_later(self) -> None:
        """Close the socket after `refusal_ms`, to slow down password guessing."""
        self.state = CLOSING
        self.set_deadline(self.front.limits.refusal_ms)

    def set_deadline(self, wait_ms: i64) -> None:
        """Hang up after this time unless the peer has answered."""
        self.deadline_ms = self.front.broker.turn.now_ms + wait_ms
        self.front.broker.timers.arm(self, self.deadline_ms)
