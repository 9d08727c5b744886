"""Deadlines of calls: one timer ends each call at its own time."""

import asyncio

import pytest

from leveret.http_client.deadlines import Deadlines

LONG_S = 3600.0
WITHIN_S = 60.0


async def call(deadlines: Deadlines, limit_s: float) -> bool:
    """Wait for something that never comes; return True if the deadline has ended the wait."""
    deadline = deadlines.begin(limit_s)
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        if deadlines.end(deadline):
            return True
        raise
    raise AssertionError


def test_each_call_ends_at_its_own_deadline() -> None:
    async def main() -> None:
        deadlines = Deadlines()
        async with asyncio.timeout(WITHIN_S):
            long = asyncio.get_running_loop().create_task(call(deadlines, LONG_S))
            await asyncio.sleep(0)
            # The second one is due after the timer of the first one was set for it.
            ended = await asyncio.gather(call(deadlines, 0.0), call(deadlines, 0.01))
            assert all(ended)
            assert not long.done()
            long.cancel()
            with pytest.raises(asyncio.CancelledError):
                await long

    asyncio.run(main())


def test_a_call_that_has_ended_is_not_cancelled_later() -> None:
    async def main() -> None:
        deadlines = Deadlines()
        async with asyncio.timeout(WITHIN_S):
            assert not deadlines.end(deadlines.begin(0.0))
            assert await call(deadlines, 0.01)  # the timer has fired for both
            task = asyncio.current_task()
            assert task is not None
            assert task.cancelling() == 0
            deadlines.close()

    asyncio.run(main())


def test_a_task_that_others_cancel_too_stays_cancelled() -> None:
    async def main() -> None:
        deadlines = Deadlines()
        loop = asyncio.get_running_loop()
        task = loop.create_task(call(deadlines, 0.0))
        await asyncio.sleep(0)  # the task has begun
        task.cancel()
        deadlines._on_time(loop)
        async with asyncio.timeout(WITHIN_S):
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(main())
