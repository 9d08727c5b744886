"""A short soak test: repeated work does not grow the memory. `make soak-bus` is longer.

Memory is what Python has allocated, so that the bound is tight: a kilobyte that each publish leaves
behind, or one connection that each reconnect does, is over it.
"""

import asyncio
import logging
import tracemalloc

import pytest

from tests.bus.nodes import Node
from tools.soak_bus import Account, Soak, soaking

pytestmark = pytest.mark.compiled_only("the library is the same in both forms")

WARM_UP = 1_200  # publishes that fill what is bounded, as the ids of finished messages
PUBLISHES = 600
RECONNECTS = 5
GROWTH_MB_MAX = 0.25
SETTLE_S = 60.0
FIXED = ("Connection", "Channel", "ConsumingSession", "Thread")  # their number stays the same


async def soaked(node: Node) -> Account:
    async with soaking(node, traces=True) as soak:
        for publishes in (WARM_UP, PUBLISHES):
            await soak.work(publishes, RECONNECTS)
            await settled(soak)
        return soak.account


async def settled(soak: Soak) -> None:
    """Measure after the lost connections are gone; closing them takes a while."""
    loop = asyncio.get_running_loop()
    deadline_s = loop.time() + SETTLE_S
    while True:
        soak.measure()
        if soak.account.objects[-1]["Connection"] <= 2 or loop.time() > deadline_s:
            return
        soak.account.objects.pop()
        soak.account.memory_mb.pop()
        await asyncio.sleep(0.1)


def test_same_work_again_leaves_the_memory_where_it_was(leveret_node: Node) -> None:
    logging.disable()  # the client library logs a traceback for each reset
    tracemalloc.start()
    try:
        account = asyncio.run(soaked(leveret_node))
    finally:
        tracemalloc.stop()
        logging.disable(logging.NOTSET)
    assert account.handled >= WARM_UP + PUBLISHES
    before, after = account.objects
    assert {name: after[name] for name in FIXED} == {name: before[name] for name in FIXED}
    assert after["Connection"] == 2  # one that publishes, one that consumes
    assert account.growth_mb < GROWTH_MB_MAX
