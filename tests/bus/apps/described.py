"""A service whose events `leveret bus asyncapi` describes."""

from dataclasses import dataclass

import msgspec
import pydantic

from leveret.bus import Bus, fanout, topic


@dataclass
class Item:
    name: str
    count: int = 1


@dataclass
class OrderPlaced:
    """A customer has ordered.

    More about it.
    """

    order_id: int
    items: list[Item]


class OrderPaid(msgspec.Struct):
    order_id: int
    event_name = "shop/order-paid"


class Address(pydantic.BaseModel):
    street: str


class OrderShipped(pydantic.BaseModel):
    to: Address


bus = Bus("amqp://nowhere/", fanout.layout("shop-billing"), publishes=[OrderPaid, OrderShipped])
queue = Bus("amqp://nowhere/", topic.layout("billing.events"), publishes=[OrderPaid])
number = 7


@bus.on(OrderPlaced)
async def bill(event: OrderPlaced) -> None: ...


@bus.on(OrderShipped)
async def note(event: OrderShipped) -> None: ...
