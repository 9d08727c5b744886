"""`deadletters`: what died, from queues (a look: they stay as they are), streams and the lake.

A stream of life events counts every death of its queues, also those that only lead to a retry.
Where nothing is named, the queues are looked at to which others dead-letter, those of the bus, and
`leveret.parked`; none that dead-letters itself: there messages work, or wait for a retry.
"""

from dataclasses import dataclass, field
from functools import reduce
from typing import Any, Final
from urllib.parse import quote

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from leveret.errors import NotFoundError
from leveret.pipeline.lake import read_bronze
from leveret.pipeline.layout import BRONZE, Lake, table_name
from leveret.pipeline.readiness import require_broker, require_queue, require_stream
from leveret.pipeline.rows import rows_of
from leveret.pipeline.shuffles import fit_shuffles
from leveret.pipeline.site import Site
from leveret.pipeline.transforms import dead_letters, latencies
from leveret.pipeline.transforms.messages import chosen
from pyspark_leveret.client import Broker
from pyspark_leveret.options import parse
from pyspark_leveret.schema import TYPES

PARKED: Final = "leveret.parked"
LOOK_S: Final = 10.0


@dataclass(frozen=True)
class Sources:
    """Where dead letters are."""

    queues: list[str] = field(default_factory=list)
    streams: list[str] = field(default_factory=list)
    tables: list[str] = field(default_factory=list)  # of the lake's bronze

    def names(self) -> list[str]:
        lake = [f"bronze.{name}" for name in self.tables]
        return [*self.queues, *(f"stream {name}" for name in self.streams), *lake]


def require(site: Site, sources: Sources) -> None:
    """There is what was named, or a broker to look for it; raises what says that there is not."""
    if sources.queues or sources.streams or not sources.tables:
        require_broker(site)
    for name in sources.queues:
        require_queue(site, name)
    for name in sources.streams:
        require_stream(site, name)
    for name in sources.tables:
        Lake(site.lake_path).require(BRONZE, table_name(site.vhost, name))


def letters_of(
    spark: SparkSession, site: Site, sources: Sources, since: str | None, until: str | None
) -> DataFrame:
    """The dead letters of all sources that died from a time up to another."""
    fit_shuffles(spark)
    frames = [_of_messages(_read(spark, site, queue=name)) for name in sources.queues]
    frames += [_of_either(_read(spark, site, stream=name)) for name in sources.streams]
    for name in sources.tables:
        lake = Lake(site.lake_path)
        frames.append(_of_either(read_bronze(spark, lake, table_name(site.vhost, name))))
    together = reduce(lambda one, two: one.unionByName(two), frames)
    named = together.withColumnRenamed("died_at", "timestamp")
    return chosen(named, since=since, until=until).withColumnRenamed("timestamp", "died_at")


def report(frame: DataFrame, most: int) -> dict[str, Any]:
    """Everything that is told of dead letters, as JSON has it."""
    kept = frame.cache()
    try:
        (total,) = rows_of(dead_letters.totals(kept))
        by: dict[str, list[dict[str, Any]]] = {name: [] for name in dead_letters.DIMENSIONS}
        for row in rows_of(dead_letters.by_dimension(kept, most)):
            by[row.pop("dimension")].append(row)
        by["hour"].sort(key=lambda row: str(row["value"]))
        hours = rows_of(dead_letters.by_hour(kept))
        worst = rows_of(dead_letters.offenders(kept, most))
        return {**total, "by": by, "hours": hours, "offenders": worst}
    finally:
        kept.unpersist()


def dead_letter_queues(site: Site) -> list[str]:
    """The queues in which dead letters end up; NotFoundError where there are none."""
    broker = Broker(parse(site.options(retrySeconds=LOOK_S)))
    vhost = quote(site.vhost, safe="")
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
    """The arguments of a queue and the policies that hold for it, under one name each."""
    own = {name.removeprefix("x-"): value for name, value in queue.get("arguments", {}).items()}
    return {**queue.get("effective_policy_definition", {}), **own}


def _read(spark: SparkSession, site: Site, **place: str) -> DataFrame:
    columns = latencies.COLUMNS if "stream" in place else dead_letters.COLUMNS
    schema = ", ".join(f"`{name}` {TYPES[name]}" for name in columns)
    reader = spark.read.format("leveret").options(**site.options(**place))
    return reader.schema(schema).load()


def _of_either(frame: DataFrame) -> DataFrame:
    """Of life events, the deaths; of other messages, those that are dead letters."""
    event = f.try_element_at("headers", f.lit("x-event"))
    first = frame.select(event.alias("event")).limit(1).collect()
    if first and first[0]["event"] is not None:
        return latencies.deaths(latencies.steps(frame))
    return _of_messages(frame)


def _of_messages(frame: DataFrame) -> DataFrame:
    return dead_letters.letters(frame.select(*dead_letters.COLUMNS))
