"""Batch reads of streams: columns, ranges, partitions, errors."""

from datetime import UTC, datetime
from typing import Any

import pika
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.functions import col

from leveret.testing.ports import free_port
from pyspark_leveret.schema import TYPES
from tests.spark.lake import Served, batch


def offsets(frame: Any) -> list[int]:
    return sorted(row.offset for row in frame.select("offset").collect())


def test_all_columns_have_their_types_and_values(spark: SparkSession, served: Served) -> None:
    with served.channel() as opened:
        opened.exchange_declare("ex", "topic")
        opened.queue_declare("s", durable=True, arguments={"x-queue-type": "stream"})
        opened.queue_bind("s", "ex", "#")
        properties = pika.BasicProperties(
            content_type="text/plain",
            content_encoding="utf-8",
            headers={"n": 7, "who": "me", "x-death": [{"queue": "q", "reason": "expired"}]},
            delivery_mode=2,
            priority=3,
            correlation_id="c",
            reply_to="r",
            expiration="60000",
            message_id="m",
            timestamp=1_700_000_000,
            type="t",
            user_id="guest",
            app_id="a",
        )
        opened.basic_publish("ex", "a.b", b"hello", properties)
        opened.basic_publish("ex", "c", b"")
    frame = batch(spark, served, stream="s")
    assert {f.name: f.dataType.simpleString() for f in frame.schema.fields} == TYPES
    rows = frame.orderBy("offset").collect()
    first = rows[0].asDict(recursive=True)
    assert first["stream"] == "s"
    assert (first["exchange"], first["routing_key"], first["body"]) == ("ex", "a.b", b"hello")
    assert first["headers"]["n"] == "7" and first["headers"]["who"] == "me"
    assert first["x_death"][0]["queue"] == "q" and first["x_death"][0]["reason"] == "expired"
    moment = first["message_timestamp"].replace(tzinfo=UTC)
    assert moment == datetime.fromtimestamp(1_700_000_000, UTC)
    texts = ("content_type", "content_encoding", "correlation_id", "reply_to", "expiration")
    assert [first[n] for n in texts] == ["text/plain", "utf-8", "c", "r", "60000"]
    assert [first[n] for n in ("message_id", "type", "user_id", "app_id")] == [
        *("m", "t", "guest", "a")
    ]
    assert (first["delivery_mode"], first["priority"]) == (2, 3)
    assert first["properties"][:2] == b"\x00\x3c"
    second = rows[1].asDict()
    assert second["message_id"] is None and second["headers"] is None and second["body"] == b""
    assert first["broker_id"] + 1 == second["broker_id"]


@pytest.mark.parametrize("is_direct", [False, True])
def test_ranges_and_partitions(spark: SparkSession, served: Served, is_direct: bool) -> None:
    served.fill("s", 0, 100)
    where: dict[str, object] = {"dataDir": served.folder} if is_direct else {}
    schema = "offset bigint, body binary"
    frame = batch(spark, served, schema, stream="s", minPartitions=3, **where)
    assert frame.rdd.getNumPartitions() == 3
    rows = frame.collect()
    assert sorted((r.offset, int(r.body)) for r in rows) == [(n, n) for n in range(100)]
    part = batch(spark, served, stream="s", startingOffsets=10, endingOffsets=12, **where)
    assert offsets(part) == [10, 11]
    part = batch(spark, served, stream="s", startingOffsets='{"s": 97}', **where)
    assert offsets(part) == [97, 98, 99]
    assert offsets(batch(spark, served, stream="s", startingOffsets="latest", **where)) == []


@pytest.mark.parametrize("by", ["schema", "option"])
def test_caller_prunes_and_orders_the_columns(spark: SparkSession, served: Served, by: str) -> None:
    served.fill("s", 0, 3)
    if by == "schema":
        frame = batch(spark, served, "routing_key string, offset bigint", stream="s")
    else:
        frame = batch(spark, served, stream="s", columns="routing_key, offset")
    assert frame.columns == ["routing_key", "offset"]
    assert [tuple(row) for row in frame.orderBy("offset").collect()] == [
        *(("s", 0), ("s", 1), ("s", 2))
    ]


