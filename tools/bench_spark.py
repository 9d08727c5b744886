"""Compare the times to read a stream with Spark, the same rows from Parquet, and with pika.

`make bench-spark`. One broker, one stream of 2,000,000 orders: JSON of about 150 bytes, 50 routing
keys, and a message id, so that no two messages have the same properties. The same rows as Parquet
files, as `leveret pipeline archive` writes them; its rate is printed. Then, each query in turns:

    Parquet      spark.read.parquet
    over HTTP    format("leveret") over the bulk endpoint
    from files   format("leveret") with `dataDir`: executors read the segment files

The query with three columns is also cut into 1, 2, 4 and 8 partitions, and a consumer with pika
writes Parquet with pyarrow once. Times are medians; CPU is that of all processes of this run, the
broker's included. On a busy machine only the CPU means something: the load average is printed.
"""

import argparse
import os
import shutil
import statistics
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
from pyspark.sql import DataFrame, Observation, SparkSession, functions

from leveret.lake.layout import BRONZE
from leveret.perf.protocol import message_frames
from leveret.pipeline.environment import Environment
from leveret.pipeline.flows.archive import ArchiveRequest, archive
from leveret.pipeline.session import spark_session
from leveret.wire.properties import PERSISTENT, Properties
from leveret.wire.tables import table_of
from tools.server import Server

STREAM: Final = "bench"
KEYS: Final = 50
TENANTS: Final = 20
PARTITIONS: Final = (1, 2, 4, 8)
PREFETCH: Final = 1000
FRAMES: Final = 3000  # sent at once
Way = Callable[[str | None], DataFrame]  # from names of columns to the table; None: all
TICKS: Final = os.sysconf("SC_CLK_TCK")
PARQUET: Final = "Parquet"
HTTP: Final = "over HTTP"
FILES: Final = "from files"


@dataclass(frozen=True)
class Query:
    """A query, and the columns that it needs."""

    name: str
    columns: str | None
    run: Callable[[DataFrame], int]  # returns the number of rows


def by_key(table: DataFrame) -> int:
    sums = {"offset": "max", "timestamp": "max", "routing_key": "count"}
    found = table.groupBy("routing_key").agg(sums).collect()
    return sum(row["count(routing_key)"] for row in found)


def body_length(table: DataFrame) -> int:
    found = table.select(functions.count("body"), functions.sum(functions.length("body"))).collect()
    return int(found[0][0])


def by_country(table: DataFrame) -> int:
    country = functions.get_json_object(table["body"].cast("string"), "$.country")
    return sum(row["count"] for row in table.groupBy(country).count().collect())


def every_column(table: DataFrame) -> int:
    count = functions.count("offset").alias("rows")
    seen = Observation()
    table.observe(seen, count).write.format("noop").mode("overwrite").save()
    return int(seen.get["rows"])


GROUPED: Final = Query("three columns, grouped", "offset,timestamp,routing_key", by_key)
QUERIES: Final = (
    GROUPED,
    Query("length of the body", "body", body_length),
    Query("JSON of the body", "body", by_country),
    Query("every column", None, every_column),
    Query("count", "offset", DataFrame.count),
)


@dataclass
class Figures:
    """The times of one way to read the rows."""

    seconds: list[float] = field(default_factory=list)
    cpu_s: list[float] = field(default_factory=list)

    def cell(self, rows: int, base: "Figures") -> str:
        """Return median, CPU of a row, and the speed relative to another way."""
        seconds, cpu_s = statistics.median(self.seconds), statistics.median(self.cpu_s)
        shown = f"{seconds:.2f} s, {cpu_s / rows * 1e6:.2f} µs"
        if base is self:
            return shown
        ratio = statistics.median(base.seconds) / seconds
        return f"{shown} ({ratio:.2f}×, CPU {statistics.median(base.cpu_s) / cpu_s:.2f}×)"


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
    fill(server, rows - 1)  # and one more that is confirmed, so that all others are on disk
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
        PARQUET: lambda columns: session.read.parquet(table),
        HTTP: lambda columns: stream(session, environment, columns, {}),
        FILES: lambda columns: stream(session, environment, columns, data),
    }
    print_row("query", *ways)
    print_row(*["---"] * (len(ways) + 1))
    for query in QUERIES:
        measured = measure(query, ways, rows, given.rounds)
        base = measured[PARQUET]
        print_row(query.name, *(measured[name].cell(rows, base) for name in ways))
    naive_s = naive(server, folder, given.naive_rows)
    print(f"pika and pyarrow: {given.naive_rows / naive_s / 1e6:.3f} M rows/s")
    print_row("partitions", HTTP, FILES)
    print_row(*["---"] * 3)
    for count in PARTITIONS if given.scaling_rounds else ():
        parts = {"minPartitions": str(count), "maxRecordsPerPartition": str(rows)}
        cut: dict[str, Way] = {
            HTTP: partial(stream, session, environment, options=parts),
            FILES: partial(stream, session, environment, options={**parts, **data}),
        }
        measured = measure(GROUPED, cut, rows, given.scaling_rounds)
        print_row(str(count), *(found.cell(rows, found) for found in measured.values()))
    print(f"load average {os.getloadavg()[0]:.1f}")
    session.stop()


