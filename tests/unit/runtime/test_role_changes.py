"""Nobody who waits for a change of roles misses one."""

import asyncio

from leveret.runtime.role_changes import RoleChanges

WITHIN_S = 60


def test_change_before_a_waiting_task_begins_is_not_missed() -> None:
    async def scenario() -> None:
        changes = RoleChanges()
        is_leading = True
        async with asyncio.timeout(WITHIN_S), asyncio.TaskGroup() as tasks:
            tasks.create_task(changes.until(lambda: not is_leading))
            is_leading = False
            changes.tell()

    asyncio.run(scenario())


def test_condition_is_asked_after_every_change() -> None:
    async def scenario() -> None:
        changes = RoleChanges()
        terms: list[int] = []
        async with asyncio.timeout(WITHIN_S), asyncio.TaskGroup() as tasks:
            waiting = tasks.create_task(changes.until(lambda: len(terms) == 2))
            for term in (1, 2):
                await asyncio.sleep(0)
                assert not waiting.done()
                terms.append(term)
                changes.tell()

    asyncio.run(scenario())
