"""`latency`: how long messages wait, are with a consumer, and take until they are acked.

The events come from the stream in which queues remember, at the broker or in the lake. All of them
are read, also with `since`: a span that ends there may have begun before.
"""

from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from leveret.pipeline.flows.archive import remembered_stream
from leveret.pipeline.lake import read_bronze
from leveret.pipeline.layout import BRONZE, Lake, table_name
from leveret.pipeline.readiness import require_broker, require_queue, require_stream
from leveret.pipeline.rows import rows_of
from leveret.pipeline.shuffles import fit_shuffles
from leveret.pipeline.site import Site
from leveret.pipeline.transforms import latencies
from leveret.pipeline.transforms.messages import chosen
from pyspark_leveret.schema import TYPES


@dataclass(frozen=True)
class Measuring:
    """Which events, and in which windows."""

    stream: str
    window_s: int
    is_from_lake: bool = False
    since: str | None = None
    until: str | None = None
    queue: str | None = None  # None: all that remember there


def stream_of(site: Site, stream: str | None, queue: str | None, *, is_from_lake: bool) -> str:
    """The stream with the events, which is there; raises what says that it is not."""
    if is_from_lake:
        assert stream is not None
        Lake(site.lake_path).require(BRONZE, table_name(site.vhost, stream))
        return stream
    require_broker(site)
    if stream is None:
        require_queue(site, str(queue))
        stream = remembered_stream(site, str(queue))
    require_stream(site, stream)
    return stream


def spans_of(spark: SparkSession, site: Site, asked: Measuring) -> DataFrame:
    """The spans that ended from a time up to another."""
    fit_shuffles(spark)
    if asked.is_from_lake:
        table = table_name(site.vhost, asked.stream)
        events = read_bronze(spark, Lake(site.lake_path), table)
    else:
        schema = ", ".join(f"`{name}` {TYPES[name]}" for name in latencies.COLUMNS)
        reader = spark.read.format("leveret").options(**site.options(stream=asked.stream))
        events = reader.schema(schema).load()
    found = latencies.spans(latencies.steps(events)).withColumnRenamed("at", "timestamp")
    found = chosen(found, since=asked.since, until=asked.until)
    if asked.queue is not None:
        found = found.where(found["queue"] == asked.queue)
    return found.withColumnRenamed("timestamp", "at")


def report(frame: DataFrame, window_s: int) -> dict[str, Any]:
    """Percentiles by queue, by queue and service, and by queue and window."""
    kept = frame.cache()
    try:
        known = kept.where("service is not null")
        return {
            "window_s": window_s,
            "queues": rows_of(latencies.summed(kept, "queue")),
            "services": rows_of(latencies.summed(known, "queue", "service")),
            "windows": rows_of(latencies.in_windows(kept, window_s)),
        }
    finally:
        kept.unpersist()
