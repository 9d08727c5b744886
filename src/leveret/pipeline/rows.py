"""Rows of a report as JSON has them: times as text in UTC, everything else as it is."""

from datetime import UTC, datetime
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from pyspark.sql.types import TimestampType

Row = dict[str, Any]


def rows_of(frame: DataFrame) -> list[Row]:
    """All rows of a small frame. Times are made text by Spark: Python's would be in local time."""
    columns = [
        f.col(field.name).cast("string").alias(field.name)
        if isinstance(field.dataType, TimestampType)
        else f.col(field.name)
        for field in frame.schema.fields
    ]
    return [row.asDict() for row in frame.select(*columns).collect()]


def seconds_of(text: str) -> float:
    """The seconds since 1970 of such a text."""
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()
