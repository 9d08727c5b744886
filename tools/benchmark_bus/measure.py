"""One round of one service at one broker: events a second, latency, and the CPU of the service."""

import asyncio
import itertools
import time
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Final

from tools.benchmark_bus.event import MakeService, OrderPlaced, Service

TASKS: Final = 100  # that publish at once
SLICE: Final = 20  # events that one service publishes before it is the turn of the next
SLICES: Final = 5  # of the events that are published at once
CONCURRENCY: Final = 50  # handlers at once
HANDLER_S: Final = 0.01  # of the measurement of latency
RATE: Final = 1_000  # events a second, of the same
WITHIN_S: Final = 600.0  # for all events of one part of a round

PUBLISH_ONE: Final = "publish one after the other"
PUBLISH_MANY: Final = f"publish {TASKS} at once"
HANDLE: Final = f"handle {CONCURRENCY} at once"
P50: Final = "p50 ms"
P99: Final = "p99 ms"

Figures = dict[str, float]


@dataclass(frozen=True)
class Sizes:
    """How many events each part of a round has."""

    ones: int = 400
    many: int = 5_000
    paced_s: float = 3.0


QUICK: Final = Sizes(ones=40, many=1_000, paced_s=0.5)


class Handled:
    """Counts handled events, and keeps how long each took from its publish."""

    def __init__(self, pause_s: float) -> None:
        self._pause_s = pause_s
        self._wanted = 0
        self._all = asyncio.Event()
        self.times_ms: list[float] = []

    async def work(self, event: OrderPlaced) -> None:
        if self._pause_s:
            await asyncio.sleep(self._pause_s)
        self.times_ms.append((time.monotonic_ns() - event.published_ns) / 1e6)
        if len(self.times_ms) == self._wanted:
            self._all.set()

    async def wait(self, count: int) -> None:
        self._wanted = count
        if len(self.times_ms) < count:
            try:
                async with asyncio.timeout(WITHIN_S):
                    await self._all.wait()
            except TimeoutError:
                text = f"{len(self.times_ms)} of {count} events were handled in {WITHIN_S:g} s"
                raise TimeoutError(text) from None


class Meter:
    """Time, and CPU time of this process, of some stretches."""

    def __init__(self) -> None:
        self._took_s = 0.0
        self._used_s = 0.0
        self._events = 0

    async def add(self, events: int, work: Awaitable[None]) -> None:
        """Measure one stretch."""
        began_s, used_s = time.perf_counter(), time.process_time()
        await work
        self._took_s += time.perf_counter() - began_s
        self._used_s += time.process_time() - used_s
        self._events += events

    def figures(self, name: str) -> Figures:
        return {
            f"{name} /s": self._events / self._took_s,
            f"{name} CPU µs": self._used_s / self._events * 1e6,
        }


_numbers = itertools.count(1)


def _event() -> OrderPlaced:
    return OrderPlaced(next(_numbers), "A. Hare", "12.50", time.monotonic_ns())


Rivals = dict[str, tuple[MakeService, str]]  # by name: how it is made, and its service name


async def round_of(rivals: Rivals, url: str, sizes: Sizes) -> dict[str, Figures]:
    """Every figure once for every service. All events that are published are handled."""
    found: dict[str, Figures] = {name: {} for name in rivals}
    publishers: dict[str, Service] = {}
    for name, (make, service) in rivals.items():
        declaring = make(url, service, CONCURRENCY, Handled(0).work)
        await declaring.start()
        await declaring.stop()
        publishers[name] = make(url, service, CONCURRENCY, None)
        await publishers[name].start()
    for figure, publish, count, slice_ in (
        (PUBLISH_ONE, _publish_one, sizes.ones, SLICE),
        (PUBLISH_MANY, _publish_many, sizes.many, sizes.many // SLICES),
    ):
        meters = {name: Meter() for name in publishers}
        for _ in range(count // slice_):  # in turns, because the machine has other work
            for name, publisher in publishers.items():
                await meters[name].add(slice_, publish(publisher, slice_))
        for name, meter in meters.items():
            found[name] |= meter.figures(figure)
    for publisher in publishers.values():
        await publisher.stop()
    for name, (make, service) in rivals.items():
        count = sizes.ones // SLICE * SLICE + sizes.many // SLICES * SLICES
        found[name] |= await _drain(make, url, service, count)
    for name, (make, service) in rivals.items():
        found[name] |= await _latency(make, url, service, sizes.paced_s)
    return found


async def _publish_one(service: Service, count: int) -> None:
    for _ in range(count):
        await service.publish(_event())


async def _publish_many(service: Service, count: int) -> None:
    async def some() -> None:
        for _ in range(count // TASKS):
            await service.publish(_event())

    async with asyncio.TaskGroup() as group:
        for _ in range(TASKS):
            group.create_task(some())


async def _drain(make: MakeService, url: str, name: str, count: int) -> Figures:
    handled = Handled(0)
    service = make(url, name, CONCURRENCY, handled.work)
    meter = Meter()

    async def drain() -> None:
        await service.start()
        await handled.wait(count)

    try:
        await meter.add(count, drain())
        return meter.figures(HANDLE)
    finally:
        await service.stop()


async def _latency(make: MakeService, url: str, name: str, paced_s: float) -> Figures:
    """Publish and handle in one service, at a rate."""
    handled = Handled(HANDLER_S)
    service = make(url, name, CONCURRENCY, handled.work)
    meter = Meter()
    await service.start()

    async def publish_and_handle() -> None:
        await handled.wait(await _publish_paced(service, paced_s))

    try:
        await meter.add(round(paced_s * RATE), publish_and_handle())
        times = sorted(handled.times_ms)
        p50, p99 = times[len(times) // 2], times[len(times) * 99 // 100]
        used_us = meter.figures("paced")["paced CPU µs"]
        return {P50: p50, P99: p99, "publish and handle CPU µs": used_us}
    finally:
        await service.stop()


async def _publish_paced(service: Service, paced_s: float) -> int:
    """Publish each event when its time has come, also if those before it are not confirmed."""
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    count, wanted = 0, round(paced_s * RATE)
    async with asyncio.TaskGroup() as group:
        while count < wanted:
            while count < min(wanted, (loop.time() - began_s) * RATE):
                group.create_task(service.publish(_event()))
                count += 1
            await asyncio.sleep(1 / RATE)
    return count
