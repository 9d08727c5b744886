"""The bus of one service: handlers, publishing, and the two links behind them.

Publishing and consuming have a connection each, because a broker that is short of memory stops
reading from connections that publish, and acks must still arrive. A bus without handlers only
publishes, and declares no queue that nobody reads.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from random import Random, SystemRandom
from types import TracebackType
from typing import Any, Final, Self, TypeVar, cast

from leveret.bus import codec
from leveret.bus.connections.connection import require_address
from leveret.bus.consuming import Consumer
from leveret.bus.dispatch import Dispatcher, M, Middleware, Register
from leveret.bus.health import Health, listing_fault, vhost_of
from leveret.bus.idempotency import IdempotencyStore
from leveret.bus.outgoing import PublishOptions, of_event, require_size
from leveret.bus.policy import Backoff, RetryPolicy
from leveret.bus.publishing import Outbox, Publisher
from leveret.bus.settings import BusSettings
from leveret.bus.topology import Layout, Topology
from leveret.clock import Clock
from leveret.errors import BusError, NotConnectedError

START_TIMEOUT_S: Final = 30.0

E = TypeVar("E")
_log: Final = logging.getLogger(__name__)


class Bus:
    """Publishes and consumes for one service, on any AMQP broker."""

    def __init__(
        self,
        url: str,
        layout: Layout,
        *,
        settings: BusSettings | None = None,
        middleware: Sequence[Middleware] = (),
        idempotency: IdempotencyStore | None = None,
        clock: Clock | None = None,
        rng: Random | None = None,
        management_url: str | None = None,
    ) -> None:
        require_address(url)
        self._url = url
        self._layout = layout
        self._settings = settings or BusSettings()
        self._dispatcher = Dispatcher(layout, middleware, idempotency)
        self._clock = clock or Clock()
        self._rng = rng or SystemRandom()
        self._management_url = management_url
        self._publisher: Publisher | None = None
        self._outbox: Outbox | None = None
        self._consumer: Consumer | None = None
        self._ended = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None  # on which it was started

    @property
    def layout(self) -> Layout:
        """What the bus applies, with a queue for every delay of its handlers."""
        return self._layout

    # Handlers

    def on(self, event: type[E], *, retry: RetryPolicy | None = None) -> Register[E]:
        """Register the handler of an event, by its class; it takes the event, and the delivery."""
        codec.require_event(event)  # a decorator without its class would register nothing

        def register(handler: Callable[..., Any]) -> Callable[..., Any]:
            self._require_not_started()
            self._dispatcher.add(event, handler, retry)
            return handler

        return cast(Register[E], register)

    def on_message(self, *, retry: RetryPolicy | None = None) -> Callable[[M], M]:
        """Register the handler of every message without one of its own; it takes the delivery."""

        def register(handler: M) -> M:
            self._require_not_started()
            self._dispatcher.add_fallback(handler, retry)
            return handler

        return register

    # Starting and stopping

    async def start(self, timeout_s: float = START_TIMEOUT_S) -> None:
        """Connect, apply the topology and consume. Raises NotConnectedError or TopologyMismatch.

        A bus that was stopped, or could not be started, may be started again.
        """
        self._require_not_started()
        self._loop = asyncio.get_running_loop()
        self._ended = asyncio.Event()
        self._consumer = None
        self._layout = self._layout.with_delays(self._dispatcher.delays_ms)
        settings = self._settings
        backoff = Backoff(self._rng, settings.backoff_s_min, settings.backoff_s_max)
        name = f"{self._layout.service} publisher"
        self._publisher = Publisher(self._url, name, self._topology, settings, self._clock, backoff)
        self._outbox = Outbox(self._publisher, settings.outstanding_max)
        self._publisher.link.start()
        if not self._dispatcher.is_empty:
            self._consumer = self._new_consumer(self._publisher)
            self._consumer.link.start()
        try:
            await self._ready(timeout_s)
        except BaseException:
            await self.stop(0)
            raise

    async def _ready(self, timeout_s: float) -> None:
        assert self._publisher is not None
        loop = asyncio.get_running_loop()
        end_s = loop.time() + timeout_s
        await self._publisher.link.ready(timeout_s)
        if self._consumer is not None:
            await self._consumer.link.ready(end_s - loop.time())

    def _new_consumer(self, publisher: Publisher) -> Consumer:
        return Consumer(
            self._url,
            f"{self._layout.service} consumer",
            self._layout,
            self._dispatcher,
            publisher,
            self._settings,
            self._clock,
            self._rng,
        )

    def _topology(self) -> Topology:
        is_reading = not self._dispatcher.is_empty
        return self._layout.consuming if is_reading else self._layout.publishing

    async def stop(self, deadline_s: float | None = None) -> None:
        """Finish what is being handled and sent; when the deadline has passed, give it back."""
        deadline_s = self._settings.stop_deadline_s if deadline_s is None else deadline_s
        loop = asyncio.get_running_loop()
        end_s = loop.time() + deadline_s
        if self._consumer is not None:
            await self._consumer.stop(deadline_s)
        if self._outbox is not None:
            await self._outbox.wait_for_confirms(max(0.0, end_s - loop.time()))
            await self._outbox.stop()
        if self._publisher is not None:
            await self._publisher.stop()
        self._ended.set()

    async def run(self) -> None:
        """Start, and serve until `stop` is called."""
        async with self:
            await self._ended.wait()

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

    # Publishing

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
        """Publish an event and wait for the confirm; the message's id.

        Raises NotEncodable, or the PublishFailed that says why it is not confirmed.
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
        """The same with the options as a value."""
        publisher = self._require_started_here(self._publisher)
        message = of_event(event, options, self._layout, self._clock.now_ms(), self._rng)
        require_size(message, self._settings.body_bytes_max)
        await publisher.publish(message, options.timeout_s)
        return message.message_id

    async def send(self, event: object, options: PublishOptions | None = None) -> str:
        """Publish without waiting for the confirm; waits while too many are outstanding."""
        outbox = self._require_started_here(self._outbox)
        options = options or PublishOptions()
        message = of_event(event, options, self._layout, self._clock.now_ms(), self._rng)
        require_size(message, self._settings.body_bytes_max)
        await outbox.send(message, options.timeout_s)
        return message.message_id

    async def wait_for_confirms(self, timeout_s: float) -> bool:
        """Whether all that was sent is confirmed; False when time is over or one failed.

        `take_failures` has what failed; until it is called the answer stays False.
        """
        return await self._require_started_here(self._outbox).wait_for_confirms(timeout_s)

    def take_failures(self) -> list[BusError]:
        """Why messages of `send` were not confirmed, since the last call."""
        return self._require_started(self._outbox).take_failures()

    # Health

    async def health(self) -> Health:
        """Whether the broker lists our consumer: it is asked now."""
        if self._consumer is None:
            return Health(False, reason="there is no handler, or the bus is not started")
        session = self._consumer.link.session
        if session is None:
            fault = self._consumer.link.fault
            return Health(False, reason=str(fault) if fault else "not connected")
        reason = "the bus is stopping" if session.is_leaving else await session.checked()
        if not reason and self._management_url is not None:
            vhost = vhost_of(self._url)
            reason = await listing_fault(self._management_url, vhost, session.consumer_tag)
        return Health(False, reason=reason) if reason else Health(True, session.since_ms / 1000)

    def _require_not_started(self) -> None:
        has_loop = self._loop is not None and not self._loop.is_closed()
        if has_loop and not self._ended.is_set():
            raise RuntimeError("the bus is started already")

    def _require_started_here(self, part: E | None) -> E:
        started = self._require_started(part)
        if asyncio.get_running_loop() is not self._loop:
            # Its tasks are on that loop: here a call would wait for what never comes.
            raise RuntimeError("the bus was started on another event loop than this one")
        return started

    def _require_started(self, part: E | None) -> E:
        if part is None:
            raise NotConnectedError("the bus is not started")
        return part
