"""Audit copies: every message that came to a queue came once, and ended once or is still there.

A *copy* is a message in one queue. `copies` makes one row of all life events of a copy and of its
present states. `auditable_copies` keeps the copies whose events are all known. `copy_faults` finds
the faults of copies, and `balance` adds up each queue. A copy has one fault at most: the first
case of `_verdict` that applies.

A copy is audited only if its number is at least the queue's `floor`. Earlier copies came before the
queue remembered, or retention has deleted some of their events.
"""

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from leveret.pipeline.transforms.life_events import (
    AT_EXCHANGE,
    DELIVERED,
    DUE,
    DUPLICATE,
    FINAL,
    PLACED,
    PUBLISHED,
    QUEUED,
    SEQ_BITS,
    SETTLED,
    owner_id,
    sequence_number,
)

LOST: Final = "lost"
INVENTED: Final = "invented"
DUPLICATED: Final = "duplicated"
STUCK: Final = "stuck"
KINDS: Final = (LOST, INVENTED, DUPLICATED, STUCK)

RUNS_SCHEMA: Final = "id bigint, state string, first bigint, last bigint, since_ms bigint"
QUEUES_SCHEMA: Final = "id bigint, queue string, floor bigint, is_there boolean"
STATES: Final = ("ready", "unacked", "scheduled", "stuck", "damaged")
_WAITING: Final = ("ready", "unacked", "stuck")  # states in which a message can be stuck


def present_copies(runs: DataFrame) -> DataFrame:
    """Return one row for each copy in runs of numbers."""
    return runs.select(
        f.explode(f.sequence("first", "last")).alias("seq"),
        f.shiftleft("id", SEQ_BITS).alias("base"),
        "state",
        f.timestamp_millis("since_ms").alias("since"),
    ).select((f.col("base") + f.col("seq")).alias("number"), "state", "since")


def count_events(steps: DataFrame) -> DataFrame:
    """Count events by stream, kind and owner, with the first number and time of each.

    `exchange` is set for publishes only.
    """
    exchange = f.when(f.col("event") == PUBLISHED, f.col("exchange"))
    keys = ("stream", "event", owner_id().alias("id"), exchange.alias("exchange"))
    return steps.groupBy(*keys).agg(
        f.count("*").alias("events"),
        f.mode("queue").alias("queue"),
        f.min(sequence_number()).alias("first"),
        f.unix_millis(f.min("time")).alias("first_ms"),
    )


def copies(steps: DataFrame, present: DataFrame) -> DataFrame:
    """Return one row for each copy: counts of its events, and its present state."""
    lives = steps.where(~f.col("event").isin(*AT_EXCHANGE, DUPLICATE)).select(
        "number",
        "event",
        "queue",
        "stream",
        "offset",
        "time",
        "message_id",
        "is_transient",
        "is_replayed",
    )
    rows = lives.unionByName(present, allowMissingColumns=True)
    event = f.col("event")
    has_come, has_ended = event.isin(QUEUED, PLACED), event.isin(*FINAL, DUE)
    return rows.groupBy("number").agg(
        f.count_if(has_come).alias("came"),
        f.count_if((event == QUEUED) & ~f.col("is_transient")).alias("came_kept"),
        f.count_if(has_ended).alias("ended"),
        f.count_if(event == DUE).alias("due"),
        f.count_if(event == DELIVERED).alias("delivered"),
        f.count_if(event.isin(*SETTLED)).alias("settled"),
        f.count_if(f.col("is_replayed")).alias("replayed"),
        f.count("state").alias("present"),
        f.max("state").alias("state"),
        f.max("since").alias("since"),
        f.max(f.when(event.isin(*FINAL), event)).alias("end"),
        f.min("offset").alias("first_offset"),
        f.max("offset").alias("last_offset"),
        f.min(f.when(has_come, f.col("offset"))).alias("came_offset"),
        f.min(f.when(has_ended, f.col("offset"))).alias("end_offset"),
        f.max_by("event", "offset").alias("last_event"),
        f.max("time").alias("last_time"),
        f.min("queue").alias("queue_low"),
        f.max("queue").alias("queue_high"),
        (f.min("stream") == f.max("stream")).alias("is_ordered"),
        f.max("message_id").alias("message_id"),
        f.max("is_transient").alias("is_transient"),
    )


def auditable_copies(found: DataFrame, queues: DataFrame) -> DataFrame:
    """Return the copies of these queues whose events are all known.

    After a restart the broker reuses the number of a lost transient message. Copies that came more
    than once, but at most once as persistent, are therefore left out.
    """
    known = found.withColumn("id", owner_id()).join(f.broadcast(queues), "id")
    is_reused = (f.col("came") > 1) & (f.col("came_kept") <= 1)
    return known.where((sequence_number() >= f.col("floor")) & ~is_reused)


def without_lost_transient(found: DataFrame) -> DataFrame:
    """Leave out missing messages that were not persistent: a restart may lose them."""
    is_gone = (f.col("ended") == 0) & (f.col("present") == 0)
    return found.where(~(is_gone & f.coalesce("is_transient", f.lit(False))))


