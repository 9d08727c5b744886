"""Queues as tables: streaming queries consume them in epochs, batch queries only peek."""

from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tests.http.asking import ask
from tests.spark.lake import Served, archive, batch, follow, numbers, serving


def seen(served: Served) -> list[dict[str, object]]:
    """The queue as peek shows it, but for ages."""
    _, found = ask(served.server, "GET", "/api/queues/%2F/q/peek?count=500")
    return [{key: item[key] for key in item if key != "age_ms"} for item in found]


def test_queue_is_consumed_in_epochs_and_empty_at_the_end(
    spark: SparkSession, served: Served, tmp_path: Path
) -> None:
    served.fill("q", 0, 100, "classic")
    options = {"queue": "q", "reader": "lake", "maxRecordsPerTrigger": 40}
    done = archive(follow(spark, served, minPartitions=2, **options), tmp_path)
    assert [one["numInputRows"] for one in done if one["numInputRows"]] == [40, 40, 20]
    assert numbers(spark, tmp_path) == list(range(100))
    assert served.count("q") == 0
    _, lease = ask(served.server, "GET", "/api/queues/%2F/q/leases/lake")
    assert (lease["acked"], lease["epochs"]) == (3, [])
    served.fill("q", 100, 110, "classic")
    archive(follow(spark, served, **options), tmp_path)
    assert numbers(spark, tmp_path) == list(range(110))


def test_epoch_of_a_lost_driver_is_read_again_after_the_broker_restarted(
    spark: SparkSession, tmp_path: Path
) -> None:
    options = {"queue": "q", "reader": "lake", "maxRecordsPerTrigger": 10}
    with serving(tmp_path / "data") as served:
        served.fill("q", 0, 10, "classic")
        archive(follow(spark, served, **options), tmp_path)
        served.fill("q", 10, 30, "classic")
        # The state after a driver was killed when it had planned a batch.
        assert ask(served.server, "POST", "/api/queues/%2F/q/leases/lake/2?count=5")[0] == 200
        plan_next_batch(tmp_path / "checkpoint" / "offsets")
    with serving(tmp_path / "data") as served:
        assert served.count("q") == 15
        done = archive(follow(spark, served, **options), tmp_path)
        counts = [one["numInputRows"] for one in done if one["numInputRows"]]
        assert counts == [5, 10, 5]
        assert numbers(spark, tmp_path) == list(range(30))
        assert served.count("q") == 0


def plan_next_batch(folder: Path) -> None:
    """Write the offset log of a second batch, with the epoch behind the first."""
    first = (folder / "0").read_text()
    assert '{"epoch": 1}' in first
    (folder / "1").write_text(first.replace('{"epoch": 1}', '{"epoch": 2}'))


def test_epoch_without_a_plan_is_found_again(
    spark: SparkSession, served: Served, tmp_path: Path
) -> None:
    served.fill("q", 0, 20, "classic")
    assert ask(served.server, "POST", "/api/queues/%2F/q/leases/lake/1?count=7")[0] == 200
    done = archive(follow(spark, served, queue="q", reader="lake"), tmp_path)
    assert [one["numInputRows"] for one in done if one["numInputRows"]] == [7, 13]
    assert numbers(spark, tmp_path) == list(range(20))


def test_peek_leaves_the_queue_as_it_is(spark: SparkSession, served: Served) -> None:
    served.fill("q", 0, 50, "classic")
    with served.channel() as opened:
        opened.basic_get("q", auto_ack=True)
    before = seen(served)
    frame = batch(spark, served, "offset bigint, body binary", queue="q", minPartitions=3)
    rows = frame.orderBy("offset").collect()
    assert [(row.offset, int(row.body)) for row in rows] == [(n, n) for n in range(1, 50)]
    assert seen(served) == before
    assert [int(body) for body in served.take_all("q")] == list(range(1, 50))


def test_lost_messages_of_an_epoch_are_an_error_unless_told_otherwise(
    spark: SparkSession, tmp_path: Path
) -> None:
    with serving(tmp_path / "data") as served:
        served.fill("q", 0, 3, "classic")
        with served.channel() as opened:
            opened.basic_publish("", "q", b"3")  # transient
        assert ask(served.server, "POST", "/api/queues/%2F/q/leases/lake/1?count=9")[0] == 200
    with serving(tmp_path / "data") as served:
        with pytest.raises(PySparkException, match="they were not persistent"):
            archive(follow(spark, served, queue="q", reader="lake"), tmp_path)
        options = {"queue": "q", "reader": "lake", "failOnDataLoss": "false"}
        archive(follow(spark, served, **options), tmp_path)
        assert numbers(spark, tmp_path) == [0, 1, 2]


def test_a_missing_queue_is_an_error(spark: SparkSession, served: Served, tmp_path: Path) -> None:
    with pytest.raises(PySparkException, match="there is no queue 'nothing' in vhost '/'"):
        archive(follow(spark, served, queue="nothing", reader="r"), tmp_path)
