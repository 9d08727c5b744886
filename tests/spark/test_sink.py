"""Tables written to queues, streams and exchanges: every row once, even if tasks fail."""

import os
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pika
import pytest
from pyspark import TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSourceWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from pyspark_leveret import DefaultSource
from pyspark_leveret.options import parse_options
from pyspark_leveret.sink import BatchWriter
from tests.spark.lake import QUERY_WITHIN_S, Served, batch, follow

ROWS = int(os.environ.get("SINK_ROWS", "10000"))  # `make chaos-spark` has 100,000
ONCE = {"x-deduplication": {"size": 1_000_000}}


def write(frame: DataFrame, served: Served, **options: str) -> None:
    writer = frame.write.format("leveret").mode("append").option("url", served.http)
    writer.options(**options).save()


def failing_source(marks: str) -> type[DefaultSource]:
    """A source whose tasks fail once each: half in the middle, half when all rows are confirmed.

    A class inside a function goes to executors as it is, which cannot import this module.
    """

    class FailingWriter(BatchWriter):
        def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
            task = TaskContext.get()
            assert task is not None
            mark = Path(marks) / f"{task.partitionId()}"
            if mark.exists():
                return super().write(iterator)
            mark.touch()
            if task.partitionId() % 2 == 0:
                iterator = islice(iterator, 2)
            super().write(iterator)
            raise RuntimeError("this attempt fails")

    class FailingSource(DefaultSource):
        @classmethod
        def name(cls) -> str:
            return "failing"

        def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
            return FailingWriter(parse_options(self.options), schema)

    return FailingSource


def test_rows_arrive_once_although_every_task_fails_once(
    spark: SparkSession, served: Served, tmp_path: Path
) -> None:
    with served.channel() as opened:
        opened.exchange_declare("ex", "direct", durable=True)
        opened.queue_declare("q", durable=True, arguments=ONCE)
        opened.queue_bind("q", "ex", "rows")
    spark.dataSource.register(failing_source(str(tmp_path)))
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", str(ROWS // 20))
    frame = spark.range(0, ROWS, 1, 4).selectExpr("cast(cast(id as string) as binary) as body")
    writer = frame.write.format("failing").mode("append").option("url", served.http)
    writer.option("exchange", "ex").option("routing_key", "rows").save()
    assert len(list(tmp_path.glob("[0-9]"))) == 4
    sent_twice = 2 * (ROWS // 4) + 2 * 2 * (ROWS // 20)
    assert served.server.node.broker.vhosts["/"].queues["q"].deduplicated == sent_twice
    found = sorted(int(body) for body in served.take_all("q"))
    assert found == list(range(ROWS))
    print(f"{ROWS} rows, each once; {sent_twice} came twice and were dropped")


def test_columns_become_properties(spark: SparkSession, served: Served) -> None:
    with served.channel() as opened:
        opened.exchange_declare("ex", "topic")
        opened.queue_declare("q", durable=True)
        opened.queue_bind("q", "ex", "#")
    frame = spark.sql(
        "select 'hello' as body, 'a.b' as routing_key, map('k', 'v') as headers, 'm' as message_id,"
        " 5 as priority, 'text/plain' as content_type,"
        " timestamp'2023-11-14 22:13:20' as message_timestamp"
    )
    write(frame, served, exchange="ex", writeId="w")
    with served.channel() as opened:
        method, properties, body = opened.basic_get("q", auto_ack=True)
    assert (method.exchange, method.routing_key, body) == ("ex", "a.b", b"hello")
    assert properties.headers == {"k": "v", "x-deduplication-id": "w/0/0"}
    assert (properties.message_id, properties.priority) == ("m", 5)
    assert (properties.content_type, properties.delivery_mode) == ("text/plain", 2)
    assert properties.timestamp == 1_700_000_000


def test_messages_are_written_back_unchanged(spark: SparkSession, served: Served) -> None:
    with served.channel() as opened:
        opened.queue_declare("s", durable=True, arguments={"x-queue-type": "stream"})
        given = pika.BasicProperties(headers={"deep": {"n": [1, 2]}}, message_id="m", priority=1)
        opened.basic_publish("", "s", b"body", given)
        opened.queue_declare("q", durable=True)
    write(batch(spark, served, stream="s"), served, queue="q", deduplicate="false")
    with served.channel() as opened:
        _, found, body = opened.basic_get("q", auto_ack=True)
    assert body == b"body"
    assert (found.headers, found.message_id, found.priority) == (
        {"deep": {"n": [1, 2]}},
        "m",
        1,
    )


def test_replayed_batch_of_a_query_is_dropped(
    spark: SparkSession, served: Served, tmp_path: Path
) -> None:
    served.fill("s", 0, 20)
    with served.channel() as opened:
        opened.queue_declare("q", durable=True, arguments=ONCE)
    for _ in range(2):
        frame = follow(spark, served, stream="s", startingOffsets="earliest").select("body")
        query = (
            frame.writeStream.format("leveret")
            .option("url", served.http)
            .option("queue", "q")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(QUERY_WITHIN_S)
        for name in ("0", ".0.crc"):  # the state after a driver was killed before the commit log
            (tmp_path / "checkpoint" / "commits" / name).unlink()
    assert [int(body) for body in served.take_all("q")] == list(range(20))


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"queue": "nothing"}, "there is no queue 'nothing' in vhost '/'"),
        ({"stream": "nothing"}, "there is no stream 'nothing' in vhost '/'"),
        ({"exchange": "nothing", "routing_key": "k"}, "there is no exchange 'nothing'"),
        ({"exchange": "amq.direct", "routing_key": "k"}, "was routed to no queue"),
    ],
)
def test_a_target_that_does_not_exist_is_named(
    spark: SparkSession, served: Served, options: dict[str, str], text: str
) -> None:
    with pytest.raises(PySparkException, match=text):
        write(spark.sql("select 'a' as body"), served, **options)


def test_a_wrong_password_is_tried_once(spark: SparkSession, served: Served) -> None:
    with served.channel() as opened:
        opened.queue_declare("q", durable=True)
    frame = spark.range(0, 100, 1, 4).selectExpr("cast(id as string) as body")
    writer = frame.write.format("leveret").mode("append").option("queue", "q")
    wrong = served.http.replace("guest:guest", "guest:wrong")
    before = failed_logins(served)
    with pytest.raises(PySparkException, match="the broker says 401"):
        writer.option("url", wrong).save()
    assert failed_logins(served) == before + 1
    assert served.count("q") == 0


def failed_logins(served: Served) -> int:
    counts = served.server.node.directory.login_counts.by_protocol
    return sum(each.failed for each in counts.values())


def test_overwrite_is_refused_and_leaves_the_queue_as_it_was(
    spark: SparkSession, served: Served
) -> None:
    served.fill("q", 0, 3, "classic")
    frame = spark.range(1).selectExpr("cast('new' as binary) as body")
    writer = frame.write.format("leveret").mode("overwrite").option("url", served.http)
    with pytest.raises(PySparkException, match=r"mode\('overwrite'\) is refused"):
        writer.option("queue", "q").save()
    assert served.take_all("q") == [b"0", b"1", b"2"]
