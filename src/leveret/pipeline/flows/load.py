"""`load`: files (Parquet, CSV, JSON lines) as messages.

A file with a column `body` holds messages: its columns are properties, as the sink takes them. In
any other file each row becomes a JSON object. The rows of a file are published in their order, and
their ids are made of the load's id and their number: a load that was cut short can be run again.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame, SparkSession

from leveret.errors import ConfigError
from leveret.pipeline.faults import FAULTS, sentence
from leveret.pipeline.site import Site
from leveret.pipeline.transforms.loading import as_messages

FORMATS: Final = {
    ".parquet": "parquet",
    ".csv": "csv",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
}
# So that the same files are cut into the same pieces, whatever Spark runs on.
_PIECES: Final = {
    "spark.sql.files.minPartitionNum": "1",
    "spark.sql.files.maxPartitionBytes": "128m",
}


@dataclass(frozen=True)
class Loading:
    """Where rows go, and how."""

    queue: str | None = None
    stream: str | None = None
    exchange: str | None = None
    routing_key: str | None = None
    key_column: str | None = None  # whose values are routing keys
    rate: int | None = None
    load_id: str | None = None


def load(
    spark: SparkSession, site: Site, files: Sequence[Path], kind: str | None, to: Loading
) -> int:
    """Publish all rows of files; how many."""
    frames = [as_messages(table, to.key_column) for table in tables_of(spark, files, kind)]
    frame = reduce(lambda one, two: one.unionByName(two, allowMissingColumns=True), frames)
    count = frame.count()
    options = site.options(
        queue=to.queue,
        stream=to.stream,
        exchange=to.exchange,
        routing_key=to.routing_key,
        maxRecordsPerSecond=to.rate,
        writeId=to.load_id or id_of(files),
    )
    frame.coalesce(1).write.format("leveret").mode("append").options(**options).save()
    return count


def tables_of(spark: SparkSession, files: Sequence[Path], kind: str | None) -> list[DataFrame]:
    """The rows of each file, cut into the same pieces each time: rows keep their numbers.

    All of them can be read, which is found out before the first one is sent. ConfigError.
    """
    for name, value in _PIECES.items():
        spark.conf.set(name, value)
    return [_readable(spark, path, kind) for path in files]


def _readable(spark: SparkSession, path: Path, kind: str | None) -> DataFrame:
    try:
        found = _read(spark, path, kind)
        if found.columns:
            found.write.format("noop").mode("overwrite").save()
        return found
    except FAULTS as fault:
        raise ConfigError(f"{path} cannot be loaded: {sentence(fault)}") from fault


def id_of(files: Sequence[Path]) -> str:
    """An id for the files as they are: the same files, unchanged, have the same one."""
    told = "\n".join(f"{p.name} {p.stat().st_size} {p.stat().st_mtime_ns}" for p in files)
    return f"load-{hashlib.sha256(told.encode()).hexdigest()[:16]}"


def format_of(path: Path, kind: str | None) -> str:
    """What a file is, which must be there; ConfigError."""
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
    reader = spark.read.format(found).option("mode", "FAILFAST")  # else what is broken goes along
    if found == "csv":
        reader = reader.option("header", True).option("inferSchema", True)
    return reader.load(str(path.absolute()))
