"""Jobs into the table of a shard and out of it: columns of an insert, shapes of rows."""

import json
from random import Random
from typing import Any, Protocol

import msgspec

from leveret.job_model import ERROR_BYTES_MAX, Failure, Handle, Job, LeasedJob, Outcome
from leveret.job_service.shards.entries import Entry
from leveret.job_service.shards.moments import moment, ms_of
from leveret.job_service.shards.routing import signed, slot_of
from leveret.job_service.shards.settings import ShardsSettings
from leveret.job_service.shards.shard import Shard

_PUT = (
    "SELECT job_id, first_id FROM leveret_put($1::BIGINT[], $2::TEXT[], $3::TEXT[], $4::INT[],"
    " $5::INT[], $6::TIMESTAMPTZ[], $7::TIMESTAMPTZ[], $8::TEXT[], $9::TEXT[], $10::BYTEA[],"
    " $11, $12, $13)"
)
# A prefetched job is ready to whoever looks: nobody was handed it.
_STATES = {"leased": "ready", "processing": "leased"}


class Time(Protocol):
    """Who knows the time: a clock, or the node that has one."""

    def now_ms(self) -> int: ...


class Tables:
    """What all parts of a node need to write to shards: the time, the settings."""

    def __init__(self, clock: Time, settings: ShardsSettings, random: Random) -> None:
        self.clock = clock
        self.settings = settings
        self.random = random
        self.behind: set[int] = set()  # shards whose buffers have more jobs than one insert takes
        self.forced: set[int] = set()  # shards that had forgotten our log: floors do not hold

    async def put(self, shard: Shard, jobs: list[Entry]) -> dict[int, int]:
        """Insert what the shard does not know; for keys that are taken, the first id by ours."""
        jobs = sorted(jobs, key=lambda job: job.id)
        now_ms = self.clock.now_ms()
        rows = await shard.fetch(
            _PUT,
            [job.id for job in jobs],
            [job.namespace for job in jobs],
            [job.topic for job in jobs],
            [signed(slot_of((job.namespace, job.topic))) for job in jobs],
            [job.priority for job in jobs],
            [moment(job.deliver_after_ms) for job in jobs],
            [moment(job.created_ms) for job in jobs],
            [job.idempotency_key for job in jobs],
            [job.fair_key for job in jobs],
            [job.payload for job in jobs],
            moment(now_ms),
            moment(now_ms + self.settings.keys_kept_ms),
            shard.index in self.forced,
        )
        return {row["job_id"]: row["first_id"] for row in rows}

    async def undo(self, shard: Shard, jobs: list[Entry]) -> None:
        """Take jobs back, also where they have not come yet."""
        await shard.fetch(
            "SELECT leveret_undo($1::BIGINT[], $2::INT[], $3::TEXT[], $4::TEXT[])",
            [job.id for job in jobs],
            [signed(slot_of((job.namespace, job.topic))) for job in jobs],
            [job.namespace for job in jobs],
            [job.topic for job in jobs],
        )


def leased_job(row: Any) -> LeasedJob:
    return LeasedJob(
        id=row["job_id"],
        token=row["job_token"],
        payload=row["job_payload"],
        priority=row["job_priority"],
        attempt=row["job_attempts"],
        deliver_after_ms=ms_of(row["job_after"]),
        created_ms=ms_of(row["job_created"]),
        lease_expires_ms=ms_of(row["job_until"]),
        fair_key=row["job_fair"],
    )


def urgency(row: Any) -> tuple[int, int, Any, int]:
    """The order of jobs that were handed out together."""
    return row["job_priority"], row["job_rank"], row["job_after"], row["job_id"]


def job(row: Any, now_ms: int) -> Job:
    until = row["lease_expires_at"]
    status: str = row["status"]
    after_ms = ms_of(row["deliver_after"])
    if status == "scheduled" and after_ms <= now_ms:
        status = "ready"
    is_leased = status == "processing" and until is not None
    return Job(
        id=row["id"],
        state=_STATES.get(status, status),
        priority=row["priority"],
        attempts=row["attempts"],
        deliver_after_ms=after_ms,
        created_ms=ms_of(row["created_at"]),
        lease_expires_ms=ms_of(until) if is_leased else None,
        fair_key=row["fair_key"],
        idempotency_key=row["idempotency_key"],
        payload=row["payload"],
        failures=msgspec.convert(json.loads(row["failures"]), list[Failure]),
    )


def columns(handles: list[Handle]) -> tuple[list[int], list[int | None]]:
    return [handle.id for handle in handles], [handle.token for handle in handles]


def outcomes_of(rows: list[Any]) -> list[Outcome]:
    return [Outcome(row["outcome"]) for row in rows]


def kept_error(text: str) -> str:
    """An error as it is kept: cut off, and without what PostgreSQL cannot hold."""
    cut = text.encode("utf-8", "replace")[:ERROR_BYTES_MAX]
    return cut.decode("utf-8", "ignore").replace("\0", "\N{REPLACEMENT CHARACTER}")
