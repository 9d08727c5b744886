"""Publishes with confirms: a publish that returns is at the broker, one that raises says why.

It waits for a connection within its time. What a lost connection left in doubt is published again
with the same message id, unless that is turned off: at least once, and a store of handled messages
removes the duplicate. `Outbox` is for many at once: it bounds how many confirms are awaited.
"""

import asyncio
import logging
import re
import struct
from collections.abc import Callable
from typing import Final

import aiormq
import aiormq.abc
from aiormq.exceptions import DeliveryError, PublishError

from leveret.bus.connection import BrokerConnection
from leveret.bus.declare import declare
from leveret.bus.link import Link, Session
from leveret.bus.outgoing import Outgoing
from leveret.bus.policy import Backoff
from leveret.bus.settings import BusSettings
from leveret.bus.topology import Topology
from leveret.bus.turns import Turns
from leveret.clock import Clock
from leveret.errors import (
    BusError,
    Nacked,
    NotConnected,
    NotEncodable,
    PublishBlocked,
    PublishClosed,
    PublishTimeout,
    TooLarge,
    Unroutable,
)

FAILURES_MAX: Final = 1_000  # kept of what was sent and failed
# A message on which the broker closes the channel is not to close it for all others for long.
REFUSALS_MAX: Final = 3

_TOO_LARGE: Final = re.compile(r"message size (\d+)")
_log: Final = logging.getLogger(__name__)


class _Lost(Exception):
    """The session ended before the confirm."""

    def __init__(self, text: str, *, is_refusal: bool = False) -> None:
        super().__init__(text)
        self.is_refusal = is_refusal  # the broker closed the channel, perhaps because of this one


class PublishingSession(Session):
    """A channel in confirm mode."""

    async def probe(self) -> str:
        """Any answer will do; a broker that blocks publishers may give none, and is not lost."""
        if not await self.connection.is_blocked():
            await self.connection.ask(self.channel.basic_qos(prefetch_count=1))
        return ""

    async def publish(self, message: Outgoing, timeout_s: float) -> None:
        """Publish and wait for the confirm. Raises PublishFailed, or _Lost."""
        try:
            await self.channel.basic_publish(
                message.body,
                exchange=message.target.exchange,
                routing_key=message.target.routing_key,
                properties=message.properties,
                mandatory=message.mandatory,
                timeout=timeout_s,
            )
        except PublishError as fault:
            text = f"nobody takes {message.target.routing_key!r} at {message.target.exchange!r}"
            raise Unroutable(message.message_id, text) from fault
        except DeliveryError as fault:
            raise Nacked(message.message_id, "the broker refused it") from fault
        except TimeoutError as fault:
            raise await self._late(message.message_id, timeout_s) from fault
        except asyncio.CancelledError as fault:
            # aiormq ends what waits on a closed channel by cancelling it.
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            raise _Lost("the channel was closed") from fault
        except (TypeError, ValueError, OverflowError, struct.error) as fault:
            text = f"AMQP cannot carry message {message.message_id}: {fault}"
            raise NotEncodable(text) from fault
        except Exception as fault:
            if _is_too_large(fault, len(message.body)):
                raise TooLarge(message.message_id, str(fault)) from fault
            is_refusal = isinstance(fault, aiormq.exceptions.AMQPChannelError)
            raise _Lost(str(fault) or type(fault).__name__, is_refusal=is_refusal) from fault

    async def _late(self, message_id: str, timeout_s: float) -> PublishTimeout:
        if await self.connection.is_blocked():
            return PublishBlocked(message_id, "the broker takes no publishes now")
        return PublishTimeout(message_id, f"no confirm within {timeout_s:.3f} s")


