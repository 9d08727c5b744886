"""A FastStream application: subscribers that answer, pass on, and refuse messages."""

from __future__ import annotations

import asyncio
import os

from faststream import AckPolicy, FastStream
from faststream.rabbit import ExchangeType, RabbitBroker, RabbitExchange, RabbitQueue
from faststream.rabbit.schemas.queue import ClassicQueueArgs
from pydantic import BaseModel


class Order(BaseModel):
    item: str
    count: int


def make_broker(url: str, prefix: str) -> RabbitBroker:
    broker = RabbitBroker(url)
    orders = RabbitExchange(f"{prefix}.orders", type=ExchangeType.TOPIC)
    to_dead: ClassicQueueArgs = {
        "x-dead-letter-exchange": "",
        "x-dead-letter-routing-key": f"{prefix}.dead",
    }
    placed = RabbitQueue(f"{prefix}.placed", routing_key="order.*", arguments=to_dead)
    broker.subscriber(placed, orders, ack_policy=AckPolicy.REJECT_ON_ERROR)(on_order)
    broker.subscriber(f"{prefix}.dead")(on_dead)
    broker.subscriber(f"{prefix}.square")(on_square)
    return broker


async def on_order(order: Order) -> None:
    if order.count < 0:
        raise ValueError("a negative order")
    print("ordered", order.count, order.item)


async def on_dead(order: Order) -> None:
    print("refused", order.item)


async def on_square(number: int) -> int:
    return number * number


if __name__ == "__main__":
    application = FastStream(
        make_broker(os.environ["LEVERET_APP_BROKER"], os.environ["LEVERET_APP_QUEUE"])
    )
    asyncio.run(application.run())
