"""Decode bodies of JSON, text, Avro and Protobuf by content type, and separate the bad ones.

Bodies with the content encoding gzip or zstd are unpacked first. Other content types and content
encodings stay in bronze only.
"""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql.types import StringType, StructField, StructType

from leveret.pipeline.payload_codecs import ENCODINGS, Codec, unpack
from leveret.pipeline.transforms.cloud_events import with_cloud_event

JSON: Final = "json"
TEXT: Final = "text"
BINARY: Final = "binary"
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
_DECODED: Final = "struct<value:binary,fault:string>"


def decodable(
    frame: DataFrame, codec: Codec | None = None, *, has_packed: bool = False
) -> DataFrame:
    """Return the messages that can be decoded, with `kind`, `text`, `early_fault` and `event`.

    `text` is the JSON or the plain text of a body; it is null if `early_fault` has a reason.
    `event` has the attributes of a CloudEvent. A codec decodes binary bodies. `has_packed` says
    that some bodies are compressed: these go through Python.
    """
    taken = frame.withColumn("kind", _kind(codec)).where("kind is not null")
    whole = taken.where(_is_plain()).withColumn("content", f.col("body"))
    whole = whole.withColumn("early_fault", f.lit(None).cast("string"))
    if has_packed:
        whole = whole.unionByName(_unpacked(taken.where(is_packed())))
    texts = _with_text(whole.where(f.col("kind") != BINARY))
    if codec is not None:
        texts = texts.unionByName(_with_json(whole.where(f.col("kind") == BINARY), codec))
    return with_cloud_event(texts.drop("content"))


def is_packed() -> Column:
    """Return True for messages whose bodies are compressed in a known way."""
    return f.lower(f.trim("content_encoding")).isin(list(ENCODINGS))


def _is_plain() -> Column:
    # utf-8 is not a content encoding, but a common mistake.
    known = ["", "identity", "utf-8", "utf8"]
    return f.col("content_encoding").isNull() | f.lower("content_encoding").isin(known)


def _kind(codec: Codec | None) -> Column:
    """Return the kind of a body by its content type; null if it stays in bronze only."""
    kind = f.lower(f.trim(f.substring_index("content_type", ";", 1)))
    is_json = (kind == "application/json") | kind.endswith("+json")
    found = f.when(is_json, JSON).when(kind.startswith("text/"), TEXT)
    if codec is None:
        return found
    is_unnamed = kind.isNull() | kind.isin("", "application/octet-stream")
    return found.when(is_unnamed | kind.contains(codec.kind), BINARY)


def _unpacked(frame: DataFrame) -> DataFrame:
    """Add the unpacked `content` of compressed bodies, and a fault if they are damaged."""
    found = frame.withColumn(
        "_unpacked",
        f.arrow_udf(_unpack_all, _DECODED)(  # type: ignore[attr-defined]
            "body", "content_encoding"
        ),
    )
    return found.select(
        *frame.columns,
        f.col("_unpacked.value").alias("content"),
        f.col("_unpacked.fault").alias("early_fault"),
    )


def _with_text(frame: DataFrame) -> DataFrame:
    words = f.col("content").cast("string")
    return frame.withColumn("text", f.when(f.is_valid_utf8(words), words))


def _with_json(frame: DataFrame, codec: Codec) -> DataFrame:
    """Decode binary bodies into JSON objects by a codec."""

    def decode_all(bodies: pa.Array) -> pa.Array:
        return _results(partial(_encoded, codec, body) for body in bodies.to_pylist())

    decode = f.arrow_udf(decode_all, _DECODED)  # type: ignore[attr-defined]
    found = frame.withColumn("_decoded", decode("content"))
    return found.select(
        *[name for name in frame.columns if name not in ("kind", "early_fault")],
        f.lit(JSON).alias("kind"),
        f.coalesce("early_fault", "_decoded.fault").alias("early_fault"),
        f.col("_decoded.value").cast("string").alias("text"),
    )


def _unpack_all(bodies: pa.Array, encodings: pa.Array) -> pa.Array:
    pairs = zip(bodies.to_pylist(), encodings.to_pylist(), strict=True)
    return _results(partial(unpack, body or b"", encoding) for body, encoding in pairs)


def _encoded(codec: Codec, body: bytes | None) -> bytes:
    return codec.text(body or b"").encode()


def _results(calls: Iterable[Callable[[], bytes]]) -> pa.Array:
    """Return the value of each call, or the text of its ValueError."""
    values: list[bytes | None] = []
    faults: list[str | None] = []
    for call in calls:
        value, fault = None, None
        try:
            value = call()
        except ValueError as error:
            fault = str(error)
        values.append(value)
        faults.append(fault)
    columns = [pa.array(values, pa.binary()), pa.array(faults, pa.string())]
    return pa.StructArray.from_arrays(columns, ["value", "fault"])


def decoded(frame: DataFrame, schema: StructType, left_out: Iterable[str] = ()) -> DataFrame:
    """Add to `decodable` messages their JSON `payload`, and `fault`: null if they are good.

    A message with a field that the schema leaves out, because of its name, is bad.
    """
    wanted = StructType([*schema.fields, StructField(_CORRUPT, StringType())])
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}
    parsed = f.when(f.col("kind") == JSON, f.from_json("text", wanted, options))
    found = frame.withColumn("payload", parsed)
    is_object = f.ltrim(f.col("text")).startswith("{")
    fault = (
        f.when(f.col("early_fault").isNotNull(), f.col("early_fault"))
        .when(f.col("text").isNull(), "not UTF-8")
        .when((f.col("kind") == JSON) & ~is_object, "not a JSON object")
        .when(f.col(f"payload.{_CORRUPT}").isNotNull(), "not JSON of this schema")
    )
    if names := [f.lit(name) for name in left_out]:
        found_names = f.json_object_keys("text")
        is_left_out = (f.col("kind") == JSON) & f.arrays_overlap(found_names, f.array(*names))
        fault = fault.when(is_left_out, "a field name differs from another only in case")
    return found.withColumn("fault", fault)


def good(frame: DataFrame, schema: StructType) -> DataFrame:
    """Return the good messages of `decoded` with the columns of silver."""
    fields = [f.col("payload").getField(name).alias(name) for name in schema.names]
    payload = f.when(f.col("kind") == JSON, f.struct(*fields)) if fields else f.lit(None)
    text = f.when(f.col("kind") == TEXT, f.col("text"))
    kept = frame.where("fault is null").withColumn("value", payload).withColumn("words", text)
    columns = [*[f.col(name) for name in KEPT], f.col("event")]
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