class Publisher:
    """Publishes through one link."""

    def __init__(
        self,
        url: str,
        name: str,
        topology: Callable[[], Topology],
        settings: BusSettings,
        clock: Clock,
        backoff: Backoff,
    ) -> None:
        self._url = url
        self._name = name
        self._topology = topology
        self._settings = settings
        self._clock = clock
        self._is_stopping = False
        self._turns = Turns()
        self.link = Link(name, self._open, backoff, settings.probe_every_ms / 1000)

    async def _open(self) -> PublishingSession:
        connection = await BrokerConnection.open(self._url, self._name, self._settings)
        try:
            await declare(connection, self._topology())
            return PublishingSession(connection, await connection.channel(), self._clock.now_ms())
        except BaseException:
            await connection.close()
            raise

    async def publish(self, message: Outgoing, timeout_ms: int | None = None) -> None:
        """Publish and wait for the confirm. Raises PublishFailed, or NotEncodable."""
        # aiormq finds a returned message by its id: two with one id would be taken for each other.
        async with self._turns.of(message.message_id):
            await self._publish(message, timeout_ms or self._settings.publish_timeout_ms)

    async def _publish(self, message: Outgoing, timeout_ms: int) -> None:
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + timeout_ms / 1000
        refusals = 0
        while True:
            session = await self._session(message.message_id, deadline_s - loop.time())
            try:
                await session.publish(message, max(deadline_s - loop.time(), 0.001))
                return
            except _Lost as lost:
                session.lose(str(lost))
                refusals += lost.is_refusal
                is_over = refusals >= REFUSALS_MAX or self._is_stopping
                if is_over or not self._settings.resend:
                    raise PublishClosed(message.message_id, str(lost)) from lost
                _log.info("message %s is published again: %s", message.message_id, lost)

    async def _session(self, message_id: str, left_s: float) -> PublishingSession:
        try:
            return await self.link.ready(max(left_s, 0.0))
        except NotConnected as fault:
            if self._is_stopping:
                raise PublishClosed(message_id, "the bus was stopped") from fault
            raise PublishTimeout(message_id, str(fault)) from fault

    async def stop(self) -> None:
        self._is_stopping = True
        await self.link.stop()


class Outbox:
    """Publishes without waiting, a bounded number at once, and tells when all are confirmed."""

    def __init__(self, publisher: Publisher, outstanding_max: int) -> None:
        self._publisher = publisher
        self._room = asyncio.Semaphore(outstanding_max)
        self._outstanding: set[asyncio.Task[None]] = set()
        self._failures: list[BusError] = []

    async def send(self, message: Outgoing, timeout_ms: int | None) -> None:
        """Publish; wait only for room."""
        await self._room.acquire()
        publishing = self._publish(message, timeout_ms)
        task = asyncio.get_running_loop().create_task(publishing, name="publish")
        self._outstanding.add(task)
        task.add_done_callback(self._on_done)

    async def _publish(self, message: Outgoing, timeout_ms: int | None) -> None:
        try:
            await self._publisher.publish(message, timeout_ms)
        except BusError as fault:
            if len(self._failures) < FAILURES_MAX:
                self._failures.append(fault)
            _log.warning("a message was not published: %s", fault)

    def _on_done(self, task: "asyncio.Task[None]") -> None:
        self._room.release()
        self._outstanding.discard(task)

    async def wait_for_confirms(self, timeout_ms: int) -> bool:
        """Whether everything sent so far is confirmed; what failed stays in `take_failures`."""
        outstanding = set(self._outstanding)
        if outstanding:
            _, late = await asyncio.wait(outstanding, timeout=timeout_ms / 1000)
            if late:
                return False
        return not self._failures

    def take_failures(self) -> list[BusError]:
        """What was sent and not confirmed since the last call."""
        taken, self._failures = self._failures, []
        return taken

    async def stop(self) -> None:
        for task in set(self._outstanding):
            task.cancel()
        if self._outstanding:
            await asyncio.wait(set(self._outstanding))


def _is_too_large(fault: Exception, body_bytes: int) -> bool:
    """Whether the broker closed the channel because of this very message."""
    if not isinstance(fault, aiormq.exceptions.ChannelPreconditionFailed):
        return False
    match = _TOO_LARGE.search(str(fault))
    return match is not None and int(match[1]) == body_bytes
