"""`load --jobs`: rows of files as jobs of a topic, over HTTP.

The idempotency key of a job is made of the load's id, its file and its row: a task that is tried
again, and a load that is run again, add nothing twice for as long as the service remembers keys
(docs/jobs.md: a day at least). Files are told apart by their names; of files with one name, by
their order too. The rows of a file are put in in their order.
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
from leveret.pipeline.flows.load import tables_of
from leveret.pipeline.jobs_access import JobsAccess
from leveret.pipeline.site import Site
from leveret.pipeline.transforms.loading import as_jobs

BATCH_JOBS: Final = 1_000  # of one call; the service takes no more
BATCH_BYTES: Final = 16 * 1024 * 1024
RETRY_S: Final = 60.0  # for how long a service that does not take jobs is asked again
PAUSE_S: Final = 1.0
_NOT_NOW: Final = (RateLimitError, ServiceDrainingError, CallTimeoutError, UnreachableError)


@dataclass(frozen=True)
class JobsTarget:
    """Where jobs go."""

    site: Site
    namespace: str
    topic: str
    token: str | None = None
    rate: int | None = None  # jobs a second


@dataclass(frozen=True)
class Loaded:
    """What became of the rows of files."""

    new: int
    known: int  # were there already, by their keys; a call that lost its answer counts, too


def load_jobs(
    spark: SparkSession, files: Sequence[Path], kind: str | None, to: JobsTarget, load_id: str
) -> Loaded:
    """Put in all rows of files."""
    tables = tables_of(spark, files, kind)
    frames = [
        as_jobs(table, f"{load_id}/{label}")
        for table, label in zip(tables, _labels(files), strict=True)
    ]
    frame = reduce(lambda one, two: one.unionByName(two), frames)
    count = frame.count()
    known = put_in(frame, to)
    return Loaded(count - known, known)


def put_in(frame: DataFrame, to: JobsTarget) -> int:
    """Put in what `as_jobs` made; returns when the service has all of it on disk.

    The answer is how many jobs were there already, as far as the service says.
    """
    known = frame.sparkSession.sparkContext.accumulator(0)
    frame.coalesce(1).foreachPartition(Sender(to, known))
    return known.value


class Sender:
    """Sends the rows of a partition, in a process of Spark's."""

    def __init__(self, to: JobsTarget, known: Accumulator[int]) -> None:
        self._to = to
        self._known = known

    def __call__(self, rows: Iterator[Any]) -> None:
        access = JobsAccess(self._to.site, self._to.token, self._to.namespace)
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
    """Until they are in: keys make it harmless to ask again. How many were there already."""
    until_s = time.monotonic() + RETRY_S
    while True:
        try:
            return access.client().enqueue_many(batch).known or 0
        except CallError as fault:
            if not isinstance(fault, _NOT_NOW) or time.monotonic() > until_s:
                raise
            time.sleep(fault.retry_after_s if isinstance(fault, RateLimitError) else PAUSE_S)


def _labels(files: Sequence[Path]) -> list[str]:
    """A short text for each file: of its name, and of which one of that name it is."""
    seen: dict[str, int] = {}
    found = []
    for path in files:
        seen[path.name] = seen.get(path.name, 0) + 1
        told = f"{path.name}\n{seen[path.name]}"
        found.append(hashlib.sha256(told.encode()).hexdigest()[:12])
    return found
