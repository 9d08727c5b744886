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
from typing import Any, Final

import aiormq
import aiormq.abc

from leveret.bus.connections.broker_addresses import BrokerAddresses
from leveret.bus.connections.confirms import (
    ChannelLostError,
    Confirms,
    RefusedError,
    ReturnedError,
)
from leveret.bus.connections.connection import BrokerConnection
from leveret.bus.connections.content_frames import (
    CONTENT_HEADER_BYTES,
    FRAME_BYTES,
    ContentReceiver,
    encode_publish,
)
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
    PublishRefusedError,
    PublishTimeoutError,
    TooLargeError,
    TopologyMismatchError,
    UnroutableError,
)
from leveret.bus.metrics import BusMetrics
from leveret.bus.outgoing_message import OutgoingMessage
from leveret.bus.retry_policy import Backoff
from leveret.bus.settings import BusSettings
from leveret.bus.topology import Topology
from leveret.clock import Clock

FAILURES_MAX: Final = 1_000  # failures of `send` that wait for take_failures
# How often a message is sent that makes the broker close the channel, and so disturbs all others.
REFUSALS_MAX: Final = 3

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

    def __init__(
        self, connection: BrokerConnection, channel: aiormq.abc.AbstractChannel, since_ms: int
    ) -> None:
        super().__init__(connection, channel, since_ms)
        self._confirms = Confirms()
        receiver = ContentReceiver(
            on_returned=self._confirms.on_returned, on_confirm=self._confirms.on_confirm
        )
        connection.receive(channel, receiver)
        channel.closing.add_done_callback(self._on_channel_end)
        self._lost.add_done_callback(lambda lost: self._confirms.fail(lost.result()))

    def _on_channel_end(self, closing: "asyncio.Future[Any]") -> None:
        fault = None if closing.cancelled() else closing.exception()
        self._confirms.fail(str(fault or "") or "the channel was closed", fault)

    async def probe(self) -> str:
        """Send any call. A broker that blocks publishers may not answer it, and is not lost."""
        if not await self.connection.is_blocked():
            await self.connection.call(self.channel.basic_qos(prefetch_count=1))
        return ""

    async def publish(self, message: OutgoingMessage, timeout_s: float) -> None:
        """Publish and wait for the confirm. Raise PublishError or _ConnectionLostError."""
        properties = self._properties(message)
        try:
            async with asyncio.timeout(timeout_s):
                await self._send(message, properties)
        except ReturnedError as fault:
            address = message.address
            text = f"no queue takes {address.routing_key!r} at {address.exchange!r}"
            raise UnroutableError(message.message_id, text) from fault
        except RefusedError as fault:
            raise NackedError(message.message_id, "the broker refused it") from fault
        except TimeoutError as fault:
            raise await self._timeout_error(message.message_id, timeout_s) from fault
        except ChannelLostError as lost:
            if _is_too_large(lost.fault, len(message.body)):
                raise TooLargeError(message.message_id, str(lost)) from lost
            is_refusal = isinstance(lost.fault, aiormq.exceptions.AMQPChannelError)
            raise _ConnectionLostError(str(lost), is_refusal=is_refusal) from lost
        except _ENCODE_ERRORS as fault:
            raise _encode_error(message, fault) from fault

    async def _send(self, message: OutgoingMessage, properties: bytes) -> None:
        """Send a message and wait for its confirm."""
        connection, confirms = self.connection, self._confirms
        try:
            await connection.wait_for_room()
        except OSError as fault:
            raise ChannelLostError(str(fault) or type(fault).__name__) from fault
        if message.mandatory:
            await confirms.wait_for_id(message.message_id)
        if self.is_lost or self.channel.is_closed:
            raise ChannelLostError("the channel was closed")
        frames = encode_publish(
            self.channel.number,
            message.address.exchange,
            message.address.routing_key,
            mandatory=message.mandatory,
            properties=properties,
            body=message.body,
            frame_bytes_max=connection.frame_bytes_max,
        )
        # Nothing is awaited between the two, so numbers and messages are in the same order.
        confirm = confirms.add(message.message_id, mandatory=message.mandatory)
        connection.send(frames)
        await confirm

    def _properties(self, message: OutgoingMessage) -> bytes:
        """Encode the properties. Raise TooLargeError if they exceed a frame.

        Such a frame would end the connection.
        """
        try:
            properties = message.properties.marshal()
        except _ENCODE_ERRORS as fault:
            raise _encode_error(message, fault) from fault
        size_bytes = len(properties) + CONTENT_HEADER_BYTES + FRAME_BYTES
        if 0 < self.connection.frame_bytes_max < size_bytes:
            text = f"{self.connection.frame_bytes_max} are allowed for all headers"
            raise TooLargeError(message.message_id, f"{size_bytes} bytes, {text}")
        return properties

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
        metrics: BusMetrics,
    ) -> None:
        self._metrics = metrics
        self._addresses = addresses
        self._name = name
        self._topology = topology
        self._settings = settings
        self._clock = clock
        self._is_stopping = False
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
        try:
            await self._publish(message, timeout_s)
        except BaseException:
            self._metrics.failed += 1
            raise
        self._metrics.confirmed += 1

    async def _publish(self, message: OutgoingMessage, timeout_s: float | None) -> None:
        timeout_s = self._settings.publish_timeout_s if timeout_s is None else timeout_s
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + timeout_s
        refusals = 0
        while True:
            session = self.connection.session
            if session is None:
                session = await self._session(message.message_id, deadline_s - loop.time())
            try:
                await session.publish(message, max(deadline_s - loop.time(), 0.001))
                return
            except _ConnectionLostError as lost:
                session.mark_lost(str(lost))
                refusals += lost.is_refusal
                is_over = refusals >= REFUSALS_MAX or self._is_stopping
                if is_over or not self._settings.resend:
                    kind = PublishRefusedError if lost.is_refusal else PublishClosedError
                    raise kind(message.message_id, str(lost)) from lost
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


def _is_too_large(fault: BaseException | None, body_bytes: int) -> bool:
    """Return True if the broker closed the channel because of this message."""
    if not isinstance(fault, aiormq.exceptions.ChannelPreconditionFailed):
        return False
    match = _TOO_LARGE.search(str(fault))
    return match is not None and int(match[1]) == body_bytes
