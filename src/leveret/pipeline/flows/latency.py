"""`latency`: report how long messages wait, are in flight, and take until they are acked.

The events come from a stream of life events, at the broker or in the lake. The flow reads all of
them even with `since`, because a duration that ends later may have begun before.
"""

from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from leveret.lake.layout import BRONZE, Lake, table_name
from leveret.pipeline.environment import Environment
from leveret.pipeline.flows.archive import life_event_stream
from leveret.pipeline.lake_tables import read_bronze
from leveret.pipeline.preflight import require_broker, require_queue, require_stream
from leveret.pipeline.report_rows import collect_rows
from leveret.pipeline.shuffle_partitions import set_shuffle_partitions
from leveret.pipeline.transforms import latency
from leveret.pipeline.transforms.messages import filter_messages
from pyspark_leveret.schema import TYPES


@dataclass(frozen=True)
class LatencyRequest:
    """The events to measure, and the length of windows."""

    stream: str
    window_s: int
    is_from_lake: bool = False
    since: str | None = None
    until: str | None = None
    queue: str | None = None  # None: all queues of the stream


def find_stream(
    environment: Environment, stream: str | None, queue: str | None, *, is_from_lake: bool
) -> str:
    """Return the stream of life events; raise an error if it does not exist."""
    if is_from_lake:
        assert stream is not None
        Lake(environment.lake_path).require(BRONZE, table_name(environment.vhost, stream))
        return stream
    require_broker(environment)
    if stream is None:
        require_queue(environment, str(queue))
        stream = life_event_stream(environment, str(queue))
    require_stream(environment, stream)
    return stream


def read_durations(
    spark: SparkSession, environment: Environment, request: LatencyRequest
) -> DataFrame:
    """Return the durations that ended from `since` up to `until`."""
    set_shuffle_partitions(spark)
    if request.is_from_lake:
        table = table_name(environment.vhost, request.stream)
        events = read_bronze(spark, Lake(environment.lake_path), table)
    else:
        schema = ", ".join(f"`{name}` {TYPES[name]}" for name in latency.COLUMNS)
        reader = spark.read.format("leveret").options(**environment.options(stream=request.stream))
        events = reader.schema(schema).load()
    found = latency.durations(latency.queue_events(events)).withColumnRenamed("at", "timestamp")
    found = filter_messages(found, since=request.since, until=request.until)
    if request.queue is not None:
        found = found.where(found["queue"] == request.queue)
    return found.withColumnRenamed("timestamp", "at")


def report(frame: DataFrame, window_s: int) -> dict[str, Any]:
    """Return percentiles by queue, by queue and service, and by queue and window."""
    kept = frame.cache()
    try:
        known = kept.where("service is not null")
        return {
            "window_s": window_s,
            "queues": collect_rows(latency.percentiles(kept, "queue")),
            "services": collect_rows(latency.percentiles(known, "queue", "service")),
            "windows": collect_rows(latency.percentiles_by_window(kept, window_s)),
        }
    finally:
        kept.unpersist()
