"""Lists: columns, and long arrays in pieces."""

import asyncio
from time import perf_counter

import msgspec

from leveret.http.framework.listing import (
    PIECE_ITEMS_MAX,
    _value_at,
    array_pieces,
    columns_of,
    keep_columns,
)
from leveret.slices import SLICE_S, LoopShare, Slices


class Item(msgspec.Struct):
    """A row of a list."""

    n: int


def test_columns_lead_into_objects_and_arrays() -> None:
    item = {"a": 1, "b": {"c": 2, "d": 3}, "e": [{"f": 4, "g": 5}], "h": 6}
    assert keep_columns(item, columns_of("a,b.c,e.f,none")) == {
        "a": 1,
        "b": {"c": 2},
        "e": [{"f": 4}],
    }
    assert keep_columns(item, columns_of("b,b.c")) == {"b": {"c": 2}}
    assert columns_of("") == {}


def test_a_sort_key_leads_only_to_what_is_shown() -> None:
    """Not to attributes of Python's own, whose text would be made for every row."""
    item = {"a": Item(7)}
    for path, value in (("a.n", 7), ("a.none", None), ("a.__class__", None), ("a.n.real", None)):
        assert _value_at(path.split("."), item) == value


def slices() -> Slices:
    return Slices(LoopShare(lambda: 0))


def pieces_of(count: int, gone: int = -1) -> list[bytes]:
    def describe(n: int) -> Item | None:
        return None if n == gone else Item(n)

    async def collect() -> list[bytes]:
        return [piece async for piece in array_pieces(range(count), describe, {}, slices())]

    return asyncio.run(collect())


def test_pieces_are_one_array_whatever_their_number() -> None:
    for count in (0, 1, PIECE_ITEMS_MAX, PIECE_ITEMS_MAX + 1, 3 * PIECE_ITEMS_MAX):
        pieces = pieces_of(count)
        assert msgspec.json.decode(b"".join(pieces)) == [{"n": n} for n in range(count)]
    assert len(pieces_of(3 * PIECE_ITEMS_MAX)) > 2


def test_deleted_rows_are_left_out() -> None:
    for gone in (0, 1, 2):
        found = msgspec.json.decode(b"".join(pieces_of(3, gone)))
        assert [item["n"] for item in found] == [n for n in range(3) if n != gone]


def test_slow_rows_let_others_run_in_between() -> None:
    """Other tasks of the loop run after every slice, not after the whole list."""
    turns = 0

    def describe(n: int) -> Item:
        end = perf_counter() + SLICE_S / 4
        while perf_counter() < end:
            pass
        return Item(n)

    async def run() -> None:
        nonlocal turns

        async def others() -> None:
            nonlocal turns
            while True:
                await asyncio.sleep(0)
                turns += 1

        async with asyncio.TaskGroup() as group:
            task = group.create_task(others())
            async for _ in array_pieces(range(64), describe, {}, slices()):
                pass
            task.cancel()

    asyncio.run(run())
    assert turns >= 4
