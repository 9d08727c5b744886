"""The gate of a cluster's leader: output waits until every change that it may show is committed.

At the end of a turn, the output of every connection is held until the newest block with a change
that clients can see is committed. The change may be of this turn or of an earlier one. So a leader
that was cut off from the cluster never shows a change that the other nodes do not have. A block
with acks only holds nothing back: a lost ack is a redelivery. But a leader without a lease, which
has lost contact with the majority or was stopped for a while, holds back all output until the next
block is committed: another node may have delivered the same messages.

Confirms are written when their block is committed, and show no later change. So they are sent at
once, even while later output waits.

A single node has no gate.
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
        """Send the confirms that were written because a block is committed."""
        for connection in self._front.dirty:
            connection.answer_for(block)
