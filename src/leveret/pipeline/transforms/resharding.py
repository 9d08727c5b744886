"""Group topics for resharding, and find misplaced and duplicated jobs.

The frames are those of `read_jobs`: a row for each job, with the number of its shard.
"""

from collections.abc import Iterable, Iterator
from typing import TypeVar

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

Name = TypeVar("Name")


def group_by_size(sizes: Iterable[tuple[Name, int]], rows_max: int) -> Iterator[list[Name]]:
    """Group names in order, `rows_max` rows in a group. A larger name is a group of its own."""
    group: list[Name] = []
    rows = 0
    for name, size in sizes:
        if group and rows + size > rows_max:
            yield group
            group, rows = [], 0
        group.append(name)
        rows += size
    if group:
        yield group


def by_topic(jobs: DataFrame) -> DataFrame:
    """Count the jobs of each topic on each shard."""
    return jobs.groupBy("shard", "namespace", "topic").agg(f.count("*").alias("jobs"))


def on_wrong_shard(jobs: DataFrame, places: DataFrame) -> DataFrame:
    """Return topics with jobs on another shard than `places` (namespace, topic, home) says."""
    known = by_topic(jobs).join(places, ["namespace", "topic"], "left")
    return known.where(f.col("home").isNull() | (f.col("home") != f.col("shard")))


def duplicated(jobs: DataFrame) -> DataFrame:
    """Return ids that exist more than once, with their shards."""
    found = jobs.groupBy("id").agg(f.count("*").alias("copies"), f.collect_set("shard"))
    return found.toDF("id", "copies", "shards").where("copies > 1")
