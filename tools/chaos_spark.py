"""Kill Spark's driver and the broker at every phase of a batch, and compares lake and broker.

`make chaos-spark`. Each round has nine queries into nine lakes: five read one stream, four consume
a queue each. Of both kinds one is stopped in each phase

    plan     the batch is in the offset log, and nothing has been read
    read     a task has read a part of its rows
    output   one task of the batch has written its file, the other has not
    commit   the batch is in the manifest of the sink, and not in the commit log

The ninth query writes a Delta table. It is stopped when the files of a batch are in the folder of
the table, and the log of the table does not have them.

Then the driver with its JVM is killed (-9), and so is the broker. Both start again, more messages
are published, and the broker is killed once more. At the end each lake must hold each message once,
the queues must be empty, and the audit must account for every message of the queues.

`python -m tools.chaos_spark driver URL FOLDER QUERY …` is the driver that is killed.
"""

import argparse
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import pika
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType

from leveret.lake import delta
from leveret.lake.layout import BRONZE, Lake
from leveret.pipeline.delta_sink import DeltaSink
from leveret.pipeline.environment import Environment
from leveret.pipeline.flows.archive import ArchiveRequest, archive
from leveret.pipeline.flows.audit import AuditRequest, audit
from leveret.pipeline.lake_tables import read_bronze
from leveret.pipeline.session import spark_session
from leveret.pipeline.transforms.messages import with_date
from pyspark_leveret import DefaultSource
from pyspark_leveret.options import parse_options
from pyspark_leveret.queue import QueueStreamReader
from pyspark_leveret.schema import require_columns
from pyspark_leveret.stream import StreamReader
from tools.ports import free_port
from tools.server import Server

ROOT: Final = Path(__file__).parents[1]
STREAM: Final = "history"
LIVES: Final = "lives"
FANOUT: Final = "both"
KINDS: Final = ("stream", "queue")
PHASES: Final = ("plan", "read", "output", "commit")
DELTA: Final = "delta-moved"
ALL: Final = (*(f"{kind}-{phase}" for kind in KINDS for phase in PHASES), DELTA)
BATCH_RECORDS: Final = 200
STOPPED_WITHIN_S: Final = 600.0  # a busy machine takes minutes to start Spark
RECOVERED_WITHIN_S: Final = 300
TRIES: Final = 5  # of a query whose broker, or whose reader, was away for too long


class StoppingSource(DefaultSource):
    """The data source, with readers that hang in a phase and create a marker file."""

    @classmethod
    def name(cls) -> str:
        return "stopping"

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        options, columns = parse_options(self.options), require_columns(schema)
        stop = Stop(self.options["stopphase"], Path(self.options["stopfolder"]))
        if options.queue is not None:
            return StoppingQueueReader(options, columns, stop)
        return StoppingStreamReader(options, columns, stop)


class Stop:
    """Stops a query in a phase of its second batch, when the first is in the lake."""

    def __init__(self, phase: str, folder: Path) -> None:
        self.phase = phase
        self._folder = folder

    def is_here(self, phase: str) -> bool:
        return self.phase == phase and (self._folder / "checkpoint/commits/0").exists()

    def hang(self) -> None:
        (self._folder / "stopped").touch()
        while True:
            time.sleep(60)

    def files(self) -> int:
        """Return the non-empty files of the lake."""
        found = (self._folder / "lake").glob("*.parquet")
        return sum(1 for path in found if path.stat().st_size > 0)

    def hang_after_another_file(self) -> None:
        """Hang when another task has written its output."""
        before = int((self._folder / "files").read_text())
        while self.files() == before:
            time.sleep(0.01)
        self.hang()

    def planned(self, parts: Sequence[InputPartition]) -> Sequence[InputPartition]:
        if self.is_here("plan"):
            self.hang()
        (self._folder / "files").write_text(str(self.files()))
        return parts

    def passed(self, batches: Iterator[Any], is_first: bool) -> Iterator[Any]:
        for batch in batches:
            yield batch
            if self.is_here("read"):
                self.hang()
        if self.is_here("output") and not is_first:
            self.hang_after_another_file()


