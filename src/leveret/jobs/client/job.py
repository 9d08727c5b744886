"""A job as programs see it: what they put in, what a worker is handed, what an operator looks at.

Payloads are bytes. Where a program gives anything else it is sent as JSON, and `Job.json` and
`Job.decode` read it back. Ids and tokens are 63-bit numbers: a language that keeps numbers as
doubles must take them as text.
"""

from datetime import UTC, datetime
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")


class NewJob(msgspec.Struct, kw_only=True):
    """A job to put in. Lower priorities are more urgent."""

    topic: str
    payload: object  # bytes as they are; anything else as JSON
    namespace: str | None = None  # None: the client's
    priority: int | None = None
    deliver_after: datetime | None = None  # with a zone; None: at once
    idempotency_key: str | None = None  # one job for all that carry it, per namespace
    fair_key: str | None = None  # keys take turns among jobs of the same priority


class Enqueued(msgspec.Struct):
    """What became of jobs that were put in."""

    ids: list[int]  # in the order of the jobs
    known: int | None  # so many were there already, by their keys; None: the service does not say


class Job(msgspec.Struct, kw_only=True):
    """A job under a lease: the worker's own until `lease_expires_at`."""

    id: int
    token: int
    payload: bytes
    lease_expires_at: datetime
    attempt: int = 1
    priority: int = 0
    deliver_after: datetime | None = None
    created_at: datetime | None = None
    fair_key: str | None = None
    namespace: str = ""
    topic: str = ""
    is_lost: bool = False  # a worker sets it when the lease is gone: stop, it is somebody else's

    def json(self) -> Any:
        """The payload as plain values of Python."""
        return msgspec.json.decode(self.payload)

    def decode(self, kind: type[T]) -> T:
        """The payload as a value of this type; msgspec.ValidationError where it is not one."""
        return msgspec.json.decode(self.payload, type=kind)


class Failure(msgspec.Struct, kw_only=True):
    """One failed attempt."""

    attempt: int
    error: str
    time: datetime | None = None


class JobInfo(msgspec.Struct, kw_only=True):
    """A job as an operator sees it, in whichever state."""

    id: int
    state: str
    payload: bytes
    priority: int = 0
    attempts: int = 0
    deliver_after: datetime | None = None
    created_at: datetime | None = None
    lease_expires_at: datetime | None = None
    fair_key: str | None = None
    idempotency_key: str | None = None
    failures: list[Failure] = []


def payload_bytes(payload: object) -> bytes:
    """Bytes as they are; anything else as JSON."""
    if isinstance(payload, bytes | bytearray | memoryview):
        return bytes(payload)
    return msgspec.json.encode(payload)


def in_zone(moment: datetime) -> datetime:
    """A moment that every reader understands. ValueError without a zone: whose time would it be?"""
    if moment.tzinfo is None:
        raise ValueError("deliver_after needs a time zone, such as datetime.UTC")
    return moment.astimezone(UTC)
