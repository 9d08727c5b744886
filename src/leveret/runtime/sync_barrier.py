"""Wait for the log, for callers that are not channels: HTTP requests and backups."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from leveret.engine.broker import Broker
from leveret.engine.commands.sync_waiter import SyncWaiter
from leveret.errors import LeadLostError, LeveretError, StorageError
from leveret.runtime.turns import TurnRunner
from leveret.storage.store import Store

SYNC_WITHIN_S: Final = 60.0  # an operator may free space on a full disk meanwhile

log = logging.getLogger(__name__)


class _Caller(Protocol):
    """Is told when its wait has ended: a future, or a `SyncEnd`."""

    def done(self) -> bool: ...

    def set_result(self, result: None, /) -> None: ...

    def set_exception(self, fault: Exception, /) -> None: ...


class SyncEnd:
    """The end of one wait.

    A future calls back in the next pass of the event loop. This calls back at once: the client of a
    lone call waits for it.
    """

    def __init__(self) -> None:
        self._on_end: Callable[[Exception | None], None] | None = None
        self._is_done = False
        self._fault: Exception | None = None

    def done(self) -> bool:
        return self._is_done

    def set_result(self, result: None, /) -> None:
        self._end(None)

    def set_exception(self, fault: Exception, /) -> None:
        self._end(fault)

    def _end(self, fault: Exception | None) -> None:
        self._is_done, self._fault = True, fault
        if self._on_end is None:
            return
        try:
            self._on_end(fault)
        except Exception as bug:  # other callers wait for the same block
            log.error("an answer failed because of a bug: please report it", exc_info=bug)

    def then(self, on_end: Callable[[Exception | None], None]) -> None:
        """Call back with None or the fault. Call this outside the turn.

        If the wait has ended already, the call comes with the next pass of the loop.
        """
        if self._is_done:
            asyncio.get_running_loop().call_soon(on_end, self._fault)
        else:
            self._on_end = on_end


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

    def begin_wait(self) -> "asyncio.Future[None]":
        """Begin `wait` inside a turn, which is waited for too. Return the future of its end."""
        if self._store is not None:
            return self._syncs.begin_in_turn()
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        done.set_result(None)
        return done

    def sync_end(self) -> SyncEnd:
        """Do as `begin_wait`, for a caller that wants to know the end as early as possible."""
        if self._store is not None:
            return self._syncs.end_in_turn()
        end = SyncEnd()
        end.set_result(None)
        return end

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
        self._joined: list[asyncio.Future[None]] = []  # callers of this pass
        self._waiting: set[_Caller] = set()  # callers of all passes
        self._fault: LeveretError | None = None  # nobody can wait any more

    async def wait(self) -> None:
        self._require_open()
        if not self._joined:
            asyncio.get_running_loop().call_soon(self._begin)
        done = self._new_caller()
        self._joined.append(done)
        await done

    def begin_in_turn(self) -> "asyncio.Future[None]":
        """Begin the wait of one caller, inside a turn."""
        self._require_open()
        done = self._new_caller()
        self._register_callers([done])
        return done

    def end_in_turn(self) -> SyncEnd:
        """Do as `begin_in_turn`."""
        self._require_open()
        end = SyncEnd()
        self._waiting.add(end)
        self._register_callers([end])
        return end

    def _new_caller(self) -> "asyncio.Future[None]":
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.add(done)
        return done

    def _require_open(self) -> None:
        if self._fault is not None:
            raise self._fault

    def end(self, fault: LeveretError) -> None:
        """Raise an error in all callers, and in later ones."""
        self._fault = fault
        self._fail(list(self._waiting), fault)

    def _begin(self) -> None:
        """Begin the wait of the callers that have joined."""
        callers, self._joined = self._joined, []
        if self._fault is not None:
            return
        try:
            self._turns.begin()
            try:
                self._register_callers(callers)
            finally:
                self._turns.end()
        except Exception as fault:
            self._fail(callers, fault)

    def _register_callers(self, callers: Sequence[_Caller]) -> None:
        timer = self._start_timer(callers)

        def tell(is_safe: bool) -> None:
            if timer is not None:
                timer.cancel()
            if not is_safe:
                self._fail(callers, self._fault or StorageError(self._store.why_unsafe()))
                return
            self._waiting.difference_update(callers)
            for done in callers:
                if not done.done():
                    done.set_result(None)

        self._register(SyncWaiter(self._broker.turn, tell))  # may call `tell` at once

    def _start_timer(self, callers: Sequence[_Caller]) -> asyncio.TimerHandle | None:
        if self._within_s is None:
            return None
        return asyncio.get_running_loop().call_later(self._within_s, self._fail_late, callers)

    def _fail_late(self, callers: Sequence[_Caller]) -> None:
        self._fail(callers, StorageError(f"not on disk within {self._within_s:.0f} s"))

    def _fail(self, callers: Sequence[_Caller], fault: Exception) -> None:
        self._waiting.difference_update(callers)
        for done in callers:
            if not done.done():
                done.set_exception(fault)
