"""A stream as one table: archived messages from the lake, newer ones from the broker."""

from pathlib import Path
from urllib.parse import unquote, urlsplit

from pyspark.sql import SparkSession

from leveret.lake.layout import Lake
from leveret.pipeline.flows.compact import compact
from leveret.pipeline.union_read import union_read
from tests.spark.lake import Served, batch
from tests.spark.test_flows_lake import archived, environment_of


def test_stream_is_one_table_of_lake_and_broker(
    spark: SparkSession, served: Served, tmp_path: Path
) -> None:
    environment = environment_of(served, tmp_path)
    lake = Lake(environment.lake_path)
    served.fill("s", 0, 12)
    archived(spark, environment)
    served.fill("s", 12, 15)
    whole = union_read(spark, environment, "s")
    assert {Path(unquote(urlsplit(name).path)) for name in whole.inputFiles()} == set(
        lake.bronze_files("s")
    ), "Spark reads the files of the lake itself"
    archived(spark, environment)
    compact(spark, lake, "s")
    served.fill("s", 15, 18)
    for frame in (
        whole,  # which still begins at the broker with offset 12
        union_read(spark, environment, "s", ["date", "body", "offset"]),
        batch(spark, served, stream="s", lake=lake.path),
    ):
        rows = frame.select("offset", "body").collect()
        assert sorted((row.offset, int(row.body)) for row in rows) == [(n, n) for n in range(18)]