def print_row(*cells: str) -> None:
    print(f"| {' | '.join(cells)} |", flush=True)


def measure(query: Query, ways: dict[str, Way], rows: int, rounds: int) -> dict[str, Figures]:
    """Measure a query several times in each way, in turns."""
    measured = {name: Figures() for name in ways}
    for number in range(rounds + 1):
        for name, way in ways.items():
            seconds, cpu_s = timed(partial(run_query, query, way, rows))
            if number > 0:  # the first round warms up the JVM
                measured[name].seconds.append(seconds)
                measured[name].cpu_s.append(cpu_s)
    return measured


def run_query(query: Query, way: Way, rows: int) -> None:
    found = query.run(way(query.columns))
    assert found == rows, f"{found} rows instead of {rows}"


SETTINGS: Final = {
    "spark.driver.memory": "2g",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.shuffle.partitions": "2",
}


def fill(server: Server, rows: int) -> None:
    """Publish orders; a topic exchange gives the routing keys."""
    connection = pika.BlockingConnection(pika.ConnectionParameters(port=server.port))
    channel = connection.channel()
    channel.exchange_declare("bench", "topic", durable=True)
    channel.queue_declare(STREAM, durable=True, arguments={"x-queue-type": "stream"})
    channel.queue_bind(STREAM, "bench", "#")
    publisher = server.connect()
    publishing = publisher.channel()
    frames: list[bytes] = []
    for number in range(rows):
        key = f"order.{number % KEYS}"
        frames += message_frames("bench", key, body_of(number), properties_of(number), False)
        if len(frames) >= FRAMES:
            publisher.send_bytes(b"".join(frames))
            frames = []
    publisher.send_bytes(b"".join(frames))
    publishing.sync()  # the broker has taken all messages
    publisher.close()
    channel.confirm_delivery()
    channel.basic_publish("bench", "last", b"{}", pika.BasicProperties(delivery_mode=2))
    connection.close()


def body_of(number: int) -> bytes:
    scattered = number * 2_654_435_761 & 0xFFFF_FFFF
    return (
        f'{{"id":{number},"customer":{scattered % 100_003},"amount":{scattered % 9973 / 100},'
        f'"country":"{COUNTRIES[scattered % len(COUNTRIES)]}","items":[{{"sku":"sku-'
        f'{scattered % 1009}","count":{number % 4 + 1}}},{{"sku":"sku-{scattered % 997}","count":1'
        f"}}]}}"
    ).encode()


COUNTRIES: Final = ("DE", "FR", "IT", "US", "JP")


def properties_of(number: int) -> Properties:
    properties = Properties()
    properties.content_type = "application/json"
    properties.delivery_mode = PERSISTENT
    properties.message_id = f"{number:08x}-5c1d-4b7e-9d53-{number * 2_654_435_761:016x}"
    properties.timestamp = 1_760_000_000 + number // 1000
    properties.type = "order"
    properties.app_id = "shop"
    properties.headers = table_of({"tenant": f"tenant-{number % TENANTS}", "attempt": 1})
    return properties


def stream(
    session: SparkSession, environment: Environment, columns: str | None, options: dict[str, str]
) -> DataFrame:
    given = environment.options(stream=STREAM, columns=columns, **options)
    return session.read.format("leveret").options(**given).load()


def write_lake(session: SparkSession, environment: Environment) -> None:
    """Read all columns of all messages."""
    archive(session, environment, ArchiveRequest(STREAM), lambda progress: None)


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
