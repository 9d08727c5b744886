"""Topics copied ahead by Spark, and all shards compared with the map."""

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from leveret.job_service.shards.resharding.copying_ahead import CopyRange
from leveret.job_service.shards.resharding.topic_mover import open_mover
from leveret.job_service.shards.routing import slot_of
from leveret.pipeline.flows.reshard import ReshardProgress, ReshardRequest, reshard, verify
from leveret.pipeline.shards import copy_ahead
from leveret.pipeline.transforms.resharding import duplicated, group_by_size, on_wrong_shard
from tests.jobs.shards.deployment import Deployment, drain, new
from tools.services import shared_postgres, shared_redis

TOPICS = [f"t{number}" for number in range(6)]
JOBS = 120  # of each


@pytest.fixture
def deployment(tmp_path: Path) -> Iterator[Deployment]:
    """Three shards, two of them in use, with jobs."""
    with shared_postgres().databases(3) as dsns:
        wide = Deployment(shared_redis().fresh_url(), dsns, tmp_path)

        async def fill() -> None:
            async with open_mover(dsns):
                await wide.rows("INSERT INTO map_state VALUES (2)", shard=0)
            async with wide.node() as store:
                for topic in TOPICS:
                    await store.enqueue([new(topic, b"%d" % n) for n in range(JOBS)])

        asyncio.run(fill())
        yield wide


def moves(before: int, after: int) -> int:
    """Return how many topics would move."""
    slots = [slot_of(("n", topic)) for topic in TOPICS]
    return sum(slot % before != slot % after for slot in slots)


def test_spark_copies_topics_ahead(spark: SparkSession, deployment: Deployment) -> None:
    told: list[ReshardProgress] = []
    asked = ReshardRequest(tuple(deployment.dsns), 3, batch_rows=50, ahead_from=100)
    calls: list[int] = []

    def twice(parts: list[CopyRange], batch_rows: int, rate: float | None) -> int:
        """Copy everything twice, as if every task were repeated."""
        calls.append(copy_ahead(spark, parts, batch_rows, rate))
        return copy_ahead(spark, parts, batch_rows, 100_000) + calls[-1]

    done = reshard(lambda: twice, asked, told.append)
    assert done.copied_ahead == done.jobs == moves(2, 3) * JOBS == calls[0] > 0
    assert all(each.carried == 0 for each in done.topics)  # nothing has changed since
    assert told and "topics" in told[-1].line()
    found = verify(spark, tuple(deployment.dsns))
    assert found.is_right and (found.shards, found.jobs) == (3, len(TOPICS) * JOBS)

    back = reshard(
        lambda: partial(copy_ahead, spark), ReshardRequest(tuple(deployment.dsns), 2), told.append
    )
    assert back.copied_ahead == 0 and back.jobs == done.jobs  # too few to copy ahead

    async def empty() -> int:
        async with deployment.at(dsns=deployment.dsns[:2]).node() as store:
            return sum([len(await drain(store, topic)) for topic in TOPICS])

    assert asyncio.run(empty()) == len(TOPICS) * JOBS


def test_verify_finds_misplaced_and_doubled_jobs(
    spark: SparkSession, deployment: Deployment
) -> None:
    topic = next(name for name in TOPICS if slot_of(("n", name)) % 2 == 0)
    sql = "SELECT * FROM items WHERE topic = $1 LIMIT 1"
    (row,) = asyncio.run(deployment.rows(sql, topic, shard=0))
    slots = ", ".join(f"${number}" for number in range(1, len(row) + 1))
    plain = "INSERT INTO topics VALUES ('n', $1, 'frozen', 1, 1, 1, 0, 1000)"
    asyncio.run(deployment.rows(plain, topic, shard=1))
    asyncio.run(deployment.rows(f"INSERT INTO items VALUES ({slots})", *row, shard=1))
    found = verify(spark, tuple(deployment.dsns))
    assert not found.is_right and found.unsettled == [topic]
    assert [each["id"] for each in found.doubled] == [row["id"]]
    (wrong,) = found.misplaced
    assert (wrong["topic"], wrong["shard"], wrong["home"]) == (topic, 1, 0)


def test_transforms(spark: SparkSession) -> None:
    assert list(group_by_size([("a", 5), ("b", 5), ("c", 20), ("d", 1)], 10)) == [
        ["a", "b"],
        ["c"],
        ["d"],
    ]
    jobs = spark.createDataFrame(
        [(0, 1, "n", "t"), (1, 1, "n", "t"), (1, 2, "n", "u")],
        "shard int, id bigint, namespace string, topic string",
    )
    homes = spark.createDataFrame(
        [("n", "t", 0), ("n", "u", 1)], "namespace string, topic string, home int"
    )
    assert [row.id for row in duplicated(jobs).collect()] == [1]
    assert [(row.topic, row.shard) for row in on_wrong_shard(jobs, homes).collect()] == [("t", 1)]


def command(deployment: Deployment, *words: str) -> Any:
    dsns = [word for dsn in deployment.dsns for word in ("--jobs-postgres", dsn)]
    called = [sys.executable, "-m", "leveret", "pipeline", "reshard", *dsns, *words]
    return subprocess.run(called, capture_output=True, text=True, timeout=540, check=False)


def test_command_shows_its_plan_and_runs_it(deployment: Deployment) -> None:
    shown = command(deployment, "--to", "3", "--dry-run", "--json")
    found = json.loads(shown.stdout)
    assert (found["shards"], found["to"], len(found["topics"])) == (2, 3, moves(2, 3))
    assert found["jobs"] == moves(2, 3) * JOBS and found["bytes"] > found["jobs"]
    assert "nothing was changed" in command(deployment, "--to", "3", "--dry-run").stdout
    done = command(deployment, "--to", "3", "--json")
    assert done.returncode == 0, done.stderr
    assert "was frozen for" in done.stderr
    told = json.loads(done.stdout)
    assert told["jobs"] == found["jobs"]
    assert all(each["frozen_ms"] > 0 for each in told["topics"])
    wrong = command(deployment, "--to", "4")
    assert wrong.returncode == 1 and "give all 4 databases" in wrong.stderr
