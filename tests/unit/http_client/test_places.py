"""The places of calls that run at the same time."""

import asyncio

import pytest

from leveret.http_client.places import Places


async def waiting(places: Places, order: list[str], name: str) -> "asyncio.Task[None]":
    """Return the task of a call that waits for a place, and notes its name when it has it."""

    async def call() -> None:
        await places.wait()
        order.append(name)

    task = asyncio.get_running_loop().create_task(call())
    await asyncio.sleep(0)  # it begins
    return task


def test_no_more_calls_than_places() -> None:
    places = Places(2)
    assert [places.try_take() for _ in range(3)] == [True, True, False]
    places.give_back()
    assert [places.try_take() for _ in range(2)] == [True, False]


def test_calls_that_wait_get_places_in_their_order() -> None:
    async def play() -> None:
        places, order = Places(1), list[str]()
        assert places.try_take()
        tasks = [await waiting(places, order, name) for name in "abc"]
        for _ in tasks:
            places.give_back()
            assert not places.try_take(), "the place was handed over"
        await asyncio.gather(*tasks)
        assert order == ["a", "b", "c"]
        places.give_back()
        assert places.try_take()

    asyncio.run(play())


@pytest.mark.parametrize("is_handed_over", [False, True])
def test_a_cancelled_call_leaves_its_place_to_the_next(is_handed_over: bool) -> None:
    async def play() -> None:
        places, order = Places(1), list[str]()
        assert places.try_take()
        first, second = [await waiting(places, order, name) for name in "ab"]
        if is_handed_over:
            places.give_back()
        first.cancel()
        await asyncio.wait([first])
        if not is_handed_over:
            places.give_back()
        await second
        assert order == ["b"]
        assert not places.try_take()
        places.give_back()
        assert places.try_take()

    asyncio.run(play())
