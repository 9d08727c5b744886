"""From what became of settling one job to the exception that says so."""

from leveret.job_model import Outcome
from leveret.jobs.client.errors import StaleLeaseError, UnknownJobError


def require_done(outcomes: list[Outcome]) -> None:
    """StaleLeaseError or UnknownJobError where the only job of a call was not settled."""
    (outcome,) = outcomes
    if outcome is Outcome.STALE:
        raise StaleLeaseError("the lease is over, or another one holds the job", 409)
    if outcome is Outcome.UNKNOWN:
        raise UnknownJobError("there is no such job in this topic", 404)
