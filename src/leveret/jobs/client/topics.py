"""A topic as programs see it: its settings and its statistics, with times in seconds.

The HTTP API has milliseconds. `settings_of`, `settings_body` and `stats_of` convert.
"""

from typing import Final

import msgspec

from leveret import job_model
from leveret.jobs.client.durations import require_seconds
from leveret.jobs.client.errors import InvalidCallError

_MS: Final = 1000.0
_LIMITS_MS: Final = (
    ("backoff_s", 0, job_model.BACKOFF_MS_MAX),
    ("backoff_s_max", 0, job_model.BACKOFF_MS_MAX),
    ("lease_s", job_model.LEASE_MS_MIN, job_model.LEASE_MS_MAX),
)


class TopicSettings(msgspec.Struct, kw_only=True):
    """How a topic treats its jobs."""

    retries_max: int = job_model.RETRIES_DEFAULT  # attempts after the first; then the job is dead
    backoff_s: float = job_model.BACKOFF_MS_DEFAULT / _MS  # before the first retry, then doubled
    backoff_s_max: float = job_model.BACKOFF_MS_MAX_DEFAULT / _MS
    jitter: float = 0.2  # the share of the backoff that is random
    lease_s: float = job_model.LEASE_MS_DEFAULT / _MS
    concurrency_max: int | None = None  # leases at once; 0: no job is leased; None: no limit


class TopicStats(msgspec.Struct, kw_only=True):
    """The jobs of a topic by state, and counters since the node started."""

    namespace: str
    topic: str
    ready: int | None  # None, as the next three, where `missing` says why
    scheduled: int | None
    leased: int | None
    dead: int | None
    oldest_ready_s: float | None = None  # since when the oldest ready job waits, s since 1970
    enqueued: int = 0
    handed_out: int = 0
    acked: int = 0
    failed: int = 0
    expired: int = 0  # leases that ran out
    missing: str = ""  # why the jobs could not be counted: the shard that does not answer


def settings_of(found: job_model.TopicSettings) -> TopicSettings:
    """Convert settings of the HTTP API."""
    return TopicSettings(
        retries_max=found.retries_max,
        backoff_s=found.backoff_ms / _MS,
        backoff_s_max=found.backoff_ms_max / _MS,
        jitter=found.jitter,
        lease_s=found.lease_ms / _MS,
        concurrency_max=found.concurrency_max,
    )


def settings_body(wanted: TopicSettings) -> job_model.TopicSettings:
    """Convert settings for the HTTP API.

    Raise InvalidCallError for a time out of range: the service would name it in milliseconds.
    """
    for field, least_ms, most_ms in _LIMITS_MS:
        require_seconds(field, getattr(wanted, field), least_ms, most_ms)
    if wanted.backoff_s_max < wanted.backoff_s:
        text = (
            f"backoff_s_max is {wanted.backoff_s_max:.12g}, and cannot be below backoff_s, which is"
            f" {wanted.backoff_s:.12g}"
        )
        raise InvalidCallError(text, 400, None, "backoff_s_max")
    return job_model.TopicSettings(
        retries_max=wanted.retries_max,
        backoff_ms=round(wanted.backoff_s * _MS),
        backoff_ms_max=round(wanted.backoff_s_max * _MS),
        jitter=wanted.jitter,
        lease_ms=round(wanted.lease_s * _MS),
        concurrency_max=wanted.concurrency_max,
    )


def stats_of(found: job_model.TopicStats) -> TopicStats:
    """Convert statistics of the HTTP API."""
    oldest_ms = found.oldest_ready_ms
    return TopicStats(
        namespace=found.namespace,
        topic=found.topic,
        ready=found.ready,
        scheduled=found.scheduled,
        leased=found.leased,
        dead=found.dead,
        oldest_ready_s=None if oldest_ms is None else oldest_ms / _MS,
        enqueued=found.enqueued,
        handed_out=found.handed_out,
        acked=found.acked,
        failed=found.failed,
        expired=found.expired,
        missing=found.missing,
    )
