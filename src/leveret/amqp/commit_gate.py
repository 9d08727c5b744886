"""The gate of a cluster's leader: no output leaves before everything it may tell of is committed.

At the end of a turn, the output of every connection is held until the newest block is committed
that clients could be told of: this turn's, or one of a turn before. So a leader that was cut off
can say nothing that the other nodes do not know. A block of acks alone holds nothing back: a lost
ack is a redelivery.

Confirms are different. They are written when their block is committed, and tell of no later one. So
they leave at once, even while later output waits.

A node alone has no gate.
"""

from collections.abc import Callable

from leveret.amqp.connection_base import AmqpFront
from leveret.engine.turns.turn import SessionBase


class CommitGate:
    """Holds the output of all AMQP connections of a node."""

    def __init__(
        self,
        front: AmqpFront,
        block_to_await: Callable[[], int],
        wait_for_commit: Callable[[int, SessionBase], None],
    ) -> None:
        self._front = front
        self._block_to_await = block_to_await  # 0: everything is committed
        self._wait_for_commit = wait_for_commit

    def flush(self) -> None:
        """Hold the output of a turn. Call this before the flushers of store and sockets."""
        dirty = self._front.dirty
        if dirty:
            block = self._block_to_await()
            if block != 0:
                for connection in dirty:
                    connection.hold_until(block, self._wait_for_commit)

    def on_answered(self, block: int) -> None:
        """Let the confirms leave that were written because a block is committed."""
        for connection in self._front.dirty:
            connection.answer_for(block)
