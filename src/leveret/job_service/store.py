"""The contract of a store of jobs, which the embedded store and the shards store both keep.

The contract suite tests these rules:
- `enqueue` returns when every job of the batch is safe, with the ids in the order of the jobs. A
  batch is all or nothing. A job whose idempotency key is known is not kept: it gets the id of the
  first job with that key, which may be in the same batch. A key is known for `IDEMPOTENCY_MS` at
  least, also after a restart. A `deliver_after_ms` in the past counts as now.
- `dequeue` hands out the most urgent jobs: by priority, then by turn of their fair keys, then by
  `deliver_after_ms`, then by id. Each lease has a token that no earlier lease of the job had.
- One answer has at most `BATCH_BYTES_MAX` of payloads, or one job more. It may therefore hold fewer
  jobs than its limit although there are more.
- A job whose lease runs out is ready again at once. The attempt counts and is recorded as a
  failure. A job that has failed more often than `retries_max` is dead instead, with its failures.
- A job that is nacked is ready after the backoff of its topic (`backoff.py`) or after a given
  delay; its `deliver_after_ms` is then that time. It is dead at once where the worker says so.
- `ack`, `nack` and `extend` raise nothing for a single job. They return the outcome of each, so
  that a batch shows which of its jobs were stale. With a token, the lease must be that one and
  alive; without a token, any live lease is enough. A job without that lease is STALE. A job that
  is done, cancelled, dead or was never seen is UNKNOWN. Leases end with the process that gave them.
- An acknowledged job never comes back. No job is handed to two workers at a time.
- Callers have checked every limit (`limits.py`). A store checks limits by asserts at most. A call
  names each job once.
- A call that the store cannot serve raises a `JobsError` and has changed nothing.
"""

import asyncio
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, TypeVar

from leveret.errors import JobsUnavailableError
from leveret.job_model import (
    Enqueued,
    Handle,
    Job,
    LeasedJob,
    NewJob,
    Outcome,
    Schedule,
    TopicSettings,
    TopicStats,
)
from leveret.job_service.report import StoreReport

Found = TypeVar("Found")


class AckedAndTaken(NamedTuple):
    """The outcome of each ack, and the jobs that were leased after the acks."""

    outcomes: list[Outcome]
    jobs: list[LeasedJob]


OnEnqueued = Callable[[Enqueued | Exception], None]
OnTaken = Callable[[AckedAndTaken | Exception | None], None]


def tell_end(
    on_done: Callable[[Found | Exception], None], found: Found, end: "asyncio.Future[Any]"
) -> None:
    """Tell a result, if what a `begin_…` call waited for has ended without a fault."""
    if end.cancelled():
        on_done(JobsUnavailableError("the store was closed"))
        return
    fault = end.exception()
    assert fault is None or isinstance(fault, Exception)
    on_done(found if fault is None else fault)


class Store(Protocol):
    """Jobs by namespace and topic. Namespaces and topics are created on first use."""

    @property
    def begins_batches(self) -> bool:
        """Whether `begin_enqueue` takes batches, however long, and not single jobs alone."""

    async def start(self) -> None:
        """Recover the stored jobs, and start the background work."""

    async def stop(self, deadline_s: float) -> None:
        """Take no more jobs, and make all jobs safe; JobsUnavailableError where that failed."""

    def creates_queue(self, namespace: str, topic: str) -> bool:
        """Return True if the first job of a topic creates a queue: that needs a permission."""

    async def enqueue(self, jobs: list[NewJob]) -> Enqueued:
        """Keep all jobs, or none; report how many were known by their idempotency keys."""

    def begin_enqueue(self, jobs: list[NewJob], on_done: OnEnqueued) -> bool:
        """Begin `enqueue` without a task; call `on_done` with its result or error.

        Return False, with nothing changed, if `enqueue` has to be called. Raise an error that is
        known at once.
        """

    async def dequeue(
        self, namespace: str, topic: str, limit: int, lease_ms: int | None, wait_ms: int
    ) -> list[LeasedJob]:
        """Lease up to `limit` jobs; wait up to `wait_ms` for one.

        `lease_ms` None: the lease of the topic.
        """

    def begin_take(
        self,
        namespace: str,
        topic: str,
        handles: list[Handle],
        limit: int,
        lease_ms: int | None,
        on_done: OnTaken,
        *,
        may_find_none: bool,
    ) -> bool:
        """Begin `ack` and then `dequeue`, in one step, without a wait and without a task.

        Call `on_done` with the result or error; with None if nothing has changed, and `ack` and
        `dequeue` have to be called. Return False if that is known at once. It is so, unless
        `may_find_none`, if no job would be leased. If the acks are done, and then no job can be
        leased because of an error, the result has no job. Raise an error that is known at once.
        """

    async def ack(self, namespace: str, topic: str, handles: list[Handle]) -> list[Outcome]: ...

    async def nack(
        self,
        namespace: str,
        topic: str,
        handles: list[Handle],
        error: str,
        delay_ms: int | None,
        is_dead: bool = False,
    ) -> list[Outcome]:
        """Settle jobs as failed. They come back after the backoff of the topic, or `delay_ms`.

        `is_dead`: they are dead at once, however many retries are left.
        """

    async def extend(
        self, namespace: str, topic: str, handles: list[Handle], lease_ms: int | None
    ) -> list[tuple[Outcome, int]]:
        """Extend leases; return the outcome and the new end of each, 0 where there is none."""

    async def cancel(self, namespace: str, topic: str, ids: list[int]) -> list[Outcome]:
        """Delete jobs that are ready or scheduled; a leased job is STALE."""

    async def deliver_now(self, namespace: str, topic: str, ids: list[int]) -> list[Outcome]:
        """Make scheduled jobs ready at once."""

    async def find(self, namespace: str, topic: str, id: int) -> Job | None: ...

    async def list_jobs(
        self, namespace: str, topic: str, state: str, limit: int, after: str
    ) -> tuple[list[Job], str]:
        """Return a page of jobs that are ready, scheduled or leased, and the cursor of the next.

        Ready jobs are in the order of their priorities, scheduled jobs of their times, and leased
        jobs of the ends of their leases. The payloads have at most `BATCH_BYTES_MAX`, or one more.
        An empty `after` asks for the first page; an empty cursor says that there are no more jobs.
        Raise JobsInvalidError if `after` is not the cursor of an earlier page of the list.
        """

    async def dead(self, namespace: str, topic: str, after_id: int, limit: int) -> list[Job]:
        """Return dead jobs in the order of their ids, starting after `after_id`."""

    async def redrive(self, namespace: str, topic: str, ids: list[int] | None) -> int:
        """Make dead jobs ready again with all their retries; None: all. Return how many."""

    async def delete_dead(self, namespace: str, topic: str, ids: list[int] | None) -> int: ...

    async def settings(self, namespace: str, topic: str) -> TopicSettings: ...

    async def set_settings(self, namespace: str, topic: str, settings: TopicSettings) -> None: ...

    async def stats(self, namespace: str | None) -> list[TopicStats]:
        """Return every topic that has jobs or was served. If its shard fails, it has no numbers."""

    def report(self) -> StoreReport:
        """Return the state of the servers behind the store, without I/O."""

    async def schedules(self, namespace: str) -> list[Schedule]: ...

    async def set_schedule(self, schedule: Schedule) -> None: ...

    async def delete_schedule(self, namespace: str, name: str) -> bool: ...
