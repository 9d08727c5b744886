"""Streaming reads of streams: limits, AvailableNow, restarts from a checkpoint, lost data."""

import json
import threading
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tests.spark.lake import Served, archive, follow, numbers, serving

EARLIEST = {"startingOffsets": "earliest"}


def test_available_now_stops_where_the_stream_ended_at_its_start(
    spark: SparkSession, served: Served, tmp_path: Path
) -> None:
    served.fill("s", 0, 50)
    planned = tmp_path / "checkpoint" / "offsets" / "0"
    is_over = threading.Event()

    def publish_on() -> None:
        """More messages, as soon as the first of two batches is planned."""
        while not planned.exists() and not is_over.wait(0.005):
            pass
        served.fill("s", 50, 100)

    writer = threading.Thread(target=publish_on)
    frame = follow(spark, served, stream="s", maxRecordsPerTrigger=40, **EARLIEST)
    writer.start()
    try:
        done = archive(frame, tmp_path)
    finally:
        is_over.set()
        writer.join()
    assert numbers(spark, tmp_path) == list(range(50))
    assert [one["numInputRows"] for one in done if one["numInputRows"]] == [40, 10]


def test_limit_of_bytes_makes_several_batches(
    spark: SparkSession, served: Served, tmp_path: Path
) -> None:
    with served.channel() as opened:
        opened.queue_declare("s", durable=True, arguments={"x-queue-type": "stream"})
        for number in range(60):
            opened.basic_publish("", "s", b"%d" % number + b" " * 20_000)
    frame = follow(spark, served, stream="s", maxBytesPerTrigger=400_000, **EARLIEST)
    done = archive(frame, tmp_path)
    counts = [one["numInputRows"] for one in done if one["numInputRows"]]
    assert len(counts) >= 3 and max(counts) <= 25
    assert numbers(spark, tmp_path) == list(range(60))


def test_query_continues_from_its_checkpoint_and_repeats_a_planned_batch(
    spark: SparkSession, tmp_path: Path
) -> None:
    options = {"stream": "s", "maxRecordsPerTrigger": 10, **EARLIEST}
    with serving(tmp_path / "data") as served:
        served.fill("s", 0, 20)
        archive(follow(spark, served, **options), tmp_path)
    with serving(tmp_path / "data") as served:
        served.fill("s", 20, 25)
        archive(follow(spark, served, **options), tmp_path)
        assert numbers(spark, tmp_path) == list(range(25))
        # The state after a driver was killed when it had planned the last batch.
        for folder in ("checkpoint/commits", "lake/_spark_metadata"):
            (tmp_path / folder / "2").unlink()
            (tmp_path / folder / ".2.crc").unlink()
        served.fill("s", 25, 30)
        done = archive(follow(spark, served, **options), tmp_path)
        assert [one["numInputRows"] for one in done if one["numInputRows"]] == [5, 5]
    assert numbers(spark, tmp_path) == list(range(30))


def test_super_stream_is_limited_as_a_whole(
    spark: SparkSession, served: Served, tmp_path: Path
) -> None:
    with served.channel() as opened:
        opened.exchange_declare(
            "orders", "x-super-stream", durable=True, arguments={"x-partitions": 3}
        )
        for number in range(60):
            opened.basic_publish("orders", f"key-{number}", b"%d" % number)
    frame = follow(spark, served, stream="orders", maxRecordsPerTrigger=25, **EARLIEST)
    done = archive(frame, tmp_path)
    assert [one["numInputRows"] for one in done if one["numInputRows"]] == [25, 25, 10]
    end = json.loads(done[-1]["sources"][0]["endOffset"])
    assert sum(end.values()) == 60 and set(end) == {"orders-0", "orders-1", "orders-2"}
    assert numbers(spark, tmp_path) == list(range(60))


def test_offsets_deleted_by_retention_are_an_error_unless_told_otherwise(
    spark: SparkSession, served: Served, tmp_path: Path
) -> None:
    given = {"max_length_bytes": 1000, "stream_max_segment_size_bytes": 1000}
    served.fill("s", 0, 10, **given)
    archive(follow(spark, served, stream="s", **EARLIEST), tmp_path)
    with served.channel() as opened:
        for number in range(10, 200):
            opened.basic_publish("", "s", b"%d" % number)
    with pytest.raises(PySparkException, match="retention has deleted them"):
        archive(follow(spark, served, stream="s", **EARLIEST), tmp_path)
    frame = follow(spark, served, stream="s", failOnDataLoss="false", **EARLIEST)
    archive(frame, tmp_path)
    found = numbers(spark, tmp_path)
    assert found[:10] == list(range(10)) and found[-1] == 199 and len(found) < 200
