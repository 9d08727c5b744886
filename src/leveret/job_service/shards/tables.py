"""Writes jobs to the table of a shard, and reads rows of it as jobs."""

import json
from collections.abc import Sequence
from datetime import datetime
from random import Random
from typing import Any, Final

import msgspec

from leveret.errors import JobsUnavailableError
from leveret.job_model import Failure, Handle, Job, LeasedJob, Outcome
from leveret.job_service.shards.buffered_job import BufferedJob
from leveret.job_service.shards.insert_limit import InsertLimit
from leveret.job_service.shards.routing import slot_of, to_signed
from leveret.job_service.shards.server_health import Time
from leveret.job_service.shards.settings import ShardsSettings
from leveret.job_service.shards.shard import Shard
from leveret.job_service.shards.timestamps import to_ms, to_timestamp

_PUT = (
    "SELECT job_id, first_id FROM leveret_put($1::BIGINT[], $2::TEXT[], $3::TEXT[], $4::INT[],"
    " $5::INT[], $6::TIMESTAMPTZ[], $7::TIMESTAMPTZ[], $8::TEXT[], $9::TEXT[], $10::BYTEA[],"
    " coalesce($11, now()), coalesce($11, now()) + $12 * INTERVAL '1 ms', $13)"
)
# Jobs of one topic without keys, as most are. asyncpg checks each element of an array by Python
# code, so that the numbers come as text.
_PUT_PLAIN = (
    "SELECT leveret_put_plain($1, $2, $3, $4::TEXT::BIGINT[], $5::TEXT::INT[],"
    " $6::TEXT::BIGINT[], $7::TEXT::BIGINT[], $8::BYTEA[],"
    " coalesce($9, now()), coalesce($9, now()) + $10 * INTERVAL '1 ms', $11)"
)
# Bytes of a row that a list shows: a job of one byte may have 80 KiB of failures. Joined with an
# empty list they are not compressed. Their length as text would take PostgreSQL seconds.
SHOWN_BYTES: Final = "octet_length(payload) + pg_column_size(failures || '[]'::JSONB)"
# The states of the API. A prefetched job (`leased`) is ready: no worker is known to have it.
_STATES = {"leased": "ready", "processing": "leased"}


class Tables:
    """Inserts and removes jobs of shards; holds the clock and the settings for that."""

    def __init__(self, clock: Time, settings: ShardsSettings, random: Random) -> None:
        self.clock = clock
        self.settings = settings
        self.random = random
        self.behind: set[int] = set()  # shards whose buffers have more jobs than one insert takes
        self.forced: set[int] = (
            set()
        )  # shards that had forgotten our log: jobs below the floor are inserted too
        self._insert_limits: dict[int, InsertLimit] = {}  # by shard

    def given_time(self) -> datetime | None:
        """Return the time that a shard must use; None if it uses its own `now()`."""
        return to_timestamp(self.clock.now_ms()) if self.settings.is_time_given else None

    async def put(self, shard: Shard, jobs: list[BufferedJob]) -> dict[int, int]:
        """Insert jobs that the shard does not know.

        Return, by the id of a job whose key is taken, the id of the first job with that key.
        `insert_limit` says how many jobs may come together.
        """
        limit, is_up = self.insert_limit(shard), shard.is_up
        try:
            found = await self._put(shard, jobs)
        except JobsUnavailableError:
            if is_up:
                limit.on_failed()
            raise
        limit.on_done()
        return found

    def insert_limit(self, shard: Shard) -> InsertLimit:
        """Return how many jobs the next insert shall take."""
        limit = self._insert_limits.get(shard.index)
        if limit is None:
            limit = self._insert_limits[shard.index] = InsertLimit(self.settings.flush_max)
        return limit

    async def _put(self, shard: Shard, jobs: list[BufferedJob]) -> dict[int, int]:
        jobs = sorted(jobs, key=lambda job: job.id)
        later = [after_ms for job in jobs if (after_ms := _after_ms(job)) is not None]
        if _are_plain(jobs):
            await self._put_plain(shard, jobs)
            rows = []
        else:
            rows = await self._put_any(shard, jobs)
        if later:
            self.expect_due(shard, min(later))
        return {row["job_id"]: row["first_id"] for row in rows}

    def expect_due(self, shard: Shard, at_ms: int) -> None:
        """Note when a job that was written to a shard is due there."""
        shard.due.expect((at_ms - shard.health.server_time_ms(self.clock.now_ms())) / 1000)

    async def _put_any(self, shard: Shard, jobs: list[BufferedJob]) -> list[Any]:
        return await shard.fetch(
            _PUT,
            [job.id for job in jobs],
            [job.namespace for job in jobs],
            [job.topic for job in jobs],
            [to_signed(slot_of((job.namespace, job.topic))) for job in jobs],
            [job.priority for job in jobs],
            [_after(job) for job in jobs],
            [to_timestamp(job.created_ms) for job in jobs],
            [job.idempotency_key for job in jobs],
            [job.fair_key for job in jobs],
            [job.payload for job in jobs],
            self.given_time(),
            self.settings.keys_kept_ms,
            shard.index in self.forced,
        )

    async def _put_plain(self, shard: Shard, jobs: list[BufferedJob]) -> None:
        topic = jobs[0].namespace, jobs[0].topic
        await shard.fetch(
            _PUT_PLAIN,
            *topic,
            to_signed(slot_of(topic)),
            _array([job.id for job in jobs]),
            _array([job.priority for job in jobs]),
            _array([_after_ms(job) for job in jobs]),
            _array([job.created_ms for job in jobs]),
            [job.payload for job in jobs],
            self.given_time(),
            self.settings.keys_kept_ms,
            shard.index in self.forced,
        )

    async def undo(self, shard: Shard, jobs: list[BufferedJob]) -> None:
        """Take jobs back, also before they have come."""
        await shard.fetch(
            "SELECT leveret_undo($1::BIGINT[], $2::INT[], $3::TEXT[], $4::TEXT[])",
            [job.id for job in jobs],
            [to_signed(slot_of((job.namespace, job.topic))) for job in jobs],
            [job.namespace for job in jobs],
            [job.topic for job in jobs],
        )


