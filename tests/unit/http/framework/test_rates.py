"""Rates of counters over the last seconds, from the samples of readers, in bounded memory."""

from leveret.http.framework import rates as module
from leveret.http.framework.rates import FORGET_MS, NO_RATE, RateSamples


def per_second(rates: RateSamples, now_ms: int, *counts: int, key: str = "q") -> list[float]:
    return [rate.rate for rate in rates.of(key, counts, now_ms)]


def test_first_read_has_no_rate_and_the_next_one_has() -> None:
    rates = RateSamples()
    assert per_second(rates, 1000, 50, 7) == [0.0, 0.0]
    assert per_second(rates, 3000, 150, 7) == [50.0, 0.0]


def test_rate_is_over_the_last_five_seconds() -> None:
    rates = RateSamples()
    for second in range(19):
        per_second(rates, second * 1000, 100 * second)
    assert per_second(rates, 19_000, 1900) == [100.0]
    found = [per_second(rates, (20 + i) * 1000, 1900)[0] for i in range(7)]
    assert found[0] > found[2] > found[4]
    assert found[6] == 0.0


def test_reads_in_quick_succession_share_a_sample() -> None:
    rates = RateSamples()
    for read in range(100):
        per_second(rates, 10 * read, read)
    samples = rates._objects["q"]
    assert len(samples.times_ms) == 1
    assert per_second(rates, 1000, 200) == [200.0]


def test_rare_reads_give_the_mean_since_the_last_one() -> None:
    rates = RateSamples()
    per_second(rates, 0, 0)
    assert per_second(rates, 60_000, 600) == [10.0]
    assert per_second(rates, 120_000, 600) == [5.0]
    assert per_second(rates, 180_000, 600) == [0.0]


def test_unchanged_counters_keep_two_samples() -> None:
    rates = RateSamples()
    for second in range(100):
        per_second(rates, second * 1000, 5)
    assert len(rates._objects["q"].times_ms) == 2


def test_counter_that_went_down_is_a_new_object_and_a_gauge_may_go_down() -> None:
    rates = RateSamples()
    rates.of("q", (10, 10), 0, gauges=1)
    counter, gauge = rates.of("q", (20, 5), 1000, gauges=1)
    assert (counter.rate, gauge.rate) == (10.0, -5.0)
    assert rates.of("q", (3, 5), 2000, gauges=1) == (NO_RATE, NO_RATE)
    assert rates.of("q", (5, 5), 3000, gauges=1)[0].rate == 2.0


def test_objects_that_nobody_reads_are_forgotten() -> None:
    rates = RateSamples()
    for number in range(100):
        rates.of(number, (1,), 0)
    rates.of(0, (1,), FORGET_MS // 2)
    rates.of("new", (1,), FORGET_MS)
    assert len(rates) == 2


def test_number_of_objects_is_bounded() -> None:
    rates = RateSamples()
    most = module.OBJECTS_MAX
    for number in range(most + 50):
        rates.of(number, (1,), 0)
    assert len(rates) == most


def test_clear_forgets_all_samples() -> None:
    rates = RateSamples()
    per_second(rates, 0, 0)
    rates.clear()
    assert per_second(rates, 5000, 50) == [0.0]
