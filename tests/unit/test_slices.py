"""Long work yields the event loop after each slice, and rests only while clients are active."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter

import pytest

from leveret import slices
from leveret.slices import FairLock, LoopShare, Slices, run_in_slices


def test_steps_run_in_order_and_each_slice_runs_inside_its_context() -> None:
    events: list[str] = []

    @contextmanager
    def turn() -> Iterator[None]:
        events.append("begin")
        yield
        events.append("end")

    def steps() -> Iterator[None]:
        for number in range(3):
            events.append(str(number))
            end_s = perf_counter() + slices.SLICE_S
            while perf_counter() < end_s:
                pass
            yield

    asyncio.run(run_in_slices(steps(), turn))
    each = [event for n in range(3) for event in ("begin", str(n), "end")]
    assert events == [*each, "begin", "end"]


def test_rest_is_long_only_while_clients_are_active(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    active = [1, 2, 2, 3]

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    async def run() -> None:
        share = LoopShare(lambda: active[len(slept)])
        for slice_s in (0.001, 0.001, 0.001, 60):  # the last one waited for the processor
            await share.rest(slice_s)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    asyncio.run(run())
    rest_s = 0.001 * slices.REST_RATIO
    assert slept == [rest_s, rest_s, 0, slices.REST_MAX_S]


def test_slices_of_a_request_end_and_it_becomes_late(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 0.0
    monkeypatch.setattr(slices, "perf_counter", lambda: now_s)
    request = Slices(LoopShare(lambda: 0))
    assert not request.is_over()
    now_s += slices.SLICE_S
    assert request.is_over()
    request.begin()
    assert not request.is_over() and not request.is_late()
    now_s += slices.REQUEST_S
    assert request.is_late()


def test_owners_of_a_fair_lock_take_turns() -> None:
    order: list[str] = []

    async def work(lock: FairLock, owner: str) -> None:
        async with lock.held(owner):
            order.append(owner)
            await asyncio.sleep(0)

    async def scenario() -> None:
        lock = FairLock()
        async with asyncio.TaskGroup() as group:
            for owner in ("many", "many", "many", "many", "one", "two", "one"):
                group.create_task(work(lock, owner))

    asyncio.run(scenario())
    assert order == ["many", "many", "one", "two", "many", "one", "many"]


def test_cancelled_owner_passes_a_fair_lock_on() -> None:
    async def scenario() -> list[str]:
        lock = FairLock()
        order: list[str] = []

        async def work(owner: str) -> None:
            async with lock.held(owner):
                order.append(owner)

        async with asyncio.TaskGroup() as group, lock.held("first"):
            waiting = group.create_task(work("cancelled"))
            group.create_task(work("second"))
            await asyncio.sleep(0)
            waiting.cancel()
        async with lock.held("first"):
            handed_over = asyncio.get_running_loop().create_task(work("handed over"))
            await asyncio.sleep(0)
        handed_over.cancel()  # it has the lock already, but has not run yet
        await asyncio.wait([handed_over])
        await asyncio.wait_for(work("last"), 60)
        return order

    assert asyncio.run(scenario()) == ["second", "last"]
