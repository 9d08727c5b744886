"""Jobs of all shards as a table."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from leveret.job_model import Handle
from leveret.pipeline.shards import read_jobs
from tests.jobs.shards.deployment import Deployment, new, topic_on
from tools.services import shared_postgres, shared_redis


@pytest.fixture
def deployment(tmp_path: Path) -> Iterator[Deployment]:
    with shared_postgres().databases(2) as dsns:
        yield Deployment(shared_redis().fresh_url(), dsns, tmp_path)


def test_jobs_of_all_shards_are_one_table(spark: SparkSession, deployment: Deployment) -> None:
    async def fill() -> int:
        async with deployment.node() as store:
            for shard in (0, 1):
                jobs = [new(topic_on(shard), b"\0%d" % n, priority=n % 3) for n in range(50)]
                await store.enqueue(jobs)
            (leased,) = await store.dequeue("n", topic_on(0), 1, None, 1000)
            await store.nack("n", topic_on(0), [Handle(leased.id)], "no", 60_000)
            return leased.id

    failed = asyncio.run(fill())
    frame = read_jobs(spark, deployment.dsns, part_rows=20)
    assert frame.rdd.getNumPartitions() == 6
    rows = frame.collect()
    assert len({row.id for row in rows}) == len(rows) == 100
    assert {(row.shard, row.topic) for row in rows} == {(0, topic_on(0)), (1, topic_on(1))}
    (row,) = [row for row in rows if row.id == failed]
    assert row.status == "scheduled" and row.attempts == 1 and '"no"' in row.failures
    assert bytes(row.payload).startswith(b"\0") and row.created_at <= row.deliver_after
    narrow = read_jobs(
        spark, deployment.dsns, where="j.status = 'scheduled'", columns=("id", "topic")
    )
    assert [tuple(row) for row in narrow.collect()] == [(0, failed, topic_on(0))]


def test_rows_of_a_topic_that_has_moved_are_not_counted(
    spark: SparkSession, deployment: Deployment
) -> None:
    async def fill() -> None:
        async with deployment.node() as store:
            await store.enqueue([new(topic_on(0))])
        name = topic_on(0)
        await deployment.rows(
            "INSERT INTO topics VALUES ('n', $1, 'moved', 1, 1, 1, 0, 1000)", name, shard=0
        )

    asyncio.run(fill())
    assert read_jobs(spark, deployment.dsns).count() == 0
    assert len(asyncio.run(deployment.rows("SELECT id FROM items"))) == 1
