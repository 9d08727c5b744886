"""The service, on leveret.bus."""

from leveret.bus import Bus, BusSettings, fanout
from tools.benchmark_bus.event import OrderPlaced, Work


class LeveretService:
    """Publishes orders and handles them."""

    def __init__(self, url: str, name: str, concurrency: int, work: Work | None) -> None:
        settings = BusSettings(concurrency=concurrency)
        self._bus = Bus(url, fanout.layout(name), settings=settings)
        if work is not None:
            self._bus.on(OrderPlaced)(work)

    async def start(self) -> None:
        await self._bus.start()

    async def publish(self, event: OrderPlaced) -> None:
        await self._bus.publish(event)

    async def stop(self) -> None:
        await self._bus.stop()
