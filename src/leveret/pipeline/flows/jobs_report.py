"""`jobs-report`: an overview of the jobs of a service, from its PostgreSQL shards or over HTTP.

Executors read the tables of shards without payloads, one task for each shard and range of ids. Over
HTTP the report uses the service's statistics and its lists of dead jobs. HTTP is for jobs that the
broker itself stores; that report has no hours.
"""

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession

from leveret.charts.axes import parse_time_s
from leveret.job_model import STATES
from leveret.jobs.client.client import Client
from leveret.pipeline.report_rows import collect_rows
from leveret.pipeline.shards import read_jobs
from leveret.pipeline.shuffle_partitions import set_shuffle_partitions
from leveret.pipeline.transforms import jobs as transforms

DEAD_MAX: Final = 10_000  # dead jobs of a topic that are read over HTTP
PAGE: Final = 1_000


def read_job_states(
    spark: SparkSession, dsns: Sequence[str], namespace: str | None, now: datetime
) -> DataFrame:
    """Return the jobs of all shards with their states."""
    set_shuffle_partitions(spark)
    found = read_jobs(spark, dsns, columns=transforms.COLUMNS)
    if namespace is not None:
        found = found.where(found["namespace"] == namespace)
    return transforms.with_states(found, now)


def report(frame: DataFrame, most: int, now: datetime) -> dict[str, Any]:
    """Return topics, dead jobs by error, and hours as JSON values."""
    kept = frame.cache()
    try:
        topics = collect_rows(transforms.by_topic(kept))
        errors = collect_rows(transforms.dead_by_error(kept, most))
        hours = collect_rows(transforms.by_hour(kept))
    finally:
        kept.unpersist()
    for row in topics:
        since = row["oldest_ready"]
        row["oldest_ready_s"] = None if since is None else _age_s(now, parse_time_s(since))
    return {**_sums(topics), "topics": topics, "errors": errors, "hours": hours}


def report_over_http(
    client: Client, namespace: str | None, most: int, now: datetime
) -> dict[str, Any]:
    """Return the same report from the service, with its counters since its start."""
    topics: list[dict[str, Any]] = []
    errors: Counter[tuple[str, str, str]] = Counter()
    lasts: dict[tuple[str, str, str], str] = {}
    for one in client.stats(namespace=namespace):
        oldest_s = one.oldest_ready_s
        topics.append(
            {
                **{state: getattr(one, state) for state in STATES},
                "namespace": one.namespace,
                "topic": one.topic,
                "oldest_ready": None if oldest_s is None else _text(oldest_s),
                "oldest_ready_s": None if oldest_s is None else _age_s(now, oldest_s),
                "enqueued": one.enqueued,
                "acked": one.acked,
                "failures": one.failed + one.expired,
            }
        )
        if one.dead:
            _count_dead(client, one.namespace, one.topic, errors, lasts)
    found = [
        {"namespace": key[0], "topic": key[1], "error": key[2], "jobs": n, "last": lasts.get(key)}
        for key, n in sorted(errors.items(), key=lambda item: (-item[1], item[0]))[:most]
    ]
    topics.sort(key=lambda row: (row["namespace"], row["topic"]))
    return {**_sums(topics), "topics": topics, "errors": found, "hours": []}


def _count_dead(
    client: Client,
    namespace: str,
    topic: str,
    errors: "Counter[tuple[str, str, str]]",
    lasts: dict[tuple[str, str, str], str],
) -> None:
    after_id = seen = 0
    while seen < DEAD_MAX:
        page = client.dead(topic, after_id=after_id, limit=PAGE, namespace=namespace)
        for job in page:
            last = job.failures[-1] if job.failures else None
            line = last.error.lstrip().partition("\n")[0] if last is not None else "(none)"
            key = (namespace, topic, line[: transforms.ERROR_MAX])
            errors[key] += 1
            if last is not None and last.time is not None:
                lasts[key] = max(lasts.get(key, ""), _text(last.time.timestamp()))
        if len(page) < PAGE:
            return
        after_id, seen = page[-1].id, seen + len(page)


def _sums(topics: list[dict[str, Any]]) -> dict[str, Any]:
    return {state: sum(row[state] for row in topics) for state in STATES}


def _age_s(now: datetime, since_s: float) -> float:
    return round(max(now.timestamp() - since_s, 0.0), 1)


def _text(at_s: float) -> str:
    return datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%d %H:%M:%S")
