"""Turns on a loop: a due timer begins a turn, until the runner is stopped."""

import asyncio
from collections.abc import Callable

from leveret.clock import Clock
from leveret.engine.broker import Broker
from leveret.engine.timer_queue import NEVER, TimedCallback
from leveret.runtime.turns import TurnRunner


async def rings(stop_first: bool) -> bool:
    clock = Clock()
    broker = Broker(1)
    turns = TurnRunner(broker, clock, asyncio.get_running_loop())
    rung = asyncio.Event()

    def ring(now_ms: int) -> int:
        rung.set()
        return NEVER

    if stop_first:
        turns.stop()
    turns.begin()
    broker.timers.arm(TimedCallback(ring), clock.now_ms())
    turns.end()  # as the last block of the log does, when it is reported
    turns.soon()
    for _ in range(100):
        await asyncio.sleep(0)
    return rung.is_set() if stop_first else await _within(rung)


async def _within(event: asyncio.Event) -> bool:
    async with asyncio.timeout(20):
        return await event.wait()


def test_what_is_due_is_woken_until_the_turns_are_stopped() -> None:
    assert asyncio.run(rings(stop_first=False))
    assert not asyncio.run(rings(stop_first=True))


async def timers_left() -> list[asyncio.TimerHandle]:
    """Return the timers of the loop that are still set after the runner was stopped."""
    clock = Clock()
    broker = Broker(1)
    loop = asyncio.get_running_loop()
    turns = TurnRunner(broker, clock, loop)
    set_timers: list[asyncio.TimerHandle] = []
    call_later = loop.call_later

    def noting(delay: float, callback: Callable[[], None]) -> asyncio.TimerHandle:
        timer = call_later(delay, callback)
        set_timers.append(timer)
        return timer

    vars(loop)["call_later"] = noting
    turns.begin()
    broker.timers.arm(TimedCallback(lambda now_ms: NEVER), clock.now_ms() + 60_000)
    turns.end()
    turns.on_pulse()  # as a node does when it starts: nothing is due yet
    turns.stop()
    turns.on_pulse()
    assert len(set_timers) == 2
    return [timer for timer in set_timers if not timer.cancelled()]


def test_no_timer_outlives_the_turns() -> None:
    assert asyncio.run(timers_left()) == []
