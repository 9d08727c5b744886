"""Messages as the source gives them: their date, and which of them are wanted."""

import re
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from pyspark_leveret.schema import DDL

# A message in bronze: as the source gives it, and the date (UTC) by which it is stored.
BRONZE_SCHEMA: Final = f"{DDL}, `date` date"


def with_date(frame: DataFrame) -> DataFrame:
    """The date (UTC) on which the broker took a message."""
    return frame.withColumn("date", f.to_date("timestamp"))


def chosen(
    frame: DataFrame,
    *,
    since: str | None = None,
    until: str | None = None,
    key: str | None = None,
    where: str | None = None,
) -> DataFrame:
    """Messages from a time up to another, whose key matches a topic pattern, and a condition."""
    if since is not None:
        frame = frame.where(f.col("timestamp") >= f.lit(since).cast("timestamp"))
    if until is not None:
        frame = frame.where(f.col("timestamp") < f.lit(until).cast("timestamp"))
    if key is not None:
        words = f.concat("routing_key", f.lit("."))
        frame = frame.where(words.rlike(topic_expression(key)))
    return frame.where(where) if where is not None else frame


def topic_expression(pattern: str) -> str:
    """A topic pattern (`*` is a word, `#` any number of them) as a regular expression.

    It is for a key with a dot after it: then each word ends with one, and `#` may be none.
    """
    words = {"*": r"[^.]*\.", "#": r"(?:[^.]*\.)*"}
    found = [words.get(word, re.escape(word) + r"\.") for word in pattern.split(".")]
    return f"^{''.join(found)}$"
