"""What is known of a connection, and in which state it is.

    HEADER ──AMQP 0 0 9 1──► STARTING ──start-ok──► LOGGING_IN ──known──► TUNING
    TUNING ──tune-ok──► OPENING ──open──► RUNNING
      any error or deadline before RUNNING: the socket is closed, mostly without a word (RabbitMQ)
    RUNNING ──error──► CLOSING ──close-ok, deadline──► CLOSED
    RUNNING ──close from the peer──► CLOSED

A channel is open while it is in `channels`. One that was told to close (`is_closing`) ignores
everything but `channel.close-ok` and `channel.close`.

Invariant: `last_channel` is the open channel of `last_number`, or None. An error is blamed on
`last_number` and `last_method`; number 0 is the connection as a whole.
"""

from typing import Final

from mypy_extensions import i64

from leveret.amqp.channel import Channel
from leveret.amqp.link import Front, Link
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


class ConnectionState(Link):
    """A peer with its channels. What it sends is read by `Connection`."""

    def __init__(self, front: Front, peer: str, is_loopback: bool) -> None:
        super().__init__(front, peer, is_loopback)
        now_ms = front.broker.turn.now_ms
        self.state: i64 = AWAIT_HEADER
        self.name = peer
        self.channels: dict[int, Channel] = {}
        self.publisher: Channel | None = None  # the channel that published last
        self.is_released = False  # what it held is given back
        self.is_counted = False  # among the open connections of its user and vhost
        # Time
        self.connected_ms: i64 = now_ms
        self.received_ms: i64 = now_ms
        self.heartbeat_ms: i64 = 0  # when the last heartbeat came; 0: none yet
        self.is_held = False  # the runtime does not read from it for now: silence proves nothing
        self.deadline_ms: i64 = now_ms + front.limits.handshake_ms  # until RUNNING, and of CLOSING
        self.expires_ms: i64 = NEVER  # when the credentials of the user end
        # The frame being handled
        self.last_channel: Channel | None = None
        self.last_number: i64 = 0
        self.last_method: i64 = 0
        # Statistics
        self.received_bytes: i64 = 0
        self.received_count: i64 = 0  # reads

    def find_channel(self, number: i64) -> Channel | None:
        """The open channel of a frame."""
        self.last_number = number
        self.last_channel = self.channels.get(number)
        return self.last_channel

    def forget_last_channel(self) -> None:
        """Channels come or go: the next frame is looked up again."""
        self.last_channel = None
        self.last_number = 0

    def hang_up(self) -> None:
        """Close the socket when everything is sent."""
        self.state = CLOSED
        self.drop = True
        self.mark()

    def hang_up_later(self) -> None:
        """Close the socket after a while: whoever guesses passwords must wait."""
        self.state = CLOSING
        self.set_deadline(self.front.limits.refusal_ms)

    def set_deadline(self, wait_ms: i64) -> None:
        """Hang up after this time, unless the peer does what is asked of it."""
        self.deadline_ms = self.front.broker.turn.now_ms + wait_ms
        self.front.broker.timers.arm(self, self.deadline_ms)
