"""The topic topology: routing keys, permanent faults, growing delays, and dead letters.

    python examples/bus_topic.py amqp://guest:guest@localhost/

It ends by itself when the order that can never be handled is among the dead letters.
"""

import asyncio
import sys
from typing import ClassVar

import msgspec

from leveret.bus import (
    Bus,
    Delivery,
    DeliveryOutcome,
    HandlerResult,
    Next,
    PermanentError,
    QueueType,
    RetryPolicy,
    UnroutableError,
    topic,
)


class OrderPlaced(msgspec.Struct):
    """An event with a routing key of its own."""

    routing_key: ClassVar[str] = "order.placed"
    order_id: int


async def main(url: str) -> None:
    finished = asyncio.Event()

    async def watch(delivery: Delivery, call: Next) -> HandlerResult:
        """Print every delivery and its result."""
        result = await call(delivery)
        print(f"{delivery.type} after {delivery.retry_count} retries: {result.outcome}")
        if result.outcome is DeliveryOutcome.DEAD_LETTER:
            finished.set()
        return result

    layout = topic.layout(
        "demo.orders",
        exchange="demo.events",
        routing_keys=("order.*",),
        queue_type=QueueType.CLASSIC,  # the default is QUORUM
    )
    bus = Bus(url, layout, middleware=[watch])

    @bus.on(OrderPlaced, retry=RetryPolicy.exponential(5, first_s=0.05, last_s=0.4))
    async def take(event: OrderPlaced, delivery: Delivery) -> None:
        if event.order_id < 0:
            raise PermanentError("there is no such order")
        if delivery.retry_count < 3:
            raise ConnectionError("the warehouse does not answer")

    async with bus:
        await bus.publish(OrderPlaced(1))
        try:
            await bus.publish(OrderPlaced(2), routing_key="nobody.listens")
        except UnroutableError as fault:
            print(fault)
        await asyncio.sleep(1)  # wait for the retries
        await bus.publish(OrderPlaced(-1))
        async with asyncio.timeout(10):
            await finished.wait()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "amqp://guest:guest@localhost/"))
