"""Transforms of flows, on small tables."""

import gzip
import io
import json
import re
from datetime import UTC, datetime

import fastavro
import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.types import ArrayType, DataType, LongType, StructField, StructType

from leveret.pipeline.avro_codec import AvroCodec
from leveret.pipeline.transforms.decoding import bad, count_by_hour, decodable, decoded, good
from leveret.pipeline.transforms.messages import BRONZE_SCHEMA, filter_messages, topic_regex
from leveret.pipeline.transforms.replaying import prepare_replay
from leveret.pipeline.transforms.schemas import (
    SCHEMA_DEPTH_MAX,
    merge_schemas,
    only_adds_fields,
    parse_schema,
    writable,
)
from leveret.pipeline.transforms.table_rows import rows_as_messages
from leveret.wire.properties import Properties, decode_properties, encode_header
from leveret.wire.tables import plain_table, table_of
from pyspark_leveret.schema import TYPES

NAMES = (*TYPES, "date")
AVRO_SCHEMA = {
    "type": "record",
    "name": "Row",
    "fields": [{"name": "a", "type": "long"}, {"name": "b", "type": ["null", "string"]}],
}


def messages(spark: SparkSession, *given: dict[str, object]) -> DataFrame:
    """Messages with these columns, the others null."""
    at = datetime(2026, 3, 1, 12, tzinfo=UTC)
    always = {"stream": "s", "timestamp": at, "date": at.date(), "routing_key": "k", "body": b""}
    rows = []
    for number, one in enumerate(given):
        row = {**dict.fromkeys(NAMES), **always, "offset": number, **one}
        rows.append(tuple(row[name] for name in NAMES))
    return spark.createDataFrame(rows, BRONZE_SCHEMA)


def json_message(body: bytes) -> dict[str, object]:
    return {"content_type": "application/json", "body": body}


@pytest.mark.parametrize(
    ("pattern", "fits", "does_not"),
    [
        ("a.b", "a.b", "a.bc"),
        ("a.*", "a.x", "a.x.y"),
        ("a.#", "a", "ab"),
        ("a.#", "a.b.c", "b.a"),
        ("#.z", "z", "zz"),
        ("a.#.z", "a.z", "a.b"),
        ("a+", "a+", "aa"),
    ],
)
def test_topic_patterns(pattern: str, fits: str, does_not: str) -> None:
    found = re.compile(topic_regex(pattern))
    assert found.match(f"{fits}.") and not found.match(f"{does_not}.")


def test_messages_are_filtered_by_time_key_and_condition(spark: SparkSession) -> None:
    frame = messages(
        spark,
        {"routing_key": "o.new"},
        {"routing_key": "o.new", "timestamp": datetime(2026, 3, 2, tzinfo=UTC)},
        {"routing_key": "p.new"},
        {"routing_key": "o.old", "body": b"x"},
    )
    found = filter_messages(
        frame, since="2026-03-01", until="2026-03-02", key="o.*", where="body <> 'x'"
    )
    assert [row.offset for row in found.collect()] == [0]


def test_bodies_are_decoded_by_content_type_and_bad_ones_separated(spark: SparkSession) -> None:
    frame = messages(
        spark,
        json_message(b'{"a": 1, "b": "x"}'),
        json_message(b"{broken"),
        json_message(b"[1, 2]"),
        json_message(b'{"a": "not a number"}'),
        json_message(b"\xff\xfe"),
        {"content_type": "text/plain; charset=utf-8", "body": "grüße".encode()},
        {"content_type": "image/png", "body": b"left alone"},
        {**json_message(b"zipped"), "content_encoding": "gzip"},
        {"content_type": "application/vnd.order+json", "body": b'{"a": 7}'},
    )
    schema = parse_schema("a bigint, b string")
    found = decoded(decodable(frame), schema)
    rows = {row.offset: row for row in good(found, schema).collect()}
    assert rows[0].payload == Row(a=1, b="x") and rows[0].text is None
    assert rows[5].text == "grüße" and rows[5].payload is None
    assert rows[8].payload == Row(a=7, b=None)
    assert set(rows) == {0, 5, 8}
    faults = {row.offset: row.fault for row in bad(found).collect()}
    assert faults == {
        1: "not JSON of this schema",
        2: "not a JSON object",
        3: "not JSON of this schema",
        4: "not UTF-8",
    }


