"""The guard's bounds, and its paths in either form; the counting itself is in tests/guard."""

import pytest

from tools.guard import baseline
from tools.guard.baseline import Baseline
from tools.guard.paths import PATHS

HERE = {"python": "3.11", "machine": "x86_64", "compiler": "gcc 12"}
RECORDED = Baseline(HERE, {"reference": 100.0, "publish": 1000.0})


def test_growth_within_the_bound_is_fine() -> None:
    assert RECORDED.faults({"reference": 100.0, "publish": 1149.0}) == []
    assert RECORDED.faults({"reference": 100.0, "publish": 10.0}) == []


def test_growth_over_the_bound_is_told_with_both_numbers() -> None:
    (fault,) = RECORDED.faults({"reference": 100.0, "publish": 1200.0})
    assert fault == (
        "publish: 1,200 instructions a message, +20.0% of the recorded 1,000 (at most +15%)"
    )


def test_paths_that_come_and_go_are_told() -> None:
    faults = RECORDED.faults({"reference": 100.0, "deliver": 5.0})
    assert faults == ["deliver: is not recorded", "publish: is gone"]


@pytest.mark.parametrize(
    ("here", "reference", "said"),
    [
        (HERE, 101.0, ""),
        ({**HERE, "compiler": "gcc 13"}, 100.0, ""),
        ({**HERE, "python": "3.12"}, 100.0, "for python 3.11, this is 3.12"),
        ({**HERE, "machine": "aarch64"}, 100.0, "for machine x86_64"),
        (HERE, 150.0, "needs +50% instructions"),
    ],
)
def test_only_the_same_interpreter_is_compared(
    here: dict[str, str], reference: float, said: str
) -> None:
    counted = {"reference": reference, "publish": 1.0}
    reason = RECORDED.why_not_here(here) or RECORDED.why_not_comparable(counted)
    assert bool(reason) == bool(said)
    assert said in reason


def test_every_path_is_recorded() -> None:
    assert set(baseline.load().instructions) == set(PATHS)
    assert set(baseline.environment()) == set(baseline.load().environment)


@pytest.mark.parametrize("name", PATHS)
def test_path_does_its_work(name: str) -> None:
    path = PATHS[name]()
    path.run()
    path.check()
