"""The backoff doubles up to its maximum, with random jitter."""

from leveret.job_model import TopicSettings
from leveret.job_service.backoff import backoff_ms, is_dead


def test_backoff_doubles_up_to_its_maximum() -> None:
    settings = TopicSettings(backoff_ms=100, backoff_ms_max=1000, jitter=0)
    waits = [backoff_ms(settings, attempts, 0.5) for attempts in (1, 2, 3, 4, 5, 6, 10_000)]
    assert waits == [100, 200, 400, 800, 1000, 1000, 1000]


def test_jitter_takes_off_up_to_its_share() -> None:
    settings = TopicSettings(backoff_ms=1000, jitter=0.25)
    assert [backoff_ms(settings, 1, chance) for chance in (0.0, 0.5, 1.0)] == [1000, 875, 750]


def test_no_backoff_is_none() -> None:
    assert backoff_ms(TopicSettings(backoff_ms=0), 3, 0.3) == 0


def test_a_job_is_dead_after_its_retries() -> None:
    settings = TopicSettings(retries_max=2)
    assert [is_dead(settings, attempts) for attempts in (1, 2, 3)] == [False, False, True]
