"""The state of a lake from its files and the broker, leftovers of killed batches, and cursors."""

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pika
import pytest

from leveret.engine.streams.stream import Stream
from leveret.lake.layout import QUARANTINED, REFINED, Lake, table_name, vhost_and_stream
from leveret.pipeline.environment import Environment
from leveret.pipeline.lake_status import lake_status
from leveret.pipeline.leftovers import archive_lock, find_leftovers, remove_leftovers
from leveret.pipeline.locks import exclusive_lock, is_locked
from leveret.testing.broker import RunningBroker, broker
from leveret.testing.clock import ManualClock
from pyspark_leveret.cursors import Cursor
from pyspark_leveret.options import parse_options
from tools.ports import free_port

STREAM = "a b/c"


@pytest.fixture(scope="module")
def served() -> Iterator[RunningBroker]:
    """A broker with a stream of five messages."""
    with broker(http=True, clock=ManualClock()) as server:
        connection = pika.BlockingConnection(pika.URLParameters(server.url))
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_declare(STREAM, durable=True, arguments={"x-queue-type": "stream"})
        for number in range(5):
            channel.basic_publish("", STREAM, b"%d" % number)
        connection.close()
        yield server


def http(served: RunningBroker) -> str:
    return f"http://guest:guest@127.0.0.1:{served.http_port}"


def make_lake(folder: Path, table: str, position: int) -> Lake:
    """Make the files of a table as Spark's file sink leaves them, with two committed batches."""
    lake = Lake(folder)
    data = lake.folder("bronze", table) / "stream=a b%2Fc" / "date=2026-03-01"
    data.mkdir(parents=True)
    manifest = lake.folder("bronze", table) / "_spark_metadata"
    manifest.mkdir()
    progress = lake.checkpoint(table) / "bronze"
    for name in ("offsets", "commits"):
        (progress / name).mkdir(parents=True)
    for batch in range(2):
        path = data / f"part-{batch}.parquet"
        path.write_bytes(b"x" * 100)
        line = json.dumps({"path": f"file://{path}".replace(" ", "%20").replace("%2F", "%252F")})
        (manifest / str(batch)).write_text(f"v1\n{line}")
        (progress / "commits" / str(batch)).write_text("v1\n{}")
    for batch, offset in ((0, 1), (1, position), (2, 99)):  # the last batch is not committed
        lines = ["v1", "{}", json.dumps({STREAM: offset})]
        (progress / "offsets" / str(batch)).write_text("\n".join(lines))
        (progress / "offsets" / f".{batch}.crc").write_bytes(b"")
    return lake


def test_status_tells_the_lag_of_each_stream(served: RunningBroker, tmp_path: Path) -> None:
    table = table_name("/", STREAM)
    lake = make_lake(tmp_path, table, 3)
    environment = Environment(http(served), lake_dir=str(tmp_path))
    (lake.folder("silver", table)).mkdir(parents=True)
    (lake.folder("bad", table)).mkdir(parents=True)
    (lake.folder("silver", table) / REFINED).write_text(json.dumps({f"{STREAM} 2026-03-01": 3}))
    (lake.folder("bad", table) / QUARANTINED).write_text(json.dumps({f"{STREAM} 2026-03-01": 1}))
    (found,) = lake_status(environment)
    assert (found.table, found.stream, found.offset, found.lag) == (table, STREAM, 3, 2)
    assert found.lag_s is not None and found.archived_at is not None
    assert (found.files, found.bytes, found.leftovers) == (2, 200, 0)
    assert (found.refined, found.bad) == (3, 1)
    assert found.is_running is not True
    with exclusive_lock(archive_lock(lake, table), "busy"):
        assert lake_status(environment)[0].is_running is not False
    away = Environment(f"http://127.0.0.1:{free_port()}", lake_dir=str(tmp_path))
    (found,) = lake_status(away)
    assert (found.offset, found.lag, found.lag_s) == (3, None, None), "the broker does not answer"
    other = Environment(http(served), vhost="other", lake_dir=str(tmp_path))
    assert lake_status(other) == []


