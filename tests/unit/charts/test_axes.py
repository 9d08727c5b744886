"""Ticks of axes, their texts, and scales."""

import pytest

from leveret.charts.axes import (
    XAxis,
    count_ticks,
    linear_scale,
    log_scale,
    parse_time_s,
    plain_number,
    range_ticks,
    time_ticks,
    unit_for,
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
    first = parse_time_s("2026-03-01 21:40:00")
    names = [name for _, name in time_ticks(first, first + 4 * 3600)]
    assert names == ["22:00", "23:00", "2 Mar", "01:00"]
    assert time_ticks(first, first + 4 * 3600)[0][0] == parse_time_s("2026-03-01 22:00:00")


def test_long_spans_have_ticks_of_days() -> None:
    first = parse_time_s("2026-03-01 00:00:00")
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
def test_durations_have_the_unit_that_suits_them(ms: float, text: str) -> None:
    assert unit_for("ms", ms).text(ms) == text


def test_numbers_have_two_or_three_significant_digits() -> None:
    assert [plain_number(n) for n in (0, 1234567, 0.126, 0.001, 45.67, 456.7)] == [
        *("0", "1,234,567", "0.13", "0.001", "45.7", "457")
    ]


@pytest.mark.parametrize(("high", "top"), [(0, 1), (7, 8), (99, 100), (401_000, 500_000)])
def test_linear_scale_ends_at_a_round_number(high: float, top: float) -> None:
    scale = linear_scale(value_ticks(high))
    assert scale.high == pytest.approx(top)
    assert scale.ticks[-1] == scale.high
    assert scale.position(top) == pytest.approx(1)


def test_logarithmic_scale_has_powers_of_ten() -> None:
    scale = log_scale([0.0, 3.0, 700.0])
    assert scale.ticks == [1, 10, 100, 1000]
    assert scale.position(10) == pytest.approx(1 / 3)
    assert scale.position(0) == 0


def test_ticks_of_a_range_are_round_and_inside_it() -> None:
    assert range_ticks(1, 30) == [5, 10, 15, 20, 25, 30]
    assert range_ticks(0.5, 2.5) == [0.5, 1, 1.5, 2, 2.5]
    assert range_ticks(3, 3) == [3]


def test_labels_of_an_x_axis_are_thinned() -> None:
    axis = XAxis("run", labels={float(n): f"run {n}" for n in range(10)})
    assert [text for _, text in axis.ticks([float(n) for n in range(10)])] == [
        f"run {n}" for n in (0, 2, 4, 6, 8)
    ]
    assert axis.text(3.0) == "run 3"
