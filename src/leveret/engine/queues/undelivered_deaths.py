"""Dead letters that must not be lost, and that nobody takes for now.

A queue that dead-letters at least once (RabbitMQ's strategy of that name) keeps a message until its
dead-letter exchange leads somewhere. Such messages are tried again when anything in the vhost is
defined anew, and every `RETRY_MS`, because a target that was full may have room again.
"""

from typing import Final

from mypy_extensions import i64

from leveret.engine.history.life_events import DELETED
from leveret.engine.message import Message
from leveret.engine.queues.queue import Queue
from leveret.engine.timer_queue import NEVER, Timed
from leveret.engine.turns.session import Leaving, Turn

RETRY_MS: Final = 10_000


class Stuck(Timed):
    """The dead letters of one vhost that wait for a route."""

    def __init__(self, turn: Turn) -> None:
        super().__init__()
        self._turn = turn
        self._waiting: list[Leaving] = []

    def add(self, gone: Leaving) -> None:
        queue = gone.queue
        assert isinstance(queue, Queue)
        queue.stuck += 1
        self._waiting.append(gone)
        self._turn.timers.arm(self, self._turn.now_ms + RETRY_MS)

    def of(self, queue: Queue) -> list[Message]:
        """Those of one queue."""
        return [gone.message for gone in self._waiting if gone.queue is queue]

    def retry(self) -> None:
        """Try all of them again in this turn; those of deleted queues are gone with them."""
        waiting = self._waiting
        self._waiting = []
        for gone in waiting:
            queue = gone.queue
            assert isinstance(queue, Queue)
            queue.stuck -= 1
            if queue.deleted:
                queue.note(DELETED, gone.message, "")
                queue.ledger.forget(gone.message)
            else:
                self._turn.leaving.append(gone)

    def clear(self) -> None:
        """The vhost is deleted, and they with it."""
        for gone in self._waiting:
            queue = gone.queue
            assert isinstance(queue, Queue)
            queue.stuck -= 1
            queue.note(DELETED, gone.message, "")
            queue.ledger.forget(gone.message)
        self._waiting = []
        self._turn.timers.disarm(self)

    def on_due(self, now_ms: i64) -> i64:
        self.retry()
        return NEVER
