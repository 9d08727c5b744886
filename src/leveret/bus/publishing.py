"""Publish with confirms: `publish` returns after the broker's confirm, or raises the reason.

`Publisher` waits for a connection within the timeout. If the connection is lost before the confirm,
the message is published again with the same message id, unless `BusSettings.resend` is False.
Delivery is therefore at least once, and an idempotency store removes the duplicate.
`BackgroundPublisher` publishes many messages at once and bounds the number of open confirms.
"""

import asyncio
import logging
import re
import struct
from collections.abc import Callable
from typing import Final

import aiormq
import aiormq.abc
from aiormq.exceptions import DeliveryError
from aiormq.exceptions import PublishError as ReturnedError

from leveret.bus.connections.broker_addresses import BrokerAddresses
from leveret.bus.connections.declare import declare_topology
from leveret.bus.connections.recovering_connection import BrokerSession, RecoveringConnection
from leveret.bus.errors import (
    BusError,
    EncodeError,
    NackedError,
    NotConnectedError,
    PublishBlockedError,
    PublishClosedError,
    PublishError,
    PublishTimeoutError,
    TooLargeError,
    TopologyMismatchError,
    UnroutableError,
)
from leveret.bus.keyed_lock import KeyedLock
from leveret.bus.outgoing_message import OutgoingMessage
from leveret.bus.retry_policy import Backoff
from leveret.bus.settings import BusSettings
from leveret.bus.topology import Topology
from leveret.clock import Clock

FAILURES_MAX: Final = 1_000  # failures of `send` that wait for take_failures
# How often a message is sent that makes the broker close the channel, and so disturbs all others.
REFUSALS_MAX: Final = 3

# Bytes of a content header besides the properties, and of the frame around it.
_CONTENT_HEADER_BYTES: Final = 14
_FRAME_BYTES: Final = 8
_ENCODE_ERRORS: Final = (TypeError, ValueError, OverflowError, struct.error)
_TOO_LARGE: Final = re.compile(r"message size (\d+)")
_log: Final = logging.getLogger(__name__)


class _ConnectionLostError(Exception):
    """The session ended before the confirm."""

    def __init__(self, text: str, *, is_refusal: bool = False) -> None:
        super().__init__(text)
        self.is_refusal = (
            is_refusal  # the broker closed the channel, perhaps because of this message
        )


class PublishingSession(BrokerSession):
    """A channel in confirm mode."""

    async def probe(self) -> str:
        """Send any call. A broker that blocks publishers may not answer it, and is not lost."""
        if not await self.connection.is_blocked():
            await self.connection.call(self.channel.basic_qos(prefetch_count=1))
        return ""

    async def publish(self, message: OutgoingMessage, timeout_s: float) -> None:
        """Publish and wait for the confirm. Raise PublishError or _ConnectionLostError."""
        self._require_fits(message)
        address = message.address
        try:
            await self.channel.basic_publish(
                message.body,
                exchange=address.exchange,
                routing_key=address.routing_key,
                properties=message.properties,
                mandatory=message.mandatory,
                timeout=timeout_s,
            )
        except ReturnedError as fault:
            text = f"no queue takes {address.routing_key!r} at {address.exchange!r}"
            raise UnroutableError(message.message_id, text) from fault
        except DeliveryError as fault:
            raise NackedError(message.message_id, "the broker refused it") from fault
        except TimeoutError as fault:
            raise await self._timeout_error(message.message_id, timeout_s) from fault
        except asyncio.CancelledError as fault:
            # aiormq cancels the calls that wait on a closed channel.
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            raise _ConnectionLostError("the channel was closed") from fault
        except _ENCODE_ERRORS as fault:
            raise _encode_error(message, fault) from fault
        except Exception as fault:
            if _is_too_large(fault, len(message.body)):
                raise TooLargeError(message.message_id, str(fault)) from fault
            is_refusal = isinstance(fault, aiormq.exceptions.AMQPChannelError)
            raise _ConnectionLostError(
                str(fault) or type(fault).__name__, is_refusal=is_refusal
            ) from fault

    def _require_fits(self, message: OutgoingMessage) -> None:
        """Raise TooLargeError if the headers exceed a frame, which would end the connection."""
        try:
            size_bytes = len(message.properties.marshal()) + _CONTENT_HEADER_BYTES + _FRAME_BYTES
        except _ENCODE_ERRORS as fault:
            raise _encode_error(message, fault) from fault
        if 0 < self.connection.frame_bytes_max < size_bytes:
            text = f"{self.connection.frame_bytes_max} are allowed for all headers"
            raise TooLargeError(message.message_id, f"{size_bytes} bytes, {text}")

    async def _timeout_error(self, message_id: str, timeout_s: float) -> PublishTimeoutError:
        if await self.connection.is_blocked():
            return PublishBlockedError(message_id, "the broker takes no publishes now")
        return PublishTimeoutError(message_id, f"no confirm within {timeout_s:.3f} s")


