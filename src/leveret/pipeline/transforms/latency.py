"""Durations in the life of messages, from life events (docs/remember.md).

    waiting     from ready in the queue to delivered: one for each delivery
    in flight   from delivered to settled or requeued: one for each delivery
    to ack      from arrival (or due time) to acked: one for each copy

A duration belongs to the window in which it ended. Durations that have not ended do not count.
"""

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from leveret.pipeline.transforms.dead_letters import with_life

WAITING: Final = "waiting"
IN_FLIGHT: Final = "in flight"
TO_ACK: Final = "to ack"
KINDS: Final = (WAITING, IN_FLIGHT, TO_ACK)
PERCENTILES: Final = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
ACCURACY: Final = 10_000
BLOCK: Final = 65_536
COPY_MAX: Final = (1 << 63) - 2 * BLOCK
# The columns that a query has to read.
COLUMNS: Final = (
    "stream",
    "offset",
    "timestamp",
    "routing_key",
    "headers",
    "message_timestamp",
    "app_id",
    "x_death",
    "body",
)
_READY: Final = ("queued", "requeued", "due")
_AT_QUEUES: Final = (
    *(*_READY, "delivered", "nacked", "rejected", "timed out"),
    *("acked", "dropped", "expired", "dead-lettered", "parked", "purged", "moved", "deleted"),
)
_DEAD: Final = ("dead-lettered", "parked")


def queue_events(frame: DataFrame) -> DataFrame:
    """Return events at queues, one row for each copy; an event of a range is many rows."""
    event = _header("x-event")
    is_new = event == "queued"
    found = frame.where(event.isin(*_AT_QUEUES)).select(
        "stream",
        "offset",
        _first(event).alias("first"),
        _last(event).alias("last"),
        _header("x-queue").alias("queue"),
        event.alias("event"),
        _header("x-reason").alias("reason"),
        f.col("timestamp").alias("at"),
        "routing_key",
        f.when(is_new, f.col("app_id")).alias("service"),
        f.when(is_new, f.unix_millis("message_timestamp")).alias("publisher_ms"),
    )
    # In blocks: the numbers of a purge would otherwise be one very large row.
    in_order = found.where((f.col("first") <= f.col("last")) & (f.col("last") < COPY_MAX))
    blocks = in_order.withColumn("first", f.explode(f.sequence("first", "last", f.lit(BLOCK))))
    end = f.least(f.col("first") + (BLOCK - 1), "last")
    return blocks.withColumn("id", f.explode(f.sequence("first", end))).drop("first", "last")


def _first(event: Column) -> Column:
    """Return the number of the copy, or of the first copy of a range; null if there is none."""
    own = f.when(event == "queued", _header("x-broker-id"))
    own = own.when(event == "due", _header("x-next-id"))
    text = f.col("body").cast("string")
    return own.otherwise(f.substring_index(text, "-", 1)).try_cast("bigint")


def _last(event: Column) -> Column:
    text = f.substring_index(f.col("body").cast("string"), "-", -1)
    is_one = event.isin("queued", "due")
    return f.when(is_one, _first(event)).otherwise(text.try_cast("bigint"))


def durations(frame: DataFrame) -> DataFrame:
    """Return the durations between events: queue, service, kind, end, milliseconds."""
    lives = _lives(frame)
    before = f.col("before.event")
    waited = (f.col("event") == "delivered") & before.isin(*_READY)
    flown = (before == "delivered") & (f.col("event") != "delivered")
    since = f.col("before.at")
    kinds = [
        _span(WAITING, waited, since),
        _span(IN_FLIGHT, flown, since),
        _span(TO_ACK, f.col("event") == "acked", f.col("born_at")),
    ]
    each = lives.select("queue", "service", "at", f.explode(f.array(*kinds)).alias("span"))
    return each.where("span.ms is not null").select("queue", "service", "at", "span.*")


def deaths(frame: DataFrame) -> DataFrame:
    """Return the copies that died, with the columns of `dead_letters.dead_letters`."""
    nothing = f.lit(None).cast("string")
    born_ms = f.coalesce("life_publisher_ms", f.unix_millis("born_at"))
    found = _lives(frame).where(f.col("event").isin(*_DEAD))
    return with_life(
        found.select(
            f.col("stream").alias("source"),
            "queue",
            f.coalesce("reason", "event").alias("reason"),
            nothing.alias("error"),
            nothing.alias("error_class"),
            "routing_key",
            "service",
            f.col("at").alias("died_at"),
            f.greatest(f.col("deliveries") - 1, f.lit(0)).alias("retries"),
            born_ms.alias("published_ms"),
        )
    )


def percentiles(frame: DataFrame, *names: str) -> DataFrame:
    """Return count, percentiles and maximum (ms) of durations by kind and these columns."""
    shares = f.percentile_approx("ms", list(PERCENTILES.values()), ACCURACY)
    found = frame.groupBy(*names, "kind").agg(
        f.count("*").alias("count"), shares.alias("shares"), f.max("ms").alias("max")
    )
    each = [f.get("shares", f.lit(n)).alias(name) for n, name in enumerate(PERCENTILES)]
    return found.select(*names, "kind", "count", *each, "max").orderBy(*names, "kind")


def percentiles_by_window(frame: DataFrame, window_s: int) -> DataFrame:
    """Return percentiles by queue and window; `start` is the start of the window."""
    start = f.window("at", f"{window_s} seconds").getField("start")
    return percentiles(frame.withColumn("start", start), "queue", "start")


def _header(name: str) -> Column:
    return f.try_element_at("headers", f.lit(name))


def _lives(frame: DataFrame) -> DataFrame:
    """Add to each event facts about the earlier events of the same copy."""
    copy = Window.partitionBy("stream", "id").orderBy("offset")
    so_far = copy.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    delivered = f.when(f.col("event") == "delivered", 1)
    return (
        frame.withColumn("before", f.lag(f.struct("event", "at")).over(copy))
        .withColumn("born_at", f.first(f.when(_is_ready(), f.col("at")), True).over(so_far))
        .withColumn("service", f.first("service", True).over(so_far))
        .withColumn("life_publisher_ms", f.first("publisher_ms", True).over(so_far))
        .withColumn("deliveries", f.count(delivered).over(so_far))
    )


def _is_ready() -> Column:
    return f.col("event").isin("queued", "due")


def _span(kind: str, is_one: Column, since: Column) -> Column:
    ms = (f.unix_micros("at") - f.unix_micros(since)) / 1000
    return f.struct(f.lit(kind).alias("kind"), f.when(is_one, ms).alias("ms"))
