"""A job as programs see it: to enqueue (`NewJob`), under a lease (`Job`), to inspect (`JobInfo`).

Payloads are bytes. Any other value is sent as JSON, and `Job.json` and `Job.decode` read it back.
Ids and tokens are 63-bit numbers: a language that keeps numbers as doubles must read them as text.
"""

from datetime import UTC, datetime
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")


class NewJob(msgspec.Struct, kw_only=True):
    """A job to enqueue. Lower priorities are more urgent."""

    topic: str
    payload: object  # bytes are sent unchanged, all other values as JSON
    namespace: str | None = None  # None: the client's
    priority: int | None = None
    deliver_after: datetime | None = None  # with a time zone; None: at once
    idempotency_key: str | None = None  # jobs of a namespace with the same key are one job
    fair_key: str | None = None  # fair keys take turns among jobs of the same priority


class Job(msgspec.Struct, kw_only=True):
    """A job under a lease, which ends at `lease_expires_at`."""

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
    is_lost: bool = False  # a worker sets it when the lease is lost; stop then

    def json(self) -> Any:
        """Return the payload, decoded from JSON."""
        return msgspec.json.decode(self.payload)

    def decode(self, kind: type[T]) -> T:
        """Return the payload as a value of `kind`; msgspec.ValidationError where it is not one."""
        return msgspec.json.decode(self.payload, type=kind)


class Failure(msgspec.Struct, kw_only=True):
    """One failed attempt."""

    attempt: int
    error: str
    time: datetime | None = None


class JobInfo(msgspec.Struct, kw_only=True):
    """A job in any state, as an operator sees it."""

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


def encode_payload(payload: object) -> bytes:
    """Return bytes as they are, and any other value as JSON."""
    if isinstance(payload, bytes | bytearray | memoryview):
        return bytes(payload)
    return msgspec.json.encode(payload)


def in_utc(time: datetime) -> datetime:
    """Return the same time in UTC; ValueError where it has no time zone."""
    if time.tzinfo is None:
        raise ValueError("deliver_after needs a time zone, such as datetime.UTC")
    return time.astimezone(UTC)
