"""Long work yields the event loop after each slice, and rests only while clients are active."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter

import pytest

from leveret import slices
from leveret.slices import LoopShare, Slices, run_in_slices


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
        for _ in active:
            await share.rest(1.0)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    asyncio.run(run())
    ratio = slices.REST_RATIO
    assert slept == [ratio, ratio, 0, ratio]


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
