"""Compare the times to read a stream with Spark, the same rows from Parquet, and with pika.

`make bench-spark`. One broker, one stream of 2,000,000 messages of 200 bytes with 50 routing keys;
the same rows as Parquet files, as `leveret pipeline archive` writes them; its rate is
printed. Then, interleaved, each five times:

    parquet    spark.read.parquet, an aggregation by routing key
    files      format("leveret") with `dataDir`: executors read the segment files
    http       format("leveret") over the bulk endpoint

all three with the same aggregation, the last two also cut into 1, 2, 4 and 8 partitions, and once a
consumer with pika that writes Parquet with pyarrow. Times are medians; CPU is that of all processes
of this run, the broker's included.
"""

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

import pika
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from leveret.lake.layout import BRONZE
from leveret.pipeline.environment import Environment
from leveret.pipeline.flows.archive import ArchiveRequest, archive
from leveret.pipeline.session import spark_session
from tools.server import Server

STREAM: Final = "bench"
BODY_BYTES: Final = 200
KEYS: Final = 50
PARTITIONS: Final = (1, 2, 4, 8)
COLUMNS: Final = "offset bigint, timestamp timestamp, routing_key string"
PREFETCH: Final = 1000
Way = Callable[[], DataFrame]
TICKS: Final = os.sysconf("SC_CLK_TCK")


@dataclass
class Figures:
    """The times of one way to read the rows."""

    seconds: list[float] = field(default_factory=list)
    cpu_s: list[float] = field(default_factory=list)

    def line(self, name: str, rows: int) -> str:
        median = statistics.median(self.seconds)
        cpu = statistics.median(self.cpu_s)
        return (
            f"{name:<10} {median:7.2f} s  {rows / median / 1e6:6.2f} M rows/s"
            f"  {cpu / rows * 1e6:6.2f} µs of CPU a row"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--scaling-rounds", type=int, default=3)
    parser.add_argument("--naive-rows", type=int, default=200_000)
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="leveret-bench-spark-"))
    with (folder / "broker.log").open("w") as log:
        server = Server(folder / "data", log)
        server.start()
        try:
            run(server, folder, given)
        finally:
            server.kill()
    shutil.rmtree(folder)


def run(server: Server, folder: Path, given: argparse.Namespace) -> None:
    rows: int = given.rows
    fill(server, rows)
    session = spark_session("bench", master="local[*]", settings=SETTINGS)
    session.sparkContext.setLogLevel("ERROR")
    environment = Environment(
        f"http://guest:guest@127.0.0.1:{server.http_port}", "/", str(folder / "lake")
    )
    seconds, cpu_s = timed(lambda: write_lake(session, environment))
    print(
        f"archived   {rows / seconds / 1e6:.3f} M rows/s, {cpu_s / rows * 1e6:.2f} µs of CPU a row"
    )
    table = str(environment.lake_path / BRONZE / STREAM)
    data = {"dataDir": str(folder / "data")}
    ways: dict[str, Way] = {
        "parquet": lambda: session.read.parquet(table),
        "files": lambda: stream(session, environment, data),
        "http": lambda: stream(session, environment, {}),
    }
    measured = measure(ways, rows, given.rounds)
    print_figures(measured, rows)
    report(measured, rows, naive(server, folder, given.naive_rows), given.naive_rows)
    cut: dict[str, Way] = {}
    for count in PARTITIONS:
        parts = {"minPartitions": str(count), "maxRecordsPerPartition": str(rows)}
        for name, more in (("files", data), ("http", {})):
            options = {**parts, **more}
            cut[f"{name}/{count}"] = partial(stream, session, environment, options)
    print("by partitions:")
    print_figures(measure(cut, rows, given.scaling_rounds), rows)
    session.stop()


def measure(ways: dict[str, Way], rows: int, rounds: int) -> dict[str, Figures]:
    """Measure each way several times, in turns."""
    measured = {name: Figures() for name in ways}
    for number in range(rounds + 1):
        for name, way in ways.items():
            seconds, cpu_s = timed(partial(aggregate, way, rows))
            if number > 0:  # the first round warms up the JVM
                measured[name].seconds.append(seconds)
                measured[name].cpu_s.append(cpu_s)
    return measured


def print_figures(measured: dict[str, Figures], rows: int) -> None:
    for name, figures in measured.items():
        print(figures.line(name, rows), flush=True)


SETTINGS: Final = {
    "spark.driver.memory": "2g",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.shuffle.partitions": "2",
}


