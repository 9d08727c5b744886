"""Types and limits that the jobs clients and the jobs service share.

A client enqueues a `NewJob`. A worker gets a `LeasedJob` and settles it by a `Handle`: its id and,
better, the token of its lease. A `Job` is the view of an operator. Times are milliseconds since
1970. Ids and tokens are Snowflakes.

Namespace, topic and id together identify a job. Its state is one of `STATES`.
"""

from enum import Enum
from typing import Final

import msgspec

PRIORITY_MIN: Final = -(1 << 31)  # the most urgent
PRIORITY_MAX: Final = (1 << 31) - 1
PRIORITY_DEFAULT: Final = 0
NAME_BYTES_MAX: Final = 200  # of a namespace, a topic or a key
DEAD_SUFFIX: Final = (
    ".dead"  # reserved: the queue of dead jobs has the name of its topic with this suffix
)
IDEMPOTENCY_MS: Final = (
    24 * 3_600_000
)  # how long a key is known at least, even when its job is done
BATCH_MAX: Final = 1_000  # jobs in one call
PAYLOAD_BYTES_MAX: Final = 4 * 1024 * 1024
BATCH_BYTES_MAX: Final = 32 * 1024 * 1024
DELAY_MS_MAX: Final = 365 * 24 * 3_600_000
DEQUEUE_DEFAULT: Final = 10
LEASE_MS_DEFAULT: Final = 30_000
LEASE_MS_MIN: Final = 100
LEASE_MS_MAX: Final = 12 * 3_600_000
WAIT_MS_MAX: Final = 60_000
ERROR_BYTES_MAX: Final = 4_096  # of one error; longer errors are cut off
ERRORS_KEPT: Final = 20  # the last errors of a job
RETRIES_DEFAULT: Final = 10
BACKOFF_MS_DEFAULT: Final = 1_000
BACKOFF_MS_MAX_DEFAULT: Final = 600_000
BACKOFF_MS_MAX: Final = 30 * 24 * 3_600_000

STATES: Final = ("ready", "scheduled", "leased", "dead")


class NewJob(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A job to enqueue."""

    namespace: str
    topic: str
    payload: bytes
    priority: int = PRIORITY_DEFAULT  # lower is more urgent; ties go by `deliver_after_ms`, then id
    deliver_after_ms: int = 0  # a past time, such as 0, means now
    idempotency_key: str | None = None  # jobs of a namespace with the same key are one job
    fair_key: str | None = None  # fair keys take turns among jobs of the same priority


class Enqueued(msgspec.Struct, frozen=True):
    """The result of an enqueue."""

    ids: list[int]  # in the order of the jobs
    known: int | None  # jobs that were known by their idempotency keys; None: not reported


class LeasedJob(msgspec.Struct, kw_only=True):
    """A job that is handed to a worker, and the end of its lease."""

    id: int
    token: int  # of this lease; each lease of a job has a higher one
    payload: bytes
    priority: int
    attempt: int  # 1 for the first
    deliver_after_ms: int  # when it became ready; a retry moves it
    created_ms: int
    lease_expires_ms: int
    fair_key: str | None = None


class Handle(msgspec.Struct, frozen=True):
    """Names a lease. Without a token it names the live lease of the job, whichever that is."""

    id: int
    token: int | None = None


class Failure(msgspec.Struct, kw_only=True):
    """One failed attempt in the history of a job."""

    attempt: int
    time_ms: int
    error: str


class Job(msgspec.Struct, kw_only=True):
    """A job as an operator sees it."""

    id: int
    state: str
    priority: int
    attempts: int
    deliver_after_ms: int
    created_ms: int
    lease_expires_ms: int | None = None
    fair_key: str | None = None
    idempotency_key: str | None = None
    payload: bytes
    failures: list[Failure]


class TopicSettings(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """How a topic treats its jobs."""

    retries_max: int = RETRIES_DEFAULT  # attempts after the first; then the job is dead
    backoff_ms: int = BACKOFF_MS_DEFAULT  # before the first retry, then doubled
    backoff_ms_max: int = BACKOFF_MS_MAX_DEFAULT
    jitter: float = 0.2  # the share of the backoff that is random
    lease_ms: int = LEASE_MS_DEFAULT
    concurrency_max: int | None = None  # leases at once; 0: no job is leased; None: no limit


class TopicStats(msgspec.Struct, kw_only=True):
    """The jobs of a topic by state, and counters since the node started."""

    namespace: str
    topic: str
    ready: int | None  # None, as the next three, where `missing` says why
    scheduled: int | None
    leased: int | None
    dead: int | None
    oldest_ready_ms: int | None = None  # since when the oldest ready job waits
    enqueued: int = 0
    handed_out: int = 0
    acked: int = 0
    failed: int = 0
    expired: int = 0  # leases that ran out
    missing: str = ""  # why the jobs could not be counted: the shard that does not answer


class Schedule(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Enqueues a job at each time of a cron expression."""

    name: str  # unique in its namespace
    namespace: str
    topic: str
    cron: str  # five fields: minute hour day month weekday, in UTC unless `timezone`
    timezone: str = "UTC"
    payload: bytes = b""
    priority: int = PRIORITY_DEFAULT
    is_paused: bool = False
    next_ms: int | None = None  # when it fires next, in listings; ignored when it is set


class Outcome(Enum):
    """The result of settling one job."""

    DONE = "done"
    STALE = "stale"  # the lease is over, or another lease holds the job
    UNKNOWN = "unknown"  # the topic has no such job
