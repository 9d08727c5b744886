"""Flows over the lake: archive, refine, compact, with a real broker."""

import json
import shutil
from pathlib import Path

import pika
import pytest
from pyspark.sql import SparkSession

from leveret.engine.streams.stream import Stream
from leveret.errors import NotFoundError, PreconditionFailedError, ResourceLockedError
from leveret.lake.layout import Lake
from leveret.pipeline.environment import Environment
from leveret.pipeline.flows.archive import ArchiveRequest, archive, life_event_stream
from leveret.pipeline.flows.compact import compact
from leveret.pipeline.flows.refine import refine
from leveret.pipeline.lake_tables import read_bronze, read_table
from leveret.pipeline.leftovers import archive_lock
from leveret.pipeline.locks import exclusive_lock, is_locked
from leveret.pipeline.query_progress import QueryProgress
from tests.spark.lake import Served


def environment_of(served: Served, folder: Path) -> Environment:
    return Environment(served.http, lake_dir=str(folder / "lake"))


def archived(
    spark: SparkSession, environment: Environment, stream: str = "s"
) -> list[QueryProgress]:
    told: list[QueryProgress] = []
    archive(spark, environment, ArchiveRequest(stream), told.append)
    return told


def bodies(spark: SparkSession, environment: Environment, table: str = "s") -> list[int]:
    rows = read_bronze(spark, Lake(environment.lake_path), table).select("body").collect()
    return sorted(int(row.body) for row in rows)


def test_archive_continues_and_compact_keeps_every_message(
    spark: SparkSession, served: Served, tmp_path: Path
) -> None:
    environment = environment_of(served, tmp_path)
    lake = Lake(environment.lake_path)
    for first in (0, 10):
        served.fill("s", first, first + 10)
        last = archived(spark, environment)[-1]
        assert (last.rows, last.lag) == (10, 0)
    small = lake.bronze_files("s")
    killed = small[0].parent / "part-killed.parquet"  # as a killed task leaves it
    killed.touch()
    (small[0].parent / "part-done.parquet").write_bytes(b"a batch that ran again")
    left = small[0].parent / "merged-1-killed.parquet"  # and a killed compact
    left.touch()
    done = compact(spark, lake, "s")
    assert (done.files_before, done.files_after, done.messages, done.deleted) == (2, 1, 20, 0)
    assert done.leftovers == 1 and not killed.exists()
    stream = served.server.node.broker.vhosts["/"].queues["s"]
    assert isinstance(stream, Stream) and stream.cursors.cursors == {"archive": 20}
    assert all(path.exists() for path in small), "somebody may be reading them"
    assert not left.exists()
    served.fill("s", 20, 30)
    archived(spark, environment)
    assert bodies(spark, environment) == list(range(30))
    with exclusive_lock(archive_lock(lake, "s"), "busy"):
        assert compact(spark, lake, "s", file_bytes=1, keep_s=0).leftovers == 0, "an archive runs"
    done = compact(spark, lake, "s", keep_s=0)
    assert (done.files_before, done.files_after, done.messages) == (2, 1, 30)
    assert done.leftovers == 1, "the file of the batch that ran again"
    assert not any(path.exists() for path in small)
    served.fill("s", 30, 35)
    archived(spark, environment)
    assert bodies(spark, environment) == list(range(35))


def test_a_table_without_its_checkpoint_is_refused_and_so_is_the_reverse(
    spark: SparkSession, served: Served, tmp_path: Path
) -> None:
    environment = environment_of(served, tmp_path)
    lake = Lake(environment.lake_path)
    served.fill("s", 0, 5)
    archived(spark, environment)
    for folder in (lake.checkpoint("s"), lake.folder("bronze", "s")):
        away = tmp_path / "away"
        folder.rename(away)
        with pytest.raises(PreconditionFailedError, match=f"{folder} is missing"):
            archived(spark, environment)
        shutil.rmtree(folder, ignore_errors=True)  # the lock
        away.rename(folder)
    served.fill("s", 5, 8)
    archived(spark, environment)
    assert bodies(spark, environment) == list(range(8))


def test_files_of_a_manifest_that_spark_has_compacted_count_once(tmp_path: Path) -> None:
    folder = tmp_path / "bronze" / "s"
    names = {"8": ["h"], "9.compact": ["a", "h", "i"], "10": ["j"], "9": ["i"], "11": []}
    (folder / "_spark_metadata").mkdir(parents=True)
    for name, files in names.items():
        lines = [json.dumps({"path": f"file:///old/bronze/s/d=1%3A/{one}"}) for one in files]
        (folder / "_spark_metadata" / name).write_text("\n".join(["v1", *lines]))
    (folder / "_spark_metadata" / ".11.crc").touch()
    found = Lake(tmp_path).bronze_files("s")
    assert found == [folder / "d=1:" / one for one in ("a", "h", "i", "j")]


