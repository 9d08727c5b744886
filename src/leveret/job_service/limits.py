"""The limits of the service, checked in one place for every front and every store.

A value over its limit raises `JobsInvalidError`, which names the field and, in a batch, the item.
"""

from functools import lru_cache
from typing import Final

from leveret.errors import JobsInvalidError
from leveret.job_model import (
    BACKOFF_MS_MAX,
    BATCH_BYTES_MAX,
    BATCH_MAX,
    DEAD_SUFFIX,
    DELAY_MS_MAX,
    LEASE_MS_MAX,
    LEASE_MS_MIN,
    NAME_BYTES_MAX,
    PAYLOAD_BYTES_MAX,
    PRIORITY_MAX,
    PRIORITY_MIN,
    WAIT_MS_MAX,
    NewJob,
    Schedule,
    TopicSettings,
)

RETRIES_MAX: Final = 10_000
CONCURRENCY_MAX: Final = 1_000_000
# Schedules of a namespace, and the bytes of all their payloads. A broker that keeps the jobs itself
# has all schedules in memory, and writes them at the start of each log file.
SCHEDULES_MAX: Final = 1_000
SCHEDULE_BYTES_MAX: Final = PAYLOAD_BYTES_MAX
_RESERVED: Final = ("amq.", "leveret.")  # prefixes of the broker's own queues
_TOPICS_CACHED: Final = 1_024


def require_batch(jobs: list[NewJob], now_ms: int) -> None:
    """Raise unless every job of a batch and the batch itself are within the limits."""
    require_within("", len(jobs), 1, BATCH_MAX, "the number of jobs in a batch")
    namespace: str | None = None
    topic: str | None = None
    latest_ms = now_ms + DELAY_MS_MAX
    size = 0
    for index, job in enumerate(jobs):
        bytes_of_job = len(job.payload)
        size += bytes_of_job
        # Most jobs are plain, and of the same topic as the job before. A call for each of them
        # would take twice the time.
        if (
            job.topic != topic
            or job.namespace != namespace
            or not PRIORITY_MIN <= job.priority <= PRIORITY_MAX
            or bytes_of_job > PAYLOAD_BYTES_MAX
            or job.deliver_after_ms > latest_ms
            or job.idempotency_key is not None
            or job.fair_key is not None
        ):
            try:
                require_job(job, now_ms)
            except JobsInvalidError as fault:
                fault.item = index
                raise
            namespace, topic = job.namespace, job.topic
    if size > BATCH_BYTES_MAX:
        raise JobsInvalidError(f"the payloads of a batch can have at most {BATCH_BYTES_MAX} bytes")


def require_job(job: NewJob, now_ms: int) -> None:
    """Raise unless a job is within the limits."""
    require_topic(job.namespace, job.topic)
    require_within("priority", job.priority, PRIORITY_MIN, PRIORITY_MAX)
    if len(job.payload) > PAYLOAD_BYTES_MAX:
        raise JobsInvalidError(f"a payload can have at most {PAYLOAD_BYTES_MAX} bytes", "payload")
    if job.deliver_after_ms - now_ms > DELAY_MS_MAX:
        raise JobsInvalidError(
            f"deliver_after can be at most {DELAY_MS_MAX // 86_400_000} days ahead", "deliver_after"
        )
    if job.idempotency_key is not None:
        require_name("idempotency_key", job.idempotency_key)
    if job.fair_key is not None:
        require_name("fair_key", job.fair_key)


# Calls repeat the names of topics, so a cache keeps the allowed ones. The checks took a quarter of
# the CPU time of a batch.
@lru_cache(_TOPICS_CACHED)
def require_topic(namespace: str, topic: str) -> None:
    """Raise unless the names are allowed for a namespace and a topic."""
    require_name("namespace", namespace)
    require_name("topic", topic)
    if topic.endswith(DEAD_SUFFIX):
        raise JobsInvalidError(f"the name of a topic cannot end in {DEAD_SUFFIX}", "topic")
    if topic.startswith(_RESERVED):
        reserved = " or ".join(_RESERVED)
        raise JobsInvalidError(f"the name of a topic cannot begin with {reserved}", "topic")


def require_name(field: str, name: str) -> None:
    """Raise unless a text may be a name."""
    if not name.isprintable():
        raise JobsInvalidError(f"{field} has characters that cannot be printed", field)
    if not 0 < len(name.encode("utf-8", "surrogatepass")) <= NAME_BYTES_MAX:
        raise JobsInvalidError(f"{field} must have 1 to {NAME_BYTES_MAX} bytes", field)


def require_lease(lease_ms: int | None) -> None:
    if lease_ms is not None:
        require_seconds("lease", lease_ms, LEASE_MS_MIN, LEASE_MS_MAX)


def require_wait(wait_ms: int) -> None:
    require_seconds("wait", wait_ms, 0, WAIT_MS_MAX)


def require_settings(settings: TopicSettings) -> None:
    """Raise unless the settings of a topic are within the limits."""
    require_within("retries_max", settings.retries_max, 0, RETRIES_MAX)
    require_within("backoff_ms", settings.backoff_ms, 0, BACKOFF_MS_MAX)
    require_within("backoff_ms_max", settings.backoff_ms_max, 0, BACKOFF_MS_MAX)
    require_within("lease_ms", settings.lease_ms, LEASE_MS_MIN, LEASE_MS_MAX)
    if not 0 <= settings.jitter <= 1:
        raise JobsInvalidError("jitter must be from 0 to 1", "jitter")
    if settings.concurrency_max is not None:
        require_within("concurrency_max", settings.concurrency_max, 0, CONCURRENCY_MAX)


def require_backoffs(settings: TopicSettings) -> None:
    """Raise if the longest backoff of a topic is shorter than the first one."""
    if settings.backoff_ms_max < settings.backoff_ms:
        raise JobsInvalidError(
            f"backoff_ms_max is {settings.backoff_ms_max}, and cannot be below backoff_ms, which is"
            f" {settings.backoff_ms}",
            "backoff_ms_max",
        )


def require_schedule_room(schedule: Schedule, found: list[Schedule]) -> None:
    """Raise unless the namespace with the schedules that were found may have this one, too."""
    others = [other for other in found if other.name != schedule.name]
    require_within("", len(others) + 1, 1, SCHEDULES_MAX, "the number of schedules of a namespace")
    size = sum(len(each.payload) for each in (schedule, *others))
    if size > SCHEDULE_BYTES_MAX:
        raise JobsInvalidError(
            f"the payloads of all schedules of a namespace can have at most {SCHEDULE_BYTES_MAX}"
            f" bytes, not {size}",
            "payload",
        )


def require_seconds(field: str, value_ms: int, least_ms: int, most_ms: int) -> None:
    """Raise JobsInvalidError if a duration, which callers give in seconds, is out of range."""
    if not least_ms <= value_ms <= most_ms:
        least, most, value = (f"{ms / 1000:.12g}" for ms in (least_ms, most_ms, value_ms))
        raise JobsInvalidError(
            f"{field} must be from {least} to {most} seconds, not {value}", field
        )


def require_within(field: str, value: int, least: int, most: int, what: str = "") -> None:
    """Raise unless a number is in its range."""
    if not least <= value <= most:
        raise JobsInvalidError(
            f"{what or field} must be from {least} to {most}, not {value}", field
        )
