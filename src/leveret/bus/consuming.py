"""Consume the queue of a service and settle every delivery, in one place.

A delivery is acked only after its handler succeeded, or after a copy of it was confirmed elsewhere:
by the dead-letter queue or by the queue of a delay step. A crash in between makes a duplicate,
never a loss. Each delivery is handled in a task of its own; the prefetch count bounds their number.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from random import Random
from typing import Any, Final

import aiormq
import aiormq.abc
from aiormq import spec

from leveret.bus import headers as bus_headers
from leveret.bus.connections.connection import BrokerConnection, NoAnswerError
from leveret.bus.connections.declare import declare_topology
from leveret.bus.connections.recovering_connection import BrokerSession, RecoveringConnection
from leveret.bus.delivery import Delivery
from leveret.bus.dispatch import Dispatcher
from leveret.bus.errors import PublishError, UnroutableError
from leveret.bus.handler_result import (
    MAX_RETRIES_EXCEEDED,
    TOO_EARLY,
    Action,
    Decision,
    HandlerResult,
    decide,
)
from leveret.bus.outgoing_message import copy_of_message
from leveret.bus.publishing import Publisher
from leveret.bus.retry_policy import Backoff
from leveret.bus.settings import BusSettings
from leveret.bus.topology import DEFAULT_EXCHANGE, Layout, PublishAddress
from leveret.clock import Clock

CANCEL_TIMEOUT_S: Final = 5.0  # for handlers that clean up after the stop deadline

# These errors mean that the session is lost.
_SESSION_ERRORS: Final = (NoAnswerError, aiormq.AMQPError, aiormq.ChannelInvalidStateError)
_log: Final = logging.getLogger(__name__)


@dataclass
class ReceivedMessage:
    """A delivery with everything that settling and copying it needs."""

    delivery: Delivery
    tag: int
    headers: bus_headers.Headers  # as received, without the count that `delivery` has
    properties: spec.Basic.Properties
    is_settled: bool = False  # a tag may be settled once


def receive(message: aiormq.abc.DeliveredMessage, queue: str) -> ReceivedMessage:
    """Convert a message of aiormq, received from this queue."""
    properties = message.header.properties
    headers: bus_headers.Headers = dict(properties.headers or {})
    count = bus_headers.retry_count(headers, queue)
    timestamp = properties.timestamp
    delivery = Delivery(
        queue=queue,
        body=message.body,
        message_id=properties.message_id or "",
        type=properties.message_type or "",
        routing_key=message.routing_key or "",
        exchange=message.exchange or "",
        content_type=properties.content_type or "",
        correlation_id=properties.correlation_id or "",
        headers={**headers, bus_headers.RETRY_COUNT: count},
        retry_count=count,
        timestamp_s=None if timestamp is None else int(timestamp.timestamp()),
        is_redelivered=bool(message.redelivered),
    )
    assert message.delivery_tag is not None
    return ReceivedMessage(delivery, message.delivery_tag, headers, properties)


def early_wait_s(now_s: float, due_s: float | None, settings: BusSettings, rng: Random) -> float:
    """Return how long a message that came too early is held before it is requeued.

    The time is random between the bounds of the settings, and ends at the due time.
    """
    chosen_s = rng.uniform(settings.early_wait_s_min, settings.early_wait_s_max)
    if due_s is None or due_s <= now_s:
        return chosen_s
    return min(chosen_s, due_s - now_s)


class ConsumingSession(BrokerSession):
    """A channel with one consumer."""

    def __init__(
        self,
        connection: BrokerConnection,
        channel: aiormq.abc.AbstractChannel,
        since_ms: int,
        layout: Layout,
        consumer_tag: str,
    ) -> None:
        super().__init__(connection, channel, since_ms)
        self.queue = layout.queue
        self.consumer_tag = consumer_tag
        self._retry_queue = layout.retry_queue
        self._retry_exchange = layout.retry_exchange
        self._waiting: set[asyncio.Task[Any]] = set()  # deliveries without a handler slot yet
        self._lost.add_done_callback(self._on_lost)

    @asynccontextmanager
    async def slot(self, slots: asyncio.Semaphore) -> AsyncIterator[None]:
        """Hold one of the handler slots. A lost session cancels the tasks that wait for one."""
        task = asyncio.current_task()
        assert task is not None
        self._waiting.add(task)
        try:
            await slots.acquire()
        finally:
            self._waiting.discard(task)
        try:
            yield
        finally:
            slots.release()

    def _on_lost(self, lost: "asyncio.Future[str]") -> None:
        for task in self._waiting:
            task.cancel()

    async def probe(self) -> str:
        """Ask the broker for the retry path and for our consumer.

        The question goes over the consumer's own channel, where a cancel would arrive before the
        answer.
        """
        await self.require_retry_path()
        declared = await self.connection.call(self.channel.queue_declare(self.queue, passive=True))
        consumers: dict[str, Any] = getattr(self.channel, "consumers", {})
        if self.consumer_tag not in consumers:
            return "the broker cancelled the consumer"
        return "" if declared.consumer_count else "the broker lists no consumer"

    async def require_retry_path(self) -> None:
        """Raise if the exchange or queue for retries is missing.

        Without them a broker drops a rejected message silently.
        """
        call, channel = self.connection.call, self.channel
        if self._retry_exchange != DEFAULT_EXCHANGE:
            await call(channel.exchange_declare(self._retry_exchange, passive=True))
        await call(channel.queue_declare(self._retry_queue, passive=True))


class Consumer:
    """Consumes one queue over a connection that recovers."""

    def __init__(
        self,
        url: str,
        name: str,
        layout: Layout,
        dispatcher: Dispatcher,
        publisher: Publisher,
        settings: BusSettings,
        clock: Clock,
        rng: Random,
    ) -> None:
        self._url = url
        self._name = name
        self._layout = layout
        self._dispatcher = dispatcher
        self._publisher = publisher
        self._settings = settings
        self._clock = clock
        self._rng = rng
        self._slots = asyncio.Semaphore(settings.concurrency)
        self._pool = ThreadPoolExecutor(settings.threads_max, thread_name_prefix="leveret-bus")
        self._stopping = asyncio.Event()
        self._working: set[asyncio.Task[None]] = set()
        self._repairs_headers = False  # True after a message that the library could not decode
        backoff = Backoff(rng, settings.backoff_s_min, settings.backoff_s_max)
        self.connection = RecoveringConnection(name, self._open, backoff, settings.probe_interval_s)

    async def _open(self) -> ConsumingSession:
        connection = await BrokerConnection.open(
            self._url, self._name, self._settings, repairs_headers=self._repairs_headers
        )
        connection.closing.add_done_callback(self._on_closed)
        try:
            await declare_topology(connection, self._layout.consuming)
            channel = await connection.channel()
            tag = f"{self._layout.service}-{self._rng.getrandbits(64):016x}"
            now_ms = self._clock.now_ms()
            session = ConsumingSession(connection, channel, now_ms, self._layout, tag)
            await self._consume(session)
            return session
        except BaseException:
            await connection.close()
            raise

    def _on_closed(self, closing: "asyncio.Future[Any]") -> None:
        error = None if closing.cancelled() else closing.exception()
        if isinstance(error, aiormq.exceptions.InvalidFrameError) and not self._repairs_headers:
            _log.warning(
                "%s: aiormq cannot decode a message; headers are repaired from now on", self._name
            )
            self._repairs_headers = True

    async def _consume(self, session: ConsumingSession) -> None:
        channel = session.channel
        channel.on_consumer_cancel_callbacks.add(
            lambda frame: session.mark_lost("the broker cancelled the consumer")
        )
        await session.connection.call(channel.basic_qos(prefetch_count=self._settings.prefetch))
        consume = channel.basic_consume(
            session.queue, self._on_delivery(session), consumer_tag=session.consumer_tag
        )
        await session.connection.call(consume)

    def _on_delivery(self, session: ConsumingSession) -> Callable[[Any], Any]:
        async def on_delivery(message: aiormq.abc.DeliveredMessage) -> None:
            work = self._work(session, receive(message, session.queue))
            task = asyncio.get_running_loop().create_task(work, name="delivery")
            self._working.add(task)
            task.add_done_callback(self._working.discard)

        return on_delivery

    async def _work(self, session: ConsumingSession, message: ReceivedMessage) -> None:
        """Handle and settle one delivery."""
        try:
            decision, result = await self._decide(session, message.delivery)
            await self._settle(session, message, decision, result)
        except asyncio.CancelledError:
            # The session is lost, or the stop deadline has passed: another consumer gets it.
            await self._requeue(session, message)
            raise
        except Exception:
            _log.exception("message %s is requeued after an error", message.delivery.message_id)
            await self._pause(self._settings.early_wait_s_max)
            await self._requeue(session, message)

    async def _decide(
        self, session: ConsumingSession, delivery: Delivery
    ) -> tuple[Decision, HandlerResult]:
        due_s = delivery.due_s
        if due_s is not None and self._clock.now_ms() / 1000 < due_s:
            return Decision(Action.REQUEUE), TOO_EARLY
        async with session.slot(self._slots):
            if self._stopping.is_set() or session.is_lost:
                return Decision(Action.REQUEUE), TOO_EARLY
            result = await self._dispatcher.handle(delivery, self._pool)
        policy = self._dispatcher.policy(delivery)
        return decide(result, delivery.retry_count, self._layout, policy), result

    async def _settle(
        self,
        session: ConsumingSession,
        message: ReceivedMessage,
        decision: Decision,
        result: HandlerResult,
    ) -> None:
        action = decision.action
        if action is Action.REQUEUE:
            await self._wait(message.delivery)
            await self._requeue(session, message)
        elif action is Action.REJECT:
            await self._retry(session, message)
        elif action is Action.ACK or await self._copy(session, message, decision, result):
            message.is_settled = True
            await self._send(session, session.channel.basic_ack(message.tag))
        else:
            await self._pause(self._settings.early_wait_s_min)
            await self._requeue(session, message)

    async def _copy(
        self,
        session: ConsumingSession,
        message: ReceivedMessage,
        decision: Decision,
        result: HandlerResult,
    ) -> bool:
        """Publish a copy to a delay step or the dead letters. Return True if it is confirmed."""
        if session.is_lost:
            # The broker delivers the message again, so a copy would be a duplicate.
            return False
        try:
            if decision.action is Action.DELAY:
                await self._copy_to_delay_step(session, message, decision.delay_ms)
            else:
                await self._copy_to_dead_letters(message, decision, result)
        except PublishError as fault:
            _log.error("message %s stays in its queue: %s", message.delivery.message_id, fault)
            if isinstance(fault, UnroutableError):
                session.mark_lost("a queue of the topology is missing")
            return False
        return True

    async def _copy_to_delay_step(
        self, session: ConsumingSession, message: ReceivedMessage, delay_ms: int
    ) -> None:
        step = self._layout.step(delay_ms)
        assert step is not None
        continues = bus_headers.continues_deaths(session.connection.server_properties)
        count = message.delivery.retry_count + 1
        headers = bus_headers.copy_headers(
            message.headers, session.queue, count, continues=continues
        )
        await self._publish_copy(message, headers, PublishAddress(DEFAULT_EXCHANGE, step.queue))

    async def _copy_to_dead_letters(
        self, message: ReceivedMessage, decision: Decision, result: HandlerResult
    ) -> None:
        delivery = message.delivery
        count = delivery.retry_count
        headers = bus_headers.dead_letter_headers(
            message.headers, delivery.queue, count, result.status_code, result.error
        )
        if self._layout.counts_in_header:
            headers[bus_headers.RETRY_COUNT] = count
        await self._publish_copy(message, headers, self._layout.dead_letters)
        _log.error(
            "%s: message %s of %s is in %s after %d retries; status %s, error %s",
            MAX_RETRIES_EXCEEDED if decision.is_exhausted else "a permanent fault",
            delivery.message_id,
            delivery.queue,
            self._layout.dlq,
            count,
            result.status_code,
            result.error,
        )

    async def _publish_copy(
        self, message: ReceivedMessage, headers: bus_headers.Headers, address: PublishAddress
    ) -> None:
        message_id = message.delivery.message_id or f"{self._rng.getrandbits(128):032x}"
        body = message.delivery.body
        copy = copy_of_message(body, message.properties, headers, address, message_id)
        await self._publisher.publish(copy)

    async def _wait(self, delivery: Delivery) -> None:
        """Hold a message that came too early, so that it is not redelivered at full speed."""
        now_s = self._clock.now_ms() / 1000
        await self._pause(early_wait_s(now_s, delivery.due_s, self._settings, self._rng))

    async def _pause(self, pause_s: float) -> None:
        """Wait; end early when the bus stops."""
        try:
            async with asyncio.timeout(pause_s):
                await self._stopping.wait()
        except TimeoutError:
            return

    async def _retry(self, session: ConsumingSession, message: ReceivedMessage) -> None:
        """Reject the delivery if the broker has the queues that bring it back."""
        try:
            await session.require_retry_path()
        except _SESSION_ERRORS as fault:
            # The delivery stays unsettled, so it comes again when the topology is complete.
            session.mark_lost(str(fault))
            return
        await self._nack(session, message, requeue=False)

    async def _requeue(self, session: ConsumingSession, message: ReceivedMessage) -> None:
        await self._nack(session, message, requeue=True)

    async def _nack(
        self, session: ConsumingSession, message: ReceivedMessage, *, requeue: bool
    ) -> None:
        if not message.is_settled:
            message.is_settled = True
            await self._send(session, session.channel.basic_nack(message.tag, requeue=requeue))

    async def _send(self, session: ConsumingSession, settling: Any) -> None:
        """Send an ack, nack or cancel. On a lost session the broker has requeued the delivery."""
        try:
            await session.connection.call(settling)
        except _SESSION_ERRORS as fault:
            session.mark_lost(str(fault))
            _log.info("a delivery could not be settled and will come again: %s", fault)

    async def stop(self, deadline_s: float) -> None:
        """Cancel the consumer, wait for running handlers, and requeue the rest."""
        self._stopping.set()
        session = self.connection.stop_reconnecting()
        if session is not None:
            cancel = session.channel.basic_cancel(session.consumer_tag)
            await self._send(session, cancel)
        if self._working:
            await asyncio.wait(set(self._working), timeout=deadline_s)
        for task in set(self._working):
            task.cancel()
        if self._working:
            _, running = await asyncio.wait(set(self._working), timeout=CANCEL_TIMEOUT_S)
            if running:
                _log.error("%d handlers still run after they were cancelled", len(running))
        await self.connection.stop()
        self._pool.shutdown(wait=False, cancel_futures=True)
