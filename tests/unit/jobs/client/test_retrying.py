"""Which failed calls are sent again."""

from typing import Any

from leveret.jobs.client import calls
from leveret.jobs.client.errors import (
    CallError,
    CallTimeoutError,
    InvalidCallError,
    RateLimitError,
    ServiceDrainingError,
    StaleLeaseError,
    UnreachableError,
    error_of,
)
from leveret.jobs.client.job import NewJob
from leveret.jobs.client.retrying import RETRIES_MAX, maybe_pause_s

NOT_SENT = UnreachableError("refused", was_sent=False)
SENT = UnreachableError("lost", was_sent=True)
PLAIN = calls.enqueue([NewJob(topic="t", payload=b"")], "n")
KEYED = calls.enqueue([NewJob(topic="t", payload=b"", idempotency_key="k")], "n")
HALF_KEYED = calls.enqueue(
    [NewJob(topic="t", payload=b"", idempotency_key="k"), NewJob(topic="t", payload=b"")], "n"
)
TAKE = calls.dequeue("n", "t", 1, 0, None)
LOOK = calls.stats(None)


def is_repeated(fault: CallError, call: calls.Call[Any]) -> bool:
    return maybe_pause_s(fault, call, 1, 100.0) is not None


def test_what_may_have_been_done_is_repeated_only_where_that_is_harmless() -> None:
    assert [is_repeated(SENT, call) for call in (PLAIN, KEYED, HALF_KEYED, TAKE, LOOK)] == [
        False,
        True,
        False,
        False,
        True,
    ]


def test_what_was_not_done_is_repeated() -> None:
    for fault in (NOT_SENT, RateLimitError("wait"), ServiceDrainingError("stopping")):
        assert is_repeated(fault, PLAIN)


def test_what_would_fail_again_is_not_repeated() -> None:
    for fault in (InvalidCallError("no"), StaleLeaseError("no"), CallTimeoutError("late")):
        assert not is_repeated(fault, LOOK)


def test_no_pause_goes_beyond_the_deadline_and_tries_are_limited() -> None:
    assert maybe_pause_s(RateLimitError("wait", retry_after_s=5.0), LOOK, 1, 4.0) is None
    assert maybe_pause_s(RateLimitError("wait", retry_after_s=5.0), LOOK, 1, 6.0) == 5.0
    assert maybe_pause_s(NOT_SENT, LOOK, RETRIES_MAX + 1, 100.0) is None


def test_an_error_is_the_exception_of_its_cause_with_the_words_of_the_service() -> None:
    body = b'{"type": "about:blank", "title": "Conflict", "detail": "the lease is over"}'
    fault = error_of(409, body, None)
    assert isinstance(fault, StaleLeaseError)
    assert (str(fault), fault.status) == ("the lease is over", 409)
    limited = error_of(429, b"slow down", "2.5")
    assert isinstance(limited, RateLimitError)
    assert (str(limited), limited.retry_after_s) == ("slow down", 2.5)
    assert str(error_of(502, b"", None)) == "the service answered 502"
