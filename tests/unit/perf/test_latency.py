"""Percentiles from buckets stay within 3 % of the exact ones."""

import random

import pytest
from mypy_extensions import i64

from leveret.perf.latency import Histogram


def histogram(values: list[int]) -> Histogram:
    made = Histogram()
    for value in values:
        made.add(i64(value))
    return made


def test_nothing_counted_is_zero() -> None:
    assert [Histogram().percentile(p) for p in (0, 50, 99, 100)] == [0, 0, 0, 0]


def test_small_numbers_are_exact() -> None:
    made = histogram(list(range(64)))
    assert [made.percentile(p) for p in (0, 50, 100)] == [0, 32, 63]


@pytest.mark.parametrize("value", [63, 64, 65, 127, 128, 1_000_003, 60_000_000_000])
def test_one_number_is_found_within_its_bucket(value: int) -> None:
    assert histogram([value]).percentile(50) == pytest.approx(value, rel=0.03)


def test_percentiles_are_near_the_exact_ones(seed: int) -> None:
    print(f"seed {seed}")
    chance = random.Random(seed)
    values = sorted(int(chance.lognormvariate(11, 2)) for _ in range(5000))
    made = histogram(values)
    for percent in (1, 25, 50, 95, 99, 99.9):
        exact = values[round((len(values) - 1) * percent / 100)]
        assert made.percentile(percent) == pytest.approx(exact, rel=0.03, abs=1)
    assert made.percentile(100) <= made.max_ns == values[-1]


def test_latencies_out_of_range_count_in_first_and_last_bucket() -> None:
    made = histogram([-5, 2**62])
    assert made.percentile(0) == 0
    assert made.max_ns < 2**43
    assert made.percentile(100) == pytest.approx(made.max_ns, rel=0.03)


def test_merge_equals_counting_in_one_histogram() -> None:
    left, right = histogram([1, 500, 70_000]), histogram([2, 10**9])
    left.merge(right.buckets, right.max_ns)
    both = histogram([1, 500, 70_000, 2, 10**9])
    assert (left.count, left.max_ns, left.buckets) == (both.count, both.max_ns, both.buckets)


def test_counts_of_since_can_be_added_to_another_histogram() -> None:
    before, later = histogram([1, 500]), histogram([1, 500, 500, 70_000])
    added = later.since(before)
    assert sum(added.values()) == 2
    taken = histogram([])
    taken.add_counts(added, 70_000)
    assert taken.buckets == histogram([500, 70_000]).buckets
    assert (taken.count, taken.max_ns) == (2, 70_000)


def test_highest_bucket_is_near_the_maximum() -> None:
    assert histogram([]).highest_ns() == 0
    assert histogram([5, 70_000]).highest_ns() == pytest.approx(70_000, rel=0.06)
