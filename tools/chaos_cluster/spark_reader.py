"""A Spark query over the stream of a run, again and again, through changing nodes.

Every query has the addresses of all nodes, in another order each time. Nodes are killed and cut off
meanwhile; the query goes on at another node. `stream_audit` judges the rows.
"""

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Final

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from leveret.pipeline.session import spark_session
from leveret.testing.cluster import wait_until
from tools.chaos_cluster.load import Load
from tools.chaos_cluster.run import STREAM, Reader
from tools.chaos_cluster.stream_audit import HEAD_BYTES, StreamAudit

PAUSE_S: Final = 0.5
END_S: Final = 300.0  # for the last query
SHOWN_CHARS: Final = 600  # of an error


@contextlib.contextmanager
def spark() -> Iterator[Callable[[Load], Reader]]:
    """Run Spark until the end of the block; yield a function that starts its reader.

    The main thread must start Spark, and before the cluster: it takes long.
    """
    session = spark_session("chaos", master="local[2]", is_quick=True, is_quiet=True)

    def start(load: Load) -> SparkReader:
        reader = SparkReader(session, load)
        reader.start()
        # The first query takes long, because Spark starts processes: no fault must pass meanwhile.
        wait_until(
            lambda: reader.audit.queries > 0 or bool(reader.faults()), "a query of Spark has ended"
        )
        return reader

    try:
        yield start
    finally:
        session.stop()


class SparkReader(threading.Thread):
    """Runs queries until it is told to stop, and one more."""

    def __init__(self, session: SparkSession, load: Load) -> None:
        super().__init__(name="spark reader", daemon=True)
        self.audit = StreamAudit()
        self.stopping = threading.Event()
        self.error: BaseException | None = None  # a fault of the reader itself
        self._session = session
        self._urls = [load.nodes[name].http_login_url for name in load.nodes.nodes]
        self._publishings = [publisher.publishing for publisher in load.publishers]
        self._rng = load.fork()

    def run(self) -> None:
        try:
            while not self.stopping.wait(PAUSE_S):
                self._attempt()
        except BaseException as error:  # a thread that dies in silence looks like a good run
            self.error = error

    def finish(self) -> None:
        """Stop, and run a last query over everything. Raise RuntimeError if it does not end."""
        self.stopping.set()
        self.join(END_S)
        if self.is_alive():
            raise RuntimeError(f"a query of Spark does not end within {END_S:.0f} s")
        self._attempt()

    def faults(self) -> list[str]:
        """Return all faults so far; empty if all is well."""
        own = [] if self.error is None else [f"{self.name}: {self.error!r}"]
        return self.audit.faults + own

    def _attempt(self) -> None:
        try:
            self._query()
        except PySparkException as error:
            self.audit.faults.append(f"query of Spark: {str(error)[:SHOWN_CHARS]}")

    def _query(self) -> None:
        confirmed = [key for each in self._publishings for key in frozenset(each.sender.confirmed)]
        urls = self._rng.sample(self._urls, len(self._urls))
        options = {"url": ",".join(urls), "stream": STREAM, "columns": "offset,body"}
        options["minPartitions"] = str(len(urls))
        frame = self._session.read.format("leveret").options(**options).load()
        head = f"substring(body, 1, {HEAD_BYTES}) as head"
        found = frame.selectExpr("offset", head, "crc32(body) as crc").collect()
        sent = {key: crc for each in self._publishings for key, crc in each.copied_crcs().items()}
        rows = [(row["offset"], bytes(row["head"]), row["crc"]) for row in found]
        self.audit.check(rows, confirmed, sent)
