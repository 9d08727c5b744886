"""The bus of one service: handlers, publishing, and a connection for each.

Publishing and consuming have separate connections. A broker that is short of memory stops reading
from connections that publish, and acks must still reach it. A bus without handlers only publishes,
and declares no queue.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict
from random import Random, SystemRandom
from types import TracebackType
from typing import Any, Final, Self, TypeVar, cast

from leveret.bus import codec
from leveret.bus.asyncapi import describe
from leveret.bus.connections.broker_addresses import BrokerAddresses
from leveret.bus.consuming import Consumer
from leveret.bus.consuming_session import ConsumingSession
from leveret.bus.dispatch import Dispatcher, HandlerDecorator, M, Middleware
from leveret.bus.errors import BusError, NotConnectedError
from leveret.bus.health import Health, vhost_of, why_not_listed
from leveret.bus.health_port import HealthPort
from leveret.bus.idempotency import IdempotencyStore
from leveret.bus.metrics import BusMetrics
from leveret.bus.outbox import Outbox
from leveret.bus.outbox_relay import OutboxRelay
from leveret.bus.outgoing_message import (
    OutgoingMessage,
    PublishOptions,
    message_of_event,
    require_body_size,
)
from leveret.bus.publishing import BackgroundPublisher, Publisher, PublishingSession
from leveret.bus.retry_policy import Backoff, RetryPolicy
from leveret.bus.settings import BusSettings
from leveret.bus.spans import Spans, maybe_spans
from leveret.bus.stop_signals import on_stop_signal
from leveret.bus.topology import Layout, Topology
from leveret.clock import Clock

START_TIMEOUT_S: Final = 30.0

E = TypeVar("E")
_log: Final = logging.getLogger(__name__)


class Bus:
    """Publishes and consumes for one service, on Leveret or RabbitMQ.

    `url` may be several addresses, one for each node of a cluster. `publishes` names events that
    `asyncapi` describes besides the handled ones.
    """

    def __init__(
        self,
        url: str | Sequence[str],
        layout: Layout,
        *,
        settings: BusSettings | None = None,
        middleware: Sequence[Middleware] = (),
        idempotency: IdempotencyStore | None = None,
        outbox: Outbox | None = None,
        publishes: Sequence[type] = (),
        clock: Clock | None = None,
        rng: Random | None = None,
        management_url: str | None = None,
        health_port: int | None = None,
        health_host: str = "127.0.0.1",
    ) -> None:
        self._addresses = BrokerAddresses(url)
        self._layout = layout
        self._settings = settings or BusSettings()
        limit_s = self._settings.handler_timeout_s
        self._dispatcher = Dispatcher(layout, middleware, idempotency, limit_s)
        self._clock = clock or Clock()
        self._rng = rng or SystemRandom()
        self._management_url = management_url
        self._health_address = None if health_port is None else (health_host, health_port)
        self._port: HealthPort | None = None
        self.health_port: int | None = None  # the open port
        self._metrics = BusMetrics(layout.service)
        self._spans: Spans | None = None
        for each in publishes:
            codec.require_event(each)
        self._publishes = tuple(publishes)
        self._outbox = outbox
        self._relay: OutboxRelay | None = None
        self._publisher: Publisher | None = None
        self._background: BackgroundPublisher | None = None
        self._consumer: Consumer | None = None
        self._ended = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None  # the loop on which it was started

    @property
    def layout(self) -> Layout:
        """The layout, after `start` with a queue for every delay of the handlers."""
        return self._layout

    def on(
        self, event: type[E], *, retry: RetryPolicy | None = None, timeout_s: float | None = None
    ) -> HandlerDecorator[E]:
        """Register a handler for an event class. It takes the event, and if wanted the delivery.

        A handler that runs longer than `timeout_s` has failed.
        """
        codec.require_event(event)  # `@bus.on` without a class would register nothing

        def register(handler: Callable[..., Any]) -> Callable[..., Any]:
            self._require_not_started()
            self._dispatcher.add(event, handler, retry, timeout_s)
            return handler

        return cast(HandlerDecorator[E], register)

    def on_message(
        self, *, retry: RetryPolicy | None = None, timeout_s: float | None = None
    ) -> Callable[[M], M]:
        """Register the handler of all other messages. It takes the delivery."""

        def register(handler: M) -> M:
            self._require_not_started()
            self._dispatcher.add_fallback(handler, retry, timeout_s)
            return handler

        return register

    def asyncapi(self) -> dict[str, Any]:
        """Describe the events of this service in the format of AsyncAPI."""
        return describe(self._layout, self._dispatcher.events, self._publishes)

    async def start(self, timeout_s: float = START_TIMEOUT_S) -> None:
        """Connect, declare the topology and consume.

        Raise NotConnectedError or TopologyMismatchError; at once LoginRefusedError, which is a
        NotConnectedError. A bus that was stopped or failed to start may be started again.
        """
        self._require_not_started()
        if self._health_address is not None:
            port = HealthPort(self._health_document, self.metrics)
            self.health_port = await port.start(*self._health_address)
            self._port = port
        self._loop = asyncio.get_running_loop()
        self._ended = asyncio.Event()
        self._consumer = None
        self._layout = self._layout.with_delays(self._dispatcher.delays_ms)
        settings = self._settings
        backoff = Backoff(self._rng, settings.backoff_s_min, settings.backoff_s_max)
        name = f"{self._layout.service} publisher"
        self._spans = self._dispatcher.spans = maybe_spans()
        self._publisher = Publisher(
            self._addresses, name, self._topology, settings, self._clock, backoff, self._metrics
        )
        self._background = BackgroundPublisher(self._publisher, settings.outstanding_max)
        self._publisher.connection.start()
        if not self._dispatcher.is_empty:
            self._consumer = self._new_consumer(self._publisher)
            self._consumer.start()
        try:
            await self._wait_for_sessions(timeout_s)
        except BaseException:
            await self.stop(0)
            raise
        if self._outbox is not None:
            self._relay = OutboxRelay(self._outbox, self._publisher.publish, settings)
            self._relay.start()

    async def _wait_for_sessions(self, timeout_s: float) -> None:
        assert self._publisher is not None
        loop = asyncio.get_running_loop()
        end_s = loop.time() + timeout_s
        await self._publisher.connection.wait_for_session(timeout_s)
        if self._consumer is not None:
            await self._consumer.connection.wait_for_session(end_s - loop.time())

    def _new_consumer(self, publisher: Publisher) -> Consumer:
        return Consumer(
            self._addresses,
            f"{self._layout.service} consumer",
            self._layout,
            self._dispatcher,
            publisher,
            self._settings,
            self._clock,
            self._rng,
            self._metrics,
        )

    def _topology(self) -> Topology:
        is_reading = not self._dispatcher.is_empty
        return self._layout.consuming if is_reading else self._layout.publishing

    async def stop(self, deadline_s: float | None = None) -> None:
        """Finish running handlers and open publishes, then stop. The deadline ends the waiting."""
        deadline_s = self._settings.stop_deadline_s if deadline_s is None else deadline_s
        loop = asyncio.get_running_loop()
        end_s = loop.time() + deadline_s
        if self._consumer is not None:
            await self._consumer.stop(deadline_s)
        if self._relay is not None:
            await self._relay.stop(max(0.0, end_s - loop.time()))
            self._relay = None
        if self._background is not None:
            await self._background.wait_for_confirms(max(0.0, end_s - loop.time()))
            await self._background.stop()
        if self._publisher is not None:
            await self._publisher.stop()
        if self._port is not None:
            await self._port.stop()
            self._port = self.health_port = None
        self._ended.set()

    async def run(self) -> None:
        """Start, and run until `stop` is called, or until SIGTERM or SIGINT.

        Running handlers are finished first, within `stop_deadline_s`.
        """
        loop = asyncio.get_running_loop()
        stopping: set[asyncio.Task[None]] = set()
        with on_stop_signal(lambda: stopping.add(loop.create_task(self.stop(), name="stop"))):
            try:
                await self.start()
                await self._ended.wait()
            except NotConnectedError:
                if not stopping:  # otherwise the signal came while the bus connected
                    raise
            finally:
                if not self._ended.is_set() and not stopping:
                    await self.stop()
                for task in stopping:
                    await task

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        fault: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if not self._ended.is_set():
            await self.stop()

    async def publish(
        self,
        event: object,
        *,
        routing_key: str | None = None,
        headers: Mapping[str, Any] | None = None,
        delay_s: float | None = None,
        message_id: str | None = None,
        mandatory: bool | None = None,
        timeout_s: float | None = None,
        traceparent: str | None = None,
        correlation_id: str | None = None,
    ) -> str:
        """Publish an event, wait for the confirm, and return the message id.

        `delay_s` is the time until consumers may handle it. Raise EncodeError, or a PublishError
        that says why there is no confirm.
        """
        options = PublishOptions(
            routing_key,
            headers,
            delay_s,
            message_id,
            mandatory,
            timeout_s,
            traceparent,
            correlation_id,
        )
        return await self.publish_with(event, options)

    async def publish_with(self, event: object, options: PublishOptions) -> str:
        """Publish with the options as one object; otherwise like `publish`."""
        publisher = self._require_started_here(self._publisher)
        with self._span(event, options) as given:
            message = self._message(event, given)
            await publisher.publish(message, options.timeout_s)
        return message.message_id

    async def send(self, event: object, options: PublishOptions | None = None) -> str:
        """Publish without waiting for the confirm. Wait only while too many confirms are open."""
        background = self._require_started_here(self._background)
        options = options or PublishOptions()
        with self._span(event, options) as given:
            message = self._message(event, given)
            await background.send(message, options.timeout_s)
        return message.message_id

    def _span(
        self, event: object, options: PublishOptions
    ) -> contextlib.AbstractContextManager[PublishOptions]:
        """Return a span for a publish, if the program uses OpenTelemetry."""
        if self._spans is None or options.traceparent is not None:
            return contextlib.nullcontext(options)
        return self._spans.publishing(event, options, self._layout)

    def _message(self, event: object, options: PublishOptions) -> OutgoingMessage:
        """Make the message of an event. Raise EncodeError or TooLargeError."""
        message = message_of_event(event, options, self._layout, self._clock.now_ms(), self._rng)
        require_body_size(message, self._settings.body_bytes_max)
        return message

    async def publish_within(
        self,
        connection: Any,
        event: object,
        options: PublishOptions | None = None,
        *,
        key: str = "",
    ) -> str:
        """Write an event to the outbox, in the transaction of this database connection.

        A started bus with the same outbox publishes it after the commit. Events with the same key
        are published in order. Return the message id. Raise EncodeError or TooLargeError.
        """
        given = options or PublishOptions()
        message_id, added = self.add_to_outbox(connection, event, given, key)
        if added is not None:
            await added
        return message_id

    def add_to_outbox(
        self, connection: Any, event: object, options: PublishOptions, key: str
    ) -> tuple[str, Awaitable[None] | None]:
        """Write an event to the outbox, for `publish_within` of this bus and of a SyncBus.

        Return the message id, and the awaitable that the outbox returned: None if it has written
        the event already.
        """
        if self._outbox is None:
            raise RuntimeError("the bus has no outbox: Bus(…, outbox=…)")
        with self._span(event, options) as given:
            message = self._message(event, given)
            return message.message_id, self._outbox.add(connection, message, key)

    async def wait_for_confirms(self, timeout_s: float) -> bool:
        """Return True if everything that `send` published is confirmed.

        Return False after the timeout, or if a publish failed; `take_failures` has the failures,
        and until it is called the answer stays False.
        """
        return await self._require_started_here(self._background).wait_for_confirms(timeout_s)

    def take_failures(self) -> list[BusError]:
        """Return why publishes of `send` failed, since the last call."""
        return self._require_started(self._background).take_failures()

    async def health(self) -> Health:
        """Ask the broker whether it lists our consumer, and look for handlers that hang."""
        publishing = None if self._publisher is None else self._publisher.connection.session
        if self._consumer is None:
            return await self._publisher_health(publishing)
        hung = self._dispatcher.running.hung()
        session = self._consumer.connection.session
        if session is None:
            error = self._consumer.connection.last_error
            reason = str(error) if error else "not connected"
        else:
            reason = await self._why_not_consuming(session, hung)
        is_publishing = publishing is not None
        if reason or session is None:
            return Health(False, None, reason, hung, is_publishing)
        return Health(True, session.since_ms / 1000, "", hung, is_publishing, is_publishing)

    async def _publisher_health(self, session: PublishingSession | None) -> Health:
        """Return the health of a bus without a consumer."""
        reason = "there is no handler, or the bus is not started"
        if session is None:
            return Health(False, reason=reason)
        fault = await session.check()
        text = f"{reason}; {fault}" if fault else reason
        return Health(False, None, text, (), not fault, not fault)

    async def _why_not_consuming(self, session: ConsumingSession, hung: tuple[str, ...]) -> str:
        """Return why the bus does not consume, or an empty text if it does."""
        reason = "the bus is stopping" if session.is_stopping else await session.check()
        if not reason and len(hung) >= min(self._settings.concurrency, self._settings.threads_max):
            reason = f"all handlers hang: {'; '.join(hung)}"
        if not reason and self._management_url is not None:
            vhost = vhost_of(self._addresses.present)
            reason = await why_not_listed(self._management_url, vhost, session.consumer_tag)
        return reason

    async def _health_document(self) -> tuple[bool, dict[str, Any]]:
        health = await self.health()
        document = {"service": self._layout.service, "queue": self._layout.queue}
        return health.is_healthy, {**document, **asdict(health)}

    def metrics(self) -> str:
        """Return the metrics of this bus, in the format of Prometheus."""
        found = {"publisher": self._publisher, "consumer": self._consumer}
        sessions = {
            name: (each.connection.session is not None, each.connection.session_count)
            for name, each in found.items()
            if each is not None
        }
        return self._metrics.text(running=self._dispatcher.running.count, sessions=sessions)

    def _require_not_started(self) -> None:
        has_loop = self._loop is not None and not self._loop.is_closed()
        if has_loop and not self._ended.is_set():
            raise RuntimeError("the bus is already started")

    def _require_started_here(self, part: E | None) -> E:
        started = self._require_started(part)
        if asyncio.get_running_loop() is not self._loop:
            # Its tasks run on the other loop, so a call on this one would wait for ever.
            raise RuntimeError("the bus was started on another event loop")
        return started

    def _require_started(self, part: E | None) -> E:
        if part is None:
            raise NotConnectedError("the bus is not started")
        return part
