"""From bodies to values: JSON and text, by content type. What cannot be decoded is set apart.

Other content types, and encoded bodies (gzip …), are left alone: they stay in bronze only.
"""

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from pyspark.sql.types import StringType, StructField, StructType

JSON: Final = "json"
TEXT: Final = "text"
# What silver keeps of a message besides its value.
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


def readable(frame: DataFrame) -> DataFrame:
    """Messages that silver takes, with `kind` (json or text) and `text`: null if not UTF-8."""
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
    """What `readable` gives, with `payload` (of the schema, for JSON) and `fault`: null if good."""
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
    """The messages of `decoded` that silver keeps."""
    fields = [f.col(f"payload.`{name}`").alias(name) for name in schema.names]
    payload = f.when(f.col("kind") == JSON, f.struct(*fields)) if fields else f.lit(None)
    text = f.when(f.col("kind") == TEXT, f.col("text"))
    kept = frame.where("fault is null").withColumn("value", payload).withColumn("words", text)
    columns = [f.col(name) for name in KEPT]
    values = [f.col("value").alias("payload")] if fields else []
    return kept.select(*columns, *values, f.col("words").alias("text"))


def bad(frame: DataFrame) -> DataFrame:
    """The messages of `decoded` that are set apart, with their bodies and why."""
    return frame.where("fault is not null").select(*KEPT, "fault", "body")


def hourly(frame: DataFrame) -> DataFrame:
    """Messages and bytes by stream, routing key and hour."""
    hour = f.date_trunc("hour", "timestamp").alias("hour")
    return frame.groupBy("stream", "date", "routing_key", hour).agg(
        f.count("*").alias("messages"),
        f.sum(f.length("body")).alias("bytes"),
        f.min("offset").alias("first_offset"),
        f.max("offset").alias("last_offset"),
    )
