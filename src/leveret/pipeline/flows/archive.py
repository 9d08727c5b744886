"""`archive`: a stream into bronze, each message once.

The offsets are in Spark's checkpoint, and the files that count in the manifest of its file sink:
a driver that is killed at any point goes on where it was, and nothing is there twice. One table is
archived by one query at a time; the lake's lock sees to it.
"""

import fcntl
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from leveret.errors import NotFoundError, PreconditionFailedError, ResourceLockedError
from leveret.pipeline.lake import FORMAT
from leveret.pipeline.layout import BRONZE, MANIFEST, PARTITIONS, Lake, table_name
from leveret.pipeline.progress import OnProgress, Progress, Watch
from leveret.pipeline.site import Site
from leveret.pipeline.transforms.messages import with_date
from pyspark_leveret.client import Broker
from pyspark_leveret.errors import BrokerError
from pyspark_leveret.options import parse
from pyspark_leveret.positions import Streams

log = logging.getLogger(__name__)

FILE_BYTES: Final = 128 * 1024 * 1024
EVERY_S: Final = 10.0
STARTS: Final = 3  # of a query whose reader does not start within the ten seconds Spark gives it
_SLOW: Final = "failed to connect back"
_BOTH: Final = "bring it back, or delete both and archive anew"
LOOK_S: Final = 2.0  # to find the ends of streams, for the progress line


@dataclass(frozen=True)
class Archiving:
    """What is archived, and how."""

    stream: str
    is_once: bool = True
    every_s: float = EVERY_S
    file_bytes: int = FILE_BYTES
    fails_on_loss: bool = True


def archive(spark: SparkSession, site: Site, asked: Archiving, on_progress: OnProgress) -> Progress:
    """Archive what is there, or go on for ever; how far it came."""
    lake = Lake(site.lake_path)
    table = table_name(site.vhost, asked.stream)
    streams = Streams(parse(site.options(stream=asked.stream, retrySeconds=LOOK_S)))
    streams.bounds()  # no stream, no table

    def ends() -> dict[str, int] | None:
        try:
            return {name: bound.end for name, bound in streams.bounds().items()}
        except BrokerError as fault:  # the query asks for longer
            log.warning("%s", fault)
            return None

    with only_one(lake.checkpoint(table) / "archive.lock", f"another archive of '{table}' runs"):
        _require_whole(lake, table)
        watch = Watch(on_progress, ends)
        return started_again(lambda: _start(spark, site, asked, lake, table), watch)


def started_again(start: Callable[[], StreamingQuery], watch: Watch) -> Progress:
    """Run a query to its end; it is started again where its reader was slow, and it gets on."""
    left = STARTS
    while True:
        query, before = start(), watch.rows
        try:
            return watch.until_it_ends(query)
        except StreamingQueryException as fault:
            left = (STARTS if watch.rows > before else left) - 1
            if left == 0 or _SLOW not in str(fault):
                raise
            log.warning("Spark's reader was slow to start; starting it again")
        finally:
            query.stop()


def _require_whole(lake: Lake, table: str) -> None:
    """Manifest and checkpoint are both there, or neither is: PreconditionFailedError.

    With the manifest alone Spark would skip batches whose numbers it has, and with the checkpoint
    alone all messages that were archived before.
    """
    folder, checkpoint = lake.folder(BRONZE, table), lake.checkpoint(table)
    is_written = any((folder / MANIFEST).glob("[0-9]*"))
    is_planned = any((checkpoint / "bronze" / "offsets").glob("[0-9]*"))
    is_committed = any((checkpoint / "bronze" / "commits").glob("[0-9]*"))
    if is_written and not is_planned:
        raise PreconditionFailedError(f"{checkpoint} is missing for {folder}: {_BOTH}")
    if is_committed and not is_written:
        raise PreconditionFailedError(f"{folder} is missing for {checkpoint}: {_BOTH}")


def _start(
    spark: SparkSession, site: Site, asked: Archiving, lake: Lake, table: str
) -> StreamingQuery:
    given = site.options(
        stream=asked.stream,
        startingOffsets="earliest",
        failOnDataLoss=asked.fails_on_loss,
        maxBytesPerTrigger=asked.file_bytes * spark.sparkContext.defaultParallelism,
    )
    frame = with_date(spark.readStream.format("leveret").options(**given).load())
    writer = (
        frame.writeStream.format(FORMAT)
        .partitionBy(*PARTITIONS)
        .option("checkpointLocation", str(lake.checkpoint(table) / "bronze"))
        .queryName(f"archive {table}")
    )
    if asked.is_once:
        writer = writer.trigger(availableNow=True)
    else:
        writer = writer.trigger(processingTime=f"{asked.every_s} seconds")
    return writer.start(str(lake.folder(BRONZE, table)))


def remembered_stream(site: Site, queue: str) -> str:
    """The stream with the life events of a queue; NotFoundError where it does not remember."""
    broker = Broker(parse(site.options(queue=queue)))
    found = broker.ask("GET", broker.path("queues", queue))
    stream = found.get("arguments", {}).get("x-remember")
    if stream is None:
        raise NotFoundError(
            f"the queue '{queue}' remembers nothing: declare it with x-remember (docs/remember.md)"
        )
    return str(stream)


@contextmanager
def only_one(path: Path, reason: str) -> Iterator[None]:
    """Hold a lock file, which is free again when its holder ends, however that was."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise ResourceLockedError(reason) from None
        yield
