"""Turns on a loop: a due timer begins a turn, until the runner is stopped."""

import asyncio
import logging
from collections.abc import Callable

import pytest

from leveret.clock import Clock
from leveret.engine.broker import Broker
from leveret.engine.timer_queue import NEVER, TimedCallback
from leveret.runtime.turns import WAIT_S_MAX, TurnRunner


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
    async with asyncio.timeout(60):
        return await event.wait()


def test_what_is_due_is_woken_until_the_turns_are_stopped() -> None:
    assert asyncio.run(rings(stop_first=False))
    assert not asyncio.run(rings(stop_first=True))


async def rings_after_a_step() -> tuple[float, bool]:
    """Set the machine's time to a timer's; return how long the loop waits, and if it rings."""
    wall_ns = [1_700_000_000 * 10**9]
    clock = Clock(lambda: wall_ns[0], lambda: 0)
    broker = Broker(1)
    loop = asyncio.get_running_loop()
    turns = TurnRunner(broker, clock, loop)
    waits: list[float] = []
    vars(loop)["call_later"] = lambda delay, callback: waits.append(delay)
    rung: list[int] = []

    def ring(now_ms: int) -> int:
        rung.append(now_ms)
        return NEVER

    turns.begin()
    broker.timers.arm(TimedCallback(ring), clock.now_ms() + 7_200_000)
    turns.end()
    wall_ns[0] += 7_200 * 10**9
    turns._timer = None  # the loop has called it
    turns.on_pulse()
    turns.stop()
    return waits[0], bool(rung)


def test_a_timer_follows_the_machine_time_that_is_set_forwards() -> None:
    wait_s, has_rung = asyncio.run(rings_after_a_step())
    assert wait_s <= WAIT_S_MAX
    assert has_rung


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


async def end_turn_with_a_fault() -> int:
    """Let an object that is due fail, in a turn. Return the count of faults."""
    clock = Clock()
    broker = Broker(1)
    turns = TurnRunner(broker, clock, asyncio.get_running_loop())

    def fail(now_ms: int) -> int:
        raise ValueError("x" * 10_000)

    turns.begin()
    broker.timers.arm(TimedCallback(fail), clock.now_ms())
    turns.on_pulse()
    turns.stop()
    return broker.turn.fault_count


def test_confined_fault_is_logged_with_its_place(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR):
        assert asyncio.run(end_turn_with_a_fault()) == 1
    (line,) = [record.getMessage() for record in caplog.records]
    assert line.startswith("waking an object that was due failed: ValueError: xxx")
    assert "in fail" in line
    assert len(line) < 3_000


async def rings_after_a_failed_flush() -> bool:
    """Let the output of a turn fail. Return True if the timer still wakes what is due."""
    clock = Clock()
    broker = Broker(1)
    turns = TurnRunner(broker, clock, asyncio.get_running_loop())
    rung = asyncio.Event()
    fails = [True]

    def ring(now_ms: int) -> int:
        rung.set()
        return NEVER

    def flush() -> None:
        if fails.pop() if fails else False:
            raise ValueError("the output failed")

    turns.add_flusher(flush)
    turns.begin()
    broker.timers.arm(TimedCallback(ring), clock.now_ms() + 1)
    with pytest.raises(ValueError, match="the output failed"):
        turns.end()
    return await _within(rung)


def test_failed_turn_does_not_stop_the_timer() -> None:
    assert asyncio.run(rings_after_a_failed_flush())
