"""`refine`: make silver (decoded), bad (not decodable) and gold (by hour) tables from bronze.

A date is rebuilt if its number of messages in bronze has changed. The new files replace the old
ones, so a killed run can simply be run again. If the type of a field changes, all dates are
rebuilt, so that every file can be read with the one schema of the table.
"""

import json
from dataclasses import dataclass
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import StructType

from leveret.pipeline.lake_layout import BAD, GOLD, SILVER, Lake, read_state, replace_file
from leveret.pipeline.lake_tables import read_bronze, read_schema, write_table
from leveret.pipeline.locks import exclusive_lock
from leveret.pipeline.transforms.decoding import JSON, bad, count_by_hour, decodable, decoded, good
from leveret.pipeline.transforms.schemas import merge_schemas, only_adds_fields, parse_schema

_STATE: Final = "_refined.json"
Counts = dict[str, int]  # messages by stream and date


@dataclass(frozen=True)
class Refined:
    """The result of a run."""

    dates: int  # that were rebuilt
    messages: int  # in silver, of these dates
    bad: int


def refine(
    spark: SparkSession, lake: Lake, table: str, schema_ddl: str | None = None, is_all: bool = False
) -> Refined:
    """Update silver, bad and gold from bronze."""
    given = parse_schema(schema_ddl) if schema_ddl is not None else None
    folder = lake.folder(SILVER, table)
    bronze = read_bronze(spark, lake, table)
    with exclusive_lock(
        lake.checkpoint(table) / "refine.lock", f"another refine of '{table}' runs"
    ):
        counts = _counts(bronze)
        old = _payload(read_schema(folder))
        # New fields of a given schema may be in old messages too: rebuild all dates.
        is_new = given is not None and merge_schemas(old, given) != old
        known = {} if is_all or is_new else read_state(folder / _STATE)
        changed = [each for each in counts if counts[each] != known.get(each)]
        if not changed:
            return Refined(0, 0, 0)
        texts = decodable(bronze)
        schema = merge_schemas(old, given or _inferred(spark, _of(texts, changed)))
        if not only_adds_fields(old, schema):
            changed = list(counts)
        done = _write(lake, table, _of(texts, changed), schema, changed)
        write_table(_of(count_by_hour(bronze), changed), lake.folder(GOLD, table), changed)
        replace_file(folder / _STATE, json.dumps(counts))
        return Refined(len(changed), *done)


def _write(
    lake: Lake, table: str, texts: DataFrame, schema: StructType, changed: list[str]
) -> tuple[int, int]:
    found = decoded(texts, schema).cache()
    try:
        values = good(found, schema)
        write_table(values, lake.folder(SILVER, table), changed)
        faults = bad(found)
        write_table(faults, lake.folder(BAD, table), changed)
        return values.count(), faults.count()
    finally:
        found.unpersist()


def _counts(bronze: DataFrame) -> Counts:
    rows = bronze.groupBy("stream", f.col("date").cast("string").alias("date")).count().collect()
    return {f"{row['stream']} {row['date']}": row["count"] for row in rows}


def _of(frame: DataFrame, changed: list[str]) -> DataFrame:
    """Return the rows of some streams and dates."""
    place = f.concat_ws(" ", "stream", f.col("date").cast("string"))
    dates = sorted({each.rpartition(" ")[2] for each in changed})
    # The condition on the date alone lets Spark skip the folders of other dates.
    days = f.col("date").isin([f.lit(day).cast("date") for day in dates])
    return frame.where(days & place.isin(changed))


def _inferred(spark: SparkSession, texts: DataFrame) -> StructType:
    """Return the common schema of all JSON objects."""
    objects = texts.where((f.col("kind") == JSON) & f.ltrim("text").startswith("{"))
    found = spark.read.json(objects.select("text"), columnNameOfCorruptRecord="_corrupt").schema
    return StructType([field for field in found.fields if field.name != "_corrupt"])


def _payload(schema: StructType | None) -> StructType:
    if schema is None or "payload" not in schema.names:
        return StructType([])
    found = schema["payload"].dataType
    assert isinstance(found, StructType)
    return found