def test_compressed_avro_and_cloud_event_bodies_become_columns(spark: SparkSession) -> None:
    codec = AvroCodec(json.dumps(AVRO_SCHEMA))
    avro = io.BytesIO()
    fastavro.schemaless_writer(avro, fastavro.parse_schema(AVRO_SCHEMA), {"a": 9, "b": "avro"})
    event = {"specversion": "1.0", "id": "e1", "source": "/shop", "type": "sold"}
    structured = {"content_type": "application/cloudevents+json; charset=utf-8"}
    headers = {f"cloudEvents:{name}": value for name, value in event.items()}
    whole = json.dumps({**event, "subject": "s", "data": {"a": 3, "b": "in"}}).encode()
    frame = messages(
        spark,
        {**json_message(gzip.compress(b'{"a": 1}')), "content_encoding": "gzip"},
        {**json_message(b"not packed"), "content_encoding": "gzip"},
        {"content_type": "avro/binary", "body": avro.getvalue()},
        {"content_type": "avro/binary", "body": gzip.compress(avro.getvalue())[:8]},
        {**structured, "body": whole},
        {**json_message(b'{"a": 4}'), "headers": headers},
        {**structured, "body": json.dumps({**event, "data_base64": "eyJhIjogNX0="}).encode()},
        {
            **structured,
            "body": json.dumps({**event, "datacontenttype": "text/plain", "data": "hi"}).encode(),
        },
        {**json_message(b'{"a": 8}'), "content_encoding": "br"},
        {"content_type": "image/png", "body": b"left alone"},
    )
    schema = codec.schema()
    found = decoded(decodable(frame, codec, has_packed=True), schema).cache()
    rows = {row.offset: row for row in good(found, schema).collect()}
    faults = {row.offset: row.fault for row in bad(found).collect()}
    found.unpersist()
    assert {number: row.payload.a for number, row in rows.items() if row.payload} == {
        0: 1,
        2: 9,
        4: 3,
        5: 4,
        6: 5,
    }
    assert rows[2].payload.b == "avro" and rows[7].text == "hi"
    assert faults == {1: "not gzip", 3: "not Avro of this schema"}
    assert {n for n, row in rows.items() if row.event} == {4, 5, 6, 7}
    assert (rows[4].event.id, rows[4].event.subject, rows[5].event.type) == ("e1", "s", "sold")


def test_a_table_without_json_has_no_payload(spark: SparkSession) -> None:
    frame = messages(spark, {"content_type": "text/plain", "body": b"hello"})
    found = good(decoded(decodable(frame), StructType([])), StructType([]))
    assert [row.text for row in found.collect()] == ["hello"]


def test_merged_schema_holds_values_of_both(spark: SparkSession) -> None:
    old = parse_schema("a bigint, b string, c struct<x:bigint>, d array<bigint>")
    new = parse_schema("a double, e boolean, b bigint, c struct<x:bigint,y:string>")
    both = merge_schemas(old, new)
    wanted = "a double, b string, c struct<x:bigint,y:string>, d array<bigint>, e boolean"
    assert both == parse_schema(wanted)
    assert not only_adds_fields(old, both)
    assert only_adds_fields(parse_schema("c struct<x:bigint>"), both)


def test_records_that_are_nested_too_deep_become_text() -> None:
    deep: DataType = LongType()
    for _ in range(SCHEMA_DEPTH_MAX + 1):
        deep = ArrayType(StructType([StructField("x", deep)]))
    found, left_out = writable(StructType([StructField("y", deep)]))
    assert left_out == []
    assert found.simpleString().count("struct<") == SCHEMA_DEPTH_MAX
    assert "x:array<string>" in found.simpleString()


def test_messages_are_counted_by_hour(spark: SparkSession) -> None:
    late = datetime(2026, 3, 1, 13, 59, tzinfo=UTC)
    frame = messages(spark, {"body": b"12"}, {"body": b"345"}, {"timestamp": late})
    found = count_by_hour(frame).orderBy("hour").collect()
    assert [(row.messages, row.bytes, row.last_offset) for row in found] == [(2, 5, 1), (1, 0, 2)]


def test_replayed_messages_say_where_they_came_from(spark: SparkSession) -> None:
    given = Properties()
    given.user_id, given.message_id = "alice", "m"
    given.headers = table_of({"n": 1})
    header = encode_header(given, 3)
    frame = messages(spark, {"properties": header, "body": b"abc"})
    row = prepare_replay(frame, "again").collect()[0]
    found = decode_properties(bytes(row.properties))
    assert found.message_id == "m" and found.user_id is None
    assert plain_table(found.headers or {}) == {
        "n": 1,
        "x-replayed-from": "s",
        "x-replayed-offset": 0,
        "x-replayed-timestamp": "2026-03-01T12:00:00.000Z",
        "x-replay-id": "again",
        "x-replayed-user-id": "alice",
    }
    assert row.replay_key == "again/s/0"


def test_rows_become_messages(spark: SparkSession) -> None:
    plain = spark.sql("select 1 as id, 'x' as kind")
    row = rows_as_messages(plain, "kind").collect()[0]
    assert row.body == '{"id":1,"kind":"x"}' and row.routing_key == "x"
    own = spark.sql("select 'text' as body, 5 as priority")
    assert rows_as_messages(own).collect() == [Row(body="text", priority=5)]
