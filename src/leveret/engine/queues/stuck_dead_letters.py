"""Stuck dead letters: they must not be lost, and no queue takes them at the moment.

A queue that dead-letters at least once (RabbitMQ's strategy of that name) keeps a message until its
dead-letter exchange leads to a queue that takes it. Stuck messages are tried again when a
definition in the vhost changes, and every `RETRY_MS`, because a full target may have room again.
"""

from typing import Final

from mypy_extensions import i64

from leveret.engine.history.life_events import DELETED
from leveret.engine.message import Message
from leveret.engine.queues.queue import Queue
from leveret.engine.timer_queue import NEVER, Timed
from leveret.engine.turns.turn import Leaving, Turn

RETRY_MS: Final = 10_000


class StuckDeadLetters(Timed):
    """The stuck dead letters of one vhost."""

    def __init__(self, turn: Turn) -> None:
        super().__init__()
        self._turn = turn
        self._waiting: list[Leaving] = []

    def add(self, leaving: Leaving) -> None:
        queue = leaving.queue
        assert isinstance(queue, Queue)
        queue.stuck += 1
        self._waiting.append(leaving)
        self._turn.timers.arm(self, self._turn.now_ms + RETRY_MS)

    def of(self, queue: Queue) -> list[Message]:
        """Return the stuck messages of one queue."""
        return [leaving.message for leaving in self._waiting if leaving.queue is queue]

    def retry(self) -> None:
        """Try all of them again in this turn. Messages of deleted queues are deleted."""
        waiting = self._waiting
        self._waiting = []
        for leaving in waiting:
            queue = leaving.queue
            assert isinstance(queue, Queue)
            queue.stuck -= 1
            if queue.deleted:
                queue.note(DELETED, leaving.message, "")
                queue.ledger.forget(leaving.message)
            else:
                self._turn.leaving.append(leaving)

    def clear(self) -> None:
        """Delete all of them with their vhost."""
        for leaving in self._waiting:
            queue = leaving.queue
            assert isinstance(queue, Queue)
            queue.stuck -= 1
            queue.note(DELETED, leaving.message, "")
            queue.ledger.forget(leaving.message)
        self._waiting = []
        self._turn.timers.disarm(self)

    def on_due(self, now_ms: i64) -> i64:
        self.retry()
        return NEVER
