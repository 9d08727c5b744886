"""Bronze as a Delta table: files that Spark has written, committed through delta-rs. No Spark.

    stream=orders/date=2026-03-01/part-….parquet     data files
    _delta_log/                                      the log of the format
    _staging/                                        the batch that is being written
        stream=…/date=…/part-….parquet               as Spark wrote it
        moved.json                                   where its files go

A commit adds the files of a batch and, for each stream, a transaction `leveret/STREAM`. The version
of this transaction is the next offset. Files and offsets are in one atomic step. So the table
itself knows where archiving continues, and two archives of one table cannot both commit.

A batch that was killed before its commit leaves files that no reader sees. `moved.json` names them,
and the next archive deletes them. Compaction and retention are those of the format.
"""

import datetime
import importlib.util
import json
import math
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

from leveret.errors import ConfigError, PreconditionFailedError
from leveret.lake.partitions import PARTITIONS, partition_of

DELTA: Final = "delta"  # the name of the format
LOG: Final = "_delta_log"
STAGING: Final = "_staging"
NO_DELTA: Final = "a Delta table needs delta-rs: pip install 'leveret[delta]'"
_MOVED: Final = "moved.json"
_APP: Final = "leveret/"
_OFFSETS: Final = "leveret.offsets"  # in the properties of the commit of a batch
_COMMIT_TRIES: Final = 100  # other writers, such as compaction, may commit in between


@dataclass(frozen=True)
class DeltaBatch:
    """A staged batch: where its files are, where they go, and the offsets at which it ends."""

    files: dict[str, str]  # path in the staging folder -> path in the table's folder
    ends: dict[str, int]


def is_delta(folder: Path) -> bool:
    """Return True if a folder has a Delta table.

    On a full disk delta-rs leaves a log without entries: the table has not been created.
    """
    return any(any((folder / LOG).glob(f"*.{kind}")) for kind in ("json", "parquet"))


def require_delta() -> None:
    """Raise ConfigError with the install command if delta-rs is missing."""
    if importlib.util.find_spec("deltalake") is None:
        raise ConfigError(NO_DELTA)


def open_table(folder: Path) -> Any:
    """Return the newest version of a table.

    Raise ConfigError if delta-rs is missing, and PreconditionFailedError if the log is damaged.
    """
    require_delta()
    import deltalake

    try:
        return deltalake.DeltaTable(str(folder))
    except deltalake.exceptions.DeltaError as fault:
        raise PreconditionFailedError(f"{folder} is not a whole Delta table: {fault}") from fault


def table_files(table: Any, folder: Path) -> list[Path]:
    """Return the data files of a version."""
    return [folder / unquote(path) for path in _rows_by_file(table)]


def table_position(table: Any, stream: str) -> dict[str, int]:
    """Return the next offset of a stream, or of the partitions of a super stream."""
    found: dict[str, int] = {}
    for name in _stream_names(stream):
        version = table.transaction_version(f"{_APP}{name}")
        if version is not None:
            found[name] = version
        elif name != stream:
            break
    return found


def _stream_names(stream: str) -> Iterator[str]:
    yield stream
    for number in count():
        yield f"{stream}-{number}"


def archived_at_s(folder: Path, version: int) -> float | None:
    """Return when the newest batch up to a version was committed.

    Compaction and retention commit too, and do not count. None if the log does not go back so far.
    """
    for number in range(version, -1, -1):
        path = folder / LOG / f"{number:020}.json"
        try:
            if f'"{_OFFSETS}"' in path.read_text():
                return path.stat().st_mtime
        except FileNotFoundError:  # deleted after a checkpoint of the log
            return None
    return None


def prepare_table(folder: Path, schema: Any) -> Any:
    """Return the table, with all columns of an Arrow schema; create it if it does not exist.

    Raise PreconditionFailedError for a folder with `%` in its path: delta-rs decodes the path once
    too often, and would write to one folder and read from another.
    """
    require_delta()
    if "%" in str(folder):
        text = f"delta-rs cannot open {folder}: there is a '%' in the path"
        raise PreconditionFailedError(f"{text}; archive this stream as parquet")
    import deltalake

    wanted = deltalake.Schema.from_arrow(schema)
    if not is_delta(folder):
        return deltalake.DeltaTable.create(str(folder), wanted, partition_by=list(PARTITIONS))
    table = open_table(folder)
    known = {field.name for field in table.schema().fields}
    missing = [field for field in wanted.fields if field.name not in known]
    if missing:
        table.alter.add_columns(missing)
    return table


