"""Who waits for jobs of a topic, and the bell that tells of one.

While somebody waits and a lease is free, a consumer of the queue stands there that takes one
message (`Bell`): the engine gives it the next one that is ready, in its turn among the consumers of
AMQP, whether that was enqueued, published, or fell due. Nothing polls.
"""

import asyncio
from collections import deque
from typing import Final

from leveret.engine.commands.consuming import cancel, consume
from leveret.engine.commands.local_session import LocalSession
from leveret.engine.commands.settling import give_back
from leveret.engine.message import Message
from leveret.engine.queues.queue import Queue
from leveret.engine.queues.slots import Slots
from leveret.engine.turns.session import Outlet
from leveret.errors import EngineError
from leveret.job_model import LeasedJob

TAG: Final = "jobs"
_CREDIT_BYTES: Final = 1 << 40  # more than any message: the bell takes one at a time


class Waiter:
    """One call that waits."""

    def __init__(self, limit: int, lease_ms: int | None) -> None:
        self.limit = limit
        self.lease_ms = lease_ms
        self.jobs: asyncio.Future[list[LeasedJob]] = asyncio.get_running_loop().create_future()


class Waiters:
    """In the order in which they came; those that have gone are passed over."""

    def __init__(self) -> None:
        self._waiters: deque[Waiter] = deque()

    def add(self, waiter: Waiter) -> None:
        self._waiters.append(waiter)

    def first(self) -> Waiter | None:
        while self._waiters and self._waiters[0].jobs.done():
            self._waiters.popleft()
        return self._waiters[0] if self._waiters else None

    def remove(self, waiter: Waiter) -> None:
        if waiter in self._waiters:
            self._waiters.remove(waiter)

    def answer_all(self) -> None:
        """Nothing will come any more."""
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.jobs.done():
                waiter.jobs.set_result([])


class Bell:
    """A consumer that takes one message and rings."""

    def __init__(self, session: LocalSession, outlet: Outlet, queue: Queue, slots: Slots) -> None:
        self._session = session
        self._outlet = outlet
        self._queue = queue
        self._slots = slots
        self._rung: list[Message] = []

    def stand(self) -> None:
        """Wait for the next message, inside a turn."""
        if TAG in self._session.consumers or self._rung or self._queue.deleted:
            return
        self._outlet.credit = _CREDIT_BYTES
        self._session.prefetch = 1
        try:
            consume(self._session, self._queue, TAG, no_ack=False, arguments={}, timeout_ms=0)
        except EngineError:  # somebody has the queue for themselves: waiting ends by its time
            return

    def ring(self, messages: list[Message]) -> None:
        """The engine has given a message, in the middle of a turn."""
        self._rung.extend(messages)

    def take(self) -> list[Message]:
        """What it has taken, inside a turn; the bell goes."""
        cancel(self._slots, self._session, TAG)
        rung = self._rung
        self._rung = []
        return rung

    def go(self) -> None:
        """Nobody waits any more, inside a turn."""
        rung = self.take()
        for message in rung:
            self._session.unacked.take(message.tag)
        give_back(self._slots, rung, failed=False)
