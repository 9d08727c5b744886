"""Families of the jobs service: topics, the servers behind it, and the local log.

A node that has not opened the service has no samples. Jobs are counted for a scrape at most every
few seconds, and for the topics with the most jobs only.
"""

from typing import Final

from leveret.metrics.family import COUNTER, GAUGE
from leveret.metrics.node_family import Read, Samples, node_family
from leveret.metrics.sources import NodeTotals

GROUP: Final = "leveret_jobs_metrics"


def _by_state(totals: NodeTotals) -> Samples:
    return [
        ({"namespace": each.namespace, "topic": each.topic, "state": state}, count)
        for each in totals.jobs.topics
        for state, count in each.states.items()
    ]


def _oldest(totals: NodeTotals) -> Samples:
    return [
        (
            {"namespace": each.namespace, "topic": each.topic},
            max(totals.now_ms - each.oldest_ready_ms, 0) / 1000,
        )
        for each in totals.jobs.topics
        if each.oldest_ready_ms is not None
    ]


def _count(name: str) -> Read:
    return lambda totals: [
        ({"namespace": each.namespace, "topic": each.topic}, each.counts[name])
        for each in totals.jobs.topics
    ]


def _skews(totals: NodeTotals) -> Samples:
    return [
        ({"server": server.name}, server.skew_ms / 1000)
        for server in totals.jobs.servers
        if server.skew_ms is not None
    ]


JOBS_FAMILIES: Final = (
    node_family(
        GAUGE,
        "leveret_jobs",
        "Jobs by topic and state: ready, scheduled, leased, dead.",
        _by_state,
        GROUP,
    ),
    node_family(
        GAUGE,
        "leveret_jobs_oldest_ready_age_seconds",
        "Time since the oldest ready job of a topic became ready.",
        _oldest,
        GROUP,
    ),
    *(
        node_family(COUNTER, f"leveret_jobs_{metric}_total", about, _count(name), GROUP)
        for metric, name, about in (
            ("enqueued", "enqueued", "Jobs that this node has enqueued, by topic."),
            ("leased", "handed_out", "Leases that this node has given, by topic."),
            ("acked", "acked", "Jobs acked at this node, by topic."),
            ("failed", "failed", "Jobs nacked at this node, by topic: retries and dead jobs."),
            ("leases_expired", "expired", "Leases that this node found expired, by topic."),
        )
    ),
    node_family(
        GAUGE,
        "leveret_jobs_server_up",
        "1 while a shard or Redis answers; 0 while calls for it are refused at once.",
        lambda r: [({"server": each.name}, int(each.is_up)) for each in r.jobs.servers],
        GROUP,
    ),
    node_family(
        GAUGE,
        "leveret_jobs_server_takes_changes",
        "1 while a shard or Redis takes changes; 0 while it is full, read-only or down.",
        lambda r: [({"server": each.name}, int(each.takes_changes())) for each in r.jobs.servers],
        GROUP,
    ),
    node_family(
        COUNTER,
        "leveret_jobs_server_failures_total",
        "How often a shard or Redis stopped answering, or did not answer at the start.",
        lambda r: [({"server": each.name}, each.failures) for each in r.jobs.servers],
        GROUP,
    ),
    node_family(
        COUNTER,
        "leveret_jobs_connections_refused_total",
        "Connections that a shard did not allow: it has too many, or refuses the login now.",
        lambda r: [
            ({"server": each.name}, each.connections_refused)
            for each in r.jobs.servers
            if each.is_shard
        ],
        GROUP,
    ),
    node_family(
        GAUGE,
        "leveret_jobs_clock_skew_seconds",
        "By how much the clock of this node is ahead of a shard or Redis; negative: behind.",
        _skews,
        GROUP,
    ),
    node_family(
        GAUGE,
        "leveret_jobs_log_jobs",
        "Jobs in the local log that are not known to be in PostgreSQL yet.",
        lambda r: r.jobs.log_jobs,
        GROUP,
    ),
    node_family(
        GAUGE,
        "leveret_jobs_flush_lag_seconds",
        "Age of the oldest job in the local log that is not known to be in PostgreSQL.",
        lambda r: r.jobs.flush_lag_s,
        GROUP,
    ),
    node_family(
        GAUGE,
        "leveret_jobs_prefetched_topics",
        "Busy topics, whose jobs are leased ahead.",
        lambda r: r.jobs.busy_topics,
        GROUP,
    ),
)
