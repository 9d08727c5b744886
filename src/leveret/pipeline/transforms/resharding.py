"""Resharding, as plain functions: which topics are copied together, and what is wrong with a table.

The tables are those of `read_jobs`: a row for each job, with the number of its shard.
"""

from collections.abc import Iterable, Iterator
from typing import TypeVar

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

Name = TypeVar("Name")


def waves(sizes: Iterable[tuple[Name, int]], rows_max: int) -> Iterator[list[Name]]:
    """Names in their order, in groups of at most so many rows, or of one name that has more."""
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
    """How many jobs of each topic are on each shard."""
    return jobs.groupBy("shard", "namespace", "topic").agg(f.count("*").alias("jobs"))


def misplaced(jobs: DataFrame, places: DataFrame) -> DataFrame:
    """Topics with jobs on another shard than `places` (namespace, topic, home) has for them."""
    known = by_topic(jobs).join(places, ["namespace", "topic"], "left")
    return known.where(f.col("home").isNull() | (f.col("home") != f.col("shard")))


def doubled(jobs: DataFrame) -> DataFrame:
    """Ids that are there more than once, with the shards that have them."""
    found = jobs.groupBy("id").agg(f.count("*").alias("copies"), f.collect_set("shard"))
    return found.toDF("id", "copies", "shards").where("copies > 1")
