"""Dead letters as a table: where and why they died, their retries and their lifetime.

    broker_id    the number of the message at the broker; null if it is not in a queue
    queue        the queue it died in: `x-original-queue` of the bus, or the newest `x-death` entry
    reason       of that entry; if a consumer of the bus gave up, its status (`status 500`)
    error        the first line of the consumer's error message
    error_class  the class of that error, from a header or from the line itself
    routing_key  the key with which it came to that queue
    service      the publisher's property `app_id`
    died_at      time of death, in seconds
    retries      number of retries
    alive_ms     from its first publish to its death, if the publisher set a time

Publishers can write anything into headers: an invalid number becomes null, and no message can make
these functions fail.
"""

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

# The columns that a query has to read.
COLUMNS: Final = (
    "stream",
    "broker_id",
    "timestamp",
    "routing_key",
    "headers",
    "message_timestamp",
    "app_id",
    "x_death",
)
DIMENSIONS: Final = ("queue", "reason", "error_class", "routing_key", "service", "hour")
NONE: Final = "(none)"  # shown for a missing value
COUNT_MAX: Final = 1_000_000_000
ERROR_MAX: Final = 300  # characters of the first line that are kept
_SECOND_MS: Final = 1_000
# Headers with the error message: of the bus, then of other libraries.
_ERRORS: Final = (
    "x-final-error",
    "x-exception-message",
    "x-error-message",
    "x-error",
    "MT-Fault-Message",
    "NServiceBus.ExceptionInfo.Message",
)
_CLASSES: Final = (
    "x-exception-type",
    "x-exception-class",
    "x-error-class",
    "MT-Fault-ExceptionType",
    "NServiceBus.ExceptionInfo.ExceptionType",
)
# A line such as `ValueError: no such order`, `java.io.IOException` or `timeout (30 s)`.
_CLASS_OF_LINE: Final = r"^\s*([A-Za-z_][\w.$]*)\s*(?:[:(]|$)"


def dead_letters(frame: DataFrame) -> DataFrame:
    """Return the dead letters among messages."""
    newest = f.get("x_death", f.lit(0))
    original = _header("x-original-queue")
    queue = f.coalesce(original, newest["queue"], _header("x-last-death-queue"))
    given_up = f.coalesce(
        f.concat(f.lit("status "), _header("x-final-status-code")), f.lit("failed")
    )
    reason = f.when(original.isNotNull(), given_up).otherwise(
        f.coalesce(newest["reason"], _header("x-last-death-reason"))
    )
    # An entry of x-death has the time of the first death only.
    is_first = original.isNull() & (newest["count"] == 1)
    died = f.when(is_first, newest["time"]).otherwise(f.col("timestamp"))
    found = frame.where(queue.isNotNull()).select(
        f.col("stream").alias("source"),
        "broker_id",
        queue.alias("queue"),
        reason.alias("reason"),
        _error().alias("error"),
        _error_class().alias("error_class"),
        f.coalesce(f.get(newest["routing_keys"], f.lit(0)), "routing_key").alias("routing_key"),
        f.col("app_id").alias("service"),
        f.coalesce(died, "timestamp").alias("died_at"),
        _retries(queue).alias("retries"),
        _published_ms().alias("published_ms"),
    )
    return with_life(found)


def with_life(frame: DataFrame) -> DataFrame:
    """Replace `published_ms` by `alive_ms`, and add the hour of death."""
    lived = f.unix_millis("died_at") - f.col("published_ms")
    # Both times are usually in seconds: the death may seem to come before the publish.
    known = f.when(lived >= -_SECOND_MS, f.greatest(lived, f.lit(0)))
    return (
        frame.withColumn("alive_ms", known)
        .withColumn("hour", f.date_trunc("hour", "died_at"))
        .drop("published_ms")
    )


def _header(name: str) -> Column:
    return f.try_element_at("headers", f.lit(name))


