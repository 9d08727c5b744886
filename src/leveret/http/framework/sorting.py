"""Sort a long list in slices, so that fifty thousand rows do not hold the event loop.

One call of `sorted` cannot be interrupted. So the rows are first put into many small buckets, by
keys that were taken from the list as samples. Then only the buckets that a page needs are sorted.
"""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

from leveret.slices import Slices

SAMPLES_MAX: Final = 1024  # keys that divide the rows into buckets
_AT_A_TIME: Final = 32  # rows between two looks at the clock

Row = TypeVar("Row")


async def sorted_range(
    rows: Sequence[Row],
    key: Callable[[Row], Any],
    slices: Slices,
    *,
    first: int = 0,
    end: int | None = None,
    is_reversed: bool = False,
    tie: Callable[[Row], Any] | None = None,
) -> list[Row]:
    """Return the rows from place `first` to before `end` of the sorted list.

    Rows with equal keys are sorted by `tie`, ascending in a reversed list too. Without it they keep
    their order, as with `sorted`.
    """
    keys = await _sort_keys(rows, key, slices)
    pivots = sorted(set(keys[:: -(-len(keys) // SAMPLES_MAX) or 1]))
    buckets = await _buckets(keys, pivots, slices)
    places = range(len(buckets))
    found: list[Row] = []
    passed = 0  # rows in the buckets before this one
    last = len(rows) if end is None else end
    for place in reversed(places) if is_reversed else places:
        bucket = buckets[place]
        if passed >= last:
            break
        if passed + len(bucket) > first:
            begin, stop = max(first - passed, 0), last - passed
            if place % 2 == 1 and tie is not None:  # all keys are equal
                equal = [rows[index] for index in bucket]
                found += await sorted_range(equal, tie, slices, first=begin, end=stop)
            else:
                if tie is not None:
                    bucket.sort(key=lambda index: tie(rows[index]))
                if place % 2 == 0:
                    bucket.sort(key=keys.__getitem__, reverse=is_reversed)
                found.extend(rows[index] for index in bucket[begin:stop])
            await slices.rest_if_over()
        passed += len(bucket)
    return found


async def _sort_keys(rows: Sequence[Row], key: Callable[[Row], Any], slices: Slices) -> list[Any]:
    keys: list[Any] = []
    for index, row in enumerate(rows):
        keys.append(key(row))
        if index % _AT_A_TIME == 0:
            await slices.rest_if_over()
    return keys


async def _buckets(keys: list[Any], pivots: list[Any], slices: Slices) -> list[list[int]]:
    """Return the indexes of the keys by bucket.

    Bucket 2n + 1 has the keys that are equal to pivot n; bucket 2n has the keys before it.
    """
    buckets: list[list[int]] = [[] for _ in range(2 * len(pivots) + 1)]
    count = len(pivots)
    for index, key in enumerate(keys):
        at = bisect_left(pivots, key)
        is_equal = at < count and pivots[at] == key
        buckets[2 * at + is_equal].append(index)
        if index % _AT_A_TIME == 0:
            await slices.rest_if_over()
    return buckets
