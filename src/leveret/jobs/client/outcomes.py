"""Turns the outcome for a single job into an exception."""

from leveret.job_model import Outcome
from leveret.jobs.client.errors import StaleLeaseError, UnknownJobError


def require_done(outcomes: list[Outcome]) -> None:
    """Raise StaleLeaseError or UnknownJobError unless the only job of a call was settled."""
    (outcome,) = outcomes
    if outcome is Outcome.STALE:
        raise StaleLeaseError("the lease is over, or another lease holds the job", 409)
    if outcome is Outcome.UNKNOWN:
        raise UnknownJobError("the topic has no such job", 404)
