"""Runs async tests, each on its own event loop, of the kind that a node uses."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine

from leveret.runtime.loop import loop_factory

WAIT_S = 60.0


def played(test: Callable[..., Coroutine[None, None, None]]) -> Callable[..., None]:
    """A test that awaits."""

    @functools.wraps(test)
    def play(*arguments: object, **named: object) -> None:
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            runner.run(test(*arguments, **named))

    return play


async def until(condition: Callable[[], bool]) -> None:
    """Wait for what has no event."""
    async with asyncio.timeout(WAIT_S):
        while not condition():  # noqa: ASYNC110 - see above
            await asyncio.sleep(0.01)
