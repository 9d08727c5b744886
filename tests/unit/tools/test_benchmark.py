"""Bounds of the benchmark: numbers, ratios, either of both, and nothing to compare with."""

import pytest

from leveret.perf.load import Load
from tools.benchmark.measure import medians
from tools.benchmark.report import Row
from tools.benchmark.scenarios import MEASURES, SCENARIOS, Bound, Scenario


@pytest.mark.parametrize(
    ("bound", "ours", "theirs", "met"),
    [
        (Bound("rate", least=100), 100, None, True),
        (Bound("rate", least=100), 99, 1, False),
        (Bound("rate", most=100), 101, None, False),
        (Bound("rate", ratio_least=3), 30, 10, True),
        (Bound("rate", ratio_least=3), 29, 10, False),
        (Bound("rate", ratio_most=1), 10, 10, True),
        (Bound("rate", ratio_most=1), 11, 10, False),
        (Bound("rate", ratio_least=3), 30, None, None),
        (Bound("rate", least=100, ratio_least=3), 30, 10, True),
        (Bound("rate", least=100, ratio_least=3), 100, 50, True),
        (Bound("rate", least=100, ratio_least=3), 29, None, None),
    ],
)
def test_bound(bound: Bound, ours: float, theirs: float | None, met: bool | None) -> None:
    other = None if theirs is None else {"rate": theirs}
    assert bound.is_met({"rate": ours}, other) is met


def test_bound_reads_as_a_sentence() -> None:
    bound = Bound("rate", least=453_000, ratio_least=6)
    assert str(bound) == "received/s ≥ 453,000/s or ≥ 6× RabbitMQ"


def test_median_is_taken_of_each_figure() -> None:
    rounds = [{"rate": 1.0, "share": 9.0}, {"rate": 5.0, "share": 1.0}, {"rate": 2.0, "share": 2.0}]
    assert medians(rounds) == {"rate": 2.0, "share": 2.0}


def test_ratio_is_above_one_when_leveret_is_better() -> None:
    rate = Scenario("rate", Load(), ("rate", "share"))
    latency = Scenario("latency", Load(), ("rate", "p50_us"))
    assert Row(rate, [{"rate": 60}], [{"rate": 10}]).ratio() == 6
    ours, theirs = {"rate": 1.0, "p50_us": 50.0}, {"rate": 1.0, "p50_us": 200.0}
    assert Row(latency, [ours], [theirs]).ratio() == 4
    assert Row(latency, [ours], []).ratio() is None


def test_every_scenario_has_its_own_name_and_known_measures() -> None:
    names = [scenario.name for scenario in SCENARIOS]
    assert len(set(names)) == len(names)
    for scenario in SCENARIOS:
        assert {*scenario.shows, *(bound.measure for bound in scenario.must)} <= set(MEASURES)
