"""Wait for the disk, for callers that are not channels: HTTP requests and backups."""

import asyncio
import functools
from collections.abc import Callable
from typing import Final

from leveret.engine.broker import Broker
from leveret.engine.commands.sync_waiter import SyncWaiter
from leveret.errors import LeadLostError, StorageError
from leveret.runtime.turns import TurnRunner
from leveret.storage.store import Store

SYNC_WITHIN_S: Final = 60.0  # an operator may free space on a full disk meanwhile


class SyncBarrier:
    """Waits until all changes so far are on disk; at once if the node has no store."""

    def __init__(self, broker: Broker, turns: TurnRunner, store: Store | None) -> None:
        self._broker = broker
        self._turns = turns
        self._store = store
        self._waiting: set[asyncio.Future[bool]] = set()
        self._has_lost_lead = False

    def lose_lead(self) -> None:
        """Raise LeadLostError in all callers that wait, and in later ones: no commit will come."""
        self._has_lost_lead = True
        for done in self._waiting:
            if not done.done():
                done.set_result(False)

    async def wait(self) -> None:
        """Return when all changes so far are on disk. Raises StorageError if the log failed."""
        if self._store is None:
            return
        await self._wait(self._store, self._store.wait_for_sync)

    async def wait_to_tell(self) -> None:
        """Return when every change that an answer could show is committed.

        Only the leader of a cluster waits. Raises StorageError if the log failed.
        """
        store = self._store
        block = store.block_to_await() if store is not None else 0
        if store is not None and block != 0:
            await self._wait(store, functools.partial(store.wait_for_commit, block))

    async def _wait(self, store: Store, wait: Callable[[SyncWaiter], None]) -> None:
        self._require_lead()
        done: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

        def tell(is_safe: bool) -> None:
            if not done.done():
                done.set_result(is_safe)

        self._turns.begin()
        wait(SyncWaiter(self._broker.turn, tell))
        self._turns.end()
        self._waiting.add(done)
        try:
            async with asyncio.timeout(SYNC_WITHIN_S):
                is_safe = await done
        except TimeoutError:
            raise StorageError(f"not on disk within {SYNC_WITHIN_S:.0f} s") from None
        finally:
            self._waiting.discard(done)
        if not is_safe:
            self._require_lead()
            raise StorageError(store.why_unsafe())

    def _require_lead(self) -> None:
        if self._has_lost_lead:
            raise LeadLostError("another node leads now: try again")
