"""CloudEvents (https://cloudevents.io): their attributes as a column, and their data as the body.

In the structured mode the body is a JSON object with attributes and data. In the binary mode the
body is the data, and headers hold the attributes, as the AMQP binding names them.
"""

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

ATTRIBUTES: Final = (
    "specversion",
    "id",
    "source",
    "type",
    "subject",
    "time",
    "dataschema",
    "datacontenttype",
)
STRUCTURED: Final = "application/cloudevents+json"
# The binding of AMQP 1.0 writes `cloudEvents:id`; clients of AMQP 0-9-1 and of HTTP use the others.
_PREFIXES: Final = ("cloudEvents:", "cloudEvents_", "ce-", "ce_")
_ENVELOPE: Final = ", ".join(f"`{name}` string" for name in (*ATTRIBUTES, "data", "data_base64"))


def with_cloud_event(frame: DataFrame) -> DataFrame:
    """Add `event`: the attributes, or null. The text of a structured event becomes its data."""
    media = f.lower(f.trim(f.substring_index("content_type", ";", 1)))
    found = frame.withColumn("_envelope", f.when(media == STRUCTURED, _envelope()))
    is_structured = f.col("_envelope.specversion").isNotNull()
    inner_type = f.lower(f.col("_envelope.datacontenttype"))
    data = f.coalesce("_envelope.data", f.unbase64("_envelope.data_base64").cast("string"))
    kind = f.when(is_structured & inner_type.startswith("text/"), f.lit("text"))
    return (
        found.withColumn("event", f.when(is_structured, _structured()).otherwise(_binary()))
        .withColumn("text", f.when(is_structured, data).otherwise(f.col("text")))
        .withColumn("kind", f.coalesce(kind, "kind"))
        .drop("_envelope")
    )


def _envelope() -> Column:
    """Return the envelope; a nested value, such as the data, is kept as its JSON text."""
    return f.from_json("text", _ENVELOPE)


def _structured() -> Column:
    return f.struct(*[f.col(f"_envelope.{name}").alias(name) for name in ATTRIBUTES])


def _binary() -> Column:
    """Return the attributes that headers hold; null if they lack the version of CloudEvents."""
    values = {name: _header(name) for name in ATTRIBUTES if name != "datacontenttype"}
    values["datacontenttype"] = f.col("content_type")
    found = f.struct(*[values[name].alias(name) for name in ATTRIBUTES])
    return f.when(values["specversion"].isNotNull(), found)


def _header(name: str) -> Column:
    return f.coalesce(*[f.try_element_at("headers", f.lit(f"{p}{name}")) for p in _PREFIXES])