def report(measured: dict[str, Figures], rows: int, naive_s: float, naive_rows: int) -> None:
    medians = {name: statistics.median(found.seconds) for name, found in measured.items()}
    rate = naive_rows / naive_s
    print(f"naive      pika and pyarrow, {naive_rows} rows: {rate / 1e6:.3f} M rows/s")
    for name in ("files", "http"):
        ratio = medians["parquet"] / medians[name]
        print(f"{name} is {ratio:.2f} of parquet, {rows / medians[name] / rate:.1f} times naive")


def fill(server: Server, rows: int) -> None:
    """Publish with the project's own load generator; a topic exchange gives the routing keys."""
    connection = pika.BlockingConnection(pika.ConnectionParameters(port=server.port))
    channel = connection.channel()
    channel.exchange_declare("bench", "topic", durable=True)
    channel.queue_declare(STREAM, durable=True, arguments={"x-queue-type": "stream"})
    channel.queue_bind(STREAM, "bench", "#")
    connection.close()
    command = [sys.executable, "-m", "leveret", "perf", "--uri"]
    command += [f"amqp://guest:guest@127.0.0.1:{server.port}", "--consumers", "0"]
    command += ["--predeclared", "--exchange", "bench", "--queue", STREAM]
    command += ["--routing-key", f"key.{{1..{KEYS}}}", "--size", str(BODY_BYTES)]
    command += ["--confirm", "1000", "--persistent", "--messages", str(rows)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def stream(session: SparkSession, environment: Environment, options: dict[str, str]) -> DataFrame:
    given = environment.options(stream=STREAM, **options)
    return session.read.format("leveret").options(**given).schema(COLUMNS).load()


def write_lake(session: SparkSession, environment: Environment) -> None:
    """Read all columns of all messages."""
    archive(session, environment, ArchiveRequest(STREAM), lambda progress: None)


def aggregate(way: Way, rows: int) -> None:
    sums = {"offset": "max", "timestamp": "max", "routing_key": "count"}
    found = way().groupBy("routing_key").agg(sums)
    total = sum(row["count(routing_key)"] for row in found.collect())
    assert total == rows, f"{total} rows instead of {rows}"


def timed(act: Callable[[], None]) -> tuple[float, float]:
    """Return the seconds, and the CPU seconds of all processes of this run."""
    cpu_s, started_s = cpu_of_all(), time.monotonic()
    act()
    return time.monotonic() - started_s, cpu_of_all() - cpu_s


def cpu_of_all() -> float:
    """Return the CPU time of this process and all its descendants: JVM, workers, broker."""
    parents: dict[int, list[int]] = {}
    used: dict[int, float] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # the process has ended
        pid = int(path.parent.name)
        parents.setdefault(int(fields[1]), []).append(pid)
        used[pid] = sum(map(int, fields[11:15])) / TICKS
    total, waiting = 0.0, [os.getpid()]
    while waiting:
        pid = waiting.pop()
        total += used.get(pid, 0.0)
        waiting += parents.get(pid, [])
    return total


def naive(server: Server, folder: Path, rows: int) -> float:
    """Return the seconds of the simplest archiver: consume with pika, write with pyarrow."""
    started_s = time.monotonic()
    connection = pika.BlockingConnection(pika.ConnectionParameters(port=server.port))
    channel = connection.channel()
    channel.basic_qos(prefetch_count=PREFETCH)
    found: list[dict[str, Any]] = []
    writer: pq.ParquetWriter | None = None
    count = 0
    consuming = channel.consume(STREAM, arguments={"x-stream-offset": "first"})
    for method, properties, body in consuming:
        headers = {key: str(value) for key, value in (properties.headers or {}).items()}
        offset = properties.headers["x-stream-offset"]
        key = method.routing_key
        found.append({"offset": offset, "routing_key": key, "headers": headers, "body": body})
        channel.basic_ack(method.delivery_tag)
        count += 1
        if len(found) == 50_000 or count == rows:
            table = pa.Table.from_pylist(found, schema=NAIVE_SCHEMA)
            writer = writer or pq.ParquetWriter(folder / "naive.parquet", table.schema)
            writer.write_table(table)
            found = []
        if count == rows:
            break
    assert writer is not None
    writer.close()
    connection.close()
    return time.monotonic() - started_s


NAIVE_SCHEMA: Final = pa.schema(
    [
        ("offset", pa.int64()),
        ("routing_key", pa.string()),
        ("headers", pa.map_(pa.string(), pa.string())),
        ("body", pa.binary()),
    ]
)


if __name__ == "__main__":
    main()