class StoppingStreamReader(StreamReader):
    """Reads a stream until it hangs."""

    def __init__(self, options: Any, columns: list[str], stop: Stop) -> None:
        super().__init__(options, columns)
        self._stop = stop

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        return self._stop.planned(super().partitions(start, end))

    def read(self, partition: InputPartition) -> Iterator[Any]:
        is_first = getattr(partition, "first", 0) % BATCH_RECORDS == 0
        return self._stop.passed(super().read(partition), is_first)


class StoppingQueueReader(QueueStreamReader):
    """Reads a queue until it hangs."""

    def __init__(self, options: Any, columns: list[str], stop: Stop) -> None:
        super().__init__(options, columns)
        self._stop = stop

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        return self._stop.planned(super().partitions(start, end))

    def read(self, partition: InputPartition) -> Iterator[Any]:
        is_first = getattr(partition, "first", 0) == 0
        return self._stop.passed(super().read(partition), is_first)


class StoppingDeltaSink(DeltaSink):
    """Writes a Delta table until it hangs before a commit."""

    def __init__(self, folder: Path, stop: Stop) -> None:
        super().__init__(delta_folder(folder), STREAM, folder / "checkpoint")
        self._stop = stop

    def commit(self, batch: delta.DeltaBatch) -> None:
        if self._stop.is_here(self._stop.phase):
            self._stop.hang()
        super().commit(batch)


def delta_folder(folder: Path) -> Path:
    return Lake(folder).folder(BRONZE, STREAM)


def drive(url: str, folder: Path, names: list[str]) -> None:
    """Run queries until this process is killed; it ends with its parent."""
    parent = os.getppid()
    sys.path.insert(0, str(ROOT))
    session = spark_session("chaos", master="local[16]", is_quick=True)
    session.sparkContext.setLogLevel("OFF")
    session.dataSource.register(StoppingSource)
    for name in names:
        own = folder / name
        own.mkdir(parents=True, exist_ok=True)
        query = start_stopping(session, url, own)
        # Start them one after the other, and repeat: Spark gives up on readers that start slowly.
        while not (own / "checkpoint/commits/0").exists():
            if not query.isActive:
                query = start_stopping(session, url, own)
            time.sleep(0.02)
    while os.getppid() == parent:
        time.sleep(1)


def start_stopping(session: SparkSession, url: str, folder: Path) -> StreamingQuery:
    """Start a query that hangs in the phase of its name."""
    phase = folder.name.split("-")[1]
    source = session.readStream.format("stopping").option("stopfolder", str(folder))
    frame = load(source.option("stopphase", phase), url, folder.name, BATCH_RECORDS)
    if folder.name != DELTA:
        return write(frame, folder, is_once=False)
    sink = StoppingDeltaSink(folder, Stop(phase, folder))
    writer = with_date(frame).writeStream.foreachBatch(sink.write)
    return writer.option("checkpointLocation", str(sink.checkpoint)).start()


def load(source: Any, url: str, name: str, records: int) -> DataFrame:
    source = source.option("url", url).option("maxRecordsPerTrigger", str(records))
    source = source.option("minPartitions", "2").option("startingOffsets", "earliest")
    if name.startswith("queue"):
        source = source.option("queue", name).option("reader", "lake")
    else:
        source = source.option("stream", STREAM)
    if name != DELTA:  # whose table has all columns
        source = source.schema("offset bigint, body binary")
    frame: DataFrame = source.load()
    return frame


def write(frame: DataFrame, folder: Path, *, is_once: bool) -> StreamingQuery:
    writer = frame.writeStream.format("parquet")
    writer = writer.option("checkpointLocation", str(folder / "checkpoint"))
    if is_once:
        writer = writer.trigger(availableNow=True)
    return writer.start(str(folder / "lake"))


