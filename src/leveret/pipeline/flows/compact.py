"""`compact`: merge many small files into few large ones, while archiving continues.

Only files in the manifest of the sink are merged. The run writes merged files beside them, compares
both, and then replaces `current.json` in one step. The manifest does not change. A run that was
killed before that step leaves merged files that no reader uses; the next run deletes them. The
small files are deleted after `keep_s`, when no query can still be reading them. So are the files
that killed batches of `archive` have left.

A Delta table is compacted by delta-rs: the log of the table has the merged files and the old ones.
"""

import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from leveret.clock import Clock
from leveret.errors import InternalError, PreconditionFailedError
from leveret.lake import delta
from leveret.lake.layout import (
    BRONZE,
    Lake,
    Merged,
    read_merged,
    write_merged,
)
from leveret.lake.partitions import PARTITIONS
from leveret.pipeline.flows.archive import FILE_BYTES
from leveret.pipeline.lake_tables import FORMAT, read_files
from leveret.pipeline.leftovers import remove_leftovers
from leveret.pipeline.locks import exclusive_lock

KEEP_S: Final = 24 * 3600.0
MERGED: Final = "merged-"  # prefix of the names of merged files
_SMALL: Final = 0.5  # share of the wanted size; a larger file stays


@dataclass(frozen=True)
class Compacted:
    """The result of a run."""

    files_before: int
    files_after: int
    messages: int  # in merged files
    deleted: int  # replaced files
    leftovers: int  # files of killed batches that were deleted


def compact(
    spark: SparkSession,
    lake: Lake,
    table: str,
    file_bytes: int = FILE_BYTES,
    keep_s: float = KEEP_S,
    delete_before: date | None = None,
) -> Compacted:
    """Merge small files of bronze, and delete files that were replaced long ago.

    With `delete_before`, also delete the messages of older dates from a Delta table.
    """
    folder = lake.require(BRONZE, table)
    if delta.is_delta(folder):
        return _compact_delta(lake, table, file_bytes, keep_s, delete_before)
    if delete_before is not None:
        raise PreconditionFailedError(f"{folder} is not a Delta table: its dates cannot be deleted")
    with exclusive_lock(folder / "_merged" / "lock", f"another compact of '{table}' runs"):
        _sweep(folder)
        before = lake.bronze_files(table)
        small = _small(before, file_bytes)
        messages = _merge(spark, folder, small, file_bytes) if small else 0
        deleted = _delete(folder, keep_s)
        leftovers = remove_leftovers(lake, table, keep_s)
        after = len(lake.bronze_files(table))
        return Compacted(len(before), after, messages, deleted, leftovers)


def _compact_delta(
    lake: Lake, table: str, file_bytes: int, keep_s: float, delete_before: date | None
) -> Compacted:
    """Compact a Delta table by the means of the format. delta-rs does it without Spark."""
    folder = lake.folder(BRONZE, table)
    with exclusive_lock(
        lake.checkpoint(table) / "compact.lock", f"another compact of '{table}' runs"
    ):
        before = len(lake.bronze_files(table))
        if delete_before is not None:
            delta.delete_before(folder, delete_before)
        messages = delta.compact_table(folder, file_bytes)
        deleted = delta.vacuum(folder, keep_s)
        return Compacted(before, len(lake.bronze_files(table)), messages, deleted, 0)


def _sweep(folder: Path) -> None:
    """Delete merged files of a run that was killed before it replaced `current.json`."""
    merged = read_merged(folder)
    named = {*merged.files, *merged.replaced}
    for path in folder.glob(f"*/*/{MERGED}*"):
        if str(path.relative_to(folder)) not in named:
            path.unlink()


def _small(files: Iterable[Path], file_bytes: int) -> list[Path]:
    """Return the small files of folders that have at least two of them."""
    by_folder: dict[tuple[str, ...], list[Path]] = {}
    for path in files:
        if path.stat().st_size < _SMALL * file_bytes:
            by_folder.setdefault(path.parts[-3:-1], []).append(path)
    return [path for paths in by_folder.values() if len(paths) > 1 for path in paths]


def _merge(spark: SparkSession, folder: Path, small: list[Path], file_bytes: int) -> int:
    """Merge small files into large ones; return the number of messages."""
    merged = read_merged(folder)
    generation = merged.generation + 1
    target = folder / "_merged" / str(generation)
    shutil.rmtree(target, ignore_errors=True)  # of a killed run
    old = read_files(spark, folder, [str(path) for path in small])
    pieces = -(-sum(path.stat().st_size for path in small) // file_bytes)
    ordered = old.repartitionByRange(pieces, *PARTITIONS, "offset")
    (
        ordered.sortWithinPartitions(*PARTITIONS, "offset")
        .write.format(FORMAT)
        .partitionBy(*PARTITIONS)
        .save(str(target))
    )
    new = sorted(target.glob("*/*/*.parquet"))
    count = _require_same(old, read_files(spark, target, [str(path) for path in new]))
    _publish(folder, merged, small, [_moved(path, folder, generation) for path in new])
    shutil.rmtree(target)
    return count


def _moved(path: Path, folder: Path, generation: int) -> Path:
    """Move a merged file beside the files it replaces: their folder gives stream and date."""
    target = folder / path.parts[-3] / path.parts[-2] / f"{MERGED}{generation}-{path.name}"
    return path.rename(target)


def _require_same(old: DataFrame, new: DataFrame) -> int:
    """Return the number of rows; raise InternalError if the frames differ."""
    number = f.xxhash64("stream", "offset", "timestamp", "properties", "body").cast("decimal(38)")
    sums = [f.count("*"), f.sum(number)]
    before, after = (tuple(frame.agg(*sums).collect()[0]) for frame in (old, new))
    if before != after:
        raise InternalError(f"merged files differ from the files they merge: {before}, {after}")
    count: int = before[0]
    return count


def _publish(folder: Path, merged: Merged, small: list[Path], new: list[Path]) -> None:
    now_ms = Clock().now_ms()
    gone = {str(path.relative_to(folder)) for path in small}
    files = [path for path in merged.files if path not in gone]
    files += [str(path.relative_to(folder)) for path in new]
    replaced = {**merged.replaced, **dict.fromkeys(gone, now_ms)}
    write_merged(folder, Merged(merged.generation + 1, files, replaced, merged.removed))


def _delete(folder: Path, keep_s: float) -> int:
    """Delete files that were replaced `keep_s` ago; return their number.

    They stay in `removed`, because the manifest still lists them.
    """
    merged, now_ms = read_merged(folder), Clock().now_ms()
    old = [path for path, at_ms in merged.replaced.items() if at_ms + 1000 * keep_s <= now_ms]
    for path in old:
        (folder / path).unlink(missing_ok=True)
        del merged.replaced[path]
        if not Path(path).name.startswith(MERGED):
            merged.removed.append(path)
    if old:
        write_merged(folder, merged)
    return len(old)
