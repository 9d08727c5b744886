"""JSON bodies of the jobs API, and their conversion to and from the types of the store.

Payloads are base64, times ISO 8601 with a zone, durations seconds. Ids are numbers of 63 bits. They
are also accepted as text, for clients that store numbers as doubles.
"""

import re
from datetime import UTC, datetime
from functools import lru_cache
from typing import Annotated, Any, Final, TypeVar

import msgspec
from msgspec import UNSET, Meta, UnsetType, structs

from leveret import job_model
from leveret.decode_errors import DECODE_ERRORS
from leveret.errors import JobsInvalidError
from leveret.http.framework.body_faults import plain_fault
from leveret.job_model import LeasedJob, NewJob, Outcome
from leveret.job_service.snowflake import ID_MAX

Moment = Annotated[datetime, Meta(tz=True)]
Id = int | str
Body = TypeVar("Body")

_PATH: Final = re.compile(r" - at `\$(?:\[(\d+)\])?(?:\.(\w+))?")
_NAMED: Final = re.compile(r"Object (?:missing required|contains unknown) field `(.*?)`")
_DIGITS_MAX: Final = 19


class NewJobBody(msgspec.Struct, forbid_unknown_fields=True):
    """A job to enqueue."""

    namespace: str
    topic: str
    payload: bytes
    priority: int = job_model.PRIORITY_DEFAULT
    deliver_after: Moment | None = None
    idempotency_key: str | None = None
    fair_key: str | None = None

    def job(self) -> NewJob:
        return NewJob(
            namespace=self.namespace,
            topic=self.topic,
            payload=self.payload,
            priority=self.priority,
            deliver_after_ms=0 if self.deliver_after is None else ms_of(self.deliver_after),
            idempotency_key=self.idempotency_key,
            fair_key=self.fair_key,
        )


class LeasedJobInfo(msgspec.Struct, omit_defaults=True):
    """A leased job."""

    id: int
    token: int
    payload: bytes
    lease_expires_at: datetime
    attempt: int
    priority: int
    deliver_after: datetime
    created_at: datetime
    fair_key: str | None = None


class HandleBody(msgspec.Struct, forbid_unknown_fields=True):
    """A job to ack, cancel or deliver now."""

    id: Id
    namespace: str
    topic: str
    token: Id | None = None


class NackBody(HandleBody):
    """A job that has failed."""

    error: str = ""  # what went wrong
    delay: float | None = None  # in seconds: instead of the backoff of the topic
    dead: bool = False  # no further attempt, even if retries are left


class ExtendBody(HandleBody):
    """A lease to extend."""

    lease: float | None = None  # in seconds: instead of the lease of the topic


class SettleResult(msgspec.Struct, omit_defaults=True):
    """The outcome for one job."""

    outcome: str
    lease_expires_at: datetime | None = None  # after extend


class AckedAndLeased(msgspec.Struct):
    """The outcome of each ack, and the jobs that were leased after the acks."""

    acked: list[SettleResult]
    jobs: list[LeasedJobInfo]


class FailureInfo(msgspec.Struct):
    """One failed attempt."""

    attempt: int
    time: datetime
    error: str


class JobInfo(msgspec.Struct, omit_defaults=True):
    """A job in any state, for operators."""

    id: int
    state: str
    priority: int
    attempts: int
    deliver_after: datetime
    created_at: datetime
    payload: bytes
    failures: list[FailureInfo]
    lease_expires_at: datetime | None = None
    fair_key: str | None = None
    idempotency_key: str | None = None


class DeadJobsBody(msgspec.Struct, forbid_unknown_fields=True):
    """Some dead jobs of a topic, or all if there are no ids."""

    namespace: str
    topic: str
    ids: list[Id] | None = None


class TopicChanges(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """Settings of a topic that are changed; the others keep their values."""

    retries_max: int | UnsetType = UNSET
    backoff_ms: int | UnsetType = UNSET
    backoff_ms_max: int | UnsetType = UNSET
    jitter: float | UnsetType = UNSET
    lease_ms: int | UnsetType = UNSET
    concurrency_max: int | UnsetType | None = UNSET  # None: no limit

    def given(self) -> dict[str, Any]:
        return {name: value for name, value in structs.asdict(self).items() if value is not UNSET}


class RedriveResult(msgspec.Struct):
    """How many dead jobs were made ready."""

    redriven: int


class DeleteResult(msgspec.Struct):
    """How many dead jobs were deleted."""

    deleted: int


class TokenInfo(msgspec.Struct):
    """A token for the logged-in user."""

    token: str
    expires_at: datetime


def decode_body(data: bytes, kind: Any) -> Any:
    """Return a body of a type. Raise JobsInvalidError with the item and field that do not fit."""
    try:
        return _decoder(kind).decode(data)
    except DECODE_ERRORS as fault:
        raise _unreadable(str(fault)) from None


def _unreadable(text: str) -> JobsInvalidError:
    """Return the error for a text of msgspec, with item and field if the text names them."""
    place, named = _PATH.search(text), _NAMED.match(text)
    item = int(place[1]) if place is not None and place[1] else None
    field = place[2] or "" if place is not None else ""
    return JobsInvalidError(plain_fault(text), named[1] if named is not None else field, item)


@lru_cache
def _decoder(kind: Any) -> "msgspec.json.Decoder[Any]":
    return msgspec.json.Decoder(kind)


def time_of(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)


def ms_of(time: datetime) -> int:
    return round(time.timestamp() * 1000)


def id_of(value: Id, field: str = "id", item: int | None = None) -> int:
    """Return an id or token that was sent as a number or as text."""
    if isinstance(value, str) and value.isascii() and value.isdecimal():
        value = int(value) if len(value) <= _DIGITS_MAX else ID_MAX + 1
    if not isinstance(value, int) or not 0 <= value <= ID_MAX:
        raise JobsInvalidError(f"{field} must be a whole number of at most 63 bits", field, item)
    return value


def leased_job_info(job: LeasedJob) -> LeasedJobInfo:
    return LeasedJobInfo(
        id=job.id,
        token=job.token,
        payload=job.payload,
        lease_expires_at=time_of(job.lease_expires_ms),
        attempt=job.attempt,
        priority=job.priority,
        deliver_after=time_of(job.deliver_after_ms),
        created_at=time_of(job.created_ms),
        fair_key=job.fair_key,
    )


def job_info(job: job_model.Job) -> JobInfo:
    ends_ms = job.lease_expires_ms
    return JobInfo(
        id=job.id,
        state=job.state,
        priority=job.priority,
        attempts=job.attempts,
        deliver_after=time_of(job.deliver_after_ms),
        created_at=time_of(job.created_ms),
        payload=job.payload,
        failures=[FailureInfo(f.attempt, time_of(f.time_ms), f.error) for f in job.failures],
        lease_expires_at=None if ends_ms is None else time_of(ends_ms),
        fair_key=job.fair_key,
        idempotency_key=job.idempotency_key,
    )


def settle_result(outcome: Outcome, ends_ms: int = 0) -> SettleResult:
    return SettleResult(outcome.value, time_of(ends_ms) if ends_ms else None)
