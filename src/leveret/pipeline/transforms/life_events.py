"""Life events as a table: one row for each event of each copy or publish.

stream, offset, time    position of the event, and when it happened
event                   the name in docs/remember.md; `placed` is the arrival of a copy that was due
number                  of the copy or publish
queue, reason           of the event
publish_id, cause_id    numbers of the publish or dead letter that caused it, if known
message_id, is_transient, is_replayed, died_in    of `queued` and `published` only
"""

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

PUBLISHED: Final = "published"
ROUTED: Final = "routed"
HELD: Final = "held"
RETURNED: Final = "returned"
UNROUTABLE: Final = "unroutable"
DUPLICATE: Final = "duplicate"
QUEUED: Final = "queued"
DELIVERED: Final = "delivered"
DUE: Final = "due"
PLACED: Final = "placed"
ACKED: Final = "acked"
DEAD_LETTERED: Final = "dead-lettered"

# The last event of a copy.
FINAL: Final = (
    ACKED,
    "dropped",
    "expired",
    DEAD_LETTERED,
    "parked",
    "purged",
    "moved",
    "deleted",
)
SETTLED: Final = (ACKED, "nacked", "rejected", "timed out")  # a delivery must come before
AT_EXCHANGE: Final = (PUBLISHED, ROUTED, HELD, RETURNED, UNROUTABLE)
SEQ_BITS: Final = 40  # low bits of a number: sequence number; high bits: id of the queue or stream

# The columns that an audit reads of a chronicle.
COLUMNS: Final = (
    "stream",
    "offset",
    "timestamp",
    "exchange",
    "headers",
    "delivery_mode",
    "message_id",
    "x_death",
    "body",
)
_PERSISTENT: Final = 2


def life_events(frame: DataFrame) -> DataFrame:
    """Return the events of chronicles; an event of a range of numbers is a row for each number."""
    event = _header("x-event")
    has_message = event.isin(PUBLISHED, QUEUED)
    body = f.when(~has_message, f.col("body").cast("string"))
    first = f.when(has_message, _number("x-broker-id")).otherwise(
        f.split_part(body, f.lit("-"), f.lit(1)).cast("bigint")
    )
    steps = (
        f.when(event == DUE, f.array(_step(first, event), _step(_number("x-next-id"), PLACED)))
        .when(
            body.contains("-"),
            f.transform(
                f.sequence(first, f.split_part(body, f.lit("-"), f.lit(2)).cast("bigint")),
                lambda number: _step(number, event),
            ),
        )
        .otherwise(f.array(_step(first, event)))
    )
    found = frame.where(event.isNotNull()).select(
        "stream",
        "offset",
        f.col("timestamp").alias("time"),
        f.explode(steps).alias("step"),
        f.coalesce(_header("x-queue"), f.lit("")).alias("queue"),
        _header("x-reason").alias("reason"),
        "exchange",
        f.when(has_message, _number("x-publish-id")).alias("publish_id"),
        f.when(has_message, _number("x-cause-id")).alias("cause_id"),
        f.when(has_message, f.col("message_id")).alias("message_id"),
        (has_message & ~f.col("delivery_mode").eqNullSafe(_PERSISTENT)).alias("is_transient"),
        (has_message & _header("x-replayed-from").isNotNull()).alias("is_replayed"),
        f.when(has_message, f.col("x_death.queue")).alias("died_in"),
    )
    return found.select("step.number", "step.event", *[n for n in found.columns if n != "step"])


def owner_id(number: str = "number") -> Column:
    """Return the id of the queue of a copy, or of the stream of a publish."""
    return f.shiftright(number, SEQ_BITS)


def sequence_number(number: str = "number") -> Column:
    """Return the sequence number of a copy in its queue, or of a publish in its stream."""
    return f.col(number).bitwiseAND(f.lit((1 << SEQ_BITS) - 1))


def _header(name: str) -> Column:
    return f.col("headers").getItem(name)


def _number(name: str) -> Column:
    return _header(name).cast("bigint")


def _step(number: Column, event: Column | str) -> Column:
    word = f.lit(event) if isinstance(event, str) else event
    return f.struct(number.alias("number"), word.alias("event"))
