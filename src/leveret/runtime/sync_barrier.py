"""Wait for the log, for callers that are not channels: HTTP requests and backups."""

import asyncio
from collections.abc import Callable, Iterable
from typing import Final

from leveret.engine.broker import Broker
from leveret.engine.commands.sync_waiter import SyncWaiter
from leveret.errors import LeadLostError, LeveretError, StorageError
from leveret.runtime.turns import TurnRunner
from leveret.storage.store import Store

SYNC_WITHIN_S: Final = 60.0  # an operator may free space on a full disk meanwhile


class SyncBarrier:
    """Waits until all changes so far are on disk; at once if the node has no store."""

    def __init__(self, broker: Broker, turns: TurnRunner, store: Store | None) -> None:
        self._store = store
        if store is not None:
            sync, commit = store.wait_for_sync, self._wait_for_commit
            self._syncs = _SharedWaits(broker, turns, store, sync, SYNC_WITHIN_S)
            self._long_syncs = _SharedWaits(broker, turns, store, sync, None)
            self._commits = _SharedWaits(broker, turns, store, commit, SYNC_WITHIN_S)

    def lose_lead(self) -> None:
        """Raise LeadLostError in all callers that wait, and in later ones: no commit will come."""
        if self._store is not None:
            for waits in (self._syncs, self._long_syncs, self._commits):
                waits.end(LeadLostError("another node leads now: try again"))

    async def wait(self) -> None:
        """Return when all changes so far are on disk. Raises StorageError if the log failed."""
        if self._store is not None:
            await self._syncs.wait()

    async def wait_long(self) -> None:
        """Do as `wait`, however long it takes."""
        if self._store is not None:
            await self._long_syncs.wait()

    async def wait_to_tell(self) -> None:
        """Return when every change that an answer could show is committed.

        Only the leader of a cluster waits. Raises StorageError if the log failed.
        """
        if self._store is not None and self._store.block_to_await() != 0:
            await self._commits.wait()

    def _wait_for_commit(self, waiter: SyncWaiter) -> None:
        assert self._store is not None
        block = self._store.block_to_await()
        if block != 0:
            self._store.wait_for_commit(block, waiter)
        else:
            waiter.on_synced(0)


class _SharedWaits:
    """Lets all callers of one pass of the event loop wait together.

    A wait needs a turn and a timer. One of each for every request would cost much of the CPU time
    of enqueues with one job.
    """

    def __init__(
        self,
        broker: Broker,
        turns: TurnRunner,
        store: Store,
        register: Callable[[SyncWaiter], None],
        within_s: float | None,
    ) -> None:
        self._broker = broker
        self._turns = turns
        self._store = store
        self._register = register
        self._within_s = within_s
        self._joined: list[asyncio.Future[bool]] = []  # callers of this pass
        self._waiting: set[asyncio.Future[bool]] = set()  # callers of all passes
        self._fault: LeveretError | None = None  # nobody can wait any more

    async def wait(self) -> None:
        self._require_open()
        loop = asyncio.get_running_loop()
        if not self._joined:
            loop.call_soon(self._begin)
        done: asyncio.Future[bool] = loop.create_future()
        self._joined.append(done)
        self._waiting.add(done)
        try:
            is_safe = await done
        finally:
            self._waiting.discard(done)
        if not is_safe:
            self._require_open()
            raise StorageError(self._store.why_unsafe())

    def _require_open(self) -> None:
        if self._fault is not None:
            raise self._fault

    def end(self, fault: LeveretError) -> None:
        """Raise an error in all callers, and in later ones."""
        self._fault = fault
        _fail(self._waiting, fault)

    def _begin(self) -> None:
        """Begin the wait of the callers that have joined."""
        callers, self._joined = self._joined, []
        if self._fault is not None:
            return
        timer = self._start_timer(callers)

        def tell(is_safe: bool) -> None:
            if timer is not None:
                timer.cancel()
            for done in callers:
                if not done.done():
                    done.set_result(is_safe)

        try:
            self._turns.begin()
            try:
                self._register(SyncWaiter(self._broker.turn, tell))
            finally:
                self._turns.end()
        except Exception as fault:
            _fail(callers, fault)

    def _start_timer(self, callers: list[asyncio.Future[bool]]) -> asyncio.TimerHandle | None:
        if self._within_s is None:
            return None
        late = StorageError(f"not on disk within {self._within_s:.0f} s")
        return asyncio.get_running_loop().call_later(self._within_s, _fail, callers, late)


def _fail(callers: Iterable[asyncio.Future[bool]], fault: Exception) -> None:
    for done in callers:
        if not done.done():
            done.set_exception(fault)