class Publisher:
    """Publishes over a connection that recovers."""

    def __init__(
        self,
        addresses: BrokerAddresses,
        name: str,
        topology: Callable[[], Topology],
        settings: BusSettings,
        clock: Clock,
        backoff: Backoff,
    ) -> None:
        self._addresses = addresses
        self._name = name
        self._topology = topology
        self._settings = settings
        self._clock = clock
        self._is_stopping = False
        self._locks = KeyedLock()
        self.connection = RecoveringConnection(name, self._open, backoff, settings.probe_interval_s)

    async def _open(self) -> PublishingSession:
        connection = await self._addresses.open(self._name, self._settings)
        try:
            await declare_topology(connection, self._topology())
            return PublishingSession(connection, await connection.channel(), self._clock.now_ms())
        except BaseException:
            await connection.close()
            raise

    async def publish(self, message: OutgoingMessage, timeout_s: float | None = None) -> None:
        """Publish and wait for the confirm. Raise PublishError or EncodeError."""
        timeout_s = self._settings.publish_timeout_s if timeout_s is None else timeout_s
        deadline_s = asyncio.get_running_loop().time() + timeout_s
        # aiormq finds a returned message by its id, so two with one id must not be sent at once.
        async with self._locks.hold(message.message_id):
            await self._publish(message, deadline_s)

    async def _publish(self, message: OutgoingMessage, deadline_s: float) -> None:
        loop = asyncio.get_running_loop()
        refusals = 0
        while True:
            session = await self._session(message.message_id, deadline_s - loop.time())
            try:
                await session.publish(message, max(deadline_s - loop.time(), 0.001))
                return
            except _ConnectionLostError as lost:
                session.mark_lost(str(lost))
                refusals += lost.is_refusal
                is_over = refusals >= REFUSALS_MAX or self._is_stopping
                if is_over or not self._settings.resend:
                    raise PublishClosedError(message.message_id, str(lost)) from lost
                _log.info("message %s is published again: %s", message.message_id, lost)

    async def _session(self, message_id: str, left_s: float) -> PublishingSession:
        try:
            return await self.connection.wait_for_session(max(left_s, 0.0))
        except NotConnectedError as fault:
            if self._is_stopping:
                raise PublishClosedError(message_id, "the bus was stopped") from fault
            raise PublishTimeoutError(message_id, str(fault)) from fault
        except TopologyMismatchError as fault:
            raise PublishClosedError(message_id, str(fault)) from fault

    @property
    def is_stopping(self) -> bool:
        return self._is_stopping

    async def stop(self) -> None:
        self._is_stopping = True
        await self.connection.stop()


class BackgroundPublisher:
    """Publishes without waiting for each confirm, a bounded number of messages at once."""

    def __init__(self, publisher: Publisher, outstanding_max: int) -> None:
        self._publisher = publisher
        self._free = asyncio.Semaphore(outstanding_max)
        self._outstanding: set[asyncio.Task[None]] = set()
        self._failures: list[BusError] = []

    async def send(self, message: OutgoingMessage, timeout_s: float | None) -> None:
        """Publish. Wait only while too many confirms are open. Raise PublishError."""
        await self._free.acquire()
        try:
            self._require_open(message.message_id)
        except PublishError:
            self._free.release()
            raise
        publishing = self._publish(message, timeout_s)
        task = asyncio.get_running_loop().create_task(publishing, name="publish")
        self._outstanding.add(task)
        task.add_done_callback(self._on_done)

    def _require_open(self, message_id: str) -> None:
        if self._publisher.is_stopping:
            raise PublishClosedError(message_id, "the bus was stopped")
        if len(self._failures) >= FAILURES_MAX:
            # Messages on their way may fail too: at most `outstanding_max` failures come on top.
            text = f"not sent: {len(self._failures)} failures wait for take_failures"
            raise PublishError(message_id, text)

    async def _publish(self, message: OutgoingMessage, timeout_s: float | None) -> None:
        try:
            await self._publisher.publish(message, timeout_s)
        except BusError as fault:
            self._fail(fault)
        except asyncio.CancelledError:
            text = "the bus was stopped before the confirm"
            self._fail(PublishClosedError(message.message_id, text))
            raise

    def _fail(self, fault: BusError) -> None:
        self._failures.append(fault)
        _log.warning("a message was not published: %s", fault)

    def _on_done(self, task: "asyncio.Task[None]") -> None:
        self._free.release()
        self._outstanding.discard(task)

    async def wait_for_confirms(self, timeout_s: float) -> bool:
        """Return True if everything sent so far is confirmed. Failures stay for `take_failures`."""
        outstanding = set(self._outstanding)
        if outstanding:
            _, late = await asyncio.wait(outstanding, timeout=timeout_s)
            if late:
                return False
        return not self._failures

    def take_failures(self) -> list[BusError]:
        """Return the failures since the last call."""
        taken, self._failures = self._failures, []
        return taken

    async def stop(self) -> None:
        for task in set(self._outstanding):
            task.cancel()
        if self._outstanding:
            await asyncio.wait(set(self._outstanding))


def _encode_error(message: OutgoingMessage, fault: Exception) -> EncodeError:
    return EncodeError(f"AMQP cannot carry message {message.message_id}: {fault}")


def _is_too_large(fault: Exception, body_bytes: int) -> bool:
    """Return True if the broker closed the channel because of this message."""
    if not isinstance(fault, aiormq.exceptions.ChannelPreconditionFailed):
        return False
    match = _TOO_LARGE.search(str(fault))
    return match is not None and int(match[1]) == body_bytes