def _are_plain(jobs: list[BufferedJob]) -> bool:
    """Return whether all jobs are of one topic, and none has a key."""
    namespace, topic = jobs[0].namespace, jobs[0].topic
    return all(
        job.topic == topic
        and job.namespace == namespace
        and job.idempotency_key is None
        and job.fair_key is None
        for job in jobs
    )


def _array(numbers: Sequence[int | None]) -> str:
    """Return an array of PostgreSQL as text."""
    return f"{{{','.join(['NULL' if each is None else str(each) for each in numbers])}}}"


def _after_ms(job: BufferedJob) -> int | None:
    """Return when a job is due; None for a job that was due when it was enqueued."""
    return None if job.deliver_after_ms == job.created_ms else job.deliver_after_ms


def _after(job: BufferedJob) -> datetime | None:
    after_ms = _after_ms(job)
    return None if after_ms is None else to_timestamp(after_ms)


def read_leased_job(row: Any) -> LeasedJob:
    return LeasedJob(
        id=row["job_id"],
        token=row["job_token"],
        payload=row["job_payload"],
        priority=row["job_priority"],
        attempt=row["job_attempts"],
        deliver_after_ms=to_ms(row["job_after"]),
        created_ms=to_ms(row["job_created"]),
        lease_expires_ms=to_ms(row["job_until"]),
        fair_key=row["job_fair"],
    )


def urgency_of(row: Any) -> tuple[int, int, Any, int]:
    """Return the sort key of jobs that are handed out together."""
    return row["job_priority"], row["job_rank"], row["job_after"], row["job_id"]


def read_job(row: Any, now_ms: int = 0) -> Job:
    until = row["lease_expires_at"]
    status: str = row["status"]
    after_ms = to_ms(row["deliver_after"])
    if status == "scheduled" and after_ms <= now_ms:
        status = "ready"
    is_leased = status == "processing" and until is not None
    return Job(
        id=row["id"],
        state=_STATES.get(status, status),
        priority=row["priority"],
        attempts=row["attempts"] - (status == "leased"),  # prefetching counts an attempt ahead
        deliver_after_ms=after_ms,
        created_ms=to_ms(row["created_at"]),
        lease_expires_ms=to_ms(until) if is_leased else None,
        fair_key=row["fair_key"],
        idempotency_key=row["idempotency_key"],
        payload=row["payload"],
        failures=msgspec.convert(json.loads(row["failures"]), list[Failure]),
    )


def handle_columns(handles: list[Handle]) -> tuple[list[int], list[int | None]]:
    return [handle.id for handle in handles], [handle.token for handle in handles]


def outcomes_of(rows: list[Any]) -> list[Outcome]:
    return [Outcome(row["outcome"]) for row in rows]