def test_a_stream_that_was_deleted_has_no_known_lag(served: RunningBroker, tmp_path: Path) -> None:
    make_lake(tmp_path, "x", 3)
    progress = Lake(tmp_path).checkpoint("x") / "bronze" / "offsets"
    (progress / "1").write_text('v1\n{}\n{"gone": 3}')
    (found,) = lake_status(Environment(http(served), lake_dir=str(tmp_path)))
    assert (found.stream, found.lag, found.files) == ("gone", None, 0)


def test_a_batch_in_the_manifest_counts_without_its_commit(
    served: RunningBroker, tmp_path: Path
) -> None:
    lake = make_lake(tmp_path, "x", 3)
    (lake.checkpoint("x") / "bronze" / "commits" / "1").unlink()
    (found,) = lake_status(Environment(http(served), lake_dir=str(tmp_path)))
    assert (found.offset, found.lag, found.files) == (3, 2, 2), "its files are in the table"


def test_a_table_without_a_batch_has_no_position(served: RunningBroker, tmp_path: Path) -> None:
    (Lake(tmp_path).folder("bronze", "x") / "_spark_metadata").mkdir(parents=True)
    assert lake_status(Environment(http(served), lake_dir=str(tmp_path))) == []


def test_a_table_without_its_checkpoint_is_listed_without_a_position(
    served: RunningBroker, tmp_path: Path
) -> None:
    lake = make_lake(tmp_path, table_name("/", STREAM), 3)
    shutil.rmtree(lake.path / "_checkpoints")
    (found,) = lake_status(Environment(http(served), lake_dir=str(tmp_path)))
    assert (found.stream, found.offset, found.lag, found.archived_at) == (STREAM, None, None, None)
    assert (found.files, found.bytes) == (2, 200)


@pytest.mark.parametrize("vhost", ["/", "a@b", "x y"])
@pytest.mark.parametrize("stream", ["orders", "a/b", "c@d", "e%20f"])
def test_the_name_of_a_table_leads_back_to_its_stream(vhost: str, stream: str) -> None:
    assert vhost_and_stream(table_name(vhost, stream)) == (vhost, stream)


def test_leftovers_are_removed_unless_an_archive_may_be_writing_them(tmp_path: Path) -> None:
    lake = make_lake(tmp_path, "t", 3)
    data = lake.bronze_files("t")[0].parent
    empty, whole, old = (data / f"part-{name}.parquet" for name in ("empty", "whole", "old"))
    empty.touch()
    (data / ".part-empty.parquet.crc").touch()
    for path in (whole, old):
        path.write_bytes(b"of a batch that ran again")
    os.utime(old, (0, 0))
    assert sorted(find_leftovers(lake, "t")) == sorted([empty, whole, old])
    with exclusive_lock(archive_lock(lake, "t"), "busy"):
        assert remove_leftovers(lake, "t", keep_s=0) == 0
    assert remove_leftovers(lake, "t", keep_s=3600) == 2
    assert find_leftovers(lake, "t") == [whole]
    assert not (data / ".part-empty.parquet.crc").exists()
    assert all(path.exists() for path in lake.bronze_files("t"))
    assert remove_leftovers(lake, "t", keep_s=0) == 1


def test_a_lock_is_seen_without_being_tried(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    assert is_locked(path) is False
    with exclusive_lock(path, "busy"):
        assert is_locked(path) is not False  # None on systems that do not tell
    assert is_locked(path) is not True


def test_a_cursor_follows_the_query_and_never_stops_it(
    served: RunningBroker, caplog: pytest.LogCaptureFixture
) -> None:
    cursor = Cursor(parse_options({"url": http(served)}), "my/query")
    cursor.move({STREAM: 2})
    cursor.move({STREAM: 4})
    stream = served.node.broker.vhosts["/"].queues[STREAM]
    assert isinstance(stream, Stream) and stream.cursors.cursors == {"my/query": 4}
    cursor.move({STREAM: 10**6, "gone": 1})
    assert stream.cursors.cursors == {"my/query": 4}
    assert caplog.text.count("the cursor 'my/query' could not be stored") == 2
    cursor.move({STREAM: 10**6, "gone": 1})
    assert caplog.text.count("could not be stored") == 2, "a refusal is told once"
