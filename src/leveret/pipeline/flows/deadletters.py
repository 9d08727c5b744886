"""`deadletters`: report on dead letters in queues, streams and the lake. Queues are only peeked at.

A stream of life events counts every death in its queues, including deaths that lead to a retry.
Without named sources the report covers the queues that other queues dead-letter to, the bus's
dead-letter queues, and `leveret.parked`. It leaves out queues that dead-letter themselves: their
messages are being processed, or wait for a retry.
"""

from dataclasses import dataclass, field
from functools import reduce
from typing import Any, Final
from urllib.parse import quote

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from leveret.errors import NotFoundError
from leveret.lake.layout import BRONZE, Lake, table_name
from leveret.pipeline.environment import Environment
from leveret.pipeline.lake_tables import read_bronze
from leveret.pipeline.preflight import require_broker, require_queue, require_stream
from leveret.pipeline.report_rows import collect_rows
from leveret.pipeline.shuffle_partitions import set_shuffle_partitions
from leveret.pipeline.transforms import dead_letters, latency
from leveret.pipeline.transforms.messages import filter_messages
from pyspark_leveret.client import Broker
from pyspark_leveret.options import parse_options
from pyspark_leveret.schema import TYPES

PARKED: Final = "leveret.parked"
LOOK_S: Final = 10.0


@dataclass(frozen=True)
class Sources:
    """The places to read dead letters from."""

    queues: list[str] = field(default_factory=list)
    streams: list[str] = field(default_factory=list)
    tables: list[str] = field(default_factory=list)  # of bronze

    def names(self) -> list[str]:
        lake = [f"bronze.{name}" for name in self.tables]
        return [*self.queues, *(f"stream {name}" for name in self.streams), *lake]


def require_sources(environment: Environment, sources: Sources) -> None:
    """Raise an error if a named source does not exist, or the broker does not answer."""
    if sources.queues or sources.streams or not sources.tables:
        require_broker(environment)
    for name in sources.queues:
        require_queue(environment, name)
    for name in sources.streams:
        require_stream(environment, name)
    for name in sources.tables:
        Lake(environment.lake_path).require(BRONZE, table_name(environment.vhost, name))


def read_dead_letters(
    spark: SparkSession,
    environment: Environment,
    sources: Sources,
    since: str | None,
    until: str | None,
) -> DataFrame:
    """Return the dead letters of all sources that died from `since` up to `until`."""
    set_shuffle_partitions(spark)
    frames = [_of_messages(_read(spark, environment, queue=name)) for name in sources.queues]
    frames += [_of_either(_read(spark, environment, stream=name)) for name in sources.streams]
    for name in sources.tables:
        lake = Lake(environment.lake_path)
        frames.append(_of_either(read_bronze(spark, lake, table_name(environment.vhost, name))))
    together = reduce(lambda one, two: one.unionByName(two, allowMissingColumns=True), frames)
    if "broker_id" not in together.columns:
        together = together.withColumn("broker_id", f.lit(None).cast("bigint"))
    named = together.withColumnRenamed("died_at", "timestamp")
    return filter_messages(named, since=since, until=until).withColumnRenamed(
        "timestamp", "died_at"
    )


def report(frame: DataFrame, most: int) -> dict[str, Any]:
    """Return the whole report as JSON values, with `most` rows in each list."""
    kept = frame.cache()
    try:
        (total,) = collect_rows(dead_letters.totals(kept))
        by: dict[str, list[dict[str, Any]]] = {name: [] for name in dead_letters.DIMENSIONS}
        for row in collect_rows(dead_letters.by_dimension(kept, most)):
            by[row.pop("dimension")].append(row)
        by["hour"].sort(key=lambda row: str(row["value"]))
        hours = collect_rows(dead_letters.by_hour(kept))
        worst = collect_rows(dead_letters.offenders(kept, most))
        return {**total, "by": by, "hours": hours, "offenders": worst}
    finally:
        kept.unpersist()


def dead_letter_queues(environment: Environment) -> list[str]:
    """Return the queues that dead letters end up in; raise NotFoundError if there are none."""
    broker = Broker(parse_options(environment.options(retrySeconds=LOOK_S)))
    vhost = quote(environment.vhost, safe="")
    queues = broker.ask("GET", f"/api/queues/{vhost}")
    rules = {queue["name"]: _rules(queue) for queue in queues if queue.get("type") != "stream"}
    bindings = broker.ask("GET", f"/api/bindings/{vhost}")
    found = {name for name in rules if name == PARKED or ".dlq" in name}
    for name, rule in rules.items():
        exchange = rule.get("dead-letter-exchange")
        if exchange == "":
            found.add(str(rule.get("dead-letter-routing-key", name)))
        elif exchange is not None:
            found |= {each["destination"] for each in bindings if each["source"] == exchange}
    kept = sorted(n for n in found if n in rules and "dead-letter-exchange" not in rules[n])
    if not kept:
        raise NotFoundError(
            "no queue with dead letters was found: name one, or --stream or --table"
        )
    return kept


def _rules(queue: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments and effective policy of a queue, without the prefix `x-`."""
    own = {name.removeprefix("x-"): value for name, value in queue.get("arguments", {}).items()}
    return {**queue.get("effective_policy_definition", {}), **own}


def _read(spark: SparkSession, environment: Environment, **place: str) -> DataFrame:
    is_stream = "stream" in place
    columns = (*latency.COLUMNS, "broker_id") if is_stream else dead_letters.COLUMNS
    schema = ", ".join(f"`{name}` {TYPES[name]}" for name in columns)
    reader = spark.read.format("leveret").options(**environment.options(**place))
    return reader.schema(schema).load()


def _of_either(frame: DataFrame) -> DataFrame:
    """Return the deaths of a stream of life events, or the dead letters of another stream."""
    event = f.try_element_at("headers", f.lit("x-event"))
    first = frame.select(event.alias("event")).limit(1).collect()
    if first and first[0]["event"] is not None:
        return latency.deaths(latency.queue_events(frame))
    return _of_messages(frame).drop("broker_id")  # the number is that of the stream's copy


def _of_messages(frame: DataFrame) -> DataFrame:
    return dead_letters.dead_letters(frame.select(*dead_letters.COLUMNS))
