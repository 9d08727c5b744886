"""The wait of a publisher for a long queue.

While a target queue has consumers and more than a limit of ready messages, the publisher waits for
the queue to get shorter, at most `PAUSE_S` at a time. If consumers make progress, the wait grows
with the number of waiting publishers.
"""

from typing import Final

from mypy_extensions import i64

from leveret.amqp.connection import Connection
from leveret.engine.queues.queue import Queue

PAUSE_S: Final = 0.01
PAUSE_MAX_S: Final = 0.1  # with any number of waiting publishers


class LongQueueWait:
    """The queue that one connection waits for, and since when."""

    def __init__(self) -> None:
        self._queue: Queue | None = None
        self._began_s = 0.0  # loop time; 0: no wait
        self._progress: i64 = 0  # deliveries and acks of the queue when the wait began

    def end(self) -> None:
        self._began_s = 0.0

    def has_long_queue(self, connection: Connection, ready_max: i64) -> bool:
        """Return True, and keep the queue, if a consumed target queue has more ready messages."""
        queue = self._queue
        if queue is not None:
            if queue.ready.count > ready_max and queue.consumers and not queue.paused:
                return True
            self._queue = None
        publisher = connection.publisher
        route = publisher.route if publisher is not None else None
        if route is None:
            return False
        for queue in route.queues:
            if queue.ready.count > ready_max and queue.consumers and not queue.paused:
                self._queue = queue
                return True
        return False

    def lasts(self, now_s: float, waiting: int) -> bool:
        """Return True while the wait lasts. The first call begins it."""
        queue = self._queue
        assert queue is not None
        progress = queue.delivered + queue.delivered_no_ack + queue.acked
        if self._began_s == 0.0:
            self._began_s = now_s
            self._progress = progress
            return True
        most_s = PAUSE_S
        if progress != self._progress:
            most_s = min(PAUSE_S * (1 + waiting), PAUSE_MAX_S)
        return now_s - self._began_s < most_s
