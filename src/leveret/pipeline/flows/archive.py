"""`archive`: copy a stream into bronze, each message exactly once.

Spark's checkpoint holds the offsets, and the manifest of its file sink lists the committed files.
The log of a Delta table holds both. A driver that was killed at any point continues without
duplicates or gaps. A lock file in the lake ensures that only one query archives a table at a time.
"""

import json
import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from leveret.errors import NotFoundError, PreconditionFailedError
from leveret.lake.delta import DELTA, is_delta, require_delta
from leveret.lake.layout import BRONZE, CURSOR, MANIFEST, Lake, table_name
from leveret.lake.partitions import PARTITIONS
from leveret.pipeline.delta_sink import DeltaSink
from leveret.pipeline.environment import Environment
from leveret.pipeline.lake_tables import FORMAT
from leveret.pipeline.leftovers import archive_lock
from leveret.pipeline.locks import exclusive_lock
from leveret.pipeline.query_progress import OnProgress, QueryMonitor, QueryProgress
from leveret.pipeline.transforms.messages import with_date
from pyspark_leveret.client import Broker
from pyspark_leveret.cursors import Cursor
from pyspark_leveret.errors import BrokerError
from pyspark_leveret.options import EARLIEST, parse_options
from pyspark_leveret.positions import Streams

log = logging.getLogger(__name__)

FILE_BYTES: Final = 128 * 1024 * 1024
EVERY_S: Final = 10.0
STARTS: Final = 10  # of a query without progress; Spark gives a reader ten seconds to start
_SLOW: Final = "failed to connect back"
_BOTH: Final = "restore it, or delete both and archive again"
LOOK_S: Final = 2.0  # limit to find the ends of streams, for the progress line


@dataclass(frozen=True)
class ArchiveRequest:
    """The stream to archive, and the options."""

    stream: str
    is_once: bool = True
    every_s: float = EVERY_S
    file_bytes: int = FILE_BYTES
    fails_on_loss: bool = True
    format: str | None = None  # of a new table; None: Parquet. A table keeps its format
    cursor: str = CURSOR  # the broker shows the position under this name


def archive(
    spark: SparkSession, environment: Environment, request: ArchiveRequest, on_progress: OnProgress
) -> QueryProgress:
    """Archive a stream up to its end, or for ever; return the last progress."""
    lake = Lake(environment.lake_path)
    table = table_name(environment.vhost, request.stream)
    streams = Streams(
        parse_options(environment.options(stream=request.stream, retrySeconds=LOOK_S))
    )
    streams.bounds()  # raises if there is no stream, before the table is created

    def ends() -> dict[str, int] | None:
        try:
            return {name: bound.end for name, bound in streams.bounds().items()}
        except BrokerError as error:  # the query itself retries for longer
            log.warning("%s", error)
            return None

    with exclusive_lock(archive_lock(lake, table), f"another archive of '{table}' runs"):
        cursor = Cursor(parse_options(environment.options()), request.cursor)
        monitor = QueryMonitor(on_progress, ends, cursor.move)
        frame = partial(_frame, spark, environment, request)
        if require_format(lake.folder(BRONZE, table), request.format) == DELTA:
            sink = DeltaSink(
                lake.folder(BRONZE, table), request.stream, lake.checkpoint(table) / DELTA
            )
            starting = json.dumps(sink.position)
            return run_with_restarts(lambda: _start_delta(frame(starting), sink, request), monitor)
        _require_whole(lake, table)
        return run_with_restarts(lambda: _start(frame(EARLIEST), lake, table, request), monitor)


def run_with_restarts(start: Callable[[], StreamingQuery], monitor: QueryMonitor) -> QueryProgress:
    """Run a query to its end. Restart it if Spark's reader was too slow to start.

    It gives up after STARTS starts without progress.
    """
    left = STARTS
    while True:
        query, before = start(), monitor.rows
        try:
            return monitor.wait(query)
        except StreamingQueryException as error:
            left = (STARTS if monitor.rows > before else left) - 1
            if left == 0 or _SLOW not in str(error):
                raise
            log.warning("Spark's reader was slow to start; starting it again")
        finally:
            query.stop()


def _require_whole(lake: Lake, table: str) -> None:
    """Raise PreconditionFailedError if only one of manifest and checkpoint exists.

    Without the checkpoint Spark would skip new batches whose numbers are in the manifest. Without
    the manifest it would skip all messages that were archived before.
    """
    folder, checkpoint = lake.folder(BRONZE, table), lake.checkpoint(table)
    is_written = any((folder / MANIFEST).glob("[0-9]*"))
    is_planned = any((checkpoint / BRONZE / "offsets").glob("[0-9]*"))
    is_committed = any((checkpoint / BRONZE / "commits").glob("[0-9]*"))
    if is_written and not is_planned:
        raise PreconditionFailedError(f"{checkpoint} is missing for {folder}: {_BOTH}")
    if is_committed and not is_written:
        raise PreconditionFailedError(f"{folder} is missing for {checkpoint}: {_BOTH}")


def require_format(folder: Path, wanted: str | None) -> str:
    """Return the format of a table, or the wanted one of a new table.

    Raise PreconditionFailedError if the table has another format, and ConfigError if a package is
    missing that the format needs.
    """
    is_written = (folder / MANIFEST).is_dir()
    found = DELTA if is_delta(folder) else FORMAT if is_written else wanted or FORMAT
    if wanted not in (None, found):
        text = f"{folder} has been written as {found}, not as {wanted}"
        raise PreconditionFailedError(f"{text}: use another lake, or delete the table")
    if found == DELTA:
        require_delta()
    return found


def _frame(
    spark: SparkSession, environment: Environment, request: ArchiveRequest, starting: str
) -> DataFrame:
    given = environment.options(
        stream=request.stream,
        startingOffsets=starting,
        failOnDataLoss=request.fails_on_loss,
        maxBytesPerTrigger=request.file_bytes * spark.sparkContext.defaultParallelism,
    )
    return with_date(spark.readStream.format("leveret").options(**given).load())


def _start(frame: DataFrame, lake: Lake, table: str, request: ArchiveRequest) -> StreamingQuery:
    writer = (
        frame.writeStream.format(FORMAT)
        .partitionBy(*PARTITIONS)
        .option("checkpointLocation", str(lake.checkpoint(table) / BRONZE))
        .queryName(f"archive {table}")
    )
    return _triggered(writer, request).start(str(lake.folder(BRONZE, table)))


def _start_delta(frame: DataFrame, sink: DeltaSink, request: ArchiveRequest) -> StreamingQuery:
    writer = (
        frame.writeStream.foreachBatch(sink.write)
        .option("checkpointLocation", str(sink.checkpoint))
        .queryName(f"archive {request.stream}")
    )
    return _triggered(writer, request).start()


def _triggered(writer: DataStreamWriter, request: ArchiveRequest) -> DataStreamWriter:
    if request.is_once:
        return writer.trigger(availableNow=True)
    return writer.trigger(processingTime=f"{request.every_s} seconds")


def life_event_stream(environment: Environment, queue: str) -> str:
    """Return the stream of life events of a queue; raise NotFoundError if it has none."""
    broker = Broker(parse_options(environment.options(queue=queue)))
    found = broker.ask("GET", broker.path("queues", queue))
    stream = found.get("arguments", {}).get("x-remember")
    if stream is None:
        raise NotFoundError(
            f"the queue '{queue}' remembers nothing: declare it with x-remember (docs/remember.md)"
        )
    return str(stream)
