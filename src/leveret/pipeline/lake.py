"""Tables of the lake, read and written by Spark.

Everything but bronze, which is a file sink, is written by `write_table`: a table format takes the
place of Parquet by `FORMAT` and there.
"""

import json
import shutil
from pathlib import Path
from typing import Final
from urllib.parse import unquote

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import StructType

from leveret.pipeline.layout import BRONZE, PARTITIONS, Lake, replace
from leveret.pipeline.transforms.messages import BRONZE_SCHEMA

FORMAT: Final = "parquet"
SCHEMA: Final = "_schema.json"


def read_bronze(spark: SparkSession, lake: Lake, table: str) -> DataFrame:
    """All messages of a table, each once."""
    files = [str(path) for path in lake.bronze_files(table)]
    return read_files(spark, lake.folder(BRONZE, table), files)


def read_files(spark: SparkSession, folder: Path, files: list[str]) -> DataFrame:
    """Files of bronze, whose folders say stream and date."""
    if not files:
        return spark.createDataFrame([], BRONZE_SCHEMA)
    reader = spark.read.schema(BRONZE_SCHEMA).option("basePath", str(folder))
    return reader.format(FORMAT).load(files)


def read_table(spark: SparkSession, lake: Lake, layer: str, table: str) -> DataFrame:
    """A table of another layer than bronze, with the schema that it has now."""
    folder = lake.require(layer, table)
    reader = spark.read.format(FORMAT)
    schema = read_schema(folder)
    return (reader.schema(schema) if schema is not None else reader).load(str(folder))


def write_table(frame: DataFrame, folder: Path, places: list[str]) -> None:
    """Write a table by stream and date: these (`stream date`) are what the frame says, others stay.

    Spark replaces the places that the frame has. One that has no rows any more is removed here.
    """
    (
        frame.write.format(FORMAT)
        .mode("overwrite")
        .option("partitionOverwriteMode", "dynamic")
        .partitionBy(*PARTITIONS)
        .save(str(folder))
    )
    replace(folder / SCHEMA, frame.schema.json())
    rows = frame.select("stream", f.col("date").cast("string")).distinct().collect()
    empty = set(places) - {f"{stream} {date}" for stream, date in rows}
    for path in folder.glob("stream=*/date=*"):
        if " ".join(unquote(part.partition("=")[2]) for part in path.parts[-2:]) in empty:
            shutil.rmtree(path)


def read_schema(folder: Path) -> StructType | None:
    """The schema of all files of a table; None where there is no such table yet."""
    path = folder / SCHEMA
    return StructType.fromJson(json.loads(path.read_text())) if path.is_file() else None
