"""Decides whether a failed call is sent again, and after which pause.

A call that the service has certainly not carried out is always sent again: there was no connection,
or the service refused it (429, 503). A call that may have been carried out is sent again only where
that is harmless (`Call.is_repeatable`). Every pause lies within the deadline of the call.
"""

import random
from typing import Any, Final

from leveret.jobs.client.calls import Call
from leveret.jobs.client.errors import (
    CallError,
    RateLimitError,
    ServiceDrainingError,
    UnreachableError,
)

RETRIES_MAX: Final = 3
_PAUSE_S: Final = 0.05  # before the first retry, then doubled
TIMEOUT_S: Final = 10.0  # the default deadline of a call


def maybe_pause_s(fault: CallError, call: Call[Any], tries: int, left_s: float) -> float | None:
    """Return how long to wait before the next try; None: raise the fault."""
    if tries > RETRIES_MAX or not _is_harmless(fault, call):
        return None
    pause_s = _PAUSE_S * 2.0 ** (tries - 1) * (0.5 + random.random())
    if isinstance(fault, RateLimitError):
        pause_s = max(pause_s, fault.retry_after_s)
    return pause_s if pause_s < left_s else None


def may_be_done(fault: CallError) -> bool:
    """Return True if the service may have carried out a call that failed like this."""
    return isinstance(fault, UnreachableError) and fault.was_sent


def _is_harmless(fault: CallError, call: Call[Any]) -> bool:
    if isinstance(fault, UnreachableError):
        return call.is_repeatable or not fault.was_sent
    return isinstance(fault, RateLimitError | ServiceDrainingError)
