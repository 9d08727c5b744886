"""What happened to the jobs of each topic since this node started, and how many there are."""

from datetime import datetime
from typing import Final

import msgspec

from leveret.job_model import TopicStats
from leveret.job_service.shards.memory import Topic
from leveret.job_service.shards.moments import ms_of
from leveret.job_service.shards.resharding.reading import COUNTS
from leveret.job_service.shards.shard import Shard

TOPICS_MAX: Final = 100_000
# What a prefetched job and a scheduled one that is due are called: they are ready.
_STATS: Final = f"""
SELECT namespace, topic, state, sum(jobs)::BIGINT AS jobs, min(oldest) AS oldest FROM (
    SELECT namespace, topic, count(*) AS jobs, min(deliver_after) AS oldest,
        CASE status WHEN 'leased' THEN 'ready' WHEN 'processing' THEN 'leased'
            WHEN 'scheduled' THEN CASE WHEN deliver_after <= $2 THEN 'ready' ELSE 'scheduled' END
            ELSE status END AS state
    FROM items j WHERE ($1::TEXT IS NULL OR namespace = $1) AND {COUNTS}
    GROUP BY namespace, topic, state
) AS s GROUP BY namespace, topic, state
"""


class Counts(msgspec.Struct):
    """Of one topic."""

    enqueued: int = 0
    handed_out: int = 0
    acked: int = 0
    failed: int = 0
    expired: int = 0


class Counters:
    """Of all topics that this node has had to do with."""

    def __init__(self) -> None:
        self._counts: dict[Topic, Counts] = {}

    def of(self, topic: Topic) -> Counts:
        found = self._counts.get(topic)
        if found is None:
            found = Counts()
            if len(self._counts) < TOPICS_MAX:
                self._counts[topic] = found
        return found

    def topics(self) -> list[Topic]:
        return list(self._counts)


async def figures(
    shards: list[Shard], counters: Counters, namespace: str | None, now: datetime
) -> list[TopicStats]:
    """Of every topic that has jobs or that this node knows, on the shards that answer."""
    found: dict[Topic, TopicStats] = {}
    for topic in counters.topics():
        if namespace is None or topic[0] == namespace:
            found[topic] = _none(topic, counters.of(topic))
    for shard in shards:
        if shard.is_up:
            for row in await shard.fetch(_STATS, namespace, now):
                topic = row["namespace"], row["topic"]
                stats = found.setdefault(topic, _none(topic, Counts()))
                setattr(stats, row["state"], getattr(stats, row["state"]) + row["jobs"])
                if row["state"] == "ready":
                    stats.oldest_ready_ms = ms_of(row["oldest"])
    return [found[topic] for topic in sorted(found)]


def _none(topic: Topic, counts: Counts) -> TopicStats:
    return TopicStats(
        namespace=topic[0],
        topic=topic[1],
        ready=0,
        scheduled=0,
        leased=0,
        dead=0,
        enqueued=counts.enqueued,
        handed_out=counts.handed_out,
        acked=counts.acked,
        failed=counts.failed,
        expired=counts.expired,
    )
