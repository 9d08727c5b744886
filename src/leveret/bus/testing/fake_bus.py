"""The double for tests: a bus without a broker, with the same decisions and a clock to move.

    hub = FakeHub()
    bus = FakeBus(fanout.layout("shop-billing"), hub=hub)

    @bus.on(OrderPlaced)
    async def bill(event: OrderPlaced) -> int:
        return 503

    async with bus:
        await bus.publish(OrderPlaced(1))        # handlers have run when it returns
        await hub.advance(10 * 5.0)              # ten retries, each after five seconds
        assert bus.dead_letters[0].headers["x-final-retry-count"] == 10

Statuses, retries, delays, dead letters and their headers come from the code that the real bus runs.
Deliveries are handled one at a time in the order of their time, so every run is the same.
"""

import asyncio
import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Final

from leveret.bus import codec
from leveret.bus import headers as names
from leveret.bus.bus import START_TIMEOUT_S, Bus
from leveret.bus.delivery import Delivery
from leveret.bus.dispatch import Middleware
from leveret.bus.early import early_wait_s
from leveret.bus.health import Health
from leveret.bus.idempotency import IdempotencyStore
from leveret.bus.outcome import TOO_EARLY, Act, Decision, Handled, decide
from leveret.bus.outgoing import PublishOptions, of_event, require_size
from leveret.bus.settings import BusSettings
from leveret.bus.testing.fakes import START_S, FakeClock, Inline, Message, died, matches
from leveret.bus.topology import DEFAULT_EXCHANGE, Layout, Target
from leveret.errors import (
    BusError,
    NotConnectedError,
    PublishClosedError,
    PublishError,
    UnroutableError,
)

STEPS_MAX: Final = 100_000  # deliveries of one call, so that a loop of events ends as an error


@dataclass(order=True)
class _Waiting:
    """A message in a queue, from when it may be delivered on."""

    due_ms: int
    position: int
    bus: "FakeBus" = field(compare=False)
    message: Message = field(compare=False)


class FakeHub:
    """What several fake buses share instead of a broker: time, and who gets what."""

    def __init__(self, start_s: float = START_S) -> None:
        self.clock = FakeClock(start_s)
        self.rng = Random(0)  # the same ids and waits in every run
        self.buses: list[FakeBus] = []
        self._queue: list[_Waiting] = []
        self._position = 0
        self._is_settling = False

    async def advance(self, by_s: float) -> None:
        """Let time pass; whatever falls due is handled at its own time."""
        target_ms = self.clock.at_ms + round(by_s * 1000)
        while self._queue and self._queue[0].due_ms <= target_ms:
            self.clock.at_ms = max(self.clock.at_ms, self._queue[0].due_ms)
            await self.settle()
        self.clock.at_ms = target_ms
        await self.settle()

    async def settle(self) -> None:
        """Handle everything that is due now."""
        if self._is_settling:
            return  # a handler publishes: what it published is handled after it
        self._is_settling = True
        try:
            steps = 0
            while self._queue and self._queue[0].due_ms <= self.clock.at_ms:
                waiting = heapq.heappop(self._queue)
                await waiting.bus.deliver(waiting.message)
                steps += 1
                assert steps < STEPS_MAX, "the handlers publish without end"
        finally:
            self._is_settling = False

    def route(self, target: Target, message: Message) -> bool:
        """Put a message into every queue that takes it; whether one does."""
        takers = [bus for bus in self.buses if bus.takes(target)]
        for bus in takers:
            self.put(bus, message, 0)
        return bool(takers)

    def put(self, bus: "FakeBus", message: Message, delay_ms: int) -> None:
        """Put a message into the queue of one bus, to be delivered after a time."""
        self._position += 1
        due_ms = self.clock.at_ms + delay_ms
        heapq.heappush(self._queue, _Waiting(due_ms, self._position, bus, message))

    def waiting(self, bus: "FakeBus") -> int:
        """Messages that a bus has not settled."""
        return sum(1 for each in self._queue if each.bus is bus)


