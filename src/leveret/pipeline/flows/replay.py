"""`replay`: publish selected messages of the lake or a stream again.

The deduplication id of a message consists of the replay's id, stream and offset. An interrupted
replay can be run again with the same id: the broker drops the messages that it already has, if the
exchange or queue was declared with `x-deduplication`.
"""

from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from leveret.lake.layout import BRONZE, Lake, table_name
from leveret.pipeline.environment import Environment
from leveret.pipeline.lake_tables import read_bronze
from leveret.pipeline.preflight import require_exchange, require_queue, require_stream
from leveret.pipeline.transforms.messages import filter_messages
from leveret.pipeline.transforms.replaying import REPLAY_KEY, prepare_replay
from pyspark_leveret.client import FORBIDDEN, UNAUTHORIZED, Broker
from pyspark_leveret.errors import BrokerError
from pyspark_leveret.options import parse_options


@dataclass(frozen=True)
class Selection:
    """The messages to replay."""

    stream: str
    is_from_lake: bool = False
    since: str | None = None
    until: str | None = None
    key: str | None = None
    where: str | None = None


@dataclass(frozen=True)
class Target:
    """The destination: a queue, or an exchange with one routing key or the messages' own keys."""

    exchange: str | None = None
    routing_key: str | None = None
    queue: str | None = None
    rate: int | None = None  # messages a second

    def options(self) -> dict[str, object]:
        return {
            "exchange": self.exchange,
            "routing_key": self.routing_key,
            "queue": self.queue,
            "maxRecordsPerSecond": self.rate,
        }


def require_source_and_target(environment: Environment, choice: Selection, target: Target) -> None:
    """Raise an error if the source or the target does not exist."""
    if choice.is_from_lake:
        Lake(environment.lake_path).require(BRONZE, table_name(environment.vhost, choice.stream))
    else:
        require_stream(environment, choice.stream)
    if target.queue is not None:
        require_queue(environment, target.queue)
    elif target.exchange:
        require_exchange(environment, target.exchange)


def select_messages(spark: SparkSession, environment: Environment, choice: Selection) -> DataFrame:
    """Return the selected messages."""
    if choice.is_from_lake:
        table = table_name(environment.vhost, choice.stream)
        frame = read_bronze(spark, Lake(environment.lake_path), table)
    else:
        given = environment.options(
            stream=choice.stream, startingTimestamp=choice.since, endingTimestamp=choice.until
        )
        frame = spark.read.format("leveret").options(**given).load()
    return filter_messages(
        frame, since=choice.since, until=choice.until, key=choice.key, where=choice.where
    )


def summarize(frame: DataFrame) -> dict[str, Any]:
    """Return the number of messages, bytes and keys, and the first and last time."""
    row = frame.agg(
        f.count("*").alias("messages"),
        f.sum(f.length("body")).alias("bytes"),
        f.min("timestamp").cast("string").alias("first"),
        f.max("timestamp").cast("string").alias("last"),
        f.count_distinct("routing_key").alias("keys"),
    ).collect()[0]
    return {**row.asDict(), "bytes": row["bytes"] or 0}


def replay(frame: DataFrame, environment: Environment, target: Target, replay_id: str) -> None:
    """Publish selected messages; return when the broker has confirmed all of them."""
    options = environment.options(**target.options(), deduplicationColumn=REPLAY_KEY)
    columns = prepare_replay(frame, replay_id)
    columns.write.format("leveret").mode("append").options(**options).save()


def drops_duplicates(environment: Environment, target: Target) -> bool:
    """Return True if the target was declared with `x-deduplication`."""
    kind, name = ("queues", target.queue) if target.queue else ("exchanges", target.exchange)
    broker = Broker(parse_options(environment.options()))
    try:
        found = broker.ask("GET", broker.path(kind, str(name)))
    except BrokerError as error:
        if error.status in (UNAUTHORIZED, FORBIDDEN):
            return False  # write access without read access
        raise
    return "x-deduplication" in found.get("arguments", {})
