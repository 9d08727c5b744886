"""The loop watch: idle with the broker, and notices a blocked loop."""

import asyncio
import time

from leveret.histogram import Histogram
from leveret.runtime.loop_watch import LAG_BOUNDS_S, PROBE_S, LoopWatch


class Seen(Histogram):
    """Tells of each measurement."""

    def __init__(self) -> None:
        super().__init__(LAG_BOUNDS_S)
        self.has_one = asyncio.Event()

    def observe(self, value: float) -> None:
        super().observe(value)
        self.has_one.set()

    async def one(self) -> None:
        await self.has_one.wait()
        self.has_one.clear()


class Turns:
    """Counts turns by hand."""

    def __init__(self) -> None:
        self.number = 0


def watch_of(turns: Turns) -> tuple[LoopWatch, Seen]:
    watch = LoopWatch(asyncio.get_running_loop(), lambda: turns.number)
    seen = Seen()
    watch.lags = seen
    watch.arm()
    return watch, seen


def test_a_loop_that_stands_still_is_seen() -> None:
    async def run() -> float:
        _, seen = watch_of(Turns())
        time.sleep(PROBE_S + 0.05)  # noqa: ASYNC251
        await seen.one()
        return seen.highest

    assert asyncio.run(run()) >= 0.04


def test_an_idle_broker_has_no_timer() -> None:
    async def run() -> list[bool]:
        turns = Turns()
        watch, seen = watch_of(turns)
        turns.number += 1  # a turn while it waits: it goes on
        armed = []
        for _ in range(2):
            await seen.one()
            await asyncio.sleep(0)
            armed.append(watch.is_armed)
        return armed

    assert asyncio.run(run()) == [True, False]


def test_a_watch_that_was_stopped_is_not_armed_again() -> None:
    async def run() -> bool:
        watch, _ = watch_of(Turns())
        watch.stop()
        return watch.is_armed

    assert asyncio.run(run())
