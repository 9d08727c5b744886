"""Errors of the jobs client, one class for each cause.

```
CallError                   the call failed
├── UnreachableError        no connection, or it was lost: the call may have been carried out
├── CallTimeoutError        no answer within the deadline: the call may have been carried out
├── BadAnswerError          the answer is not one of this API
├── InvalidCallError        400, 413, 415, 422: the call itself is wrong; names item and field
├── NotAuthenticatedError   401: no token, or a token that is not valid
├── NotAllowedError         403: the token does not cover the namespace
├── UnknownJobError         404: the topic has no such job
├── StaleLeaseError         409: the lease is over, or another lease holds the job
├── RateLimitError          429: the namespace asks too often; names the pause
├── ServiceDrainingError    503: the service is stopping; another node may answer
└── ServiceError            500 and others: the service has a fault, or its databases are down
```

The first four and `NotAuthenticatedError` come from `leveret.http_client`.
"""

from typing import Final

import msgspec

from leveret.decode_errors import DECODE_ERRORS
from leveret.http_client.errors import (
    BadAnswerError,
    CallError,
    CallTimeoutError,
    NotAuthenticatedError,
    UnreachableError,
)

__all__ = [
    "BadAnswerError",
    "CallError",
    "CallTimeoutError",
    "InvalidCallError",
    "NotAllowedError",
    "NotAuthenticatedError",
    "RateLimitError",
    "ServiceDrainingError",
    "ServiceError",
    "StaleLeaseError",
    "UnknownJobError",
    "UnreachableError",
    "error_of",
]


class InvalidCallError(CallError):
    """The call itself is wrong; `item` and `field` name the fault where one job is the cause."""

    def __init__(
        self, detail: str, status: int = 400, item: int | None = None, field: str = ""
    ) -> None:
        super().__init__(detail if item is None else f"item {item}: {detail}", status)
        self.item = item
        self.field = field


class NotAllowedError(CallError):
    """The token does not cover the namespace."""


class UnknownJobError(CallError):
    """The topic has no such job."""


class StaleLeaseError(CallError):
    """The lease is over, or another lease holds the job."""


class RateLimitError(CallError):
    """The namespace asks too often."""

    def __init__(self, detail: str, status: int = 429, retry_after_s: float = 1.0) -> None:
        super().__init__(detail, status)
        self.retry_after_s = retry_after_s


class ServiceDrainingError(CallError):
    """The service is stopping."""


class ServiceError(CallError):
    """The service has a fault, or its databases do not answer."""


_BY_STATUS: Final[dict[int, type[CallError]]] = {
    400: InvalidCallError,
    401: NotAuthenticatedError,
    403: NotAllowedError,
    404: UnknownJobError,
    409: StaleLeaseError,
    413: InvalidCallError,
    415: InvalidCallError,
    422: InvalidCallError,
    503: ServiceDrainingError,
}
_TEXT_CHARS_MAX: Final = 300  # shown of an answer that is not a problem document


class _Problem(msgspec.Struct):
    """The fields of a problem document (RFC 9457) that become an error text."""

    title: str = ""
    detail: str = ""
    item: int | None = None
    field: str = ""


def error_of(status: int, body: bytes, retry_after: str | None) -> CallError:
    """Return the exception for an answer that is not a success."""
    problem = _problem(body)
    text = problem.detail or problem.title or f"the service answered {status}"
    if status == 429:
        return RateLimitError(text, status, _seconds(retry_after))
    kind = _BY_STATUS.get(status, ServiceError)
    if kind is UnknownJobError and not problem.title:
        return BadAnswerError("there is no jobs service at this address: it answered 404", status)
    if kind is InvalidCallError:
        return InvalidCallError(text, status, problem.item, problem.field)
    return kind(text, status)


def _problem(body: bytes) -> _Problem:
    try:
        return msgspec.json.decode(body, type=_Problem)
    except DECODE_ERRORS:
        return _Problem(detail=body.decode(errors="replace").strip()[:_TEXT_CHARS_MAX])


def _seconds(retry_after: str | None) -> float:
    try:
        return max(0.0, float(retry_after or 1.0))
    except ValueError:
        return 1.0  # a date: our nodes do not send one
