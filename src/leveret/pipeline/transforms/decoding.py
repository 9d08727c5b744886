"""Decode bodies of JSON and text by their content type, and separate the bad ones.

Other content types, and bodies with a content encoding such as gzip, stay in bronze only.
"""

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from pyspark.sql.types import StringType, StructField, StructType

JSON: Final = "json"
TEXT: Final = "text"
# The columns of silver besides the decoded value.
KEPT: Final = (
    "stream",
    "date",
    "offset",
    "timestamp",
    "exchange",
    "routing_key",
    "content_type",
    "headers",
    "message_id",
    "correlation_id",
    "type",
    "app_id",
)
_CORRUPT: Final = "_corrupt"


def decodable(frame: DataFrame) -> DataFrame:
    """Return JSON and text messages with `kind` and `text`, which is null if not UTF-8."""
    kind = f.lower(f.trim(f.substring_index("content_type", ";", 1)))
    is_json = (kind == "application/json") | kind.endswith("+json")
    named = f.when(is_json, JSON).when(kind.startswith("text/"), TEXT)
    is_plain = f.col("content_encoding").isNull() | f.lower("content_encoding").isin(
        "",
        "identity",
        "utf-8",
        "utf8",  # the last two are a common mistake
    )
    decoded = f.when(f.is_valid_utf8(f.col("body").cast("string")), f.col("body").cast("string"))
    taken = frame.where(is_plain).withColumn("kind", named).where("kind is not null")
    return taken.withColumn("text", decoded)


def decoded(frame: DataFrame, schema: StructType) -> DataFrame:
    """Add to `decodable` messages their JSON `payload`, and `fault`: null if they are good."""
    wanted = StructType([*schema.fields, StructField(_CORRUPT, StringType())])
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}
    parsed = f.when(f.col("kind") == JSON, f.from_json("text", wanted, options))
    found = frame.withColumn("payload", parsed)
    is_object = f.ltrim(f.col("text")).startswith("{")
    fault = (
        f.when(f.col("text").isNull(), "not UTF-8")
        .when((f.col("kind") == JSON) & ~is_object, "not a JSON object")
        .when(f.col(f"payload.{_CORRUPT}").isNotNull(), "not JSON of this schema")
    )
    return found.withColumn("fault", fault)


def good(frame: DataFrame, schema: StructType) -> DataFrame:
    """Return the good messages of `decoded` with the columns of silver."""
    fields = [f.col(f"payload.`{name}`").alias(name) for name in schema.names]
    payload = f.when(f.col("kind") == JSON, f.struct(*fields)) if fields else f.lit(None)
    text = f.when(f.col("kind") == TEXT, f.col("text"))
    kept = frame.where("fault is null").withColumn("value", payload).withColumn("words", text)
    columns = [f.col(name) for name in KEPT]
    values = [f.col("value").alias("payload")] if fields else []
    return kept.select(*columns, *values, f.col("words").alias("text"))


def bad(frame: DataFrame) -> DataFrame:
    """Return the bad messages of `decoded`, with body and fault."""
    return frame.where("fault is not null").select(*KEPT, "fault", "body")


def count_by_hour(frame: DataFrame) -> DataFrame:
    """Count messages and bytes by stream, routing key and hour."""
    hour = f.date_trunc("hour", "timestamp").alias("hour")
    return frame.groupBy("stream", "date", "routing_key", hour).agg(
        f.count("*").alias("messages"),
        f.sum(f.length("body")).alias("bytes"),
        f.min("offset").alias("first_offset"),
        f.max("offset").alias("last_offset"),
    )
