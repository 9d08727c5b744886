"""The event of all three services, and what they do with it."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol


@dataclass
class OrderPlaced:
    """An order, and when it was published by the monotonic clock."""

    order_id: int
    customer: str
    amount: str
    published_ns: int


Work = Callable[[OrderPlaced], Awaitable[None]]


class Service(Protocol):
    """A program that publishes orders and handles them."""

    async def start(self) -> None: ...

    async def publish(self, event: OrderPlaced) -> None: ...

    async def stop(self) -> None: ...


# A service of this name, at this broker, which handles so many events at once by this function, or
# only publishes.
MakeService = Callable[[str, str, int, Work | None], Service]
