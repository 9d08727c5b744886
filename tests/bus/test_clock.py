"""Retries with a clock that the test moves: never early, and in the order of the failures."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import aio_pika
import pytest

from leveret.bus import Bus, Delivery, fanout
from leveret.testing import ManualClock, RunningBroker, broker
from tests.bus.stage import FAST, WAIT_S, Placed, Seen, depth, pytestmark_bus

pytestmark = pytestmark_bus
# A jump of the clock must not end connections by their heartbeat.
STILL = replace(FAST, heartbeat_s=0, concurrency=1)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def server(clock: ManualClock) -> AsyncIterator[RunningBroker]:
    with broker(clock=clock) as found:
        yield found


async def until_depth(url: str, queue: str, count: int) -> None:
    async with asyncio.timeout(60):
        while await depth(url, queue) != count:
            pass  # each look is a round trip to the broker


async def test_no_retry_is_early_and_their_order_is_kept(
    server: RunningBroker, clock: ManualClock
) -> None:
    bus = Bus(server.url, fanout.layout("wms-orders"), settings=STILL)
    seen: Seen[tuple[int, int]] = Seen()

    @bus.on(Placed)
    async def fail(event: Placed, delivery: Delivery) -> int:
        await seen.add((event.number, delivery.retry_count))
        return 200 if event.number >= 100 else 500

    async with bus:
        for retry in range(3):
            if retry == 0:
                for number in range(5):
                    await bus.publish(Placed(number))
            await seen.wait(5 * (retry + 1) + retry)
            await until_depth(server.url, "wms.retry-queue.wms-orders", 5)
            clock.advance(4.999)
            # A retry that came too early would be handled before this new message.
            await bus.publish(Placed(100 + retry))
            await seen.wait(5 * (retry + 1) + retry + 1)
            assert seen.all[-1] == (100 + retry, 0), "a retry came early"
            clock.advance(0.001)
        await seen.wait(23)
    for retry in range(4):
        at = retry * 6
        assert seen.all[at : at + 5] == [(number, retry) for number in range(5)]


async def test_a_delayed_message_waits_for_its_time(
    server: RunningBroker, clock: ManualClock
) -> None:
    bus = Bus(server.url, fanout.layout("wms-orders"), settings=STILL, clock=clock)
    seen: Seen[int] = Seen()

    @bus.on(Placed)
    async def note(event: Placed) -> None:
        await seen.add(event.number)

    async with bus:
        await bus.publish(Placed(1), delay_s=60.0)
        async with asyncio.timeout(WAIT_S):
            while not await has_waiting(server.url, "wms.retry-queue.wms-orders.32000ms"):
                pass  # each look is a round trip to the broker
        clock.advance(59.999)
        await bus.publish(Placed(2))
        assert await seen.wait(1) == [2]
        clock.advance(0.001)
        assert await seen.wait(2) == [2, 1]


async def has_waiting(url: str, queue: str) -> bool:
    try:
        return bool(await depth(url, queue))
    except aio_pika.exceptions.ChannelNotFoundEntity:
        return False  # the queue is declared when it is needed