def publish_json(served: Served, *bodies: object) -> None:
    with served.channel() as opened:
        opened.queue_declare("s", durable=True, arguments={"x-queue-type": "stream"})
        properties = pika.BasicProperties(content_type="application/json")
        for body in bodies:
            text = body if isinstance(body, str) else json.dumps(body)
            opened.basic_publish("", "s", text.encode(), properties)


def test_refine_decodes_and_its_schema_grows(
    spark: SparkSession, served: Served, tmp_path: Path
) -> None:
    environment = environment_of(served, tmp_path)
    lake = Lake(environment.lake_path)
    publish_json(served, {"id": 1}, {"id": 2}, "{broken")
    archived(spark, environment)
    done = refine(spark, lake, "s")
    assert (done.dates, done.messages, done.bad) == (1, 2, 1)
    assert refine(spark, lake, "s").dates == 0, "nothing has come since"
    publish_json(served, {"id": "three", "more": {"x": 1.5}})
    archived(spark, environment)
    refine(spark, lake, "s")
    silver = read_table(spark, lake, "silver", "s").orderBy("offset")
    found = [json.loads(row[0]) for row in silver.selectExpr("to_json(payload)").collect()]
    assert found == [{"id": "1"}, {"id": "2"}, {"id": "three", "more": {"x": 1.5}}]
    assert [row.fault for row in read_table(spark, lake, "bad", "s").collect()] == [
        "not JSON of this schema"
    ]
    refine(spark, lake, "s", is_all=True)
    again = read_table(spark, lake, "silver", "s")
    assert again.count() == 3, "rebuilt dates replace the old ones"
    gold = read_table(spark, lake, "gold", "s")
    assert sum(row.messages for row in gold.collect()) == 4


def test_no_field_name_keeps_refine_from_its_work(
    spark: SparkSession, served: Served, tmp_path: Path
) -> None:
    environment = environment_of(served, tmp_path)
    lake = Lake(environment.lake_path)
    odd = '{"id": 2, "a`b": 1, "": 2, "nested": {"x": 1, "X": 2}, "c": 1, "c": "two"}'
    publish_json(served, {"id": 1}, odd, {"ID": 3})
    archived(spark, environment)
    done = refine(spark, lake, "s")
    assert done.faults == {"a field name differs from another only in case": 1}
    silver = read_table(spark, lake, "silver", "s").orderBy("offset")
    found = [json.loads(row[0]) for row in silver.selectExpr("to_json(payload)").collect()]
    nested = json.loads(found[1].pop("nested"))
    assert found == [{"id": 1}, {"id": 2, "a`b": 1, "c": "two"}], "Spark drops an empty name"
    assert nested == {"x": 1, "X": 2}, "as text"


def test_bad_messages_that_a_wider_schema_takes_are_bad_no_more(
    spark: SparkSession, served: Served, tmp_path: Path
) -> None:
    environment = environment_of(served, tmp_path)
    lake = Lake(environment.lake_path)
    publish_json(served, {"id": "x"})
    archived(spark, environment)
    assert refine(spark, lake, "s", "id bigint").bad == 1
    done = refine(spark, lake, "s", "id string")
    assert (done.dates, done.bad) == (1, 0), "a schema that is new is for all dates"
    assert read_table(spark, lake, "bad", "s").count() == 0
    assert read_table(spark, lake, "silver", "s").count() == 1


def test_stream_of_life_events_of_a_queue_is_found(served: Served, tmp_path: Path) -> None:
    environment = environment_of(served, tmp_path)
    with served.channel() as opened:
        opened.queue_declare("q", durable=True, arguments={"x-remember": "q.history"})
        opened.queue_declare("plain", durable=True)
    assert life_event_stream(environment, "q") == "q.history"
    with pytest.raises(NotFoundError, match="remembers nothing"):
        life_event_stream(environment, "plain")


def test_only_one_flow_works_on_a_table_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with (
        exclusive_lock(path, "busy"),
        pytest.raises(ResourceLockedError),
        exclusive_lock(path, "busy"),
    ):
        pass
    assert is_locked(path) is not True
    with exclusive_lock(path, "busy"):
        assert is_locked(path) is not False  # None on systems that do not tell
