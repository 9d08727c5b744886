"""`load --jobs`: enqueue the rows of files as jobs of a topic, over HTTP.

The idempotency key of a job consists of the load's id, its file and its row. A repeated task or
load adds no job twice while the service keeps the keys (docs/jobs.md: a day at least). A file is
identified by its name, and by its order among files of that name. Rows are enqueued in order.
"""

import hashlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import reduce
from pathlib import Path
from typing import Any, Final

from pyspark import Accumulator
from pyspark.sql import DataFrame, SparkSession

from leveret.jobs.client.errors import (
    CallError,
    CallTimeoutError,
    RateLimitError,
    ServiceDrainingError,
    UnreachableError,
)
from leveret.jobs.client.job import NewJob
from leveret.pipeline.environment import Environment
from leveret.pipeline.flows.load import read_files
from leveret.pipeline.jobs_access import JobsAccess
from leveret.pipeline.transforms.table_rows import rows_as_jobs

BATCH_JOBS: Final = 1_000  # of one call; the limit of the service
BATCH_BYTES: Final = 16 * 1024 * 1024
RETRY_S: Final = 60.0  # how long to retry while the service does not accept jobs
PAUSE_S: Final = 1.0
_TEMPORARY: Final = (RateLimitError, ServiceDrainingError, CallTimeoutError, UnreachableError)


@dataclass(frozen=True)
class JobsTarget:
    """The topic that jobs are enqueued to."""

    environment: Environment
    namespace: str
    topic: str
    token: str | None = None
    rate: int | None = None  # jobs a second


@dataclass(frozen=True)
class Loaded:
    """The result of a load."""

    new: int
    known: int  # had a known key; includes jobs of a call whose answer was lost


def load_jobs(
    spark: SparkSession,
    files: Sequence[Path],
    kind: str | None,
    to: JobsTarget,
    load_id: str,
    *,
    infers_types: bool = False,
) -> Loaded:
    """Enqueue all rows of files."""
    tables = read_files(spark, files, kind, infers_types=infers_types)
    frames = [
        rows_as_jobs(table, f"{load_id}/{label}")
        for table, label in zip(tables, _labels(files), strict=True)
    ]
    frame = reduce(lambda one, two: one.unionByName(two), frames)
    count = frame.count()
    known = enqueue_rows(frame, to)
    return Loaded(count - known, known)


def enqueue_rows(frame: DataFrame, to: JobsTarget) -> int:
    """Enqueue rows of `rows_as_jobs`; return when the service has all of them on disk.

    Return the number of jobs that the service knew already.
    """
    known = frame.sparkSession.sparkContext.accumulator(0)
    frame.coalesce(1).foreachPartition(Sender(to, known))
    return known.value


class Sender:
    """Enqueues the rows of a partition, in a Python process of Spark."""

    def __init__(self, to: JobsTarget, known: Accumulator[int]) -> None:
        self._to = to
        self._known = known

    def __call__(self, rows: Iterator[Any]) -> None:
        access = JobsAccess(self._to.environment, self._to.token, self._to.namespace)
        began_s, sent = time.monotonic(), 0
        try:
            for batch in _batches(rows, self._to):
                self._known.add(_enqueue(access, batch))
                sent += len(batch)
                if self._to.rate is not None:
                    due_s = began_s + sent / self._to.rate
                    time.sleep(max(due_s - time.monotonic(), 0.0))
        finally:
            access.close()


def _batches(rows: Iterator[Any], to: JobsTarget) -> Iterator[list[NewJob]]:
    batch: list[NewJob] = []
    size = 0
    most = min(BATCH_JOBS, to.rate or BATCH_JOBS)
    for row in rows:
        payload = bytes(row.payload or b"")
        if batch and (len(batch) >= most or size + len(payload) > BATCH_BYTES):
            yield batch
            batch, size = [], 0
        after_ms = row.deliver_after_ms
        job = NewJob(
            topic=to.topic,
            payload=payload,
            priority=row.priority,
            deliver_after=None if after_ms is None else datetime.fromtimestamp(after_ms / 1e3, UTC),
            idempotency_key=row.key,
            fair_key=row.fair_key,
        )
        batch.append(job)
        size += len(payload)
    if batch:
        yield batch


def _enqueue(access: JobsAccess, batch: list[NewJob]) -> int:
    """Enqueue a batch; return how many jobs were known. Keys make retries harmless."""
    until_s = time.monotonic() + RETRY_S
    while True:
        try:
            return access.client().enqueue_many(batch).known or 0
        except CallError as error:
            if not isinstance(error, _TEMPORARY) or time.monotonic() > until_s:
                raise
            time.sleep(error.retry_after_s if isinstance(error, RateLimitError) else PAUSE_S)


def _labels(files: Sequence[Path]) -> list[str]:
    """Return a short hash for each file, of its name and its order among files of that name."""
    seen: dict[str, int] = {}
    found = []
    for path in files:
        seen[path.name] = seen.get(path.name, 0) + 1
        told = f"{path.name}\n{seen[path.name]}"
        found.append(hashlib.sha256(told.encode()).hexdigest()[:12])
    return found
