"""`refine`: make silver (decoded), bad (not decodable) and gold (by hour) tables from bronze.

A date is rebuilt if its number of messages in bronze has changed. The new files replace the old
ones, so a killed run can simply be run again. If the type of a field changes, all dates are
rebuilt, so that every file can be read with the one schema of the table.
"""

import json
from dataclasses import dataclass, field
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import StructType

from leveret.lake.layout import (
    BAD,
    GOLD,
    QUARANTINED,
    REFINED,
    SILVER,
    Lake,
    read_state,
    replace_file,
)
from leveret.pipeline.lake_tables import read_bronze, read_schema, write_table
from leveret.pipeline.locks import exclusive_lock
from leveret.pipeline.payload_codecs import Codec, restore_codec
from leveret.pipeline.transforms.decoding import (
    JSON,
    bad,
    count_by_hour,
    decodable,
    decoded,
    good,
    is_packed,
)
from leveret.pipeline.transforms.schemas import (
    merge_schemas,
    only_adds_fields,
    parse_schema,
    unite_fields,
    writable,
)

_CODEC: Final = "_codec.json"  # the schema file of binary bodies
Counts = dict[str, int]  # messages by stream and date


@dataclass(frozen=True)
class Refined:
    """The result of a run."""

    dates: int  # that were rebuilt
    messages: int  # in silver, of these dates
    bad: int
    faults: dict[str, int] = field(default_factory=dict)  # bad messages by reason
    skipped: int = 0  # of content types that are not decoded: bronze has them


def refine(
    spark: SparkSession,
    lake: Lake,
    table: str,
    schema_ddl: str | None = None,
    is_all: bool = False,
    codec: Codec | None = None,
) -> Refined:
    """Update silver, bad and gold from bronze. The codec of an earlier run stays in use."""
    folder = lake.folder(SILVER, table)
    bronze = read_bronze(spark, lake, table)
    with exclusive_lock(
        lake.checkpoint(table) / "refine.lock", f"another refine of '{table}' runs"
    ):
        counts = _counts(bronze)
        old = _payload(read_schema(folder))
        stored = read_state(folder / _CODEC)
        used = codec or restore_codec(stored)
        given = _given_schema(schema_ddl, used)
        # New fields of a given schema may be in old messages too: rebuild all dates.
        is_new = given is not None and merge_schemas(old, given) != old
        is_new = is_new or (codec is not None and codec.stored() != stored)
        known = {} if is_all or is_new else read_state(folder / REFINED)
        changed = [each for each in counts if counts[each] != known.get(each)]
        if not changed:
            return Refined(0, 0, 0)
        texts = _texts(bronze, changed, used)
        schema, left_out = writable(
            merge_schemas(old, given or _inferred(spark, _of(texts, changed)))
        )
        if not only_adds_fields(old, schema):
            changed = list(counts)
            texts = _texts(bronze, changed, used)
        found = decoded(_of(texts, changed), schema, left_out)
        done = _write(lake, table, found, schema, changed)
        write_table(_of(count_by_hour(bronze), changed), lake.folder(GOLD, table), changed)
        if codec is not None:
            replace_file(folder / _CODEC, json.dumps(codec.stored()))
        replace_file(folder / REFINED, json.dumps(counts))
        total = sum(counts[each] for each in changed)
        return Refined(len(changed), *done, total - done[0] - done[1])


def infer_schema(
    spark: SparkSession, lake: Lake, table: str, codec: Codec | None = None
) -> StructType:
    """Return the schema that `refine` would use for all messages of a table. Writes nothing."""
    folder = lake.folder(SILVER, table)
    bronze = read_bronze(spark, lake, table)
    used = codec or restore_codec(read_state(folder / _CODEC))
    if used is not None:
        return used.schema()
    return writable(_inferred(spark, _texts(bronze, list(_counts(bronze)), None)))[0]


def _given_schema(ddl: str | None, codec: Codec | None) -> StructType | None:
    """Return the schema that an option or a schema file gives; None if it must be inferred."""
    given = parse_schema(ddl) if ddl is not None else None
    if codec is None:
        return given
    return merge_schemas(codec.schema(), given) if given is not None else codec.schema()


def _texts(bronze: DataFrame, changed: list[str], codec: Codec | None) -> DataFrame:
    has_packed = not _of(bronze, changed).where(is_packed()).limit(1).isEmpty()
    return decodable(bronze, codec, has_packed=has_packed)


def _write(
    lake: Lake, table: str, found: DataFrame, schema: StructType, changed: list[str]
) -> tuple[int, int, dict[str, int]]:
    """Write silver and bad; return the number of messages in each, and the faults by reason."""
    found.cache()
    try:
        values = good(found, schema)
        write_table(values, lake.folder(SILVER, table), changed)
        folder = lake.folder(BAD, table)
        faults = bad(found)
        write_table(faults, folder, changed)
        place = f.concat_ws(" ", "stream", f.col("date").cast("string")).alias("place")
        rows = faults.groupBy(place, "fault").count().collect()
        counts = {k: n for k, n in read_state(folder / QUARANTINED).items() if k not in changed}
        reasons: dict[str, int] = {}
        for row in rows:
            counts[row["place"]] = counts.get(row["place"], 0) + row["count"]
            reasons[row["fault"]] = reasons.get(row["fault"], 0) + row["count"]
        replace_file(folder / QUARANTINED, json.dumps(counts))
        return values.count(), sum(reasons.values()), reasons
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
    known = unite_fields(StructType([each for each in found.fields if each.name != "_corrupt"]))
    assert isinstance(known, StructType)
    return _most_used_first(objects, known) if writable(known)[1] else known


def _most_used_first(objects: DataFrame, schema: StructType) -> StructType:
    """Order fields by the number of objects that have them, for names that differ in case only."""
    names = objects.select(f.explode(f.json_object_keys("text")).alias("name"))
    counts = {row["name"]: row["count"] for row in names.groupBy("name").count().collect()}
    return StructType(sorted(schema.fields, key=lambda each: -counts.get(each.name, 0)))


def _payload(schema: StructType | None) -> StructType:
    if schema is None or "payload" not in schema.names:
        return StructType([])
    found = schema["payload"].dataType
    assert isinstance(found, StructType)
    return found
