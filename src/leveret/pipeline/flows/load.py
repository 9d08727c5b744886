"""`load`: publish the rows of files (Parquet, CSV, JSON lines) as messages.

A file with a column `body` holds messages: its other columns are properties. In any other file each
row becomes a JSON object. Rows are published in order. The id of a message is the load's id and the
row's number, so an interrupted load can be run again.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame, SparkSession

from leveret.errors import ConfigError
from leveret.pipeline.environment import Environment
from leveret.pipeline.spark_errors import SPARK_ERRORS, error_sentence
from leveret.pipeline.transforms.table_rows import rows_as_messages

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


def load(
    spark: SparkSession,
    environment: Environment,
    files: Sequence[Path],
    kind: str | None,
    to: LoadTarget,
) -> int:
    """Publish all rows of files; return their number."""
    frames = [rows_as_messages(table, to.key_column) for table in read_files(spark, files, kind)]
    frame = reduce(lambda one, two: one.unionByName(two, allowMissingColumns=True), frames)
    count = frame.count()
    options = environment.options(
        queue=to.queue,
        stream=to.stream,
        exchange=to.exchange,
        routing_key=to.routing_key,
        maxRecordsPerSecond=to.rate,
        writeId=to.load_id or files_id(files),
    )
    frame.coalesce(1).write.format("leveret").mode("append").options(**options).save()
    return count


def read_files(spark: SparkSession, files: Sequence[Path], kind: str | None) -> list[DataFrame]:
    """Return the rows of each file, partitioned the same way each time: rows keep their numbers.

    Raise ConfigError if any row cannot be read, before the first one is published.
    """
    for name, value in _PARTITIONING.items():
        spark.conf.set(name, value)
    return [_readable(spark, path, kind) for path in files]


def _readable(spark: SparkSession, path: Path, kind: str | None) -> DataFrame:
    try:
        found = _read(spark, path, kind)
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


def _read(spark: SparkSession, path: Path, kind: str | None) -> DataFrame:
    found = format_of(path, kind)
    reader = spark.read.format(found).option(
        "mode", "FAILFAST"
    )  # otherwise broken rows become nulls
    if found == "csv":
        reader = reader.option("header", True).option("inferSchema", True)
    return reader.load(str(path.absolute()))
