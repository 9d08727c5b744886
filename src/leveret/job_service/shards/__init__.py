"""The store of jobs on Redis and PostgreSQL, for many nodes and more than one machine can hold.

A job goes into a local log and a Redis buffer (`intake`), from there in bulk into the table of its
topic's shard (`flusher`, or `sweeper` from the log), is leased from it, perhaps ahead
(`prefetcher`), and is deleted by its ack. PostgreSQL is the truth; Redis and the log hold what is
on its way there. `docs/jobs-shards.md` says how to run it and what each failure does.
"""

from pathlib import Path
from random import Random

from leveret.job_service.shards.settings import ShardsSettings
from leveret.job_service.shards.store import ShardsStore
from leveret.job_service.shards.tables import Time

__all__ = ["ShardsSettings", "ShardsStore", "open_store"]


def open_store(
    *,
    redis_url: str,
    dsns: list[str],
    data: Path,
    clock: Time,
    random: Random,
    settings: ShardsSettings | None = None,
) -> ShardsStore:
    """A node of the service: `start` it, and `stop` it.

    `dsns` has one PostgreSQL database for each shard, in an order that never changes; `data` is the
    directory of this node's log.
    """
    return ShardsStore(redis_url, dsns, data, clock, random, settings or ShardsSettings())
