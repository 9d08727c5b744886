"""Audit routes: from publishes to queues, and from dead letters to their next queue or exchange.

A publish is `routed` to queues, `held` by a delayed exchange, `returned` or `unroutable`. Each
queue that it was routed to, if it remembers, has one copy that names the publish, or an event
`duplicate`. A dead letter that goes to a queue or exchange that remembers has an event there too.
"""

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from leveret.pipeline.transforms.copy_audit import DUPLICATED, INVENTED, LOST
from leveret.pipeline.transforms.life_events import (
    DEAD_LETTERED,
    DUPLICATE,
    HELD,
    PUBLISHED,
    QUEUED,
    RETURNED,
    ROUTED,
    UNROUTABLE,
    owner_id,
    sequence_number,
)

# Streams of life events, each with its first known offset.
CHRONICLES_SCHEMA: Final = "id bigint, floor bigint"
# Queues that write an event for each arrival, from a time on.
REMEMBERING_QUEUES_SCHEMA: Final = "queue string, from_ms bigint"
# Where dead letters of a queue must arrive from a time on: in a queue, or (null) at an exchange.
DEAD_LETTER_TARGETS_SCHEMA: Final = "id bigint, target string, from_ms bigint"

_PASSED: Final = "passed"


def publishes(steps: DataFrame, chronicles: DataFrame, remembering_queues: DataFrame) -> DataFrame:
    """Return one row for each publish: counts of its events, and `odd`, the faults by queue."""
    event = f.col("event")
    is_further = (event == PUBLISHED) & f.col("publish_id").isNotNull()
    own = steps.where(event.isin(PUBLISHED, ROUTED, HELD, RETURNED, UNROUTABLE, DUPLICATE))
    brought = steps.where((event == QUEUED) & f.col("publish_id").isNotNull())
    passed = steps.where(is_further).withColumn("event", f.lit(_PASSED))
    rows = _as_rows(own, f.col("number")).unionAll(
        _as_rows(brought, f.col("publish_id"), f.col("number"))
    )
    rows = rows.unionAll(_as_rows(passed, f.col("publish_id")))
    by_queue = _by_queue(rows).join(f.broadcast(remembering_queues), "queue", "left")
    found = by_queue.groupBy("publish").agg(
        f.sum(PUBLISHED).alias(PUBLISHED),
        f.sum(ROUTED).alias(ROUTED),
        f.sum(RETURNED).alias(RETURNED),
        f.sum(UNROUTABLE).alias(UNROUTABLE),
        f.sum(HELD).alias(HELD),
        (f.sum(_PASSED) > 0).alias("is_passed_on"),
        f.max("message_id").alias("message_id"),
        f.collect_list(_fault_of_queue()).alias("odd"),
    )
    known = found.withColumn("id", owner_id("publish")).join(f.broadcast(chronicles), "id")
    return known.where(sequence_number("publish") >= f.col("floor"))


def _as_rows(steps: DataFrame, publish: Column, copy: Column | None = None) -> DataFrame:
    return steps.select(
        publish.alias("publish"),
        "queue",
        "event",
        "time",
        "message_id",
        (copy if copy is not None else f.lit(None).cast("bigint")).alias("copy"),
    )


def _by_queue(rows: DataFrame) -> DataFrame:
    """Count the events of each publish by queue; events without a queue have the queue ''."""
    event = f.col("event")
    names = (PUBLISHED, ROUTED, RETURNED, UNROUTABLE, HELD, DUPLICATE, _PASSED)
    return rows.groupBy("publish", "queue").agg(
        *[f.count_if(event == name).alias(name) for name in names],
        f.min("copy").alias("first_copy"),
        f.max("copy").alias("last_copy"),
        f.min("time").alias("time"),
        f.max("message_id").alias("message_id"),
    )


def _fault_of_queue() -> Column:
    """Return the fault of a publish at one queue; null if there is none."""
    col = f.col
    has_copy = col("last_copy").isNotNull()
    is_told = f.unix_millis("time") >= col("from_ms")
    nothing_came = (col(ROUTED) > 0) & ~has_copy & (col(DUPLICATE) == 0)
    return (
        f.when(col("queue") == "", f.lit(None))
        .when(
            (col(ROUTED) == 0) & has_copy,
            _queue_fault(INVENTED, "came to a queue that it was not routed to", col("first_copy")),
        )
        .when(
            has_copy & (col("first_copy") != col("last_copy")),
            _queue_fault(DUPLICATED, "is a second copy of one publish", col("last_copy")),
        )
        .when(
            col(ROUTED) > 1,
            _queue_fault(DUPLICATED, "was routed twice to one queue", col("publish")),
        )
        .when(
            nothing_came & is_told,
            _queue_fault(LOST, "was routed, and did not come", col("publish")),
        )
    )


