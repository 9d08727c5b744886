"""Helpers for tests of the data source: a broker, messages, and queries."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pika
from pyspark.sql import DataFrame, SparkSession

from leveret.storage.disk import Disk
from leveret.testing.broker import RunningBroker, broker

QUERY_WITHIN_S = 400


class Served:
    """A running broker."""

    def __init__(self, server: RunningBroker, folder: Path) -> None:
        self.server = server
        self.folder = folder

    @property
    def http(self) -> str:
        return f"http://guest:guest@127.0.0.1:{self.server.http_port}"

    @contextmanager
    def channel(self) -> Iterator[Any]:
        """A channel with confirms."""
        connection = pika.BlockingConnection(pika.URLParameters(self.server.url))
        opened = connection.channel()
        opened.confirm_delivery()
        try:
            yield opened
        finally:
            if connection.is_open:
                connection.close()

    def fill(self, queue: str, first: int, end: int, kind: Any = "stream", **more: object) -> None:
        """Publish messages with bodies `n` to a queue, which is declared if it is missing."""
        arguments: dict[str, object] = {"x-queue-type": kind}
        arguments.update({f"x-{key.replace('_', '-')}": value for key, value in more.items()})
        connection = pika.BlockingConnection(pika.URLParameters(self.server.url))
        channel = connection.channel()
        channel.queue_declare(queue, durable=True, arguments=arguments)
        properties = pika.BasicProperties(delivery_mode=2)
        for number in range(first, end):
            channel.basic_publish("", queue, b"%d" % number, properties)
        connection.close()
        self.wait_for(queue)

    def wait_for(self, queue: str) -> None:
        """Wait until the queue has all published messages: queue.declare is answered after them."""
        with self.channel() as opened:
            opened.queue_declare(queue, passive=True)

    def count(self, queue: str) -> int:
        with self.channel() as opened:
            found: int = opened.queue_declare(queue, passive=True).method.message_count
        return found

    def take_all(self, queue: str) -> list[bytes]:
        """Consume all messages; return their bodies."""
        with self.channel() as opened:
            bodies = []
            while (found := opened.basic_get(queue, auto_ack=True))[0] is not None:
                bodies.append(found[2])
        return bodies


@contextmanager
def serving(folder: Path) -> Iterator[Served]:
    with broker(http=True, disk=Disk(folder)) as server:
        yield Served(server, folder)


def batch(spark: SparkSession, served: Served, schema: Any = "", **options: object) -> DataFrame:
    reader = spark.read.format("leveret").option("url", served.http)
    for name, value in options.items():
        reader = reader.option(name, str(value))
    return (reader.schema(schema) if schema else reader).load()


def follow(spark: SparkSession, served: Served, schema: Any = "", **options: object) -> DataFrame:
    reader = spark.readStream.format("leveret").option("url", served.http)
    for name, value in options.items():
        reader = reader.option(name, str(value))
    return (reader.schema(schema) if schema else reader).load()


def archive(frame: DataFrame, folder: Path) -> list[dict[str, Any]]:
    """Write all messages into a lake; return the progress of each batch."""
    query = (
        frame.writeStream.format("parquet")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(folder / "lake"))
    )
    try:
        assert query.awaitTermination(QUERY_WITHIN_S), "the query does not end"
        return [dict(progress) for progress in query.recentProgress]
    finally:
        query.stop()


def numbers(spark: SparkSession, folder: Path) -> list[int]:
    """Return the bodies of all messages in a lake as sorted numbers."""
    rows = spark.read.parquet(str(folder / "lake")).select("body").collect()
    return sorted(int(row.body) for row in rows)
