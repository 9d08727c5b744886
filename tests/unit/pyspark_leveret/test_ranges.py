"""Offset ranges: sharing a limit among streams, splitting ranges into partitions."""

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_leveret.ranges import Range, share_limit, split_ranges

WAITING = st.dictionaries(st.text(max_size=3), st.integers(0, 10_000), min_size=1, max_size=8)


@given(WAITING, st.integers(1, 20_000))
def test_shares_use_the_limit_and_never_more(waiting: dict[str, int], most: int) -> None:
    shares = share_limit(waiting, most)
    assert shares.keys() == waiting.keys()
    assert sum(shares.values()) == min(most, sum(waiting.values()))
    assert all(0 <= shares[name] <= waiting[name] for name in waiting)


@given(
    st.lists(st.tuples(st.integers(0, 100), st.integers(0, 5000)), max_size=5),
    st.integers(1, 50),
    st.integers(1, 1000),
)
def test_split_ranges_hold_every_offset_once(
    given_ranges: list[tuple[int, int]], least: int, most: int
) -> None:
    whole = [Range(str(n), first, first + size) for n, (first, size) in enumerate(given_ranges)]
    parts = split_ranges(whole, least, most)
    found = [(part.stream, n) for part in parts for n in range(part.first, part.end)]
    assert found == [(one.stream, n) for one in whole for n in range(one.first, one.end)]
    assert all(0 < part.end - part.first <= most for part in parts)
    assert len(parts) >= min(least, len(found)) or len(found) == 0 or is_even(parts, least, found)


def is_even(parts: list[Range], least: int, found: list[tuple[str, int]]) -> bool:
    """Fewer parts than wanted only where each is as small as the division allows."""
    return max(part.end - part.first for part in parts) <= -(-len(found) // least)


def test_ranges_are_split_for_all_cores_if_they_are_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 4)

    def sizes(records: int) -> list[int]:
        parts = split_ranges([Range("s", 0, records)], None, 500_000)
        return [part.end - part.first for part in parts]

    assert sizes(1) == [1]
    assert sizes(199_999) == [199_999]
    assert sizes(200_000) == [100_000] * 2
    assert sizes(1_000_000) == [250_000] * 4
    assert sizes(4_000_000) == [500_000] * 8
