"""Rows of any table as messages."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from leveret.errors import ConfigError


def as_messages(frame: DataFrame, key_column: str | None = None) -> DataFrame:
    """A table with a column `body` as it is; of any other, each row as a JSON object."""
    if key_column is not None and key_column not in frame.columns:
        raise ConfigError(f"no column '{key_column}': there are {', '.join(frame.columns)}")
    key = [f.col(key_column).cast("string").alias("routing_key")] if key_column else []
    if "body" in frame.columns:
        others = [f.col(name) for name in frame.columns if not (key and name == "routing_key")]
        return frame.select(*others, *key)
    body = f.to_json(f.struct(*[f.col(f"`{name}`") for name in frame.columns]))
    kind = f.lit("application/json").alias("content_type")
    return frame.select(body.alias("body"), kind, *key)
