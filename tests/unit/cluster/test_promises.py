"""The promised times of fault rounds, and the wider times for the suite."""

import pytest

from tests.cluster.process.__main__ import verdict
from tests.cluster.process.faults import PATIENT, Figures


@pytest.mark.parametrize(
    "figures",
    [
        Figures("kill the leader", election_s=5.1, resumed_s=0.1),
        Figures("kill the leader", election_s=1.0, resumed_s=10.1),
    ],
    ids=["a late election", "late writes"],
)
def test_rounds_that_take_too_long_fail_and_the_suite_bears_them(figures: Figures) -> None:
    kept = Figures("kill a follower", resumed_s=0.1)
    assert verdict([kept]) is None
    assert "1 times a promise was broken" in (verdict([kept, figures]) or "")
    assert not figures.broken(PATIENT)


@pytest.mark.parametrize(
    "figures",
    [Figures("kill everyone", resumed_s=0.1, lost=1), Figures("kill everyone")],
    ids=["something lost", "no write at all"],
)
def test_what_may_never_be_fails_everywhere(figures: Figures) -> None:
    assert verdict([figures])
    assert figures.broken(PATIENT)
