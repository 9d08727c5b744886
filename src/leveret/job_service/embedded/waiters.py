"""The calls that wait for jobs of a topic, and the consumer that waits for its next message.

While a call waits and a lease is free, the topic has a consumer on its queue that takes one message
(`NextMessageConsumer`). The engine gives it the next ready message in its turn among the consumers
of AMQP, however the message became ready. Nothing polls.
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
_CREDIT_BYTES: Final = 1 << 40  # more than any message; the prefetch of 1 limits the consumer


class Waiter:
    """One waiting call."""

    def __init__(self, limit: int, lease_ms: int | None) -> None:
        self.limit = limit
        self.lease_ms = lease_ms
        self.jobs: asyncio.Future[list[LeasedJob]] = asyncio.get_running_loop().create_future()


class Waiters:
    """Waiting calls, first come first served. Calls that have ended are skipped."""

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
        """End all waits without jobs."""
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.jobs.done():
                waiter.jobs.set_result([])


class NextMessageConsumer:
    """A consumer that takes one message."""

    def __init__(self, session: LocalSession, outlet: Outlet, queue: Queue, slots: Slots) -> None:
        self._session = session
        self._outlet = outlet
        self._queue = queue
        self._slots = slots
        self._kept: list[Message] = []

    def start(self) -> None:
        """Consume the next message, inside a turn."""
        if TAG in self._session.consumers or self._kept or self._queue.deleted:
            return
        self._outlet.credit = _CREDIT_BYTES
        self._session.prefetch = 1
        try:
            consume(self._session, self._queue, TAG, no_ack=False, arguments={}, timeout_ms=0)
        except (
            EngineError
        ):  # an exclusive consumer has the queue: waiting calls end by their timeout
            return

    def keep(self, messages: list[Message]) -> None:
        """Keep messages that the engine has delivered, inside its turn."""
        self._kept.extend(messages)

    def stop_and_take(self) -> list[Message]:
        """Stop consuming and return the kept messages, inside a turn."""
        cancel(self._slots, self._session, TAG)
        kept = self._kept
        self._kept = []
        return kept

    def stop(self) -> None:
        """Stop consuming and requeue the kept messages, inside a turn."""
        kept = self.stop_and_take()
        for message in kept:
            self._session.unacked.take(message.tag)
        give_back(self._slots, kept, failed=False)
