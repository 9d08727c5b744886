"""When a call that failed may be sent again, and after which pause.

What was not done can always be asked again: there was no connection, or the service said that it
did nothing (429, 503). What may have been done is asked again only where that is harmless
(`Call.is_repeatable`). Every pause lies within the deadline of the call.
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
_PAUSE_S: Final = 0.05  # before the first; doubled for each further one
TIMEOUT_S: Final = 10.0  # of a call, unless the client is told another


def maybe_pause_s(fault: CallError, call: Call[Any], tries: int, left_s: float) -> float | None:
    """How long to wait before the next try; None where the fault is the answer."""
    if tries > RETRIES_MAX or not _is_harmless(fault, call):
        return None
    pause_s = _PAUSE_S * 2.0 ** (tries - 1) * (0.5 + random.random())
    if isinstance(fault, RateLimitError):
        pause_s = max(pause_s, fault.retry_after_s)
    return pause_s if pause_s < left_s else None


def _is_harmless(fault: CallError, call: Call[Any]) -> bool:
    if isinstance(fault, UnreachableError):
        return call.is_repeatable or not fault.was_sent
    return isinstance(fault, RateLimitError | ServiceDrainingError)
