"""The attempts of this process: a message that comes back is not handled a second time.

A broker delivers a message again when an ack comes too late: after a lost connection, or after the
consumer timeout. If this process has handled the message meanwhile, or is still handling it, the
second delivery is settled with the result of the first. The newest results are kept.

Publishers may use a message id twice, and a copy of a message has its id. So a delivery belongs to
an attempt only if body, timestamp and all headers are the same. Every copy that comes back has
another `x-copy-count`, and every dead letter has `x-died-at`.
"""

import asyncio
from collections import OrderedDict
from typing import Any, Final

from leveret.bus import headers as bus_headers
from leveret.bus.handler_result import Action, Decision, HandlerResult
from leveret.bus.received_message import ReceivedMessage

FINISHED_MAX: Final = 1_024  # results that are kept, up to 2 KiB each; prefetch bounds the need


class Attempt:
    """One attempt to handle and settle a message."""

    __slots__ = ("_identity", "decision", "is_copied", "result", "task")

    def __init__(self, message: ReceivedMessage) -> None:
        self._identity = _identity(message)
        self.task: asyncio.Task[Any] | None = asyncio.current_task()  # None: it has ended
        self.decision: Decision | None = None  # None: no handler has answered
        self.result: HandlerResult | None = None
        self.is_copied = False  # a copy of the message is confirmed elsewhere

    @property
    def is_done(self) -> bool:
        """Return True if nothing is left to do for the message but to ack it."""
        if self.decision is None:
            return False
        return self.decision.action is Action.ACK or self.is_copied

    def is_of(self, message: ReceivedMessage) -> bool:
        """Return True if this is an attempt at exactly this message."""
        return self._identity == _identity(message)


class Attempts:
    """Running attempts, and the newest finished ones."""

    def __init__(self) -> None:
        self._running: dict[str, Attempt] = {}  # by message id
        self._finished: OrderedDict[str, Attempt] = OrderedDict()

    def begin(self, message: ReceivedMessage) -> Attempt:
        """Note that the present task handles a message."""
        attempt = Attempt(message)
        if message.delivery.message_id:
            self._running[message.delivery.message_id] = attempt
        return attempt

    def end(self, message: ReceivedMessage, attempt: Attempt) -> None:
        """Note that the task has ended. Forget the oldest results."""
        attempt.task = None
        key = message.delivery.message_id
        if self._running.get(key) is attempt:
            del self._running[key]
        if key:
            self._finished[key] = attempt
            self._finished.move_to_end(key)
        if len(self._finished) > FINISHED_MAX:
            self._finished.popitem(last=False)

    async def wait_for(self, message_id: str) -> None:
        """Wait until no other task settles a message with this id.

        A copy may arrive before the ack of the original is sent, and may end this process.
        """
        running = self._running.get(message_id)
        if running is not None and running.task is not None:
            await asyncio.wait({running.task})

    async def maybe_earlier(self, message: ReceivedMessage) -> Attempt | None:
        """Return the attempt at this message whose answer did not reach the broker, once it ended.

        Return None if this process has not had the message.
        """
        key = message.delivery.message_id
        if not message.delivery.is_redelivered or not key:
            return None
        running = self._running.get(key)
        if running is not None and running.task is not None and running.is_of(message):
            await asyncio.wait({running.task})
        found = self._finished.get(key)
        return found if found is not None and found.is_of(message) else None


def _identity(message: ReceivedMessage) -> tuple[int, int | None, bus_headers.Headers]:
    headers = message.headers
    if bus_headers.is_counted(headers):
        counts = bus_headers.DELIVERY_COUNTS
        headers = {name: value for name, value in headers.items() if name not in counts}
    return hash(message.delivery.body), message.delivery.timestamp_s, headers
