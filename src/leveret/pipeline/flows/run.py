"""`run`: archive streams up to now, refine and compact them. Once, or again and again.

A run holds the lock of its lake, so that two runs of one schedule do not meet. A stream that fails
does not stop the others. The session of Spark stays alive between the runs of `--every`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from py4j.protocol import Py4JNetworkError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

from leveret.errors import LeveretError
from leveret.lake.layout import Lake, table_name
from leveret.pipeline.environment import Environment
from leveret.pipeline.flows.archive import FILE_BYTES, ArchiveRequest, archive
from leveret.pipeline.flows.compact import KEEP_S, compact
from leveret.pipeline.flows.refine import refine
from leveret.pipeline.locks import exclusive_lock
from leveret.pipeline.query_progress import OnProgress
from leveret.pipeline.spark_errors import SPARK_ERRORS, error_sentence


@dataclass(frozen=True)
class RunRequest:
    """The streams of a run, and what to do with each of them."""

    streams: Sequence[str]
    refines: bool = True
    compacts: bool = True
    file_bytes: int = FILE_BYTES
    keep_s: float = KEEP_S


@dataclass
class StreamRun:
    """The result of one stream."""

    stream: str
    archived: int = 0
    refined: int = 0
    bad: int = 0
    files_merged: int = 0
    leftovers: int = 0
    fault: str | None = None  # why it stopped


@dataclass
class RunResult:
    """The result of a run."""

    streams: list[StreamRun] = field(default_factory=list)

    @property
    def faults(self) -> int:
        return sum(each.fault is not None for each in self.streams)


def run_once(
    spark: SparkSession,
    environment: Environment,
    request: RunRequest,
    on_progress: OnProgress = lambda progress: None,
) -> RunResult:
    """Do all streams in turn. Raise ResourceLockedError if another run of this lake is active."""
    lake = Lake(environment.lake_path)
    lock = lake.path / "_checkpoints" / "run.lock"
    with exclusive_lock(lock, f"another run works on the lake {lake.path}: this one does nothing"):
        return RunResult(
            [_run_stream(spark, environment, request, s, on_progress) for s in request.streams]
        )


def _run_stream(
    spark: SparkSession,
    environment: Environment,
    request: RunRequest,
    stream: str,
    on_progress: OnProgress,
) -> StreamRun:
    done = StreamRun(stream)
    lake, table = Lake(environment.lake_path), table_name(environment.vhost, stream)
    try:
        asked = ArchiveRequest(stream, file_bytes=request.file_bytes)
        done.archived = archive(spark, environment, asked, on_progress).rows
        if request.refines:
            found = refine(spark, lake, table)
            done.refined, done.bad = found.messages, found.bad
        if request.compacts:
            merged = compact(spark, lake, table, request.file_bytes, request.keep_s)
            done.files_merged = merged.files_before - merged.files_after
            done.leftovers = merged.leftovers
    except Py4JNetworkError:  # Spark's JVM is gone: no stream can succeed
        raise
    except SPARK_ERRORS as error:
        done.fault = error_sentence(error)
    except (LeveretError, OSError) as error:
        done.fault = str(error)
    return done
