"""Measurements by upper bound, and quantiles of them."""

from leveret.histogram import Histogram


def test_a_measurement_is_counted_at_the_least_bound_that_is_not_below_it() -> None:
    found = Histogram((1, 2, 5))
    for value in (0.5, 1, 1.5, 5, 6):
        found.observe(value)
    assert found.counts == [2, 1, 1, 1]
    assert (found.count, found.sum, found.highest) == (5, 14, 6)


def test_a_quantile_is_a_bound_and_never_above_the_highest() -> None:
    found = Histogram((1, 2, 5))
    assert found.quantile(0.5) == 0
    for value in (0.5, 1.5, 1.5, 4):
        found.observe(value)
    assert found.quantile(0.5) == 2
    assert found.quantile(0.99) == 4
    found.observe(100)
    assert found.quantile(0.99) == 100
