"""`replay`: chosen messages of lake or stream are published once more.

The ids by which the broker drops duplicates are made of the replay's id, stream and offset: a
replay that was cut short can be run again with the same id, and what had come is not sent twice,
where exchange or queue were declared with `x-deduplication`.
"""

from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from leveret.pipeline.lake import read_bronze
from leveret.pipeline.layout import BRONZE, Lake, table_name
from leveret.pipeline.readiness import require_exchange, require_queue, require_stream
from leveret.pipeline.site import Site
from leveret.pipeline.transforms.messages import chosen
from leveret.pipeline.transforms.replaying import REPLAY_KEY, replayed
from pyspark_leveret.client import Broker
from pyspark_leveret.errors import BrokerError
from pyspark_leveret.options import parse


@dataclass(frozen=True)
class Choice:
    """Which messages."""

    stream: str
    is_from_lake: bool = False
    since: str | None = None
    until: str | None = None
    key: str | None = None
    where: str | None = None


@dataclass(frozen=True)
class Target:
    """Where they go: an exchange, with their own keys unless one is given, or a queue."""

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


def require(site: Site, choice: Choice, target: Target) -> None:
    """There is what is to be replayed, and where it goes; raises what says that there is not."""
    if choice.is_from_lake:
        Lake(site.lake_path).require(BRONZE, table_name(site.vhost, choice.stream))
    else:
        require_stream(site, choice.stream)
    if target.queue is not None:
        require_queue(site, target.queue)
    elif target.exchange:
        require_exchange(site, target.exchange)


def choose(spark: SparkSession, site: Site, choice: Choice) -> DataFrame:
    """The messages that are meant."""
    if choice.is_from_lake:
        table = table_name(site.vhost, choice.stream)
        frame = read_bronze(spark, Lake(site.lake_path), table)
    else:
        given = site.options(
            stream=choice.stream, startingTimestamp=choice.since, endingTimestamp=choice.until
        )
        frame = spark.read.format("leveret").options(**given).load()
    return chosen(frame, since=choice.since, until=choice.until, key=choice.key, where=choice.where)


def count(frame: DataFrame) -> dict[str, Any]:
    """What a replay would send: how many messages and bytes, from when to when."""
    row = frame.agg(
        f.count("*").alias("messages"),
        f.sum(f.length("body")).alias("bytes"),
        f.min("timestamp").cast("string").alias("first"),
        f.max("timestamp").cast("string").alias("last"),
        f.count_distinct("routing_key").alias("keys"),
    ).collect()[0]
    return {**row.asDict(), "bytes": row["bytes"] or 0}


def replay(frame: DataFrame, site: Site, target: Target, replay_id: str) -> None:
    """Publish chosen messages; returns when the broker has confirmed all of them."""
    options = site.options(**target.options(), deduplicationColumn=REPLAY_KEY)
    columns = replayed(frame, replay_id)
    columns.write.format("leveret").mode("append").options(**options).save()


def drops_duplicates(site: Site, target: Target) -> bool:
    """Whether the target was declared with `x-deduplication`."""
    kind, name = ("queues", target.queue) if target.queue else ("exchanges", target.exchange)
    broker = Broker(parse(site.options()))
    try:
        found = broker.ask("GET", broker.path(kind, str(name)))
    except BrokerError as fault:
        if fault.status in (401, 403):
            return False  # who may write there may not be allowed to look
        raise
    return "x-deduplication" in found.get("arguments", {})
