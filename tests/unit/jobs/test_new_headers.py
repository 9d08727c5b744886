"""A header that is made from a template is the header that would have been encoded in full."""

import pytest

from leveret.job_model import NewJob
from leveret.job_service.embedded.envelope import make_envelope
from leveret.job_service.embedded.new_headers import NewHeaders
from leveret.job_service.snowflake import EPOCH_MS, first_of

NOW_MS = EPOCH_MS + 50_000_000_000


def job(payload: bytes = b"x", **more: object) -> NewJob:
    return NewJob(namespace="n", topic="t", payload=payload, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize("now_ms", [EPOCH_MS, EPOCH_MS + 1, NOW_MS])
def test_headers_of_jobs_in_a_row_are_those_of_their_envelopes(now_ms: int) -> None:
    made = NewHeaders()
    jobs = [
        job(),
        job(b""),
        job(bytes(70_000)),
        job(priority=-3),
        job(priority=-3),
        job(priority=300),
        job(deliver_after_ms=now_ms + 5_000),
        job(deliver_after_ms=now_ms - 5_000),
        job(deliver_after_ms=now_ms + 5_000),
        job(fair_key="12345678901234567"),
        job(idempotency_key="12345678901234567"),
        job(),
        job(),
    ]
    for at_ms in (now_ms, now_ms + 1, now_ms + 999, now_ms + 1000, now_ms + 60_001):
        for number, one in enumerate(jobs):
            id = first_of(at_ms) + number
            expected = make_envelope(one, id, at_ms).header(len(one.payload))
            assert made.header(one, id, at_ms) == expected


@pytest.mark.parametrize("first", [first_of(NOW_MS), 10**18 - 4])
def test_headers_of_a_batch_are_those_of_its_jobs(first: int) -> None:
    """Also where the ids of the batch get a digit more."""
    later = job(deliver_after_ms=NOW_MS + 1)
    jobs = [job(), job(), job(), job(b"yy"), job(b"zz"), job(priority=7), job(), later, later]
    ids = [first + number for number in range(len(jobs))]
    made = NewHeaders().plain_headers(jobs, ids, NOW_MS)
    each = zip(jobs, ids, strict=True)
    assert made == [make_envelope(one, id, NOW_MS).header(len(one.payload)) for one, id in each]
