"""A bus in memory for tests, with the decisions of the real bus and a clock that the test moves.

    hub = FakeHub()
    bus = FakeBus(fanout.layout("shop-billing"), hub=hub)

    @bus.on(OrderPlaced)
    async def bill(event: OrderPlaced) -> int:
        return 503

    async with bus:
        await bus.publish(OrderPlaced(1))        # returns after the handlers have run
        await hub.advance(10 * 5.0)              # ten retries, each after five seconds
        assert bus.dead_letters[0].headers["x-final-retry-count"] == 10

Statuses, retries, delays, dead letters and their headers come from the code of the real bus.
Deliveries are handled one at a time, in the order of their due times, so every run is the same.
"""

import asyncio
import heapq
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Final

from leveret.bus import codec
from leveret.bus import headers as bus_headers
from leveret.bus.bus import START_TIMEOUT_S, Bus
from leveret.bus.delivery import Delivery
from leveret.bus.dispatch import Middleware
from leveret.bus.errors import (
    BusError,
    NotConnectedError,
    PublishClosedError,
    PublishError,
    UnroutableError,
)
from leveret.bus.handler_result import TOO_EARLY, Action, Decision, HandlerResult, decide
from leveret.bus.health import Health
from leveret.bus.idempotency import IdempotencyStore
from leveret.bus.outgoing_message import PublishOptions, message_of_event, require_body_size
from leveret.bus.running_handlers import HandlerThreads
from leveret.bus.settings import BusSettings
from leveret.bus.testing.fakes import (
    START_S,
    FakeClock,
    FakeMessage,
    InlineExecutor,
    headers_after_retry,
    is_routed,
)
from leveret.bus.topology import DEFAULT_EXCHANGE, Layout, PublishAddress

DELIVERIES_MAX: Final = 100_000  # in one call, so that an endless loop of events fails


@dataclass(order=True)
class _QueuedMessage:
    """A message in the queue of a bus, with the time of its delivery."""

    due_ms: int
    position: int
    bus: "FakeBus" = field(compare=False)
    message: FakeMessage = field(compare=False)


class FakeHub:
    """Stands for the broker: time and routing, shared by several fake buses."""

    def __init__(self, start_s: float = START_S) -> None:
        self.clock = FakeClock(start_s)
        self.rng = Random(0)  # a fixed seed: the same ids and waits in every run
        self.buses: list[FakeBus] = []
        self._queue: list[_QueuedMessage] = []
        self._position = 0
        self._is_settling = False

    async def advance(self, by_s: float) -> None:
        """Let time pass, and handle each message at its due time."""
        target_ms = self.clock.at_ms + round(by_s * 1000)
        while self._queue and self._queue[0].due_ms <= target_ms:
            self.clock.at_ms = max(self.clock.at_ms, self._queue[0].due_ms)
            await self.settle()
        self.clock.at_ms = target_ms
        await self.settle()

    async def settle(self) -> None:
        """Handle every message that is due now."""
        if self._is_settling:
            return  # a handler publishes: its messages are handled after it
        self._is_settling = True
        try:
            count = 0
            while self._queue and self._queue[0].due_ms <= self.clock.at_ms:
                waiting = heapq.heappop(self._queue)
                await waiting.bus.deliver(waiting.message)
                count += 1
                assert count < DELIVERIES_MAX, "the handlers publish without end"
        finally:
            self._is_settling = False

    def route(self, address: PublishAddress, message: FakeMessage) -> bool:
        """Put a message into every queue that it is routed to. Return False if there is none."""
        receivers = [bus for bus in self.buses if bus.receives(address)]
        for bus in receivers:
            self.put(bus, message, 0)
        return bool(receivers)

    def put(self, bus: "FakeBus", message: FakeMessage, delay_ms: int) -> None:
        """Put a message into the queue of one bus, to be delivered after a delay."""
        self._position += 1
        due_ms = self.clock.at_ms + delay_ms
        heapq.heappush(self._queue, _QueuedMessage(due_ms, self._position, bus, message))

    def waiting_count(self, bus: "FakeBus") -> int:
        """Return the number of messages in the queue of a bus."""
        return sum(1 for each in self._queue if each.bus is bus)


