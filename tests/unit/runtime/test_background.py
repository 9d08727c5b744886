"""Faults of work in the background are kept until it succeeds, or until the node is restarted."""

import asyncio
import logging

import pytest

from leveret.runtime.background import BackgroundFaults


class _Part:
    fault = ""


def test_a_part_is_shown_while_its_work_fails() -> None:
    faults, part = BackgroundFaults(), _Part()
    faults.watch(part)
    faults.watch(_Part())
    assert faults.texts() == []
    part.fault = "the keys could not be loaded"
    assert faults.texts() == ["the keys could not be loaded"]
    part.fault = ""
    assert faults.texts() == []


def test_a_task_that_fails_is_logged_once_and_stays(caplog: pytest.LogCaptureFixture) -> None:
    async def fail() -> None:
        raise ValueError("a bug")

    async def end() -> None:
        pass

    async def scenario() -> list[str]:
        faults, loop = BackgroundFaults(), asyncio.get_running_loop()
        tasks = [loop.create_task(work(), name=work.__name__) for work in (fail, end)]
        for task in tasks:
            task.add_done_callback(faults.note_end)
        await asyncio.wait(tasks)
        return faults.texts()

    with caplog.at_level(logging.WARNING):
        texts = asyncio.run(scenario())
    assert texts == ["the part fail has stopped because of a bug: restart this node"]
    (record,) = caplog.records
    assert record.message == f"{texts[0]}, and report it"
    assert record.exc_info is not None
