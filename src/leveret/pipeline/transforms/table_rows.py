"""Turn the rows of any table into messages or jobs."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql.types import StringType

from leveret.errors import ConfigError
from pyspark_leveret.messages import NOT_WRITTEN
from pyspark_leveret.schema import TYPES


def rows_as_messages(frame: DataFrame, key_column: str | None = None) -> DataFrame:
    """Return the messages of a table with a column `body`; turn other rows into JSON objects."""
    if key_column is not None and key_column not in frame.columns:
        raise ConfigError(f"no column '{key_column}': there are {', '.join(frame.columns)}")
    key = [f.col(key_column).cast("string").alias("routing_key")] if key_column else []
    if "body" in frame.columns:
        skipped = (*NOT_WRITTEN, *(["routing_key"] if key else []))
        others = [name for name in frame.columns if name not in skipped]
        return frame.select(*[_property(frame, name) for name in others], *key)
    body = f.to_json(f.struct(*[f.col(f"`{name}`") for name in frame.columns]))
    kind = f.lit("application/json").alias("content_type")
    return frame.select(body.alias("body"), kind, *key)


def skipped_columns(frame: DataFrame) -> tuple[str, ...]:
    """Return the columns of a table of messages that are not published."""
    is_messages = "body" in frame.columns
    return tuple(name for name in frame.columns if is_messages and name in NOT_WRITTEN)


def _property(frame: DataFrame, name: str) -> Column:
    """Return a column of a table of messages. A CSV file has text for numbers and times too."""
    is_text = isinstance(frame.schema[name].dataType, StringType)
    kind = TYPES.get(name, "")
    is_cast = is_text and kind in ("int", "timestamp")
    return f.col(f"`{name}`").cast(kind).alias(name) if is_cast else f.col(f"`{name}`")


def rows_as_jobs(frame: DataFrame, key: str) -> DataFrame:
    """Return each row as a job, with an idempotency key of `key` and the row's number.

    A table with a column `body` may have the columns `priority`, `deliver_after` and `fair_key`.
    The rows of other tables become JSON objects.
    """
    numbered = f.concat_ws("/", f.lit(key), f.monotonically_increasing_id().cast("string"))
    kinds = {"priority": "int", "deliver_after": "timestamp", "fair_key": "string"}
    if "body" not in frame.columns:
        frame, kinds = rows_as_messages(frame), dict.fromkeys(kinds, "")
    given = {
        name: f.col(name).cast(kind) if kind and name in frame.columns else f.lit(None)
        for name, kind in kinds.items()
    }
    return frame.select(
        f.col("body").cast("binary").alias("payload"),
        given["priority"].cast("int").alias("priority"),
        f.unix_millis(given["deliver_after"].cast("timestamp")).alias("deliver_after_ms"),
        given["fair_key"].cast("string").alias("fair_key"),
        numbered.alias("key"),
    )
