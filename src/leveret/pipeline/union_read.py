"""Read a stream as one table: archived messages from the lake, newer ones from the broker.

Spark's own Parquet reader reads the lake, so a year of messages is read at the speed of Parquet.
The two parts meet at an offset (`pyspark_leveret.history`): each message is in the table once. The
frame keeps the offset at which it was made. A query on it ends at the broker's last message.
"""

import json

from pyspark.sql import DataFrame, SparkSession

from leveret.lake.layout import BRONZE, Lake, table_name
from leveret.pipeline.environment import Environment
from leveret.pipeline.lake_tables import read_files
from leveret.pipeline.transforms.messages import DATE, with_date
from pyspark_leveret.history import find_union
from pyspark_leveret.options import parse_options
from pyspark_leveret.schema import TYPES


def union_read(
    spark: SparkSession,
    environment: Environment,
    stream: str,
    columns: list[str] | None = None,
    *,
    fails_on_loss: bool = True,
) -> DataFrame:
    """Return all messages of a stream, with the columns of bronze, or some of them.

    Raise DataLostError if retention has deleted messages at the broker that the lake does not have,
    unless `fails_on_loss` is false.
    """
    wanted = columns or [*TYPES, DATE]
    given: dict[str, object] = {"stream": stream, "failOnDataLoss": fails_on_loss}
    found = find_union(parse_options(environment.options(**given, lake=environment.lake_path)))
    folder = Lake(environment.lake_path).folder(BRONZE, table_name(environment.vhost, stream))
    history = read_files(spark, folder, [str(path) for path in found.history.files])
    needed = [name for name in TYPES if name in wanted or (name == "timestamp" and DATE in wanted)]
    given |= {"startingOffsets": json.dumps(found.starting()), "pushFilters": True}
    tail = read_broker(spark, environment, needed, **given)
    if DATE in wanted:
        tail = with_date(tail)
    return history.select(*wanted).unionByName(tail.select(*wanted))


def read_broker(
    spark: SparkSession, environment: Environment, columns: list[str], **options: object
) -> DataFrame:
    """Return some columns of a stream or queue of the broker."""
    schema = ", ".join(f"`{name}` {TYPES[name]}" for name in columns)
    given = environment.options(**options)
    return spark.read.format("leveret").options(**given).schema(schema).load()