def test_node_that_does_not_run_is_passed_over(spark: SparkSession, served: Served) -> None:
    served.fill("s", 0, 10)
    url = f"http://guest:guest@127.0.0.1:{free_port()},{served.http}"
    frame = batch(spark, served, stream="s", url=url, columns="offset", minPartitions=2)
    assert offsets(frame) == list(range(10))


def test_time_finds_the_first_offset(spark: SparkSession, served: Served) -> None:
    served.fill("s", 0, 3)
    newest = batch(spark, served, stream="s").agg({"timestamp": "max"}).collect()[0][0]
    after = newest.replace(tzinfo=UTC).timestamp() * 1000 + 1
    later = batch(spark, served, stream="s", startingTimestamp=int(after))
    assert offsets(later) == []
    earlier = batch(spark, served, stream="s", startingTimestamp="2020-01-01T00:00:00")
    assert offsets(earlier) == [0, 1, 2]
    before = batch(spark, served, stream="s", endingTimestamp="2020-01-01T00:00:00")
    assert offsets(before) == []


def test_filters_narrow_the_range(spark: SparkSession, served: Served) -> None:
    served.fill("s", 0, 100)
    frame = batch(spark, served, stream="s", pushFilters="true", maxRecordsPerPartition=10)
    assert offsets(frame) == list(range(100))
    few = frame.where((col("offset") >= 20) & (col("offset") < 35))
    assert few.rdd.getNumPartitions() == 2
    assert offsets(few) == list(range(20, 35))


def test_super_stream_is_read_as_its_partitions(spark: SparkSession, served: Served) -> None:
    with served.channel() as opened:
        opened.exchange_declare(
            "orders", "x-super-stream", durable=True, arguments={"x-partitions": 3}
        )
        for number in range(30):
            opened.basic_publish("orders", f"key-{number}", b"%d" % number)
    frame = batch(spark, served, "stream string, body binary", stream="orders")
    rows = frame.collect()
    assert sorted(int(row.body) for row in rows) == list(range(30))
    assert {row.stream for row in rows} == {"orders-0", "orders-1", "orders-2"}


def test_lost_offsets_are_an_error_unless_told_otherwise(
    spark: SparkSession, served: Served
) -> None:
    served.fill("s", 0, 1, max_length_bytes=1000, stream_max_segment_size_bytes=1000)
    with served.channel() as opened:
        for number in range(1, 200):
            opened.basic_publish("", "s", b"%d" % number)
    with pytest.raises(PySparkException, match="retention has deleted them"):
        batch(spark, served, stream="s", startingOffsets=0).collect()
    found = offsets(batch(spark, served, stream="s", startingOffsets=0, failOnDataLoss="false"))
    assert found[-1] == 199 and found[0] > 0


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"stream": "nothing"}, "there is no stream 'nothing' in vhost '/'"),
        ({"stream": "s", "startingOffset": "5"}, "did you mean 'startingOffsets'"),
        ({"stream": "s", "vhost": "elsewhere"}, "may not read the stream 's' in vhost 'elsewhere'"),
        ({"stream": "s", "dataDir": "/nowhere"}, "is not a directory"),
    ],
)
def test_errors_reach_the_author_of_a_query(
    spark: SparkSession, served: Served, options: dict[str, str], text: str
) -> None:
    served.fill("s", 0, 1)
    with pytest.raises(PySparkException, match=text):
        batch(spark, served, **options).collect()


def test_wrong_password_is_refused_at_once(spark: SparkSession, served: Served) -> None:
    url = served.http.replace("guest:guest", "guest:wrong")
    frame = spark.read.format("leveret").option("url", url).option("stream", "s")
    with pytest.raises(PySparkException, match="the broker says 401"):
        frame.load().collect()