def plan_moves(folder: Path, name: str, ends: dict[str, int]) -> DeltaBatch:
    """Return where the staged files go, and note it on disk. `name` is unique to the batch."""
    staging = folder / STAGING
    files = {
        str(path.relative_to(staging)): f"{path.parent.relative_to(staging)}/part-{name}-{number}"
        ".snappy.parquet"
        for number, path in enumerate(sorted(staging.glob("*/*/*.parquet")))
    }
    found = DeltaBatch(files, ends)
    staging.mkdir(parents=True, exist_ok=True)
    (staging / _MOVED).write_text(json.dumps(vars(found)))
    return found


def move_files(folder: Path, batch: DeltaBatch) -> None:
    """Move staged files into the table's folder, where no reader sees them yet."""
    for source, target in batch.files.items():
        (folder / target).parent.mkdir(parents=True, exist_ok=True)
        (folder / STAGING / source).rename(folder / target)


def commit_batch(folder: Path, stream: str, batch: DeltaBatch, starts: dict[str, int]) -> None:
    """Add the files of a batch to the table, with the offsets at which it ends.

    Raise PreconditionFailedError if the table does not end where the batch begins.
    """
    import deltalake

    table = open_table(folder)
    known = table_position(table, stream)
    if known != starts:
        text = f"{folder} ends with {known}, and not with {starts}"
        raise PreconditionFailedError(f"{text}: another program has written to it; archive again")
    table.create_write_transaction(
        [_add_action(folder, path) for path in batch.files.values()],
        "append",
        table.schema(),
        table.metadata().partition_columns,
        commit_properties=deltalake.CommitProperties(
            custom_metadata={_OFFSETS: json.dumps(batch.ends)},
            max_commit_retries=_COMMIT_TRIES,
            app_transactions=[
                deltalake.Transaction(f"{_APP}{name}", end) for name, end in batch.ends.items()
            ],
        ),
    )
    shutil.rmtree(folder / STAGING)


def _add_action(folder: Path, path: str) -> Any:
    """Return the log entry of a data file: its partition, size and statistics."""
    from deltalake.transaction import AddAction

    partition = zip(PARTITIONS, partition_of(Path(path).parent), strict=True)
    state = (folder / path).stat()
    return AddAction(
        path,
        state.st_size,
        dict(partition),
        state.st_mtime_ns // 1_000_000,
        True,
        json.dumps(_statistics(folder / path)),
    )


def _statistics(path: Path) -> dict[str, object]:
    """Return the number of rows and the range of offsets, by which readers skip files."""
    import pyarrow.parquet as pq

    found = pq.read_metadata(path)
    offsets = found.schema.names.index("offset")
    groups = [found.row_group(n).column(offsets).statistics for n in range(found.num_row_groups)]
    return {
        "numRecords": found.num_rows,
        "minValues": {"offset": min(each.min for each in groups)},
        "maxValues": {"offset": max(each.max for each in groups)},
        "nullCount": {"offset": 0},
    }


def recover_staging(folder: Path, stream: str) -> None:
    """Delete the files of a batch that was killed before its commit."""
    path = folder / STAGING / _MOVED
    if path.is_file():
        batch = _read_batch(path)
        known = table_position(open_table(folder), stream)
        if any(known.get(name, -1) < end for name, end in batch.ends.items()):
            for moved in batch.files.values():
                (folder / moved).unlink(missing_ok=True)
    shutil.rmtree(folder / STAGING, ignore_errors=True)


def _read_batch(path: Path) -> DeltaBatch:
    try:
        return DeltaBatch(**json.loads(path.read_text()))
    except ValueError:  # killed while it was written: nothing has been moved
        return DeltaBatch({}, {})


def compact_table(folder: Path, file_bytes: int) -> int:
    """Merge small files, also while archiving continues; return the number of messages in them."""
    table = open_table(folder)
    before = _rows_by_file(table)
    table.optimize.compact(target_size=file_bytes)
    return sum(before[path] for path in before.keys() - _rows_by_file(table).keys())


def _rows_by_file(table: Any) -> dict[str, int]:
    import pyarrow as pa

    found = pa.table(table.get_add_actions())
    return dict(
        zip(found.column("path").to_pylist(), found.column("num_records").to_pylist(), strict=True)
    )


def delete_before(folder: Path, date: datetime.date) -> None:
    """Delete all messages of the dates before a date. The files stay until `vacuum`."""
    open_table(folder).delete(f"date < '{date.isoformat()}'")


def vacuum(folder: Path, keep_s: float) -> int:
    """Delete files that left the table `keep_s` ago; return their number.

    The files of a batch that is not committed yet stay, because the log does not name them.
    """
    table, hours = open_table(folder), math.ceil(keep_s / 3600)
    deleted = table.vacuum(hours, dry_run=False, enforce_retention_duration=False)
    return len(deleted)