class FakeBus(Bus):
    """A bus in memory. A test reads `published`, `handled` and `dead_letters`."""

    def __init__(
        self,
        layout: Layout,
        *,
        hub: FakeHub | None = None,
        settings: BusSettings | None = None,
        middleware: Sequence[Middleware] = (),
        idempotency: IdempotencyStore | None = None,
    ) -> None:
        self.hub = hub or FakeHub()
        super().__init__(
            "amqp://fake/",
            layout,
            settings=settings,
            middleware=middleware,
            idempotency=idempotency,
            clock=self.hub.clock,
            rng=self.hub.rng,
        )
        self.published: list[object] = []
        self.handled: list[tuple[Delivery, HandlerResult]] = []
        self.dead_letters: list[FakeMessage] = []
        self.fail_next: list[type[PublishError]] = []  # the next publishes raise these errors
        self._is_started = False
        self._failures: list[BusError] = []

    async def start(self, timeout_s: float = START_TIMEOUT_S) -> None:
        self._require_not_started()
        self._loop = asyncio.get_running_loop()
        self._ended = asyncio.Event()
        self._layout = self._layout.with_delays(self._dispatcher.delays_ms)
        if not self._dispatcher.is_empty:
            self.hub.buses.append(self)
        self._is_started = True

    async def stop(self, deadline_s: float | None = None) -> None:
        if self in self.hub.buses:
            self.hub.buses.remove(self)
        self._is_started = False
        self._ended.set()

    async def publish_with(self, event: object, options: PublishOptions) -> str:
        self._publish(event, options)
        await self.hub.settle()
        return self._last_id

    async def send(self, event: object, options: PublishOptions | None = None) -> str:
        self._require_running()
        try:
            self._publish(event, options or PublishOptions())
        except PublishError as fault:
            self._failures.append(fault)
        return self._last_id

    def add_to_outbox(
        self, connection: object, event: object, options: PublishOptions, key: str
    ) -> tuple[str, Awaitable[None] | None]:
        """Publish at once: a test needs no database."""
        self._publish(event, options)
        return self._last_id, self.hub.settle()

    async def wait_for_confirms(self, timeout_s: float) -> bool:
        await self.hub.settle()
        return not self._failures

    def take_failures(self) -> list[BusError]:
        taken, self._failures = self._failures, []
        return taken

    async def health(self) -> Health:
        is_started = self._is_started
        is_consuming = is_started and not self._dispatcher.is_empty
        reason = "" if is_consuming else "not started, or no handler"
        return Health(is_consuming, None, reason, (), is_started, is_started)

    def _require_running(self, message_id: str = "") -> None:
        if self._loop is None:
            raise NotConnectedError("the bus is not started")
        if not self._is_started:
            raise PublishClosedError(message_id, "the bus was stopped")

    def _publish(self, event: object, options: PublishOptions) -> None:
        made = message_of_event(event, options, self._layout, self._clock.now_ms(), self._rng)
        self._last_id = made.message_id
        self._require_running(made.message_id)
        if self.fail_next:
            raise self.fail_next.pop(0)(made.message_id, "the test asked for this failure")
        require_body_size(made, self._settings.body_bytes_max)
        message = FakeMessage(
            made.body,
            made.message_id,
            codec.name_of(type(event)),
            made.address.routing_key,
            made.address.exchange,
            dict(made.properties.headers or {}),
            self._clock.now_ms() // 1000,
            correlation_id=options.correlation_id or "",
        )
        if not self.hub.route(made.address, message) and made.mandatory:
            raise UnroutableError(made.message_id, f"no queue takes {made.address}")
        self.published.append(event)

    def receives(self, address: PublishAddress) -> bool:
        """Return True if a message that is published there is routed to this bus."""
        if address.exchange == DEFAULT_EXCHANGE:
            return address.routing_key == self._layout.queue
        types = {each.name: each.type for each in self._layout.consuming.exchanges}
        return any(
            is_routed(types[each.exchange], each.routing_key, address.routing_key)
            for each in self._layout.consuming.bindings
            if each.exchange == address.exchange and each.queue == self._layout.queue
        )

    async def deliver(self, message: FakeMessage) -> None:
        """Handle a message and settle it."""
        delivery = self._delivery(message)
        due_s = delivery.due_s
        wait_ms = 0 if due_s is None else round(due_s * 1000) - self._clock.now_ms()
        if wait_ms > 0:
            self._settle(message, delivery, Decision(Action.WAIT, wait_ms), TOO_EARLY)
            return
        result = await self._dispatcher.handle(delivery, HandlerThreads(InlineExecutor(), 1))
        self.handled.append((delivery, result))
        policy = self._dispatcher.policy(delivery)
        count, wait_s = delivery.retry_count, self._settings.early_wait_s
        decision = decide(result, count, self._layout, policy, wait_s)
        self._settle(message, delivery, decision, result)

    def _delivery(self, message: FakeMessage) -> Delivery:
        count = bus_headers.retry_count(message.headers, self._layout.queue)
        return Delivery(
            queue=self._layout.queue,
            body=message.body,
            message_id=message.message_id,
            type=message.type,
            routing_key=message.routing_key,
            exchange=message.exchange,
            content_type=codec.CONTENT_TYPE,
            correlation_id=message.correlation_id,
            headers={**message.headers, bus_headers.RETRY_COUNT: count},
            retry_count=count,
            timestamp_s=message.timestamp_s,
            is_redelivered=message.is_redelivered,
        )

    def _settle(
        self, message: FakeMessage, delivery: Delivery, decision: Decision, result: HandlerResult
    ) -> None:
        queue = self._layout.queue
        if decision.action is Action.WAIT:
            self.hub.put(self, message, max(1, decision.delay_ms))
        elif decision.action is Action.REJECT:
            headers = headers_after_retry(message.headers, queue, self._layout.retry_queue)
            self.hub.put(self, replace(message, headers=headers), decision.delay_ms)
        elif decision.action is Action.DELAY:
            count = delivery.retry_count + 1
            headers = bus_headers.copy_headers(message.headers, queue, count, continues=True)
            later_ms = self.hub.rng.randrange(decision.jitter_ms + 1)
            self.hub.put(self, replace(message, headers=headers), decision.delay_ms + later_ms)
        elif decision.action is Action.DEAD_LETTER:
            self.dead_letters.append(self._dead_letter(message, delivery, result))

    def _dead_letter(
        self, message: FakeMessage, delivery: Delivery, result: HandlerResult
    ) -> FakeMessage:
        count = delivery.retry_count
        headers = bus_headers.dead_letter_headers(
            message.headers,
            self._layout.queue,
            count,
            result.status_code,
            result.error,
            self._clock.now_ms(),
        )
        if self._layout.counts_in_header:
            headers[bus_headers.RETRY_COUNT] = count
        return replace(message, headers=headers)

    _last_id = ""
