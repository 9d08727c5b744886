"""Callers that wait for the log together: each gets its own end."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest

from leveret.clock import Clock
from leveret.config.settings import Settings
from leveret.engine.broker import Broker
from leveret.engine.turns.turn import SessionBase
from leveret.errors import LeadLostError, StorageError
from leveret.runtime import sync_barrier
from leveret.runtime.node import Node
from leveret.runtime.sync_barrier import SyncBarrier, SyncEnd
from leveret.runtime.turns import TurnRunner
from leveret.storage.store import Store
from leveret.testing.disk import FakeDisk

WITHIN_S = 60.0
CALLERS = 5


class GatedDisk(FakeDisk):
    """A disk whose syncs wait until they may go on."""

    def __init__(self) -> None:
        super().__init__()
        self.may_sync = threading.Event()
        self.may_sync.set()

    def sync_file(self, number: int) -> None:
        assert self.may_sync.wait(WITHIN_S)
        super().sync_file(number)


@asynccontextmanager
async def running(disk: FakeDisk) -> AsyncIterator[Node]:
    node = Node(Settings(), Clock(), serves_http=False, listens=False, disk=disk)
    await node.start()
    try:
        yield node
    finally:
        await node.stop()


def change(node: Node) -> None:
    node.turns.begin()
    node.broker.register.put("test", "key", "value")
    node.turns.end()


def barrier_of(node: Node) -> SyncBarrier:
    return SyncBarrier(node.broker, node.turns, node._store)


def begin(node: Node, barrier: SyncBarrier) -> list["asyncio.Task[None]"]:
    """Change something, and let callers wait for it."""
    change(node)
    loop = asyncio.get_running_loop()
    return [loop.create_task(barrier.wait()) for _ in range(CALLERS)]


async def ends(waits: list["asyncio.Task[None]"]) -> list[BaseException | None]:
    async with asyncio.timeout(WITHIN_S):
        return await asyncio.gather(*waits, return_exceptions=True)


def test_callers_return_after_the_sync_and_not_before() -> None:
    async def main() -> None:
        disk = GatedDisk()
        async with running(disk) as node:
            disk.may_sync.clear()
            barrier = barrier_of(node)
            waits = begin(node, barrier)
            for _ in range(100):
                await asyncio.sleep(0)
            assert not any(wait.done() for wait in waits)
            late = asyncio.get_running_loop().create_task(barrier.wait())
            disk.may_sync.set()
            assert await ends([*waits, late]) == [None] * (CALLERS + 1)

    asyncio.run(main())


def test_an_end_calls_back_when_its_turn_is_on_disk_and_not_before() -> None:
    async def main() -> None:
        disk = GatedDisk()
        async with running(disk) as node:
            disk.may_sync.clear()
            ended: asyncio.Queue[Exception | None] = asyncio.Queue()
            begin_end(node).then(ended.put_nowait)
            for _ in range(100):
                await asyncio.sleep(0)
            assert ended.empty()
            disk.may_sync.set()
            async with asyncio.timeout(WITHIN_S):
                assert await ended.get() is None

    asyncio.run(main())


def test_an_end_without_a_wait_calls_back_after_the_caller_has_gone_on() -> None:
    async def main() -> None:
        async with running(FakeDisk()) as node:
            await barrier_of(node).wait()
            ended: asyncio.Queue[Exception | None] = asyncio.Queue()
            begin_end(node, has_change=False).then(ended.put_nowait)
            assert ended.empty()
            async with asyncio.timeout(WITHIN_S):
                assert await ended.get() is None

    asyncio.run(main())


def test_a_failed_sync_is_told_to_an_end() -> None:
    async def main() -> None:
        disk = FakeDisk()
        async with running(disk) as node:
            disk.fail_sync()
            ended: asyncio.Queue[Exception | None] = asyncio.Queue()
            begin_end(node).then(ended.put_nowait)
            async with asyncio.timeout(WITHIN_S):
                assert isinstance(await ended.get(), StorageError)

    asyncio.run(main())


def test_a_fault_in_a_call_back_does_not_reach_other_callers(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main() -> None:
        disk = GatedDisk()
        async with running(disk) as node:
            disk.may_sync.clear()
            ended: asyncio.Queue[Exception | None] = asyncio.Queue()

            def fail(fault: Exception | None) -> None:
                raise RuntimeError("a bug")

            begin_end(node).then(fail)
            begin_end(node).then(ended.put_nowait)
            disk.may_sync.set()
            async with asyncio.timeout(WITHIN_S):
                assert await ended.get() is None
            change(node)
            await barrier_of(node).wait()  # the log goes on

    asyncio.run(main())
    assert "because of a bug" in caplog.text


def begin_end(node: Node, *, has_change: bool = True) -> SyncEnd:
    """Change something, or nothing, and return the end of its sync."""
    barrier = barrier_of(node)
    node.turns.begin()
    if has_change:
        node.broker.register.put("test", "key", "value")
    end = barrier.sync_end()
    node.turns.end()
    return end


def test_a_caller_that_is_cancelled_leaves_the_others_waiting() -> None:
    async def main() -> None:
        disk = GatedDisk()
        async with running(disk) as node:
            disk.may_sync.clear()
            waits = begin(node, barrier_of(node))
            await asyncio.sleep(0)
            waits[0].cancel()
            await asyncio.sleep(0)
            disk.may_sync.set()
            first, *others = await ends(waits)
            assert isinstance(first, asyncio.CancelledError)
            assert others == [None] * (CALLERS - 1)

    asyncio.run(main())


def test_a_failed_sync_fails_every_caller() -> None:
    async def main() -> None:
        disk = FakeDisk()
        async with running(disk) as node:
            disk.fail_sync()
            waits = begin(node, barrier_of(node))
            assert all(isinstance(end, StorageError) for end in await ends(waits))

    asyncio.run(main())


def test_a_sync_that_takes_too_long_fails_every_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sync_barrier, "SYNC_WITHIN_S", 0.0)

    async def main() -> None:
        disk = GatedDisk()
        async with running(disk) as node:
            disk.may_sync.clear()
            waits = begin(node, barrier_of(node))
            found = await ends(waits)
            disk.may_sync.set()
            assert [str(end) for end in found] == ["not on disk within 0 s"] * CALLERS

    asyncio.run(main())


def test_a_fault_of_the_turn_reaches_every_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with running(FakeDisk()) as node:
            fault = RuntimeError("a bug")

            def register(waiter: object) -> None:
                raise fault

            barrier = barrier_of(node)
            monkeypatch.setattr(barrier._syncs, "_register", register)
            assert await ends(begin(node, barrier)) == [fault] * CALLERS

    asyncio.run(main())


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


class _CommittedMeanwhile(_Uncommitted):
    """A store of a leader whose block is committed before the callers begin to wait."""

    def __init__(self) -> None:
        super().__init__()
        self._blocks = [7, 0]

    def block_to_await(self) -> int:
        return self._blocks.pop(0)


class _Turns:
    def begin(self) -> None:
        pass

    def end(self) -> None:
        pass


@pytest.mark.parametrize(
    "wait", [SyncBarrier.wait, SyncBarrier.wait_long, SyncBarrier.wait_to_tell]
)
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


def test_a_wait_that_ends_at_once_leaves_no_timer() -> None:
    async def scenario() -> None:
        store = cast(Store, _CommittedMeanwhile())
        barrier = SyncBarrier(Broker(1), cast(TurnRunner, _Turns()), store)
        async with asyncio.timeout(WITHIN_S):
            await barrier.wait_to_tell()
        loop: Any = asyncio.get_running_loop()
        assert [timer for timer in loop._scheduled if not timer.cancelled()] == []

    asyncio.run(scenario())