def _queue_fault(kind: str, what: str, number: Column) -> Column:
    return f.struct(
        f.lit(kind).alias("kind"),
        f.lit(what).alias("what"),
        f.col("queue").alias("queue"),
        number.alias("broker_id"),
    )


def publish_faults(found: DataFrame) -> DataFrame:
    """Return the faults of publishes, and of their routes to queues."""
    col = f.col
    is_settled = col(ROUTED) + col(RETURNED) + col(UNROUTABLE) + col(HELD) > 0
    whole = (
        f.when(col(PUBLISHED) == 0, _publish_fault(INVENTED, "has events, and was never published"))
        .when(
            col(PUBLISHED) > 1, _publish_fault(DUPLICATED, "was published twice under one number")
        )
        .when(~is_settled, _publish_fault(LOST, "was published, and neither routed nor returned"))
    )
    # A fault of the publish itself explains the faults at its queues. If another exchange published
    # the message on, its losses are found there.
    odd = f.when(col("is_passed_on"), f.filter("odd", lambda way: way["kind"] != LOST))
    all_of_it = f.when(whole.isNotNull(), f.array(whole)).otherwise(f.coalesce(odd, col("odd")))
    return found.select("message_id", f.explode(all_of_it).alias("fault")).select(
        "fault.kind",
        "fault.what",
        "fault.queue",
        "fault.broker_id",
        "message_id",
        f.lit(None).cast("string").alias("state"),
    )


def _publish_fault(kind: str, what: str) -> Column:
    return f.struct(
        f.lit(kind).alias("kind"),
        f.lit(what).alias("what"),
        f.lit("").alias("queue"),
        f.col("publish").alias("broker_id"),
    )


def publish_balance(found: DataFrame) -> DataFrame:
    """Return one row: the number of publishes by outcome."""
    col = f.col
    is_settled = col(ROUTED) + col(RETURNED) + col(UNROUTABLE) + col(HELD) > 0
    return found.agg(
        f.coalesce(f.sum(PUBLISHED), f.lit(0)).alias(PUBLISHED),
        f.count_if(col(ROUTED) > 0).alias(ROUTED),
        f.coalesce(f.sum(ROUTED), f.lit(0)).alias("copies"),
        f.count_if(col(RETURNED) > 0).alias(RETURNED),
        f.count_if(col(UNROUTABLE) > 0).alias(UNROUTABLE),
        f.count_if((col(HELD) > 0) & (col(ROUTED) == 0)).alias(HELD),
        f.coalesce(f.sum(PUBLISHED) - f.count_if(is_settled), f.lit(0)).alias("balance"),
    )


def dead_letter_faults(steps: DataFrame, targets: DataFrame) -> DataFrame:
    """Return dead letters that did not arrive at their target.

    A message that died in the target before may have been dropped as a dead-letter cycle.
    """
    col = f.col
    event = col("event")
    left = steps.where(event.isin(DEAD_LETTERED, QUEUED)).select(
        "number", "event", "queue", "time", "message_id", "died_in"
    )
    came = steps.where(col("cause_id").isNotNull()).select(
        col("cause_id").alias("number"), f.lit(_PASSED).alias("event")
    )
    rows = left.unionByName(came, allowMissingColumns=True).withColumn("id", owner_id())
    found = (
        rows.join(f.broadcast(targets), "id")
        .groupBy("number", "target", "from_ms")
        .agg(
            f.max(f.when(event == DEAD_LETTERED, col("time"))).alias("death"),
            f.count_if(event == _PASSED).alias("arrivals"),
            f.max("queue").alias("queue"),
            f.max("message_id").alias("message_id"),
            f.max("died_in").alias("died_in"),
        )
    )
    was_there = f.coalesce(f.array_contains("died_in", col("target")), f.lit(False))
    is_missing = (col("arrivals") == 0) & (f.unix_millis("death") >= col("from_ms")) & ~was_there
    return found.where(is_missing).select(
        f.lit(LOST).alias("kind"),
        f.lit("was dead-lettered, and did not turn up").alias("what"),
        "queue",
        col("number").alias("broker_id"),
        "message_id",
        f.lit(None).cast("string").alias("state"),
    )
