"""The loop watch: idle with the broker, and notices a blocked loop."""

import asyncio
import time

from leveret.runtime.loop_watch import PROBE_S, LoopWatch


class Turns:
    """Counts turns by hand."""

    def __init__(self) -> None:
        self.number = 0


def watch_of(turns: Turns) -> tuple[LoopWatch, asyncio.Semaphore]:
    """Return a watch, and what to acquire for each measurement."""
    watch = LoopWatch(asyncio.get_running_loop(), lambda: turns.number)
    measured = asyncio.Semaphore(0)
    watch.on_probe = measured.release
    watch.arm()
    return watch, measured


def test_a_loop_that_stands_still_is_seen() -> None:
    async def run() -> float:
        watch, measured = watch_of(Turns())
        time.sleep(PROBE_S + 0.05)  # noqa: ASYNC251
        await measured.acquire()
        return watch.lags.highest

    assert asyncio.run(run()) >= 0.04


def test_an_idle_broker_has_no_timer() -> None:
    async def run() -> list[bool]:
        turns = Turns()
        watch, measured = watch_of(turns)
        turns.number += 1  # a turn while it waits: it goes on
        armed = []
        for _ in range(2):
            await measured.acquire()
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
