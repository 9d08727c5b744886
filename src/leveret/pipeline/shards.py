"""Jobs of the Redis and PostgreSQL store as a table: one partition per shard and range of ids.

`copy_ahead` copies jobs from shard to shard, in tasks that can be repeated.

Executors connect to PostgreSQL themselves, with the client library of the extra `jobs`, which must
be installed on them. No job passes through the driver. A frame reads the shards each time it is
used, each partition in a transaction snapshot of its own.
"""

import json
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from leveret.errors import ConfigError
from leveret.job_service.shards.resharding.copying_ahead import CopyRange, copy_ranges
from leveret.job_service.shards.resharding.shard_reader import (
    COLUMNS,
    IS_COUNTED,
    IdRange,
    read_batches,
    split_shards,
)

PART_ROWS: Final = 100_000  # jobs of one partition, approximately
SLICES: Final = 4  # copying tasks for each core
_TIMESTAMP: Final = pa.timestamp("us", "UTC")
# The types of the columns of `items` in Spark and in Arrow.
_TYPES: Final[dict[str, tuple[str, pa.DataType]]] = {
    "shard": ("int", pa.int32()),
    "id": ("bigint", pa.int64()),
    "namespace": ("string", pa.string()),
    "topic": ("string", pa.string()),
    "status": ("string", pa.string()),
    "priority": ("int", pa.int32()),
    "payload": ("binary", pa.binary()),
    "deliver_after": ("timestamp", _TIMESTAMP),
    "lease_expires_at": ("timestamp", _TIMESTAMP),
    "created_at": ("timestamp", _TIMESTAMP),
    "idempotency_key": ("string", pa.string()),
    "fair_key": ("string", pa.string()),
    "fair_rank": ("bigint", pa.int64()),
    "attempts": ("int", pa.int32()),
    "token": ("bigint", pa.int64()),
    "failures": ("string", pa.string()),  # JSON list with attempt, time_ms and error
}


def read_jobs(
    spark: SparkSession,
    dsns: Sequence[str],
    where: str | None = None,
    columns: Sequence[str] = COLUMNS,
    part_rows: int = PART_ROWS,
) -> DataFrame:
    """Return all jobs of all shards, each once, with the number of their shard.

    `where` is a PostgreSQL condition on the columns of `items`, whose alias is `j`. Leave columns
    that are not needed, such as payloads, out of `columns`.
    """
    condition = IS_COUNTED if where is None else f"({where}) AND {IS_COUNTED}"
    return _read(spark, split_shards(dsns, condition, part_rows), columns, condition)


def copy_ahead(
    spark: SparkSession, parts: list[CopyRange], batch_rows: int, rate: float | None
) -> int:
    """Copy parts of topics to other shards, `rate` jobs a second at most; return the new ones."""
    context = spark.sparkContext
    slices = min(len(parts), SLICES * context.defaultParallelism)
    own = None if rate is None else rate / min(slices, context.defaultParallelism)
    work = partial(_copy_slice, batch_rows=batch_rows, rate=own)
    copied: int = sum(context.parallelize(parts, slices).mapPartitions(work).collect())
    return copied


def _copy_slice(parts: Iterator[CopyRange], batch_rows: int, rate: float | None) -> Iterator[int]:
    yield copy_ranges((CopyRange(*part) for part in parts), batch_rows, rate)


def _read(
    spark: SparkSession, parts: list[IdRange], columns: Sequence[str], where: str
) -> DataFrame:
    if not parts:
        raise ConfigError("give the PostgreSQL databases of the shards, in their order")
    spark.dataSource.register(JobsSource)
    options = {"parts": json.dumps(parts), "columns": json.dumps(columns), "where": where}
    return spark.read.format(JobsSource.name()).options(**options).load()


class JobsSource(DataSource):
    """Spark data source for ranges of shards. `_read` passes the ranges as options."""

    @classmethod
    def name(cls) -> str:
        return "leveret_jobs"

    def schema(self) -> str:
        names = ("shard", *json.loads(self.options["columns"]))
        return ", ".join(f"{name} {_TYPES[name][0]}" for name in names)

    def reader(self, schema: StructType) -> DataSourceReader:
        parts = [IdRange(*part) for part in json.loads(self.options["parts"])]
        return JobsReader(parts, json.loads(self.options["columns"]), self.options["where"])


class JobsReader(DataSourceReader):
    """Reads each range in its own task."""

    def __init__(self, parts: list[IdRange], columns: list[str], where: str) -> None:
        self._parts = parts
        self._columns = columns
        self._where = where

    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition(number) for number in range(len(self._parts))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        part = self._parts[partition.value]
        for rows in read_batches(part, self._columns, self._where):
            yield as_arrow(part.shard, self._columns, rows)


def as_arrow(shard: int, columns: Sequence[str], rows: list[Any]) -> pa.RecordBatch:
    """Return rows of PostgreSQL as an Arrow batch, with the number of their shard."""
    arrays = [pa.array([shard] * len(rows), pa.int32())]
    for place, name in enumerate(columns):
        arrays.append(pa.array([row[place] for row in rows], _TYPES[name][1]))
    return pa.RecordBatch.from_arrays(arrays, ["shard", *columns])
