"""Turn the rows of any table into messages or jobs."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from leveret.errors import ConfigError


def rows_as_messages(frame: DataFrame, key_column: str | None = None) -> DataFrame:
    """Return a table with a column `body` as it is; turn other rows into JSON objects."""
    if key_column is not None and key_column not in frame.columns:
        raise ConfigError(f"no column '{key_column}': there are {', '.join(frame.columns)}")
    key = [f.col(key_column).cast("string").alias("routing_key")] if key_column else []
    if "body" in frame.columns:
        others = [f.col(name) for name in frame.columns if not (key and name == "routing_key")]
        return frame.select(*others, *key)
    body = f.to_json(f.struct(*[f.col(f"`{name}`") for name in frame.columns]))
    kind = f.lit("application/json").alias("content_type")
    return frame.select(body.alias("body"), kind, *key)


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