class FakeBus(Bus):
    """A bus in memory. `published`, `handled` and `dead_letters` are for a test to look at."""

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
        self.handled: list[tuple[Delivery, Handled]] = []
        self.dead_letters: list[Message] = []
        self.fail_next: list[type[PublishError]] = []  # what the next publishes raise
        self._is_started = False
        self._failures: list[BusError] = []

    # What a bus does

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

    async def wait_for_confirms(self, timeout_s: float) -> bool:
        await self.hub.settle()
        return not self._failures

    def take_failures(self) -> list[BusError]:
        taken, self._failures = self._failures, []
        return taken

    async def health(self) -> Health:
        is_consuming = self._is_started and not self._dispatcher.is_empty
        return Health(is_consuming, reason="" if is_consuming else "not started, or no handler")

    def _require_running(self, message_id: str = "") -> None:
        if self._loop is None:
            raise NotConnectedError("the bus is not started")
        if not self._is_started:
            raise PublishClosedError(message_id, "the bus was stopped")

    def _publish(self, event: object, options: PublishOptions) -> None:
        made = of_event(event, options, self._layout, self._clock.now_ms(), self._rng)
        self._last_id = made.message_id
        self._require_running(made.message_id)
        if self.fail_next:
            raise self.fail_next.pop(0)(made.message_id, "as the test asked")
        require_size(made, self._settings.body_bytes_max)
        message = Message(
            made.body,
            made.message_id,
            codec.name_of(type(event)),
            made.target.routing_key,
            made.target.exchange,
            dict(made.properties.headers or {}),
            self._clock.now_ms() // 1000,
            correlation_id=options.correlation_id or "",
        )
        if not self.hub.route(made.target, message) and made.mandatory:
            raise UnroutableError(made.message_id, f"nobody takes {made.target}")
        self.published.append(event)

    # What a broker does

    def takes(self, target: Target) -> bool:
        """Whether what is published there comes to this bus."""
        if target.exchange == DEFAULT_EXCHANGE:
            return target.routing_key == self._layout.queue
        types = {each.name: each.type for each in self._layout.consuming.exchanges}
        return any(
            matches(types[each.exchange], each.routing_key, target.routing_key)
            for each in self._layout.consuming.bindings
            if each.exchange == target.exchange and each.queue == self._layout.queue
        )

    async def deliver(self, message: Message) -> None:
        """Hand a message to its handler and do what follows."""
        delivery = self._delivery(message)
        due_s = delivery.due_s
        if due_s is not None and self._clock.now_ms() / 1000 < due_s:
            self._settle(message, delivery, Decision(Act.REQUEUE), TOO_EARLY)
            return
        outcome = await self._dispatcher.handle(delivery, Inline())
        self.handled.append((delivery, outcome))
        policy = self._dispatcher.policy(delivery)
        decision = decide(outcome, delivery.retry_count, self._layout, policy)
        self._settle(message, delivery, decision, outcome)

    def _delivery(self, message: Message) -> Delivery:
        count = names.retry_count(message.headers, self._layout.queue)
        return Delivery(
            queue=self._layout.queue,
            body=message.body,
            message_id=message.message_id,
            type=message.type,
            routing_key=message.routing_key,
            exchange=message.exchange,
            content_type=codec.CONTENT_TYPE,
            correlation_id=message.correlation_id,
            headers={**message.headers, names.RETRY_COUNT: count},
            retry_count=count,
            timestamp_s=message.timestamp_s,
            is_redelivered=message.is_redelivered,
        )

    def _settle(
        self, message: Message, delivery: Delivery, decision: Decision, outcome: Handled
    ) -> None:
        queue = self._layout.queue
        if decision.act is Act.REQUEUE:
            now_s = self._clock.now_ms() / 1000
            pause_s = early_wait_s(now_s, delivery.due_s, self._settings, self._rng)
            again = replace(message, is_redelivered=True)
            self.hub.put(self, again, max(1, round(pause_s * 1000)))
        elif decision.act is Act.REJECT:
            headers = died(message.headers, queue, self._layout.retry_queue)
            self.hub.put(self, replace(message, headers=headers), decision.delay_ms)
        elif decision.act is Act.DELAY:
            count = delivery.retry_count + 1
            headers = names.carried(message.headers, queue, count, continues=True)
            self.hub.put(self, replace(message, headers=headers), decision.delay_ms)
        elif decision.act is Act.DEAD:
            self.dead_letters.append(self._dead(message, delivery, outcome))

    def _dead(self, message: Message, delivery: Delivery, outcome: Handled) -> Message:
        count = delivery.retry_count
        headers = names.dead_letter(
            message.headers, self._layout.queue, count, outcome.code, outcome.error
        )
        if self._layout.counts_in_header:
            headers[names.RETRY_COUNT] = count
        return replace(message, headers=headers)

    _last_id = ""
