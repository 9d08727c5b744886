"""Measures reading a stream by Spark beside reading the same rows from Parquet, and beside pika.

`make bench-spark`. One broker, one stream of 2,000,000 messages of 200 bytes with 50 routing keys;
the same rows as Parquet files, written from the stream. Then, interleaved, each five times:

    parquet    spark.read.parquet, an aggregation by routing key
    files      format("leveret") with `dataDir`: executors read the segment files
    http       format("leveret") over the bulk endpoint

all three with the same aggregation, and once a consumer with pika that writes Parquet with pyarrow.
Times are medians; CPU is that of all processes of this run, the broker's included.
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
from pathlib import Path
from typing import Any, Final

import pika
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from leveret.pipeline.session import spark_session
from tools.server import Server

STREAM: Final = "bench"
BODY_BYTES: Final = 200
KEYS: Final = 50
FILES: Final = 8
COLUMNS: Final = "offset bigint, timestamp timestamp, routing_key string"
PREFETCH: Final = 1000
TICKS: Final = os.sysconf("SC_CLK_TCK")


@dataclass
class Figures:
    """The times of one way to read."""

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
    parser.add_argument("--naive-rows", type=int, default=200_000)
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="leveret-bench-spark-"))
    with (folder / "broker.log").open("w") as log:
        server = Server(folder / "data", log)
        server.start()
        try:
            run(server, folder, given.rows, given.rounds, given.naive_rows)
        finally:
            server.kill()
    shutil.rmtree(folder)


def run(server: Server, folder: Path, rows: int, rounds: int, naive_rows: int) -> None:
    fill(server, rows)
    session = spark_session("bench", master="local[*]", settings=SETTINGS)
    session.sparkContext.setLogLevel("ERROR")
    url = f"http://guest:guest@127.0.0.1:{server.http_port}"
    took_s = write_parquet(session, url, folder)
    print(f"written to Parquet by Spark: {rows / took_s / 1e6:.2f} M rows/s, all columns")
    ways: dict[str, Callable[[], DataFrame]] = {
        "parquet": lambda: session.read.parquet(str(folder / "lake")),
        "files": lambda: stream(session, url, dataDir=str(folder / "data")),
        "http": lambda: stream(session, url),
    }
    measured = {name: Figures() for name in ways}
    for number in range(rounds + 1):
        for name, way in ways.items():
            seconds, cpu_s = timed(server, lambda way=way: aggregate(way(), rows))  # type: ignore[misc]
            if number > 0:  # the first round is for the JVM
                measured[name].seconds.append(seconds)
                measured[name].cpu_s.append(cpu_s)
    for name, figures in measured.items():
        print(figures.line(name, rows))
    report(measured, rows, naive(server, folder, naive_rows), naive_rows)
    session.stop()


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


def stream(session: SparkSession, url: str, schema: str = COLUMNS, **options: str) -> DataFrame:
    reader = session.read.format("leveret").option("url", url).option("stream", STREAM)
    reader = reader.option("minPartitions", str(FILES)).options(**options)
    return (reader.schema(schema) if schema else reader).load()


def write_parquet(session: SparkSession, url: str, folder: Path) -> float:
    started_s = time.monotonic()
    stream(session, url, "").write.parquet(str(folder / "lake"))
    return time.monotonic() - started_s


def aggregate(frame: DataFrame, rows: int) -> None:
    found = frame.groupBy("routing_key").agg(
        {"offset": "max", "timestamp": "max", "routing_key": "count"}
    )
    total = sum(row["count(routing_key)"] for row in found.collect())
    assert total == rows, f"{total} rows instead of {rows}"


def timed(server: Server, act: Callable[[], None]) -> tuple[float, float]:
    """Seconds, and seconds of CPU of all processes that take part."""
    cpu_s, started_s = cpu_of_all(server), time.monotonic()
    act()
    return time.monotonic() - started_s, cpu_of_all(server) - cpu_s


def cpu_of_all(server: Server) -> float:
    """CPU time of this process, its descendants (the JVM, workers, the broker), living and dead."""
    parents: dict[int, list[int]] = {}
    used: dict[int, float] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has just ended
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
    """What one would write first: consume with pika, write with pyarrow; seconds."""
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
