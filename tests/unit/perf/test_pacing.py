"""Rates over time: when messages are due, with a given time."""

import pytest

from leveret.perf.pacing import Phases, make_pace


def sent_until(rate: int, schedule: tuple[tuple[int, float], ...], workers: int, end: float) -> int:
    """Return the messages that an idle sender has sent by then."""
    steps = make_pace(rate, schedule, workers, 100.0)
    assert steps is not None
    now, sent = 100.0, 0
    while True:
        wait_s = steps.wait_s(sent, now)
        now += wait_s
        if now >= 100.0 + end:
            return sent
        if steps.wait_s(sent, now) <= 0:
            sent += 1


def test_no_rate_is_no_pace() -> None:
    assert make_pace(0, (), 1, 0.0) is None


@pytest.mark.parametrize(("workers", "expected"), [(1, 200), (4, 50)])
def test_rate_is_shared_by_the_workers(workers: int, expected: int) -> None:
    assert sent_until(100, (), workers, 2.0) == pytest.approx(expected, abs=1)


def test_phases_follow_each_other_and_begin_again() -> None:
    schedule = ((100, 1.0), (10, 2.0), (0, 1.0))
    assert sent_until(0, schedule, 1, 4.0) == pytest.approx(120, abs=2)
    assert sent_until(0, schedule, 1, 8.0) == pytest.approx(240, abs=4)


def test_sender_that_fell_behind_catches_up() -> None:
    steps = make_pace(100, (), 1, 0.0)
    assert steps is not None
    assert steps.wait_s(0, 5.0) == 0
    assert steps.wait_s(500, 5.0) == 0
    assert steps.wait_s(501, 5.0) == pytest.approx(0.01)


def test_value_applies_until_the_end_of_its_phase() -> None:
    phases = Phases(((16, 1.0), (1024, 0.5)), 10.0)
    seen = []
    for now_s in (10.0, 10.9, 11.0, 11.4, 11.5, 13.0):
        phases.move(now_s)
        seen.append(phases.value)
    assert seen == [16, 16, 1024, 1024, 16, 16]
