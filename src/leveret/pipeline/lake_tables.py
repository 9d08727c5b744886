"""Read and write tables of the lake with Spark.

`write_table` writes all layers but bronze, which Spark's file sink writes. To replace Parquet by
another table format, change `FORMAT` and `write_table`.
"""

import json
import shutil
from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import StructType

from leveret.lake.layout import BRONZE, Lake, replace_file
from leveret.lake.partitions import PARTITIONS, partition_of
from leveret.pipeline.transforms.messages import BRONZE_SCHEMA

FORMAT: Final = "parquet"
SCHEMA: Final = "_schema.json"


def read_bronze(spark: SparkSession, lake: Lake, table: str) -> DataFrame:
    """Return all messages of a bronze table, each once."""
    files = [str(path) for path in lake.bronze_files(table)]
    return read_files(spark, lake.folder(BRONZE, table), files)


def read_files(spark: SparkSession, folder: Path, files: list[str]) -> DataFrame:
    """Return the messages of bronze files. Their folders give the columns stream and date."""
    if not files:
        return spark.createDataFrame([], BRONZE_SCHEMA)
    reader = spark.read.schema(BRONZE_SCHEMA).option("basePath", str(folder))
    return reader.format(FORMAT).load(files)


def read_table(spark: SparkSession, lake: Lake, layer: str, table: str) -> DataFrame:
    """Return a table of silver, bad or gold with its current schema."""
    folder = lake.require(layer, table)
    reader = spark.read.format(FORMAT)
    schema = read_schema(folder)
    return (reader.schema(schema) if schema is not None else reader).load(str(folder))


def write_table(frame: DataFrame, folder: Path, places: list[str]) -> None:
    """Replace some partitions of a table; the other partitions stay.

    `places` names the partitions as `stream date`. Spark replaces the partitions that the frame has
    rows for. This function removes those that have no rows any more.
    """
    (
        frame.write.format(FORMAT)
        .mode("overwrite")
        .option("partitionOverwriteMode", "dynamic")
        .partitionBy(*PARTITIONS)
        .save(str(folder))
    )
    replace_file(folder / SCHEMA, frame.schema.json())
    rows = frame.select("stream", f.col("date").cast("string")).distinct().collect()
    empty = set(places) - {f"{stream} {date}" for stream, date in rows}
    for path in folder.glob("stream=*/date=*"):
        if " ".join(partition_of(path)) in empty:
            shutil.rmtree(path)


def read_schema(folder: Path) -> StructType | None:
    """Return the schema of a table; None if the table does not exist yet."""
    path = folder / SCHEMA
    return StructType.fromJson(json.loads(path.read_text())) if path.is_file() else None
