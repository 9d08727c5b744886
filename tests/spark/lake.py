"""What tests of the data source share: a broker, messages in it, queries over it."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pika
from pyspark.sql import DataFrame, SparkSession

from leveret.storage.disk import Disk
from leveret.testing.broker import RunningBroker, broker

QUERY_WITHIN_S = 60


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
        """Messages with bodies `n`, in a queue that is made if need be."""
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
        """Until what was published is there: a queue.declare is answered after it."""
        with self.channel() as opened:
            opened.queue_declare(queue, passive=True)

    def count(self, queue: str) -> int:
        with self.channel() as opened:
            found: int = opened.queue_declare(queue, passive=True).method.message_count
        return found

    def take_all(self, queue: str) -> list[bytes]:
        """All bodies, taken out."""
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
    """Write what is there into a lake, until there is no more; the progress of each batch."""
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
    """The bodies of everything in a lake, as numbers, in order."""
    rows = spark.read.parquet(str(folder / "lake")).select("body").collect()
    return sorted(int(row.body) for row in rows)
