"""Turns on a loop: what is due begins one, until they are stopped."""

import asyncio

from leveret.clock import Clock
from leveret.engine.broker import Broker
from leveret.engine.pulse import NEVER, Waking
from leveret.runtime.turns import Turns


async def rings(stop_first: bool) -> bool:
    clock = Clock()
    broker = Broker(1)
    turns = Turns(broker, clock, asyncio.get_running_loop())
    rung = asyncio.Event()

    def ring(now_ms: int) -> int:
        rung.set()
        return NEVER

    if stop_first:
        turns.stop()
    turns.begin()
    broker.pulse.arm(Waking(ring), clock.now_ms())
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
