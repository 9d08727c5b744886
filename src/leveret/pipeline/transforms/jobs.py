"""Jobs in the tables of shards: their states as the service reports them, backlog and failures.

A finished job leaves no row. Counts by hour therefore cover only jobs that still exist.
"""

from datetime import datetime
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from leveret.job_model import STATES

# The columns that a query has to read: no payloads.
COLUMNS: Final = (
    "id",
    "namespace",
    "topic",
    "status",
    "deliver_after",
    "created_at",
    "attempts",
    "failures",
)
ERROR_MAX: Final = 300  # characters of the first line that are kept
_FAILURES: Final = "array<struct<attempt:bigint,time_ms:bigint,error:string>>"


def with_states(frame: DataFrame, now: datetime) -> DataFrame:
    """Add `state`, `retries`, the times of failures, and the first line of the last error.

    A prefetched job counts as ready, and so does a scheduled job whose time has come.
    """
    is_due = f.col("deliver_after") <= f.lit(now)
    state = (
        f.when(f.col("status") == "processing", "leased")
        .when(f.col("status") == "leased", "ready")
        .when((f.col("status") == "scheduled") & is_due, "ready")
        .otherwise(f.col("status"))
    )
    # Prefetching counts the next attempt ahead.
    first = f.when(f.col("status") == "leased", 2).otherwise(1)
    failures = f.from_json("failures", _FAILURES)
    last = f.try_element_at(failures, f.lit(-1))["error"]
    line = f.substring(f.substring_index(f.ltrim(last), "\n", 1), 1, ERROR_MAX)
    times = f.transform(failures, lambda failure: f.timestamp_millis(failure["time_ms"]))
    return frame.select(
        "namespace",
        "topic",
        state.alias("state"),
        "deliver_after",
        "created_at",
        f.greatest(f.col("attempts") - first, f.lit(0)).alias("retries"),
        f.coalesce(f.size(failures), f.lit(0)).alias("failures"),
        times.alias("failed_at"),
        line.alias("error"),
    )


def by_topic(frame: DataFrame) -> DataFrame:
    """Count jobs by state, retries and failures of each topic; find its oldest ready job."""
    counts = [_in(state, f.lit(1)).alias(state) for state in STATES]
    ready = f.when(f.col("state") == "ready", f.col("deliver_after"))
    return (
        frame.groupBy("namespace", "topic")
        .agg(
            *counts,
            f.min(ready).alias("oldest_ready"),
            f.sum("retries").alias("retries"),
            f.sum("failures").alias("failures"),
        )
        .orderBy("namespace", "topic")
    )


def dead_by_error(frame: DataFrame, most: int) -> DataFrame:
    """Count dead jobs by the first line of their last error."""
    found = frame.where(f.col("state") == "dead").groupBy(
        "namespace", "topic", f.coalesce("error", f.lit("(none)")).alias("error")
    )
    last = f.max(f.array_max("failed_at")).alias("last")
    counted = found.agg(f.count("*").alias("jobs"), last)
    return counted.orderBy(f.desc("jobs"), "namespace", "topic", "error").limit(most)


def by_hour(frame: DataFrame) -> DataFrame:
    """Count existing jobs by namespace, topic and hour of arrival, and their failures by hour."""
    came = f.struct(f.lit("came").alias("what"), f.col("created_at").alias("at"))
    failed = f.transform(
        f.coalesce("failed_at", f.array().cast("array<timestamp>")),
        lambda at: f.struct(f.lit("failed").alias("what"), at.alias("at")),
    )
    each = frame.select(
        "namespace", "topic", f.explode(f.concat(f.array(came), failed)).alias("event")
    )
    hour = f.date_trunc("hour", "event.at").alias("hour")
    found = each.groupBy("namespace", "topic", hour).agg(
        f.count(f.when(f.col("event.what") == "came", 1)).alias("came"),
        f.count(f.when(f.col("event.what") == "failed", 1)).alias("failed"),
    )
    return found.orderBy("hour", "namespace", "topic")


def _in(state: str, value: Column) -> Column:
    return f.count(f.when(f.col("state") == state, value))