def _error() -> Column:
    text = f.coalesce(*(_header(name) for name in _ERRORS))
    line = f.substring(f.trim(f.substring_index(f.ltrim(text), "\n", 1)), 1, ERROR_MAX)
    return f.when(line != "", line)


def _error_class() -> Column:
    said = f.coalesce(*(_header(name) for name in _CLASSES))
    found = f.regexp_extract(_error(), _CLASS_OF_LINE, 1)
    return f.coalesce(said, f.when(found != "", found))


def _retries(queue: Column) -> Column:
    """Return the bus's count, or the number of deaths in the queue after the first."""
    deaths = f.filter("x_death", lambda death: death["queue"] == queue)
    counts = f.transform(
        deaths, lambda death: f.least(f.coalesce(death["count"], f.lit(1)), f.lit(COUNT_MAX))
    )
    total = f.aggregate(counts, f.lit(0).cast("bigint"), lambda sum, count: sum + count)
    counted = _header("x-final-retry-count").try_cast("bigint")
    return f.coalesce(counted, f.greatest(total - 1, f.lit(0)), f.lit(0))


def _published_ms() -> Column:
    told = _header("x-published-ms").try_cast("bigint")
    sane = f.when(told.between(0, 1 << 50), told)
    return f.coalesce(sane, f.unix_millis("message_timestamp"))


def totals(frame: DataFrame) -> DataFrame:
    """Return one row: count, first and last death, retries and lifetimes."""
    return frame.agg(
        f.count("*").alias("letters"),
        f.min("died_at").alias("first"),
        f.max("died_at").alias("last"),
        f.sum("retries").alias("retries"),
        f.max("retries").alias("retries_max"),
        f.count("alive_ms").alias("alive_known"),
        *_lives(),
    )


def by_dimension(frame: DataFrame, most: int) -> DataFrame:
    """Return the `most` frequent values of each dimension, and all hours."""
    pairs = [
        f.struct(
            f.lit(name).alias("dimension"),
            f.coalesce(_text(name), f.lit(NONE)).alias("value"),
        )
        for name in DIMENSIONS
    ]
    each = frame.select(f.explode(f.array(*pairs)).alias("pair"), "retries", "alive_ms")
    found = each.groupBy("pair.dimension", "pair.value").agg(
        f.count("*").alias("letters"), f.round(f.avg("retries"), 1).alias("retries"), *_lives()
    )
    order = Window.partitionBy("dimension").orderBy(f.desc("letters"), "value")
    ranked = found.withColumn("rank", f.row_number().over(order))
    kept = ranked.where((f.col("rank") <= most) | (f.col("dimension") == "hour"))
    return kept.drop("rank").orderBy("dimension", f.desc("letters"), "value")


def by_hour(frame: DataFrame) -> DataFrame:
    """Count dead letters by hour and reason."""
    reason = f.coalesce("reason", f.lit(NONE)).alias("reason")
    return frame.groupBy("hour", reason).agg(f.count("*").alias("letters")).orderBy("hour", reason)


def offenders(frame: DataFrame, most: int) -> DataFrame:
    """Return the combinations of queue, reason, error class, key and service with most letters."""
    names = [f.coalesce(name, f.lit(NONE)).alias(name) for name in DIMENSIONS if name != "hour"]
    found = frame.groupBy(*names).agg(
        f.count("*").alias("letters"),
        f.max("retries").alias("retries_max"),
        f.max("died_at").alias("last"),
        f.max_by("error", "died_at").alias("error"),
        f.max_by("broker_id", "died_at").alias("newest_id"),
    )
    return found.orderBy(f.desc("letters"), *DIMENSIONS[:-1]).limit(most)


def _text(name: str) -> Column:
    return f.date_format(name, "yyyy-MM-dd HH:mm") if name == "hour" else f.col(name)


def _lives() -> list[Column]:
    return [
        f.percentile_approx("alive_ms", 0.5, 10_000).alias("alive_ms_p50"),
        f.percentile_approx("alive_ms", 0.95, 10_000).alias("alive_ms_p95"),
    ]
