"""Rows of a report as JSON has them: times as text in UTC, everything else as it is."""

from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from pyspark.sql.types import TimestampType


def rows_of(frame: DataFrame) -> list[dict[str, Any]]:
    """All rows of a small frame. Times are made text by Spark: Python's would be in local time."""
    columns = [
        f.col(field.name).cast("string").alias(field.name)
        if isinstance(field.dataType, TimestampType)
        else f.col(field.name)
        for field in frame.schema.fields
    ]
    return [row.asDict() for row in frame.select(*columns).collect()]
