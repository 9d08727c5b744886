"""A prefetched job as the list in Redis holds it, and the notes that it was handed out or acked.

    run shard offered_until lease lease_max priority id token attempt deliver_after created
    payload

Numbers are decimal, times and durations are milliseconds by the clock of the shard. `run` is the
run of Redis in which the job was listed: a list that comes back with an older state of Redis may
hold jobs that were handed out already. `lease` is that of the topic, `lease_max` the longest that
the row of the job allows. The scripts read the first eight fields; `lease_max` is for them alone.

The note of a job that was handed out is `id token end_of_the_lease`, that of an ack `id token`.
"""

from datetime import datetime
from typing import Any, Final, NamedTuple

from leveret.job_model import LeasedJob
from leveret.job_service.shards.timestamps import to_ms, to_timestamp
from leveret.job_service.shards.topic_name import TopicName


class QuickAcks(NamedTuple):
    """Acks that Redis may take."""

    notes: list[bytes]
    left_ms: int  # for which a lease must still last


class PopRequest(NamedTuple):
    """Jobs to ack, and prefetched jobs of the same topic to take, by one call of Redis."""

    topic: TopicName
    acks: QuickAcks | None
    limit: int  # of jobs to take
    lease_ms: int | None  # None: that of the topic
    least_urgent: int  # the highest priority number that may be taken
    now_ms: int  # the time of the shard
    shard: int
    run: bytes  # of Redis


class Popped(NamedTuple):
    """The answer of pop_prefetched.lua, which explains it."""

    ended: bytes
    left: int  # jobs on the list
    outcomes: bytes  # a letter for each ack
    entries: list[bytes]


NOTHING_POPPED: Final = Popped(b"", 0, b"", [])  # nothing was changed


class PrefetchedJob(NamedTuple):
    run: bytes
    shard: int
    offered_until_ms: int
    lease_ms: int  # of the topic
    job: LeasedJob

    def leased(self, now_ms: int, wanted_ms: int | None) -> LeasedJob:
        """Return the job as it is handed out at a time of the shard."""
        lease_ms = self.lease_ms if wanted_ms is None else wanted_ms
        self.job.lease_expires_ms = now_ms + lease_ms
        return self.job


def encode_prefetched(row: Any, run: bytes, shard: int) -> bytes:
    """Return the entry of the list for a row of `leveret_prefetch`."""
    return b"%b %d %d %d %d %d %d %d %d %d %d\n%b" % (
        run,
        shard,
        to_ms(row["offered_until"]),
        row["lease_ms"],
        row["lease_ms_max"],
        row["job_priority"],
        row["job_id"],
        row["job_token"],
        row["job_attempts"],
        to_ms(row["job_after"]),
        to_ms(row["job_created"]),
        row["job_payload"],
    )


def decode_prefetched(entry: bytes) -> PrefetchedJob:
    head, _, payload = entry.partition(b"\n")
    run, *numbers = head.split(b" ")
    shard, until_ms, lease_ms, _, priority, id, token, attempt, after_ms, created_ms = map(
        int, numbers
    )
    job = LeasedJob(
        id=id,
        token=token,
        payload=payload,
        priority=priority,
        attempt=attempt,
        deliver_after_ms=after_ms,
        created_ms=created_ms,
        lease_expires_ms=0,
    )
    return PrefetchedJob(run, shard, until_ms, lease_ms, job)


def decode_note(note: bytes) -> tuple[int, int, datetime]:
    """Return the id, the token and the end of the lease of a job that was handed out."""
    id, token, until_ms = map(int, note.split(b" "))
    return id, token, to_timestamp(until_ms)


def encode_ack(id: int, token: int) -> bytes:
    """Return the note of a job that was acked."""
    return b"%d %d" % (id, token)


def decode_ack(note: bytes) -> tuple[int, int]:
    """Return the id and the token of a job that was acked."""
    id, token = map(int, note.split(b" "))
    return id, token
