"""FakeBus makes the decisions of the real bus, at the times that the test sets."""

from __future__ import annotations

import pytest

from leveret.bus import (
    Delivery,
    MemoryStore,
    NackedError,
    NotConnectedError,
    PermanentError,
    RetryPolicy,
    SyncBus,
    UnroutableError,
    fanout,
    topic,
)
from leveret.bus.testing.fake_bus import FakeBus, FakeHub
from tests.bus.stage import Placed

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.compiled_only("the library is the same in both forms"),
]


async def test_eleven_calls_then_the_dead_letters() -> None:
    bus = FakeBus(fanout.layout("wms-orders"))
    at_ms: list[int] = []

    @bus.on(Placed)
    async def fail(event: Placed, delivery: Delivery) -> int:
        at_ms.append(bus.hub.clock.now_ms())
        return 503

    async with bus:
        began_ms = bus.hub.clock.now_ms()
        await bus.publish(Placed(1))
        await bus.hub.advance(49.999)
        assert len(at_ms) == 10 and not bus.dead_letters
        await bus.hub.advance(0.001)
    assert [each - began_ms for each in at_ms] == [5_000 * retry for retry in range(11)]
    (dead,) = bus.dead_letters
    assert dead.headers["x-final-retry-count"] == 10
    assert dead.headers["x-final-status-code"] == 503
    assert dead.headers["x-original-queue"] == "wms.queue.wms-orders"
    assert dead.headers["x-death"][1]["count"] == 10


async def test_hub_routes_to_the_bound_services() -> None:
    hub = FakeHub()
    good, bad = FakeBus(fanout.layout("wms-a"), hub=hub), FakeBus(fanout.layout("wms-b"), hub=hub)
    other = FakeBus(topic.layout("q", exchange="e", routing_keys=("a.*", "#.z")), hub=hub)
    calls: list[str] = []

    @good.on(Placed)
    def succeed(event: Placed) -> None:
        calls.append("good")

    @bad.on(Placed)
    def fail_once(event: Placed, delivery: Delivery) -> int:
        calls.append("bad")
        return 200 if delivery.retry_count else 500

    @other.on(Placed)
    async def note(event: Placed) -> None:
        calls.append("other")

    async with good, bad, other:
        await good.publish(Placed(1))
        await hub.advance(5)
        assert calls == ["good", "bad", "bad"]
        await other.publish(Placed(1), routing_key="a.b")
        await other.publish(Placed(1), routing_key="x.y.z")
        with pytest.raises(UnroutableError):
            await other.publish(Placed(1), routing_key="a.b.c")
    assert calls == ["good", "bad", "bad", "other", "other"]


async def test_delay_permanent_fault_and_delay_steps() -> None:
    bus = FakeBus(topic.layout("q"))
    calls: list[tuple[int, int]] = []

    @bus.on(Placed, retry=RetryPolicy(3, (0.1, 0.2, 0.4)))
    async def handle(event: Placed, delivery: Delivery) -> int:
        calls.append((event.number, delivery.retry_count))
        if event.number == 2:
            raise PermanentError("never")
        return 500

    async with bus:
        await bus.publish(Placed(1), delay_s=10.0)
        assert not calls
        await bus.hub.advance(9.999)
        assert not calls
        await bus.hub.advance(0.701)
        assert calls == [(1, 0), (1, 1), (1, 2), (1, 3)]
        await bus.publish(Placed(2))
    assert [each.headers["x-final-retry-count"] for each in bus.dead_letters] == [3, 0]
    assert bus.hub.waiting_count(bus) == 0


async def test_handlers_publish_and_duplicates_are_skipped() -> None:
    bus = FakeBus(topic.layout("q"), idempotency=MemoryStore())
    calls: list[int] = []

    @bus.on(Placed)
    async def chain(event: Placed) -> None:
        calls.append(event.number)
        if event.number < 3:
            await bus.publish(Placed(event.number + 1))

    async with bus:
        await bus.publish(Placed(1), message_id="m")
        await bus.publish(Placed(1), message_id="m")
    assert calls == [1, 2, 3]
    assert bus.published == [Placed(1), Placed(2), Placed(3), Placed(1)]


async def test_a_publish_can_be_made_to_fail() -> None:
    bus = FakeBus(fanout.layout("wms-a"))
    with pytest.raises(NotConnectedError):
        await bus.publish(Placed(1))
    async with bus:
        bus.fail_next = [NackedError, NackedError]
        with pytest.raises(NackedError):
            await bus.publish(Placed(1))
        await bus.send(Placed(2))
        assert not await bus.wait_for_confirms(0.0)
        assert len(bus.take_failures()) == 1
        await bus.publish(Placed(3))
    assert bus.published == [Placed(3)]


def test_fake_bus_works_in_a_sync_bus() -> None:
    bus = FakeBus(topic.layout("q"))
    calls: list[int] = []

    @bus.on(Placed)
    def note(event: Placed) -> None:
        calls.append(event.number)

    with SyncBus(bus) as sync:
        sync.publish(Placed(1))
    assert calls == [1]


async def test_retries_with_jitter_come_back_one_by_one() -> None:
    hub = FakeHub()
    bus = FakeBus(fanout.layout("shop-billing"), hub=hub)
    times_s: list[float] = []

    @bus.on(Placed, retry=RetryPolicy(1, (10.0,), jitter=1.0))
    async def bill(event: Placed, delivery: Delivery) -> int:
        if delivery.retry_count:
            times_s.append(hub.clock.now_ms() / 1000 - began_s)
        return 500

    async with bus:
        began_s = hub.clock.now_ms() / 1000
        for number in range(20):
            await bus.publish(Placed(number))
        await hub.advance(10)
        assert len(times_s) < 3
        await hub.advance(10)
    assert len(set(times_s)) > 10
    assert min(times_s) >= 10 and max(times_s) <= 20
