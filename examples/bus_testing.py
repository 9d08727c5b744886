"""A test of a service without a broker: FakeBus decides like the real bus, without waiting.

python examples/bus_testing.py
"""

import asyncio
from dataclasses import dataclass

from leveret.bus import Bus, Delivery, fanout
from leveret.bus.testing.fake_bus import FakeBus, FakeHub


@dataclass
class OrderPlaced:
    """An order was placed."""

    order_id: int


@dataclass
class OrderBilled:
    """An order was billed."""

    order_id: int


def register(bus: Bus) -> None:
    """Register the handlers of the service under test on any bus."""

    @bus.on(OrderPlaced)
    async def bill(event: OrderPlaced, delivery: Delivery) -> int:
        if event.order_id == 13:
            return 503
        await bus.publish(OrderBilled(event.order_id))
        return 200


async def test_an_order_is_billed() -> None:
    bus = FakeBus(fanout.layout("demo-billing"))
    register(bus)
    async with bus:
        await bus.publish(OrderPlaced(1))
    assert OrderBilled(1) in bus.published


async def test_event_that_keeps_failing_becomes_a_dead_letter() -> None:
    hub = FakeHub()
    bus = FakeBus(fanout.layout("demo-billing"), hub=hub)
    register(bus)
    async with bus:
        await bus.publish(OrderPlaced(13))
        await hub.advance(10 * 5)
    (dead,) = bus.dead_letters
    assert dead.headers["x-final-retry-count"] == 10


if __name__ == "__main__":
    asyncio.run(test_an_order_is_billed())
    asyncio.run(test_event_that_keeps_failing_becomes_a_dead_letter())
    print("both tests passed")
