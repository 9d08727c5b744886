"""Choose the connection that may complete its message while memory for incomplete ones is short.

One connection at a time may continue: the finisher. So incomplete messages become complete one
after the other, and take at most `unfinished_total_max` bytes and one message. The next connection
takes over when the message of the finisher is complete. A finisher that sends nothing for
`finisher_idle_ms` is closed, and so is a connection that has waited for `unfinished_wait_ms`. So
no connection waits for ever.
"""

import asyncio
from collections.abc import Callable

from mypy_extensions import i64

from leveret.amqp.closing import refuse_unfinished
from leveret.amqp.connection import Connection
from leveret.amqp.connection_base import AmqpFront


class Finisher:
    """The connection that may continue, and the times at which the others began to wait."""

    def __init__(
        self, front: AmqpFront, loop: asyncio.AbstractEventLoop, turn_soon: Callable[[], None]
    ) -> None:
        self._front = front
        self._loop = loop
        self._turn_soon = turn_soon
        self._current: Connection | None = None
        self._heard_s = 0.0  # loop time at which the finisher was last seen to send something
        self._heard_bytes: i64 = 0  # bytes that the finisher had sent at `_heard_s`
        self._since: dict[Connection, float] = {}  # loop times at which the others began to wait

    def is_current(self, connection: Connection) -> bool:
        """Return True if this connection may continue in spite of an alarm."""
        return self._current is connection and connection.unfinished_bytes != 0

    def admits(self, connection: Connection) -> bool:
        """Return True if the connection may be read from."""
        if connection.unfinished_bytes == 0 or not self._front.is_unfinished_over():
            self.forget(connection)
            return True
        now_s = self._loop.time()
        current = self._current
        if current is None or current is connection or current.unfinished_bytes == 0:
            self._current = connection
            self._heard_s = now_s
            self._since.pop(connection, None)
            return True
        limits = self._front.limits
        if current.received_bytes != self._heard_bytes:
            self._heard_bytes = current.received_bytes
            self._heard_s = now_s
        elif now_s - self._heard_s > float(limits.finisher_idle_ms) / 1000:
            self._refuse(current)
        began_s = self._since.setdefault(connection, now_s)
        if now_s - began_s > float(limits.unfinished_wait_ms) / 1000:
            self._refuse(connection)
            return True
        return False

    def _refuse(self, connection: Connection) -> None:
        refuse_unfinished(connection)
        self._turn_soon()

    def forget(self, connection: Connection) -> None:
        """Forget a connection that has no incomplete message any more, or is lost."""
        self._since.pop(connection, None)
        if self._current is connection:
            self._current = None
