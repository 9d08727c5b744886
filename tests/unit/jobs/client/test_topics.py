"""Settings and statistics of a topic are seconds in Python and milliseconds in the HTTP API."""

from leveret import job_model
from leveret.jobs import TopicSettings
from leveret.jobs.client.topics import settings_body, settings_of, stats_of


def test_defaults_are_those_of_the_service() -> None:
    assert settings_body(TopicSettings()) == job_model.TopicSettings()
    assert settings_of(job_model.TopicSettings()) == TopicSettings()


def test_settings_are_converted_both_ways() -> None:
    wanted = TopicSettings(
        retries_max=3, backoff_s=0.25, backoff_s_max=1.5, jitter=0, lease_s=2.5, concurrency_max=7
    )
    sent = settings_body(wanted)
    assert (sent.backoff_ms, sent.backoff_ms_max, sent.lease_ms) == (250, 1500, 2500)
    assert settings_of(sent) == wanted


def test_the_oldest_ready_job_waits_since_a_time_in_seconds() -> None:
    found = job_model.TopicStats(
        namespace="n",
        topic="t",
        ready=1,
        scheduled=2,
        leased=3,
        dead=4,
        expired=5,
        oldest_ready_ms=1500,
    )
    assert stats_of(found).oldest_ready_s == 1.5
    assert stats_of(found).expired == 5
    found.oldest_ready_ms = None
    assert stats_of(found).oldest_ready_s is None
