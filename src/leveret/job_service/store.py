"""What the HTTP front and the command line ask of a store of jobs; both stores keep this contract.

Rules that every store keeps, and that the contract suite tests:
- `enqueue` answers when every job of the batch is safe, ids in the order of the jobs; a batch is
  all or nothing. A job whose idempotency key is known answers the id of the first one, also of one
  in the same batch, and is not kept. A key is known for `IDEMPOTENCY_MS` at least, and after a
  restart. A `deliver_after_ms` in the past counts as now.
- `dequeue` hands out the most urgent jobs: by priority, then by turn of their fair keys, then by
  `deliver_after_ms`, then by id. Each is leased under a token that no earlier lease of it had.
- One answer has at most `BATCH_BYTES_MAX` of payloads, or one job more: it may be shorter than its
  limit although there are more jobs.
- A job whose lease ends unsettled is ready again at once, its attempt counted and noted as a
  failure. A job that has failed more often than `retries_max` is dead instead, with its failures.
- A job that is given back is ready after the backoff of its topic (`retry.py`), or a given delay;
  its `deliver_after_ms` is then that time. Or it is dead at once, where the worker says so.
- `ack`, `nack` and `extend` raise nothing for a single job: the outcome of each comes back, so that
  a batch tells which of its jobs were stale. With a token the lease must be that one and alive;
  without, any live lease will do. A job that is there without such a lease is STALE, one that is
  not (done, cancelled, dead, never seen) UNKNOWN. Leases end with the process that gave them.
- Nothing acknowledged comes back; nothing is handed to two workers at a time.
- Callers have checked every limit (`limits.py`): a store checks them by asserts at most.
- A call that the store cannot serve raises a `JobsError` and has changed nothing.
"""

from typing import Protocol

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


class Store(Protocol):
    """Jobs by namespace and topic. Both are made on first use."""

    async def start(self) -> None:
        """Recover what is there, and begin the store's own work."""

    async def stop(self, deadline_s: float) -> None:
        """Take no more, bring everything where it is safe; JobsUnavailable if that failed."""

    async def enqueue(self, jobs: list[NewJob]) -> Enqueued:
        """Keep all jobs, or none; report how many were known by their idempotency keys."""

    async def dequeue(
        self, namespace: str, topic: str, limit: int, lease_ms: int | None, wait_ms: int
    ) -> list[LeasedJob]:
        """Lease up to `limit` jobs; waits up to `wait_ms` for one. None: the lease of the topic."""

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
        """Give jobs back after a failure: later by the topic's backoff or `delay_ms`, or dead.

        `is_dead`: dead at once, however many retries they have left.
        """

    async def extend(
        self, namespace: str, topic: str, handles: list[Handle], lease_ms: int | None
    ) -> list[tuple[Outcome, int]]:
        """Move the ends of leases; the new end of each, 0 where there is none."""

    async def cancel(self, namespace: str, topic: str, ids: list[int]) -> list[Outcome]:
        """Drop jobs that are ready or scheduled; those that are leased are STALE."""

    async def deliver_now(self, namespace: str, topic: str, ids: list[int]) -> list[Outcome]:
        """Make scheduled jobs ready."""

    async def find(self, namespace: str, topic: str, id: int) -> Job | None: ...

    async def dead(self, namespace: str, topic: str, after_id: int, limit: int) -> list[Job]:
        """Dead jobs in the order of their ids, from beyond `after_id`."""

    async def redrive(self, namespace: str, topic: str, ids: list[int] | None) -> int:
        """Make dead jobs ready again with fresh retries; None: all. How many."""

    async def delete_dead(self, namespace: str, topic: str, ids: list[int] | None) -> int: ...

    async def settings(self, namespace: str, topic: str) -> TopicSettings: ...

    async def set_settings(self, namespace: str, topic: str, settings: TopicSettings) -> None: ...

    async def stats(self, namespace: str | None) -> list[TopicStats]: ...

    async def schedules(self, namespace: str) -> list[Schedule]: ...

    async def set_schedule(self, schedule: Schedule) -> None: ...

    async def delete_schedule(self, namespace: str, name: str) -> bool: ...
