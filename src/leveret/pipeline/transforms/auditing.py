"""The judgement on copies: every one came once, and ended once or is still there.

`copies` makes one row of all events of a copy and of the places where it is now; `judged` keeps
those whose whole life is known; `copy_faults` names what is wrong with a copy, `balance` adds up a
queue. A copy has one fault at most: the first of `_verdict` that applies.

Only copies whose number is from the queue's `floor` on are judged: those below came before the
queue remembered, or before the oldest event that is left.
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
    SETTLING,
    place,
    whose,
)

LOST: Final = "lost"
INVENTED: Final = "invented"
DUPLICATED: Final = "duplicated"
STUCK: Final = "stuck"
KINDS: Final = (LOST, INVENTED, DUPLICATED, STUCK)

RUNS_SCHEMA: Final = "id bigint, state string, first bigint, last bigint, since_ms bigint"
QUEUES_SCHEMA: Final = "id bigint, queue string, floor bigint, is_there boolean"
STATES: Final = ("ready", "unacked", "scheduled", "stuck", "damaged")
_WAITING: Final = ("ready", "unacked", "stuck")  # states in which a message may wait for too long


def states(runs: DataFrame) -> DataFrame:
    """The copies of runs, one row for each."""
    return runs.select(
        f.explode(f.sequence("first", "last")).alias("seq"),
        f.shiftleft("id", SEQ_BITS).alias("base"),
        "state",
        f.timestamp_millis("since_ms").alias("since"),
    ).select((f.col("base") + f.col("seq")).alias("number"), "state", "since")


def census(steps: DataFrame) -> DataFrame:
    """A few rows: events by stream, kind and whose they are, and the first known of each.

    `exchange` is that of publishes alone.
    """
    exchange = f.when(f.col("event") == PUBLISHED, f.col("exchange"))
    keys = ("stream", "event", whose().alias("id"), exchange.alias("exchange"))
    return steps.groupBy(*keys).agg(
        f.count("*").alias("events"),
        f.mode("queue").alias("queue"),
        f.min(place()).alias("first"),
        f.unix_millis(f.min("time")).alias("first_ms"),
    )


def copies(steps: DataFrame, present: DataFrame) -> DataFrame:
    """One row for each copy: what its events say, and where it is."""
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
        f.count_if(event.isin(*SETTLING)).alias("settled"),
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


def judged(found: DataFrame, queues: DataFrame) -> DataFrame:
    """The copies of these queues whose whole life is known.

    The number of a transient message that a restart has lost is given to another one: what came
    more than once, and was kept no more than once, is not judged.
    """
    known = found.withColumn("id", whose()).join(f.broadcast(queues), "id")
    is_reused = (f.col("came") > 1) & (f.col("came_kept") <= 1)
    return known.where((place() >= f.col("floor")) & ~is_reused)


def without_lost_transient(found: DataFrame) -> DataFrame:
    """Without messages that were not persistent and are gone: a restart may lose them."""
    is_gone = (f.col("ended") == 0) & (f.col("present") == 0)
    return found.where(~(is_gone & f.coalesce("is_transient", f.lit(False))))


def copy_faults(found: DataFrame, now_ms: int, stuck_after_s: float | None) -> DataFrame:
    """What is wrong with copies: kind, what, queue, broker_id, message_id, state."""
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
    """What came to each queue, what became of it, and the difference, which should be 0."""
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
        f.count_if(_is_held_by_the_gone()).alias("held"),
    )
    sums = sums.withColumn("unacked", f.col("unacked") + f.col("held")).drop("held")
    out = sum((f.col(name.replace("-", "_")) for name in (*FINAL, *STATES)), f.lit(0))
    return sums.withColumn("balance", f.col("queued") - out).orderBy("queue")


def traces(faults: DataFrame, steps: DataFrame) -> DataFrame:
    """Faults with the events of their copy or publish, and of what these brought, in order."""
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


def _is_held_by_the_gone() -> Column:
    """In flight when its queue was deleted: who holds it may still ack it, and nobody can look."""
    is_open = (f.col("ended") == 0) & (f.col("present") == 0)
    return is_open & ~f.col("is_there") & (f.col("last_event") == DELIVERED)


def _verdict(now_ms: int, stuck_after_s: float | None) -> Column:
    """The first thing that is wrong with a copy; null where nothing is."""
    col = f.col
    has_ended, is_present = col("ended") > 0, col("present") > 0
    is_misplaced = (col("queue_low") != col("queue")) | (col("queue_high") != col("queue"))
    other = f.when(col("queue_low") != col("queue"), col("queue_low")).otherwise(col("queue_high"))
    transient = f.when(col("is_transient"), f.lit("; it was transient")).otherwise(f.lit(""))
    verdict = (
        f.when(is_misplaced, _is(INVENTED, "has an event of queue ", other))
        .when(
            col("came") == 0,
            f.when(is_present, _is(INVENTED, "is there, and never came")).otherwise(
                _is(INVENTED, "has events, and never came")
            ),
        )
        .when(col("came") > 1, _is(DUPLICATED, "came more than once"))
        .when(col("ended") > 1, _is(DUPLICATED, "ended more than once"))
        .when(
            has_ended & is_present,
            _is(DUPLICATED, "has ended, and is there: ", col("last_event")),
        )
        .when(col("present") > 1, _is(DUPLICATED, "is there more than once"))
        .when(
            col("is_ordered") & (col("first_offset") < col("came_offset")),
            _is(INVENTED, "has an event before it came"),
        )
        .when(
            col("is_ordered") & (col("last_offset") > col("end_offset")),
            _is(DUPLICATED, "has an event after its end: ", col("last_event")),
        )
        .when(
            (col("settled") > 0) & (col("delivered") == 0),
            _is(INVENTED, "was settled, and never delivered"),
        )
        .when(
            ~has_ended & ~is_present & ~_is_held_by_the_gone(),
            _is(LOST, "came, did not end, and is not there", transient),
        )
        .when(col("state") == "damaged", _is(LOST, "cannot be read: the log is damaged"))
    )
    if stuck_after_s is None:
        return verdict
    since = f.when(col("state") == "unacked", col("since"))
    waited_ms = f.lit(now_ms) - f.unix_millis(f.coalesce(since, col("last_time")))
    is_late = col("state").isin(*_WAITING) & (waited_ms > stuck_after_s * 1000)
    seconds = f.format_string("%.0f s", waited_ms / 1000.0)
    return verdict.when(is_late, _is(STUCK, "is ", col("state"), f.lit(" since "), seconds))


def _is(kind: str, what: str, *more: Column) -> Column:
    text = f.concat(f.lit(what), *more)
    return f.struct(f.lit(kind).alias("kind"), text.alias("what"))