class Broker:
    """The broker, on fixed ports."""

    def __init__(self, folder: Path) -> None:
        self._log = (folder / "broker.log").open("w")
        ports = (free_port(), free_port())
        self.server = Server(folder / "data", self._log, ports=ports)
        self.server.start()
        self.url = f"http://guest:guest@127.0.0.1:{ports[1]}"
        self._amqp = pika.URLParameters(f"amqp://127.0.0.1:{ports[0]}/")
        self._count = 0

    def declare(self) -> None:
        with self._channel() as channel:
            channel.exchange_declare(FANOUT, "fanout", durable=True)
            history = {"x-queue-type": "stream"}
            channel.queue_declare(STREAM, durable=True, arguments=history)
            channel.queue_bind(STREAM, FANOUT)
            for phase in PHASES:
                lives = {"x-remember": LIVES}
                channel.queue_declare(f"queue-{phase}", durable=True, arguments=lives)
                channel.queue_bind(f"queue-{phase}", FANOUT)

    def publish(self, count: int) -> None:
        """Publish more messages, each with its own number, with confirms."""
        with self._channel() as channel:
            channel.confirm_delivery()
            for number in range(self._count, self._count + count):
                body = b"%d" % number
                channel.basic_publish(FANOUT, "", body, pika.BasicProperties(delivery_mode=2))
        self._count += count

    def ready(self, queue: str) -> int:
        with self._channel() as channel:
            found: int = channel.queue_declare(queue, passive=True).method.message_count
        return found

    def kill_and_start(self) -> None:
        self.server.kill()
        self.server.start()

    @contextlib.contextmanager
    def _channel(self) -> Iterator[Any]:
        connection = pika.BlockingConnection(self._amqp)
        try:
            yield connection.channel()
        finally:
            connection.close()

    def close(self) -> None:
        self.server.kill()
        self._log.close()


def run_round(
    session: SparkSession, folder: Path, count: int, names: Sequence[str] = ALL
) -> dict[str, str]:
    """Run one round; return the state of each checkpoint when the driver was killed."""
    folder.mkdir(parents=True, exist_ok=True)
    broker = Broker(folder)
    try:
        broker.declare()
        broker.publish(count)
        lakes = [folder / "lakes" / name for name in names]
        for some in by_driver(lakes):
            stop_and_kill(broker.url, some, folder)
        found = {lake.name: state(lake) for lake in lakes}
        broker.kill_and_start()
        broker.publish(count // 4)
        recover(session, broker, lakes)
        check(session, broker, lakes, count + count // 4)
        judged = audit(session, Environment(broker.url), AuditRequest(), lambda step: None)
        assert judged.is_clean, judged.faults
        return found
    finally:
        broker.close()


def by_driver(lakes: list[Path]) -> list[list[Path]]:
    """Return which queries share a driver: it can be caught in one commit at a time."""
    commits = [lake for lake in lakes if lake.name.endswith("commit")]
    others = [lake for lake in lakes if lake not in commits]
    return [[*others, *commits[:1]], *([lake] for lake in commits[1:])]


def stop_and_kill(url: str, lakes: list[Path], folder: Path) -> None:
    """Run the driver until every query is in its phase, then kill its process group."""
    paths = [str(ROOT), os.environ.get("PYTHONPATH", "")]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in paths if path)}
    command = [sys.executable, "-m", "tools.chaos_spark", "driver", url]
    command += [str(folder / "lakes"), *(lake.name for lake in lakes)]
    with (folder / "driver.log").open("a") as log:
        driver = subprocess.Popen(
            command, env=env, cwd=ROOT, stdout=log, stderr=log, start_new_session=True
        )
        try:
            _wait_for_stops(driver, lakes)
        finally:
            os.killpg(driver.pid, signal.SIGKILL)
            driver.wait()


def _wait_for_stops(driver: subprocess.Popen[bytes], lakes: list[Path]) -> None:
    until_s = time.monotonic() + STOPPED_WITHIN_S
    stopping = [lake for lake in lakes if not lake.name.endswith("commit")]
    while not all((lake / "stopped").exists() for lake in stopping):
        _require_time(driver, until_s)
        time.sleep(0.05)
    between = [lake for lake in lakes if lake.name.endswith("commit")]
    while between and not _is_held(driver, between):
        _require_time(driver, until_s)
        time.sleep(0.0005)


def _is_held(driver: subprocess.Popen[bytes], between: list[Path]) -> bool:
    """Stop all processes if one of these queries is in its phase; return True if so."""
    if not any(is_between(lake) for lake in between):
        return False
    os.killpg(driver.pid, signal.SIGSTOP)
    if any(is_between(lake) for lake in between):
        return True
    os.killpg(driver.pid, signal.SIGCONT)
    return False


def _require_time(driver: subprocess.Popen[bytes], until_s: float) -> None:
    assert driver.poll() is None, "the driver has ended: see driver.log"
    assert time.monotonic() < until_s, "the queries do not come to their phases"


def is_between(lake: Path) -> bool:
    """Return True if a batch is in the manifest and not in the commit log."""
    return _last(lake / "lake/_spark_metadata") > _last(lake / "checkpoint/commits")


