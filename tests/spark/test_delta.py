"""Archive into a Delta table: every message once, and other programs read it."""

from pathlib import Path

import duckdb
import polars
import pytest
from pyspark.sql import SparkSession

from leveret.errors import PreconditionFailedError
from leveret.lake import delta
from leveret.lake.layout import BRONZE, Lake
from leveret.pipeline.environment import Environment
from leveret.pipeline.flows.archive import ArchiveRequest, archive
from leveret.pipeline.flows.compact import compact
from leveret.pipeline.flows.sql import Tables
from leveret.pipeline.lake_tables import read_bronze
from tests.spark.lake import Served
from tests.spark.test_flows_lake import bodies, environment_of


def archived(spark: SparkSession, environment: Environment, kind: str | None = None) -> int:
    request = ArchiveRequest("s", format=kind)
    return archive(spark, environment, request, lambda progress: None).rows


def test_delta_table_has_each_message_once_for_spark_and_for_others(
    spark: SparkSession, served: Served, tmp_path: Path
) -> None:
    environment = environment_of(served, tmp_path)
    lake = Lake(environment.lake_path)
    folder = lake.folder(BRONZE, "s")
    served.fill("s", 0, 12)
    assert archived(spark, environment, "delta") == 12
    with pytest.raises(PreconditionFailedError, match="has been written as delta, not as parquet"):
        archived(spark, environment, "parquet")
    served.fill("s", 12, 20)
    assert archived(spark, environment) == 8, "it continues, and keeps the format"
    done = compact(spark, lake, "s", keep_s=0)
    assert (done.files_before, done.files_after, done.messages, done.deleted) == (2, 1, 20, 2)
    served.fill("s", 20, 25)
    assert bodies(spark, environment) == list(range(20))
    assert read_bronze(spark, lake, "s").where("stream = 's'").count() == 20
    found = Tables(spark, environment).rows("select count(*) as n, max(offset) as m from s", 1)
    assert found == [{"n": 25, "m": 24}]
    require_readable(folder, 20)


def require_readable(folder: Path, end: int) -> None:
    """Read the table with DuckDB, Polars and pandas."""
    table = delta.open_table(folder)
    with duckdb.connect() as database:
        database.register("messages", table.to_pyarrow_dataset())
        query = 'select body, stream, date = cast("timestamp" as date) from messages'
        rows = database.execute(f'{query} order by "offset"').fetchall()
    assert rows == [(b"%d" % n, "s", True) for n in range(end)]
    late = polars.scan_delta(str(folder)).filter(polars.col("offset") >= end - 5)
    assert late.select("body").sort("body").collect()["body"].to_list() == [
        b"%d" % n for n in range(end - 5, end)
    ]
    frame = table.to_pandas()
    assert sorted(frame["offset"]) == list(range(end))
    assert str(frame["timestamp"].dtype) == "datetime64[us, UTC]"
