"""Add dates to messages, and filter them by time, routing key and condition."""

import re
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from pyspark_leveret.schema import DDL

# The columns of the Spark source, and the date (UTC) that bronze is partitioned by.
DATE: Final = "date"
BRONZE_SCHEMA: Final = f"{DDL}, `{DATE}` date"


def with_date(frame: DataFrame) -> DataFrame:
    """Add the date (UTC) on which the broker received a message."""
    return frame.withColumn(DATE, f.to_date("timestamp"))


def filter_messages(
    frame: DataFrame,
    *,
    since: str | None = None,
    until: str | None = None,
    key: str | None = None,
    where: str | None = None,
) -> DataFrame:
    """Keep messages from `since` up to `until` that match a topic pattern and a SQL condition."""
    if since is not None:
        frame = frame.where(f.col("timestamp") >= f.lit(since).cast("timestamp"))
    if until is not None:
        frame = frame.where(f.col("timestamp") < f.lit(until).cast("timestamp"))
    if key is not None:
        words = f.concat("routing_key", f.lit("."))
        frame = frame.where(words.rlike(topic_regex(key)))
    return frame.where(where) if where is not None else frame


def topic_regex(pattern: str) -> str:
    """Return a topic pattern (`*` is a word, `#` any number of words) as a regular expression.

    It matches a key with a dot appended: then every word ends with a dot.
    """
    words = {"*": r"[^.]*\.", "#": r"(?:[^.]*\.)*"}
    found = [words.get(word, re.escape(word) + r"\.") for word in pattern.split(".")]
    return f"^{''.join(found)}$"
