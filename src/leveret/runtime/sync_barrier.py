"""Wait for the disk, for callers that are not channels: HTTP requests and backups."""

import asyncio
from typing import Final

from leveret.engine.broker import Broker
from leveret.engine.commands.sync_waiter import SyncWaiter
from leveret.errors import StorageError
from leveret.runtime.turns import TurnRunner
from leveret.storage.store import Store

SYNC_WITHIN_S: Final = 60.0  # an operator may free space on a full disk meanwhile


class SyncBarrier:
    """Waits until all changes so far are on disk; at once if the node has no store."""

    def __init__(self, broker: Broker, turns: TurnRunner, store: Store | None) -> None:
        self._broker = broker
        self._turns = turns
        self._store = store

    async def wait(self) -> None:
        """Return when all changes so far are on disk. Raises StorageError if the log failed."""
        if self._store is None:
            return
        done: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

        def tell(is_safe: bool) -> None:
            if not done.done():
                done.set_result(is_safe)

        self._turns.begin()
        self._store.wait_for_sync(SyncWaiter(self._broker.turn, tell))
        self._turns.end()
        async with asyncio.timeout(SYNC_WITHIN_S):
            if not await done:
                raise StorageError("the log cannot be written")
