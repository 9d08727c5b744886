"""The login thread ends before the loop does, at any moment of a stop."""

import asyncio
import threading
from collections.abc import Callable

import pytest

from leveret.clock import Clock
from leveret.engine.broker import Broker
from leveret.runtime.login_thread import LoginThread
from leveret.runtime.turns import TurnRunner

WITHIN_S = 60.0


def make_login_thread() -> LoginThread:
    loop = asyncio.get_running_loop()
    return LoginThread(TurnRunner(Broker(1), Clock(), loop), loop)


def outcome_of(work: Callable[[], bool]) -> bool | None:
    async def run() -> bool | None:
        thread = make_login_thread()
        told: asyncio.Queue[bool | None] = asyncio.Queue()
        thread.run(work, told.put_nowait)
        async with asyncio.timeout(WITHIN_S):
            outcome = await told.get()
        await thread.stop()
        return outcome

    return asyncio.run(run())


def test_what_came_of_the_work_is_told() -> None:
    assert outcome_of(lambda: True)
    assert outcome_of(lambda: False) is False


def test_work_that_fails_has_no_outcome(caplog: pytest.LogCaptureFixture) -> None:
    assert outcome_of(lambda: 1 // 0 == 0) is None
    assert "verifying a password failed" in caplog.text


def test_running_work_is_over_when_the_loop_is_closed(caplog: pytest.LogCaptureFixture) -> None:
    has_begun, may_end, has_ended = threading.Event(), threading.Event(), threading.Event()
    told: list[bool | None] = []

    def work() -> bool:
        has_begun.set()
        may_end.wait(WITHIN_S)
        has_ended.set()
        return True

    async def stop_in_the_middle() -> None:
        thread = make_login_thread()
        thread.run(work, told.append)
        thread.run(lambda: True, told.append)  # waits for the first, and is dropped
        assert await asyncio.to_thread(has_begun.wait, WITHIN_S)
        async with asyncio.timeout(WITHIN_S), asyncio.TaskGroup() as tasks:
            tasks.create_task(thread.stop())
            await asyncio.sleep(0)
            may_end.set()
        assert has_ended.is_set()
        thread.run(lambda: True, told.append)  # nothing any more

    asyncio.run(stop_in_the_middle())
    assert told == []
    assert caplog.text == ""
