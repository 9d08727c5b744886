"""Collect the rows of a report as JSON values."""

from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from pyspark.sql.types import TimestampType


def collect_rows(frame: DataFrame) -> list[dict[str, Any]]:
    """Return all rows of a small frame, with times as UTC text.

    Spark converts the times: datetimes that it returns to Python are in local time.
    """
    columns = [
        f.col(field.name).cast("string").alias(field.name)
        if isinstance(field.dataType, TimestampType)
        else f.col(field.name)
        for field in frame.schema.fields
    ]
    return [row.asDict() for row in frame.select(*columns).collect()]
