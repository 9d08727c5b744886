"""A long list is sorted as `sorted` does it, in slices."""

import asyncio
from random import Random

import pytest

from leveret.http.framework.sorting import SAMPLES_MAX, sorted_range
from leveret.slices import LoopShare, Slices

Row = tuple[int, str]  # sort key, name


def rows_of(random: Random, count: int, keys: int) -> list[Row]:
    found = [(random.randrange(keys), f"n{number}") for number in range(count)]
    random.shuffle(found)
    return found


def key(row: Row) -> int:
    return row[0]


def name(row: Row) -> str:
    return row[1]


@pytest.mark.parametrize("count", [0, 1, 7, SAMPLES_MAX, 3 * SAMPLES_MAX + 1])
@pytest.mark.parametrize("keys", [1, 5, 10_000])
@pytest.mark.parametrize("is_reversed", [False, True])
def test_every_range_is_that_of_the_sorted_list(
    seed: int, count: int, keys: int, is_reversed: bool
) -> None:
    rows = rows_of(Random(seed), count, keys)
    whole = sorted(rows, key=key, reverse=is_reversed)
    by_name = sorted(sorted(rows, key=name), key=key, reverse=is_reversed)
    slices = Slices(LoopShare(lambda: 0))
    ranges = [(0, None), (0, 10), (count // 2, count // 2 + 100), (count, count + 10)]
    for first, end in ranges:

        async def found(first: int = first, end: int | None = end) -> None:
            plain = await sorted_range(
                rows, key, slices, first=first, end=end, is_reversed=is_reversed
            )
            assert plain == whole[first:end]
            tied = await sorted_range(
                rows, key, slices, first=first, end=end, is_reversed=is_reversed, tie=name
            )
            assert tied == by_name[first:end]

        asyncio.run(found())