def state(lake: Path) -> str:
    """Return the last batch that is planned, in the manifest, and committed.

    For a Delta table, return the offset at which the moved files end, and that of the table.
    """
    if lake.name == DELTA:
        folder = delta_folder(lake)
        moved = json.loads((folder / delta.STAGING / "moved.json").read_text())
        assert all((folder / path).is_file() for path in moved["files"].values())
        table = delta.table_position(delta.open_table(folder), STREAM)
        return f"{moved['ends'][STREAM]}/{table[STREAM]}"
    folders = ("checkpoint/offsets", "lake/_spark_metadata", "checkpoint/commits")
    return "/".join(str(_last(lake / folder)) for folder in folders)


def _last(folder: Path) -> int:
    if not folder.is_dir():
        return -1
    names = [name.split(".")[0] for name in os.listdir(folder)]
    return max((int(name) for name in names if name.isdigit()), default=-1)


def recover(session: SparkSession, broker: Broker, lakes: list[Path]) -> None:
    """Finish all queries, while the broker is killed a few times.

    One after the other: Spark gives each reader ten seconds to start, and a busy machine needs
    them.
    """
    for number, lake in enumerate(lakes):
        if lake.name == DELTA:
            archive(session, _environment(broker, lake), ArchiveRequest(STREAM), lambda _: None)
            continue
        query = _go_on(session, broker, lake)
        if number % 3 == 0:
            broker.kill_and_start()
        _finish(session, broker, lake, query)


def _environment(broker: Broker, lake: Path) -> Environment:
    return Environment(broker.url, lake_dir=str(lake))


def _finish(session: SparkSession, broker: Broker, lake: Path, query: StreamingQuery) -> None:
    """Wait for a query; start it again if it gave up on the broker."""
    for left in reversed(range(TRIES)):
        try:
            assert query.awaitTermination(RECOVERED_WITHIN_S), f"{lake.name} hangs"
            return
        except Exception as fault:
            if left == 0:
                raise
            print(f"{lake.name} goes on after: {str(fault).splitlines()[0]}")
            query = _go_on(session, broker, lake)


def _go_on(session: SparkSession, broker: Broker, lake: Path) -> StreamingQuery:
    source = session.readStream.format("leveret")
    frame = load(source, broker.url, lake.name, 5 * BATCH_RECORDS)
    return write(frame, lake, is_once=True)


def check(session: SparkSession, broker: Broker, lakes: list[Path], count: int) -> None:
    """Check that each lake holds each message once, and that the queues are empty."""
    for lake in lakes:
        rows = _frame(session, lake).select("body").collect()
        found = sorted(int(row.body) for row in rows)
        missing = sorted(set(range(count)) - set(found))
        assert not missing, f"{lake.name} misses {len(missing)}: {missing[:5]} …"
        assert len(found) == count, f"{lake.name} has {len(found) - count} rows too many"
        is_queue = lake.name.startswith("queue")
        assert not is_queue or broker.ready(lake.name) == 0, f"{lake.name} is not empty"


def _frame(session: SparkSession, lake: Path) -> DataFrame:
    """Return the messages of a lake."""
    if lake.name != DELTA:
        return session.read.parquet(str(lake / "lake"))
    files = set(delta_folder(lake).rglob("*.parquet"))
    assert files == set(Lake(lake).bronze_files(STREAM)), "files of the killed batch are left"
    return read_bronze(session, Lake(lake), STREAM)


def main() -> None:
    if sys.argv[1:2] == ["driver"]:
        drive(sys.argv[2], Path(sys.argv[3]), sys.argv[4:])
        return
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--messages", type=int, default=8000)
    given = parser.parse_args()
    session = spark_session("chaos", master="local[2]", is_quick=True)
    session.sparkContext.setLogLevel("OFF")
    for number in range(given.rounds):
        folder = Path(tempfile.mkdtemp(prefix="leveret-chaos-spark-"))
        started_s = time.monotonic()
        found = run_round(session, folder, given.messages)
        took_s = time.monotonic() - started_s
        print(f"round {number + 1}: nothing lost, nothing twice, {took_s:.0f} s; planned, in the")
        print(f"    manifest, committed when killed: {found}")
        shutil.rmtree(folder)
    session.stop()


if __name__ == "__main__":
    main()
