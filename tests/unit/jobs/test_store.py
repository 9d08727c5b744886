"""How the end of a call without a task is told."""

import asyncio

from leveret.errors import JobsUnavailableError, StorageError
from leveret.job_model import Enqueued
from leveret.job_service.store import tell_end

FOUND = Enqueued([7], 0)


def _told(fault: Exception | None, *, is_cancelled: bool = False) -> Enqueued | Exception:
    told: list[Enqueued | Exception] = []

    async def main() -> None:
        end: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if is_cancelled:
            end.cancel()
        elif fault is None:
            end.set_result(None)
        else:
            end.set_exception(fault)
        tell_end(told.append, FOUND, end)

    asyncio.run(main())
    (only,) = told
    return only


def test_jobs_are_told_only_if_they_are_safe() -> None:
    fault = StorageError("the disk is gone")
    assert _told(None) is FOUND
    assert _told(fault) is fault
    assert isinstance(_told(None, is_cancelled=True), JobsUnavailableError)
