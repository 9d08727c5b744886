"""The token bucket of a namespace."""

import pytest

from leveret.errors import JobsRateLimitError
from leveret.job_service.embedded.rate_limits import RateLimits


def test_a_namespace_has_its_rate_and_no_more() -> None:
    rates = RateLimits(10)
    rates.take({"a": 10}, 0)
    with pytest.raises(JobsRateLimitError) as fault:
        rates.take({"a": 1}, 0)
    assert fault.value.retry_after_s == pytest.approx(0.1)
    rates.take({"b": 10}, 0)
    rates.take({"a": 5}, 500)
    with pytest.raises(JobsRateLimitError):
        rates.take({"a": 1}, 500)


def test_a_full_bucket_lets_a_large_batch_through_which_is_paid_for_later() -> None:
    rates = RateLimits(10)
    rates.take({"a": 40}, 0)
    with pytest.raises(JobsRateLimitError) as fault:
        rates.take({"a": 1}, 1000)
    assert fault.value.retry_after_s == pytest.approx(2.1)
    rates.take({"a": 1}, 3200)


def test_a_batch_that_is_refused_takes_nothing_from_anybody() -> None:
    rates = RateLimits(10)
    rates.take({"a": 10}, 0)
    with pytest.raises(JobsRateLimitError):
        rates.take({"b": 5, "a": 5}, 0)
    rates.take({"b": 10}, 0)


def test_no_rate_is_no_limit() -> None:
    RateLimits(0).take({"a": 10**9}, 0)
