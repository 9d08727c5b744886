"""What a call to the jobs service can end in, one class for each cause.

```
CallError                 a call that did not do what it was asked to
├── Unreachable            no connection, or it was lost: whether the call was done is not known
├── CallTimeoutError               no answer within the call's deadline: the same
├── BadAnswerError              what answered does not speak this API
├── InvalidCallError            400, 413, 422: the call itself is wrong; says which item and field
├── NotAuthenticatedError       401: no token, or one that is not valid (any more)
├── NotAllowedError             403: the token does not cover the namespace
├── UnknownJobError             404: no such job in this topic (any more)
├── StaleLeaseError             409: the lease is over, or another one holds the job
├── RateLimitError               429: the namespace asks too often; says when to come back
├── ServiceDrainingError        503: the service is stopping; another node may answer
└── ServiceError          500 and the like: what keeps the jobs does not answer
```
"""

from typing import Final

import msgspec

from leveret.errors import LeveretError


class CallError(LeveretError):
    """A call that did not do what it was asked to; `status` is 0 where there was no answer."""

    def __init__(self, detail: str, status: int = 0) -> None:
        super().__init__(detail)
        self.status = status


class UnreachableError(CallError):
    """No connection, or it was lost. `was_sent`: the call may have been done all the same."""

    def __init__(self, detail: str, *, was_sent: bool) -> None:
        super().__init__(detail)
        self.was_sent = was_sent


class CallTimeoutError(CallError):
    """No answer within the deadline of the call."""


class BadAnswerError(CallError):
    """What answered does not speak this API."""


class InvalidCallError(CallError):
    """The call itself is wrong; where one is at fault, at which item of the batch and field."""

    def __init__(
        self, detail: str, status: int = 400, item: int | None = None, field: str = ""
    ) -> None:
        super().__init__(detail if item is None else f"item {item}: {detail}", status)
        self.item = item
        self.field = field


class NotAuthenticatedError(CallError):
    """There is no token, or it is not valid."""


class NotAllowedError(CallError):
    """The token does not cover the namespace."""


class UnknownJobError(CallError):
    """There is no such job in this topic."""


class StaleLeaseError(CallError):
    """The lease is over, or another one holds the job."""


class RateLimitError(CallError):
    """The namespace asks too often."""

    def __init__(self, detail: str, status: int = 429, retry_after_s: float = 1.0) -> None:
        super().__init__(detail, status)
        self.retry_after_s = retry_after_s


class ServiceDrainingError(CallError):
    """The service is stopping."""


class ServiceError(CallError):
    """What keeps the jobs does not answer, or the service has a fault."""


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
_TEXT_CHARS_MAX: Final = 300  # of an answer that is no problem document


class _Problem(msgspec.Struct):
    """The parts of a problem document (RFC 9457) that people read."""

    title: str = ""
    detail: str = ""
    item: int | None = None
    field: str = ""


def fault_of(status: int, body: bytes, retry_after: str | None) -> CallError:
    """The exception for an answer that is no success."""
    problem = _problem(body)
    text = problem.detail or problem.title or f"the service answered {status}"
    if status == 429:
        return RateLimitError(text, status, _seconds(retry_after))
    kind = _BY_STATUS.get(status, ServiceError)
    if kind is InvalidCallError:
        return InvalidCallError(text, status, problem.item, problem.field)
    return kind(text, status)


def _problem(body: bytes) -> _Problem:
    try:
        return msgspec.json.decode(body, type=_Problem)
    except msgspec.DecodeError:
        return _Problem(detail=body.decode(errors="replace").strip()[:_TEXT_CHARS_MAX])


def _seconds(retry_after: str | None) -> float:
    try:
        return max(0.0, float(retry_after or 1.0))
    except ValueError:
        return 1.0  # a date: no node of ours sends one
