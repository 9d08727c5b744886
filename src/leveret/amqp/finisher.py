"""Choose the connection that may complete its message while memory for incomplete ones is short.

One connection at a time may continue: the finisher. So incomplete messages become complete one
after the other, and take at most `unfinished_total_max` bytes and one message. The next connection
takes over when the message of the finisher is complete. A finisher that sends less than
`BYTES_PER_MS` for `finisher_slow_ms` is closed, and so is a connection that has waited for
`unfinished_wait_ms`. So no connection waits for ever.

The same holds for the connections of one user who has more than a share of that memory. At most
one user can be above it while the sum is not, so one finisher is enough.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from mypy_extensions import i64

from leveret.amqp.closing import refuse_unfinished
from leveret.amqp.connection import Connection
from leveret.amqp.connection_base import AmqpFront

BYTES_PER_MS: Final = 64  # the slowest rate of a finisher


class Finisher:
    """The connection that may continue, and the times at which the others began to wait."""

    def __init__(
        self, front: AmqpFront, loop: asyncio.AbstractEventLoop, turn_soon: Callable[[], None]
    ) -> None:
        self._front = front
        self._loop = loop
        self._turn_soon = turn_soon
        self._current: Connection | None = None
        self._checked_s = 0.0  # loop time at which the finisher was last found fast enough
        self._checked_bytes: i64 = 0  # bytes that the finisher had sent at `_checked_s`
        self._since: dict[Connection, float] = {}  # loop times at which the others began to wait

    def is_current(self, connection: Connection) -> bool:
        """Return True if this connection may continue in spite of an alarm."""
        return self._current is connection and connection.unfinished_bytes != 0

    def admits(self, connection: Connection) -> bool:
        """Return True if the connection may be read from."""
        if connection.unfinished_bytes == 0 or not self._front.is_unfinished_over(connection.user):
            self.forget(connection)
            return True
        now_s = self._loop.time()
        current = self._current
        if current is None or current is connection or not self._has_to_finish(current):
            if current is not connection:
                self._current = connection
                self._note_checked(connection, now_s)
            self._since.pop(connection, None)
            return True
        limits = self._front.limits
        if now_s - self._checked_s > float(limits.finisher_slow_ms) / 1000:
            sent = current.received_bytes - self._checked_bytes
            if sent < limits.finisher_slow_ms * BYTES_PER_MS:
                self._refuse(current)
            self._note_checked(current, now_s)
        began_s = self._since.setdefault(connection, now_s)
        if now_s - began_s > float(limits.unfinished_wait_ms) / 1000:
            self._refuse(connection)
            return True
        return False

    def _has_to_finish(self, current: Connection) -> bool:
        """Return True while the finisher has an incomplete message, and memory is short for it."""
        return current.unfinished_bytes != 0 and self._front.is_unfinished_over(current.user)

    def _note_checked(self, finisher: Connection, now_s: float) -> None:
        self._checked_s = now_s
        self._checked_bytes = finisher.received_bytes

    def _refuse(self, connection: Connection) -> None:
        refuse_unfinished(connection)
        self._turn_soon()

    def forget(self, connection: Connection) -> None:
        """Forget a connection that has no incomplete message any more, or is lost."""
        self._since.pop(connection, None)
        if self._current is connection:
            self._current = None