def copy_faults(found: DataFrame, now_ms: int, stuck_after_s: float | None) -> DataFrame:
    """Return the faults of copies: kind, what, queue, broker_id, message_id, state."""
    verdict = _verdict(now_ms, stuck_after_s)
    return (
        found.withColumn("verdict", verdict)
        .where(f.col("verdict").isNotNull())
        .select(
            "verdict.kind",
            "verdict.what",
            "queue",
            f.col("number").alias("broker_id"),
            "message_id",
            "state",
        )
    )


def balance(found: DataFrame) -> DataFrame:
    """Count the arrivals, ends and present copies of each queue; `balance` should be 0."""
    ends = [
        f.sum(f.when(f.col("end") == end, f.col("ended") - f.col("due")).otherwise(0)).alias(
            end.replace("-", "_")
        )
        for end in FINAL
    ]
    places = [
        f.sum(f.when(f.col("state") == state, f.col("present")).otherwise(0)).alias(state)
        for state in STATES
    ]
    sums = found.groupBy("queue").agg(
        f.sum(f.col("came") - f.col("due")).alias("queued"),
        f.sum("replayed").alias("replayed"),
        *ends,
        *places,
        f.count_if(_is_unacked_of_deleted_queue()).alias("held"),
    )
    sums = sums.withColumn("unacked", f.col("unacked") + f.col("held")).drop("held")
    out = sum((f.col(name.replace("-", "_")) for name in (*FINAL, *STATES)), f.lit(0))
    return sums.withColumn("balance", f.col("queued") - out).orderBy("queue")


def with_events(faults: DataFrame, steps: DataFrame) -> DataFrame:
    """Add to faults all events of their copy or publish, and of messages caused by it, in order."""
    numbers = f.array_compact(f.array("number", "publish_id", "cause_id"))
    seen = f.struct(
        "time", "stream", "offset", "event", "queue", "reason", "number", "publish_id", "cause_id"
    )
    told = steps.select(f.explode(f.array_distinct(numbers)).alias("broker_id"), seen.alias("seen"))
    wanted = f.broadcast(faults.select("broker_id").distinct())
    events = (
        told.join(wanted, "broker_id", "left_semi")
        .groupBy("broker_id")
        .agg(f.array_sort(f.collect_list("seen")).alias("events"))
    )
    return faults.join(events, "broker_id", "left").orderBy("kind", "queue", "broker_id")


def _is_unacked_of_deleted_queue() -> Column:
    """True for a copy that was in flight when its queue was deleted: it may still be acked."""
    is_open = (f.col("ended") == 0) & (f.col("present") == 0)
    return is_open & ~f.col("is_there") & (f.col("last_event") == DELIVERED)


def _verdict(now_ms: int, stuck_after_s: float | None) -> Column:
    """Return the first fault of a copy; null if it has none."""
    col = f.col
    has_ended, is_present = col("ended") > 0, col("present") > 0
    is_misplaced = (col("queue_low") != col("queue")) | (col("queue_high") != col("queue"))
    other = f.when(col("queue_low") != col("queue"), col("queue_low")).otherwise(col("queue_high"))
    transient = f.when(col("is_transient"), f.lit("; it was transient")).otherwise(f.lit(""))
    verdict = (
        f.when(is_misplaced, _fault(INVENTED, "has an event of queue ", other))
        .when(
            col("came") == 0,
            f.when(is_present, _fault(INVENTED, "is there, and never came")).otherwise(
                _fault(INVENTED, "has events, and never came")
            ),
        )
        .when(col("came") > 1, _fault(DUPLICATED, "came more than once"))
        .when(col("ended") > 1, _fault(DUPLICATED, "ended more than once"))
        .when(
            has_ended & is_present,
            _fault(DUPLICATED, "has ended, and is there: ", col("last_event")),
        )
        .when(col("present") > 1, _fault(DUPLICATED, "is there more than once"))
        .when(
            col("is_ordered") & (col("first_offset") < col("came_offset")),
            _fault(INVENTED, "has an event before it came"),
        )
        .when(
            col("is_ordered") & (col("last_offset") > col("end_offset")),
            _fault(DUPLICATED, "has an event after its end: ", col("last_event")),
        )
        .when(
            (col("settled") > 0) & (col("delivered") == 0),
            _fault(INVENTED, "was settled, and never delivered"),
        )
        .when(
            ~has_ended & ~is_present & ~_is_unacked_of_deleted_queue(),
            _fault(LOST, "came, did not end, and is not there", transient),
        )
        .when(col("state") == "damaged", _fault(LOST, "cannot be read: the log is damaged"))
    )
    if stuck_after_s is None:
        return verdict
    since = f.when(col("state") == "unacked", col("since"))
    waited_ms = f.lit(now_ms) - f.unix_millis(f.coalesce(since, col("last_time")))
    is_late = col("state").isin(*_WAITING) & (waited_ms > stuck_after_s * 1000)
    seconds = f.format_string("%.0f s", waited_ms / 1000.0)
    return verdict.when(is_late, _fault(STUCK, "is ", col("state"), f.lit(" since "), seconds))


def _fault(kind: str, what: str, *more: Column) -> Column:
    text = f.concat(f.lit(what), *more)
    return f.struct(f.lit(kind).alias("kind"), text.alias("what"))
