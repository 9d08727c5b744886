"""`load`: publish the rows of files (Parquet, CSV, JSON lines) as messages.

A file with a column `body` holds messages: its other columns are properties. In any other file each
row becomes a JSON object. Rows are published in order. The id of a message is the load's id and the
row's number, so an interrupted load can be run again.

The values of a CSV file are text, as they stand there: a postcode or a phone number keeps its
leading zeros. Types are guessed only if the caller asks for it.
"""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame, SparkSession

from leveret.errors import ConfigError
from leveret.pipeline.environment import Environment
from leveret.pipeline.spark_errors import SPARK_ERRORS, error_sentence
from leveret.pipeline.transforms.table_rows import rows_as_messages, skipped_columns
from pyspark_leveret.client import FORBIDDEN, UNAUTHORIZED, Broker
from pyspark_leveret.errors import BrokerError
from pyspark_leveret.options import parse_options

FORMATS: Final = {
    ".parquet": "parquet",
    ".csv": "csv",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
}
# Split the same files into the same partitions on every machine.
_PARTITIONING: Final = {
    "spark.sql.files.minPartitionNum": "1",
    "spark.sql.files.maxPartitionBytes": "128m",
}


@dataclass(frozen=True)
class LoadTarget:
    """The destination of rows, and the options."""

    queue: str | None = None
    stream: str | None = None
    exchange: str | None = None
    routing_key: str | None = None
    key_column: str | None = None  # the column with routing keys
    rate: int | None = None
    load_id: str | None = None

    def is_one_queue(self) -> bool:
        return self.exchange is None

    def text(self) -> str:
        if self.exchange is not None:
            return f"exchange '{self.exchange}'"
        return f"queue '{self.queue}'" if self.queue is not None else f"stream '{self.stream}'"


@dataclass(frozen=True)
class Loaded:
    """The result of a load."""

    messages: int  # rows that were published and confirmed
    known: int | None  # of these, dropped as duplicates; None if the target keeps no ids


@dataclass(frozen=True)
class FilePlan:
    """The rows that a load publishes from one file."""

    path: Path
    rows: int
    skipped: tuple[str, ...]  # columns that the broker sets itself


OnPlan = Callable[[FilePlan], None]


def load(
    spark: SparkSession,
    environment: Environment,
    files: Sequence[Path],
    kind: str | None,
    to: LoadTarget,
    *,
    infers_types: bool = False,
    on_plan: OnPlan = lambda plan: None,
) -> Loaded:
    """Publish all rows of files; report each file before the first row is published."""
    tables = read_files(spark, files, kind, infers_types=infers_types)
    plans = [
        FilePlan(path, table.count(), skipped_columns(table))
        for path, table in zip(files, tables, strict=True)
    ]
    for plan in plans:
        on_plan(plan)
    frames = [rows_as_messages(table, to.key_column) for table in tables]
    frame = reduce(lambda one, two: one.unionByName(two, allowMissingColumns=True), frames)
    before = _duplicates(environment, to)
    options = environment.options(
        queue=to.queue,
        stream=to.stream,
        exchange=to.exchange,
        routing_key=to.routing_key,
        maxRecordsPerSecond=to.rate,
        writeId=to.load_id or files_id(files),
    )
    frame.coalesce(1).write.format("leveret").mode("append").options(**options).save()
    after = _duplicates(environment, to)
    known = None if before is None or after is None else max(after - before, 0)
    return Loaded(sum(plan.rows for plan in plans), known)


def _duplicates(environment: Environment, to: LoadTarget) -> int | None:
    """Return how many messages the target has dropped; None if it keeps no ids of messages."""
    broker = Broker(parse_options(environment.options()))
    kind, name = ("exchanges", to.exchange) if to.exchange else ("queues", to.queue or to.stream)
    try:
        found = broker.ask("GET", broker.path(kind, str(name))) if name else {}
    except BrokerError as error:
        if error.status not in (UNAUTHORIZED, FORBIDDEN):  # write access without read access
            raise
        return None
    is_once = "x-deduplication" in found.get("arguments", {})
    count = found.get("messages_deduplicated") if is_once else None
    return None if count is None else int(count)


def read_files(
    spark: SparkSession, files: Sequence[Path], kind: str | None, *, infers_types: bool = False
) -> list[DataFrame]:
    """Return the rows of each file, partitioned the same way each time: rows keep their numbers.

    Raise ConfigError if any row cannot be read, before the first one is published.
    """
    for name, value in _PARTITIONING.items():
        spark.conf.set(name, value)
    return [_readable(spark, path, kind, infers_types) for path in files]


def _readable(spark: SparkSession, path: Path, kind: str | None, infers_types: bool) -> DataFrame:
    try:
        found = _read(spark, path, kind, infers_types)
        if found.columns:
            found.write.format("noop").mode("overwrite").save()
        return found
    except SPARK_ERRORS as error:
        raise ConfigError(f"{path} cannot be loaded: {error_sentence(error)}") from error


def files_id(files: Sequence[Path]) -> str:
    """Return an id of files that changes with their names, sizes and times."""
    told = "\n".join(f"{p.name} {p.stat().st_size} {p.stat().st_mtime_ns}" for p in files)
    return f"load-{hashlib.sha256(told.encode()).hexdigest()[:16]}"


def format_of(path: Path, kind: str | None) -> str:
    """Return the format of a file; raise ConfigError if it is unknown or the file is missing."""
    found = kind or FORMATS.get(path.suffix.lower())
    if found is None:
        raise ConfigError(f"{path}: give --format, as the name does not say what it is")
    if found not in FORMATS.values():
        raise ConfigError(f"--format is one of {', '.join(sorted(set(FORMATS.values())))}")
    if not path.exists():
        raise ConfigError(f"{path}: no such file")
    return found


def _read(spark: SparkSession, path: Path, kind: str | None, infers_types: bool) -> DataFrame:
    found = format_of(path, kind)
    reader = spark.read.format(found).option(
        "mode", "FAILFAST"
    )  # otherwise broken rows become nulls
    if found == "csv":
        reader = reader.option("header", True).option("inferSchema", infers_types)
    return reader.load(str(path.absolute()))
