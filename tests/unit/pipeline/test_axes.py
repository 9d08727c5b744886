"""Ticks and their names."""

import pytest

from leveret.pipeline.axes import (
    count_ticks,
    measure_of,
    plain_number,
    seconds_of,
    time_ticks,
    value_ticks,
)


@pytest.mark.parametrize(
    ("most", "ticks"),
    [
        (0, [0, 1]),
        (float("nan"), [0, 1]),
        (0.7, [0, 0.2, 0.4, 0.6, 0.8]),
        (10, [0, 2, 4, 6, 8, 10]),
        (10.1, [0, 5, 10, 15]),
        (980, [0, 200, 400, 600, 800, 1000]),
    ],
)
def test_ticks_of_values_are_round_and_reach_the_greatest(most: float, ticks: list[float]) -> None:
    assert value_ticks(most) == ticks


def test_ticks_of_counts_are_whole() -> None:
    assert count_ticks(1) == [0, 1]
    assert count_ticks(3) == [0, 1, 2, 3]


def test_times_are_full_hours_and_a_new_day_is_named() -> None:
    first = seconds_of("2026-03-01 21:40:00")
    names = [name for _, name in time_ticks(first, first + 4 * 3600)]
    assert names == ["22:00", "23:00", "2 Mar", "01:00"]
    assert time_ticks(first, first + 4 * 3600)[0][0] == seconds_of("2026-03-01 22:00:00")


def test_long_spans_have_ticks_of_days() -> None:
    first = seconds_of("2026-03-01 00:00:00")
    ticks = time_ticks(first, first + 13 * 86_400)
    assert [name for _, name in ticks][:2] == ["2 Mar", "4 Mar"]
    assert 1 <= len(time_ticks(first, first + 5_000 * 86_400)) <= 14


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (12.5, "12.5 ms"),
        (1_999, "1,999 ms"),
        (90_000, "90 s"),
        (3_600_000, "60 min"),
        (9e6, "2.50 h"),
    ],
)
def test_spans_have_the_unit_that_fits(ms: float, text: str) -> None:
    assert measure_of("ms", ms).text(ms) == text


def test_numbers_have_as_many_digits_as_tell_something() -> None:
    assert [plain_number(n) for n in (0, 1234567, 0.126, 45.67, 456.7)] == [
        *("0", "1,234,567", "0.13", "45.7", "457")
    ]
