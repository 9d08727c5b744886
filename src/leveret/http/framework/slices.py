"""Long work on the broker's loop, in slices: others get their turn in between."""

import asyncio
from collections.abc import Iterator
from time import perf_counter
from typing import Final

from leveret.http.framework.node import NodeView

SLICE_S: Final = 0.005


async def work_off(steps: Iterator[object]) -> None:
    """Go through steps that change nothing in the engine."""
    is_left = True
    while is_left:
        is_left = _run(steps)
        await asyncio.sleep(0)


async def work_off_in_turns(facts: NodeView, steps: Iterator[object]) -> None:
    """Go through steps that change the engine."""
    is_left = True
    while is_left:
        with facts.turn():
            is_left = _run(steps)
        await asyncio.sleep(0)


def _run(steps: Iterator[object]) -> bool:
    """One slice; False where it was the last."""
    end = perf_counter() + SLICE_S
    for _ in steps:
        if perf_counter() >= end:
            return True
    return False


async def policies_applied(facts: NodeView) -> None:
    """Return when every queue and exchange obeys the policies as they are now."""
    while facts.definitions.is_applying():
        with facts.turn():
            facts.definitions.apply_some()
        await asyncio.sleep(0)
