"""Waiting for the disk, for callers that are not channels."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, cast

import pytest

from leveret.engine.broker import Broker
from leveret.engine.turns.turn import SessionBase
from leveret.errors import LeadLostError
from leveret.runtime.sync_barrier import SyncBarrier
from leveret.runtime.turns import TurnRunner
from leveret.storage.store import Store


class _Uncommitted:
    """A store of a leader whose blocks are never committed."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()

    def block_to_await(self) -> int:
        return 7

    def wait_for_commit(self, block: int, session: SessionBase) -> None:
        self.asked.set()

    def wait_for_sync(self, session: SessionBase) -> None:
        self.asked.set()


class _Turns:
    def begin(self) -> None:
        pass

    def end(self) -> None:
        pass


@pytest.mark.parametrize("wait", [SyncBarrier.wait, SyncBarrier.wait_to_tell])
def test_callers_learn_at_once_that_the_node_leads_no_more(
    wait: Callable[[SyncBarrier], Coroutine[Any, Any, None]],
) -> None:
    async def scenario() -> None:
        store = _Uncommitted()
        barrier = SyncBarrier(Broker(1), cast(TurnRunner, _Turns()), cast(Store, store))
        async with asyncio.timeout(120):
            waiting = asyncio.get_running_loop().create_task(wait(barrier))
            await store.asked.wait()
            barrier.lose_lead()
            with pytest.raises(LeadLostError):
                await waiting
            with pytest.raises(LeadLostError):
                await wait(barrier)

    asyncio.run(scenario())
