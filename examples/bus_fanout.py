"""Two services of the fanout topology: each gets every event, and only the one that fails retries.

    python examples/bus_fanout.py amqp://guest:guest@localhost/

It ends by itself when both services have handled the order.
"""

import asyncio
import logging
import sys
from dataclasses import dataclass

from leveret.bus import Bus, Delivery, fanout


@dataclass
class OrderPlaced:
    """An order was placed."""

    order_id: int
    cents: int


async def main(url: str) -> None:
    billed, shipped = asyncio.Event(), asyncio.Event()
    # Services that share a prefix, the part before the hyphen, share their events.
    billing = Bus(url, fanout.layout("demo-billing", retry_delay_s=0.2))
    shipping = Bus(url, fanout.layout("demo-shipping", retry_delay_s=0.2))

    @billing.on(OrderPlaced)
    async def bill(event: OrderPlaced) -> None:
        print(f"billed {event.cents} cents for order {event.order_id}")
        billed.set()

    @shipping.on(OrderPlaced)
    def ship(event: OrderPlaced, delivery: Delivery) -> int:
        # A plain function runs in a thread. It may return an HTTP status.
        if delivery.retry_count < 2:
            return 503
        print(f"shipped order {event.order_id} at the third attempt")
        asyncio.run_coroutine_threadsafe(_set(shipped), loop)
        return 200

    loop = asyncio.get_running_loop()
    async with billing, shipping:
        message_id = await billing.publish(OrderPlaced(order_id=1, cents=995))
        print(f"published {message_id}")
        async with asyncio.timeout(10):
            await billed.wait()
            await shipped.wait()


async def _set(event: asyncio.Event) -> None:
    event.set()


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "amqp://guest:guest@localhost/"))
