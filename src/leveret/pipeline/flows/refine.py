"""`refine`: from bronze to silver (decoded), bad (what cannot be) and gold (by hour).

A date whose number of messages in bronze has changed is made anew, and takes the place of what was
there: a run that is killed is simply run again. A field of another type than before has all dates
made anew, so that every file can be read with the one schema of the table.
"""

import json
from dataclasses import dataclass
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import StructType

from leveret.pipeline.flows.archive import only_one
from leveret.pipeline.lake import read_bronze, read_schema, write_table
from leveret.pipeline.layout import BAD, GOLD, SILVER, Lake, read_state, replace
from leveret.pipeline.transforms.decoding import JSON, bad, decoded, good, hourly, readable
from leveret.pipeline.transforms.schemas import keeps_values, merged, struct_of

_STATE: Final = "_refined.json"
Counts = dict[str, int]  # messages by stream and date


@dataclass(frozen=True)
class Refined:
    """What a run has done."""

    dates: int  # that were made anew
    messages: int  # in silver, of these dates
    bad: int


def refine(
    spark: SparkSession, lake: Lake, table: str, schema_ddl: str | None = None, is_all: bool = False
) -> Refined:
    """Bring silver, bad and gold up to what bronze has."""
    given = struct_of(schema_ddl) if schema_ddl is not None else None
    folder = lake.folder(SILVER, table)
    bronze = read_bronze(spark, lake, table)
    with only_one(lake.checkpoint(table) / "refine.lock", f"another refine of '{table}' runs"):
        counts = _counts(bronze)
        old = _payload(read_schema(folder))
        is_new = given is not None and merged(old, given) != old  # what is there may have it
        known = {} if is_all or is_new else read_state(folder / _STATE)
        changed = [each for each in counts if counts[each] != known.get(each)]
        if not changed:
            return Refined(0, 0, 0)
        texts = readable(bronze)
        schema = merged(old, given or _inferred(spark, _of(texts, changed)))
        if not keeps_values(old, schema):
            changed = list(counts)
        done = _write(lake, table, _of(texts, changed), schema, changed)
        write_table(_of(hourly(bronze), changed), lake.folder(GOLD, table), changed)
        replace(folder / _STATE, json.dumps(counts))
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
    """The rows of some streams and dates."""
    place = f.concat_ws(" ", "stream", f.col("date").cast("string"))
    dates = sorted({each.rpartition(" ")[2] for each in changed})
    # The dates by themselves as well: these are folders, and the others are not looked into.
    days = f.col("date").isin([f.lit(day).cast("date") for day in dates])
    return frame.where(days & place.isin(changed))


def _inferred(spark: SparkSession, texts: DataFrame) -> StructType:
    """The schema of all JSON objects."""
    objects = texts.where((f.col("kind") == JSON) & f.ltrim("text").startswith("{"))
    found = spark.read.json(objects.select("text"), columnNameOfCorruptRecord="_corrupt").schema
    return StructType([field for field in found.fields if field.name != "_corrupt"])


def _payload(schema: StructType | None) -> StructType:
    if schema is None or "payload" not in schema.names:
        return StructType([])
    found = schema["payload"].dataType
    assert isinstance(found, StructType)
    return found
