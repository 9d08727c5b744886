"""The store of jobs on Redis and PostgreSQL, for many nodes and more jobs than one machine holds.

    enqueueing   writes a job to the local log and to a Redis buffer
    flusher      inserts buffered jobs in bulk into the table of their topic's shard
    sweeper      inserts jobs from the local log that no flusher has inserted
    prefetcher   leases jobs of busy topics ahead and lists them in Redis
    claim        takes listed jobs, or leases the most urgent jobs of the table
    ack          deletes the job from the table

PostgreSQL holds the truth. Redis and the log hold jobs on their way there. `docs/jobs-shards.md`
says how to run the store and what each failure does.
"""

from pathlib import Path
from random import Random

from leveret.job_service.shards.addresses import check_addresses
from leveret.job_service.shards.server_health import Time
from leveret.job_service.shards.settings import ShardsSettings
from leveret.job_service.shards.store import ShardsStore

__all__ = ["ShardsSettings", "ShardsStore", "check_addresses", "open_store"]


def open_store(
    *,
    redis_url: str,
    dsns: list[str],
    data: Path,
    clock: Time,
    random: Random,
    settings: ShardsSettings | None = None,
) -> ShardsStore:
    """Return the store of one node, which must be started and stopped.

    `dsns` has one PostgreSQL database for each shard, in an order that never changes; `data` is the
    directory of this node's log.
    """
    return ShardsStore(redis_url, dsns, data, clock, random, settings or ShardsSettings())
