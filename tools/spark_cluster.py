"""Run the flows of the pipeline on a Spark cluster: a master and two workers on loopback.

`make test-spark-cluster`. The workers run the Python of this process, in which Leveret, and with it
the data source, is installed. A stream is archived, compacted, refined, asked by SQL, and replayed
into a queue; a file is loaded. Every step must find exactly what was published.
"""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pika
import pyspark
from pyspark.sql import SparkSession

from leveret.lake.layout import Lake
from leveret.pipeline.environment import Environment
from leveret.pipeline.flows.archive import ArchiveRequest, archive
from leveret.pipeline.flows.compact import compact
from leveret.pipeline.flows.load import LoadTarget, load
from leveret.pipeline.flows.refine import refine
from leveret.pipeline.flows.replay import Selection, Target, replay, select_messages
from leveret.pipeline.flows.sql import Tables
from leveret.pipeline.query_progress import QueryProgress
from leveret.pipeline.session import find_java, spark_session
from tools.ports import HOST, free_port
from tools.server import Server

MESSAGES: Final = 20_000
WORKERS: Final = 2
UP_WITHIN_S: Final = 90.0
PACKAGE: Final = "org.apache.spark.deploy"
SETTINGS: Final = {
    "spark.driver.host": HOST,
    "spark.driver.bindAddress": HOST,
    "spark.executor.memory": "768m",
    "spark.sql.shuffle.partitions": "2",
}


@contextlib.contextmanager
def cluster(folder: Path) -> Iterator[str]:
    """Run a cluster; yield its address."""
    port = free_port()
    url = f"spark://{HOST}:{port}"
    master = ["master.Master", "--host", HOST, "--port", str(port), "--webui-port", "0"]
    worker = ["worker.Worker", "--host", HOST, "--webui-port", "0", "-c", "1", "-m", "1g", url]
    with contextlib.ExitStack() as stack:
        stack.enter_context(_process(master, folder / "master"))
        _wait_for(port)
        for number in range(WORKERS):
            place = folder / f"worker-{number}"
            stack.enter_context(_process([*worker, "--work-dir", str(place)], place))
        yield url


@contextlib.contextmanager
def _process(words: list[str], folder: Path) -> Iterator[None]:
    """Start a daemon of Spark in the foreground: the pip package has no scripts for it."""
    folder.mkdir()
    home = Path(pyspark.__file__).parent
    java = find_java()
    given = {"SPARK_HOME": str(home), "SPARK_LOCAL_IP": HOST, "PYSPARK_PYTHON": sys.executable}
    given |= {"JAVA_HOME": str(java)} if java is not None else {}
    command = [str(home / "bin" / "spark-class"), f"{PACKAGE}.{words[0]}", *words[1:]]
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env={**os.environ, **given})
        try:
            yield
        finally:
            process.terminate()
            process.wait(UP_WITHIN_S)


def _wait_for(port: int) -> None:
    until_s = time.monotonic() + UP_WITHIN_S
    while time.monotonic() < until_s:
        with contextlib.suppress(OSError), socket.create_connection((HOST, port), 1):
            return
        time.sleep(0.1)
    raise RuntimeError("the master does not start")


def publish(port: int) -> None:
    """Publish the messages of the stream, and declare the queues that flows write to."""
    connection = pika.BlockingConnection(pika.ConnectionParameters(HOST, port))
    channel = connection.channel()
    channel.queue_declare("orders", durable=True, arguments={"x-queue-type": "stream"})
    for name in ("again", "loaded"):
        channel.queue_declare(name, durable=True, arguments={"x-deduplication": {"size": 100_000}})
    properties = pika.BasicProperties(content_type="application/json", delivery_mode=2)
    for number in range(MESSAGES):
        channel.basic_publish("", "orders", json.dumps({"n": number}).encode(), properties)
    channel.queue_declare("orders", passive=True)
    connection.close()


def check(name: str, found: object, wanted: object) -> None:
    sys.stdout.write(f"{name}: {found}\n")
    sys.stdout.flush()
    if found != wanted:
        raise SystemExit(f"{name}: {found} instead of {wanted}")


def run_flows(spark: SparkSession, environment: Environment, folder: Path) -> None:
    """Run every flow once."""
    lake = Lake(environment.lake_path)
    told: list[QueryProgress] = []
    archive(spark, environment, ArchiveRequest("orders", file_bytes=300_000), told.append)
    check("archived", told[-1].rows, MESSAGES)
    before = len(lake.bronze_files("orders"))
    check("merged", compact(spark, lake, "orders").messages, MESSAGES)
    sys.stdout.write(f"files: {before} became {len(lake.bronze_files('orders'))}\n")
    check("refined", refine(spark, lake, "orders").messages, MESSAGES)
    tables = Tables(spark, environment)
    asked = "select sum(payload.n) as total from silver.orders"
    check("sum", tables.rows(asked, 1), [{"total": MESSAGES * (MESSAGES - 1) // 2}])
    chosen = select_messages(
        spark, environment, Selection("orders", is_from_lake=True, where="offset < 1000")
    )
    for _ in range(2):
        replay(chosen, environment, Target(queue="again"), "once")
    check("replayed", tables.rows("select count(*) as n from queue.again", 1), [{"n": 1000}])
    file = folder / "rows.csv"
    file.write_text("id\n" + "".join(f"{number}\n" for number in range(500)))
    check(
        "loaded", load(spark, environment, [file], None, LoadTarget(queue="loaded")).messages, 500
    )
    check("waiting", tables.rows("select count(*) as n from queue.loaded", 1), [{"n": 500}])


def executors(spark: SparkSession) -> int:
    """Return the number of executors that have answered, without the driver."""
    context = spark.sparkContext
    return int(context._jsc.sc().getExecutorMemoryStatus().size()) - 1


def main() -> None:
    """Run everything once."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # ends the daemons too
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        log = stack.enter_context((folder / "broker.log").open("w"))
        server = Server(folder / "data", log)
        server.start()
        stack.callback(server.stop)
        publish(server.port)
        url = stack.enter_context(cluster(folder))
        spark = spark_session("cluster test", master=url, settings=SETTINGS)
        spark.sparkContext.setLogLevel("ERROR")
        stack.callback(spark.stop)
        environment = Environment(
            f"http://guest:guest@{HOST}:{server.http_port}", lake_dir=f"{folder}/lake"
        )
        run_flows(spark, environment, folder)
        check("executors", executors(spark), WORKERS)


if __name__ == "__main__":
    main()
