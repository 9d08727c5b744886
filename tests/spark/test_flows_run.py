"""`leveret pipeline run` and `status`: a lake that is kept up to date, and how far it is behind."""

import json
from pathlib import Path

from pyspark.sql import SparkSession

from leveret.engine.streams.stream import Stream
from leveret.pipeline.flows.run import RunRequest, run_once
from leveret.pipeline.locks import exclusive_lock
from tests.spark.lake import QUERY_WITHIN_S, Served, follow
from tests.spark.test_flows_lake import environment_of
from tests.spark.test_flows_messages import run


def test_a_run_brings_the_lake_up_to_date_and_status_tells_its_lag(
    spark: SparkSession, served: Served, tmp_path: Path
) -> None:
    environment = environment_of(served, tmp_path)
    served.fill("s", 0, 10)
    served.fill("other", 0, 2)
    done = run(environment, "run", "s", "other")
    assert done.exit_code == 0, done.output
    found = {row["stream"]: row for row in json.loads(done.stdout)}
    assert (found["s"]["archived"], found["other"]["archived"]) == (10, 2)
    served.fill("s", 10, 13)
    rows = {row["stream"]: row for row in json.loads(run(environment, "status").stdout)}
    assert (rows["s"]["offset"], rows["s"]["lag"], rows["other"]["lag"]) == (10, 3, 0)
    assert rows["s"]["lag_s"] >= 0 and rows["other"]["lag_s"] == 0
    assert (rows["s"]["files"], rows["s"]["leftovers"]) == (1, 0)
    assert rows["s"]["is_running"] is not True
    with exclusive_lock(environment.lake_path / "_checkpoints" / "run.lock", "busy"):
        refused = run(environment, "run")
    assert refused.exit_code == 1 and "another run works on the lake" in refused.stderr
    done = run(environment, "run")
    assert [row["archived"] for row in json.loads(done.stdout)] == [0, 3], "all that the lake has"
    assert json.loads(run(environment, "status").stdout)[1]["lag"] == 0


def test_a_stream_that_fails_does_not_stop_the_others(
    spark: SparkSession, served: Served, tmp_path: Path
) -> None:
    environment = environment_of(served, tmp_path)
    served.fill("s", 0, 4)
    asked = RunRequest(["gone", "s"], refines=False, compacts=False)
    first, second = run_once(spark, environment, asked).streams
    assert first.fault is not None and "there is no stream 'gone'" in first.fault
    assert (second.archived, second.fault) == (4, None)


def test_a_query_stores_its_position_as_a_cursor(
    spark: SparkSession, served: Served, tmp_path: Path
) -> None:
    served.fill("s", 0, 20)
    frame = follow(
        spark,
        served,
        stream="s",
        cursor="my query",
        startingOffsets="earliest",
        maxRecordsPerTrigger=10,
    )
    query = (
        frame.writeStream.format("noop")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(QUERY_WITHIN_S)
    stream = served.server.node.broker.vhosts["/"].queues["s"]
    assert isinstance(stream, Stream)
    assert stream.cursors.cursors["my query"] in (10, 20), "Spark reports a batch with the next one"
