"""Counters of each topic since this node started, and the number of jobs by state."""

from datetime import datetime
from typing import Final

import msgspec

from leveret.errors import JobsUnavailableError
from leveret.job_model import STATES, TopicStats
from leveret.job_service.shards.resharding.shard_reader import IS_COUNTED
from leveret.job_service.shards.routing import ShardMap
from leveret.job_service.shards.shard import Shard
from leveret.job_service.shards.timestamps import to_ms
from leveret.job_service.shards.topic_name import TopicName

TOPICS_MAX: Final = 100_000
# Longest count on one shard. It is shorter than the deadline after which a shard counts as down.
COUNT_MS_MAX: Final = 3_000
# Scheduled jobs that are due count as ready, and so do prefetched jobs.
_STATS: Final = f"""
SELECT namespace, topic, state, sum(jobs)::BIGINT AS jobs, min(oldest) AS oldest FROM (
    SELECT namespace, topic, count(*) AS jobs, min(deliver_after) AS oldest,
        CASE status WHEN 'leased' THEN 'ready' WHEN 'processing' THEN 'leased'
            WHEN 'scheduled' THEN CASE WHEN deliver_after <= coalesce($2, now())
                THEN 'ready' ELSE 'scheduled' END
            ELSE status END AS state
    FROM items j WHERE ($1::TEXT IS NULL OR namespace = $1) AND {IS_COUNTED}
    GROUP BY namespace, topic, state
) AS s GROUP BY namespace, topic, state
"""


class Counts(msgspec.Struct):
    """Counters of one topic."""

    enqueued: int = 0
    handed_out: int = 0
    acked: int = 0
    failed: int = 0
    expired: int = 0


class Counters:
    """Counters of all topics that this node has served."""

    def __init__(self) -> None:
        self._counts: dict[TopicName, Counts] = {}

    def of(self, topic: TopicName) -> Counts:
        found = self._counts.get(topic)
        if found is None:
            found = Counts()
            if len(self._counts) < TOPICS_MAX:
                self._counts[topic] = found
        return found

    def known(self, topic: TopicName) -> Counts:
        """Return the counts of a topic, zero if it has none. No row is made for it."""
        return self._counts.get(topic) or Counts()

    def topics(self) -> list[TopicName]:
        return list(self._counts)


async def collect_stats(
    shards: list[Shard],
    routes: ShardMap,
    counters: Counters,
    namespace: str | None,
    given: datetime | None,
) -> list[TopicStats]:
    """Return statistics of every topic that has jobs or counters.

    A topic on a shard that does not answer has the reason instead of numbers.
    """
    found: dict[TopicName, TopicStats] = {}
    missing = await _count_all(shards, counters, namespace, given, found)
    for topic in counters.topics():
        if topic not in found and (namespace is None or topic[0] == namespace):
            found[topic] = _empty_stats(topic, counters.of(topic))
            found[topic].missing = _missing(routes, topic, missing)
            if found[topic].missing:
                for state in STATES:
                    setattr(found[topic], state, None)
    return [found[topic] for topic in sorted(found)]


async def _count_all(
    shards: list[Shard],
    counters: Counters,
    namespace: str | None,
    given: datetime | None,
    found: dict[TopicName, TopicStats],
) -> dict[int, str]:
    """Add the topics of all shards that answer; return why the others do not, by their numbers."""
    missing: dict[int, str] = {}
    for shard in shards:
        try:
            shard.require()
            rows = await shard.fetch_within(COUNT_MS_MAX, _STATS, namespace, given)
        except JobsUnavailableError as error:
            missing[shard.index] = error.public_text
            continue
        for row in rows:
            topic = row["namespace"], row["topic"]
            stats = found.setdefault(topic, _empty_stats(topic, counters.known(topic)))
            setattr(stats, row["state"], getattr(stats, row["state"]) + row["jobs"])
            if row["state"] == "ready":
                stats.oldest_ready_ms = to_ms(row["oldest"])
    return missing


def _missing(routes: ShardMap, topic: TopicName, missing: dict[int, str]) -> str:
    """Return why the jobs of a topic could not be counted; empty if the topic has none."""
    if not missing:
        return ""
    try:
        return missing.get(routes.shard_of(topic).index, "")
    except JobsUnavailableError as error:
        return error.public_text


def _empty_stats(topic: TopicName, counts: Counts) -> TopicStats:
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
