"""The manager: queues by name.

Each queue has its own lock, so that different queues never wait for each other. The manager's lock
is held only while a queue is made or everything is closed.
"""

import threading
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Final, Self

from leveret.clock import Clock
from leveret.embedded.pulse import Pulse
from leveret.embedded.queue import Queue
from leveret.embedded.received import Received, Stats
from leveret.embedded.rules import Rules
from leveret.errors import ClosedError, NotFoundError, PreconditionFailedError

VISIBILITY_TIMEOUT_S: Final = 30.0


class QueueManager:
    """Queues of one process, for all of its threads.

    `clock` returns milliseconds and never goes back. A test that moves its clock by hand calls
    `clock_moved` afterwards.
    """

    def __init__(self, clock: Callable[[], int] | None = None) -> None:
        self._pulse = Pulse(clock if clock is not None else Clock().now_ms)
        self._lock = threading.Lock()
        self._queues: dict[str, Queue] = {}
        self._is_closed = False

    def queue(
        self,
        name: str,
        *,
        visibility_timeout_s: float = VISIBILITY_TIMEOUT_S,
        retries_max: int | None = None,
        dead_letter: str | None = None,
        length_max: int | None = None,
    ) -> Queue:
        """Return the queue of this name. Make it if it does not exist.

        A message that failed (timed out, or was nacked) more than `retries_max` times goes to the
        queue `dead_letter`, which is made with the defaults if needed. Without `dead_letter` it is
        dropped. `retries_max=None` means no limit. `length_max` limits the messages that are ready
        or scheduled.

        Raise PreconditionFailedError if the queue exists with other settings.
        """
        rules = Rules(visibility_timeout_s, retries_max, dead_letter, length_max)
        rules.check()
        if dead_letter == name:
            raise PreconditionFailedError(f"queue '{name}' cannot be its own dead-letter queue")
        with self._lock:
            if self._is_closed:
                raise ClosedError("the queue manager is closed")
            found = self._queues.get(name)
            if found is None:
                return self._make(name, rules)
            if found.rules != rules:
                raise PreconditionFailedError(f"queue '{name}' exists with other settings")
            return found

    def _make(self, name: str, rules: Rules) -> Queue:
        dead = None
        if rules.dead_letter is not None:
            dead = self._queues.get(rules.dead_letter)
            if dead is None:
                dead = self._make(rules.dead_letter, Rules(VISIBILITY_TIMEOUT_S, None, None, None))
        self._queues[name] = Queue(name, rules, dead, self._pulse)
        return self._queues[name]

    def names(self) -> list[str]:
        """Return the names of all queues."""
        with self._lock:
            return list(self._queues)

    def push(
        self,
        queue: str,
        body: bytes,
        *,
        delay_s: float = 0.0,
        priority: int = 0,
        headers: Mapping[str, str] | None = None,
    ) -> int:
        """See `Queue.push`."""
        found = self._find(queue)
        return found.push(body, delay_s=delay_s, priority=priority, headers=headers)

    def pop(
        self, queue: str, *, visibility_timeout_s: float | None = None, wait_s: float = 0.0
    ) -> Received | None:
        """See `Queue.pop`."""
        found = self._find(queue)
        return found.pop(visibility_timeout_s=visibility_timeout_s, wait_s=wait_s)

    def ack(self, received: Received) -> None:
        """See `Queue.ack`."""
        self._find(received.queue).ack(received)

    def nack(self, received: Received, *, delay_s: float = 0.0) -> None:
        """See `Queue.nack`."""
        self._find(received.queue).nack(received, delay_s=delay_s)

    def extend(self, received: Received, visibility_timeout_s: float) -> None:
        """See `Queue.extend`."""
        self._find(received.queue).extend(received, visibility_timeout_s)

    def stats(self, queue: str) -> Stats:
        """See `Queue.stats`."""
        return self._find(queue).stats()

    def _find(self, name: str) -> Queue:
        found = self._queues.get(name)
        if found is None:
            raise NotFoundError(f"no queue '{name}'")
        return found

    def clock_moved(self) -> None:
        """Handle everything that is due, after the clock was moved by hand."""
        for name in self.names():
            self._queues[name].catch_up()
        self._pulse.nudge()

    @property
    def wakes(self) -> int:
        """The number of times that the background thread was woken."""
        return self._pulse.wakes

    def close(self) -> None:
        """End the background thread. Waiting and later calls raise `ClosedError`."""
        with self._lock:
            self._is_closed = True
            queues = list(self._queues.values())
        for queue in queues:
            queue.close()
        self._pulse.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
