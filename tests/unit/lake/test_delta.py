"""Bronze as a Delta table: a batch that is killed at any step is in the table once, or not."""

import datetime
import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from leveret.arrow.schema import TYPES
from leveret.errors import PreconditionFailedError
from leveret.lake import delta
from leveret.lake.layout import BRONZE, Lake, table_name, vhost_and_stream
from leveret.lake.partitions import PARTITIONS

SCHEMA = pa.schema([*TYPES.items(), ("date", pa.date32())])
TIME = datetime.datetime(2026, 11, 17, 12, tzinfo=datetime.UTC)
STEPS = ("staged", "planned", "moved", "committed")
BATCH = 10


class KilledError(Exception):
    """The process ends here."""


class Writer:
    """Archives offsets into a table, with files as Spark writes them, until it is killed."""

    def __init__(self, folder: Path, stream: str = "s", schema: pa.Schema = SCHEMA) -> None:
        self.folder, self.stream, self.schema = folder, stream, schema
        table = delta.prepare_table(folder, schema)
        delta.recover_staging(folder, stream)
        self.position = delta.table_position(table, stream)

    def write(self, end: int, killed_after: str = "", date: str = "2026-11-17") -> None:
        first = self.position.get(self.stream, 0)
        self.stage(first, end, date)
        self._pass("staged", killed_after)
        batch = delta.plan_moves(self.folder, f"b{end}", {self.stream: end})
        self._pass("planned", killed_after)
        delta.move_files(self.folder, batch)
        self._pass("moved", killed_after)
        delta.commit_batch(self.folder, self.stream, batch, self.position)
        self._pass("committed", killed_after)
        self.position = {self.stream: end}

    def stage(self, first: int, end: int, date: str) -> None:
        offsets = pa.array(range(first, end), pa.int64())
        known = {"offset": offsets, "timestamp": pa.repeat(pa.scalar(TIME), end - first)}
        names = [name for name in self.schema.names if name not in PARTITIONS]
        columns = [
            known[name].cast(TYPES[name]) if name in known else pa.nulls(end - first, TYPES[name])
            for name in names
        ]
        path = self.folder / delta.STAGING / f"stream={self.stream}" / f"date={date}"
        path.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table(columns, names=names), path / "part-00000-x.snappy.parquet")

    @staticmethod
    def _pass(step: str, killed_after: str) -> None:
        if step == killed_after:
            raise KilledError


def offsets(folder: Path) -> list[int]:
    """Return the offsets in the table, sorted, as a reader of the format sees them."""
    return sorted(
        delta.open_table(folder).to_pyarrow_table(columns=["offset"])["offset"].to_pylist()
    )


def data_files(folder: Path) -> set[Path]:
    return set(folder.glob("*/*/*.parquet"))


@pytest.mark.parametrize("step", STEPS)
def test_batch_that_is_killed_is_in_the_table_once_after_the_next_archive(
    tmp_path: Path, step: str
) -> None:
    Writer(tmp_path).write(BATCH)
    with pytest.raises(KilledError):
        Writer(tmp_path).write(2 * BATCH, killed_after=step)
    committed = 2 * BATCH if step == "committed" else BATCH
    assert offsets(tmp_path) == list(range(committed)), "readers see whole batches"
    again = Writer(tmp_path)
    assert again.position == {"s": committed}
    again.write(3 * BATCH)
    assert offsets(tmp_path) == list(range(3 * BATCH))
    found = delta.table_files(delta.open_table(tmp_path), tmp_path)
    assert data_files(tmp_path) == set(found), "no file is left over"
    assert not (tmp_path / delta.STAGING).exists()


def test_note_of_moves_that_was_cut_off_is_ignored(tmp_path: Path) -> None:
    with pytest.raises(KilledError):
        Writer(tmp_path).write(BATCH, killed_after="planned")
    (tmp_path / delta.STAGING / "moved.json").write_text('{"files": {"a')
    Writer(tmp_path).write(BATCH)
    assert offsets(tmp_path) == list(range(BATCH))


def test_log_without_entries_that_a_full_disk_has_left_is_no_table(tmp_path: Path) -> None:
    (tmp_path / delta.LOG).mkdir()
    assert not delta.is_delta(tmp_path)
    Writer(tmp_path).write(BATCH)
    assert delta.is_delta(tmp_path)
    assert offsets(tmp_path) == list(range(BATCH))


def test_damaged_log_is_named(tmp_path: Path) -> None:
    Writer(tmp_path).write(BATCH)
    (tmp_path / delta.LOG / f"{0:020}.json").write_text("{")
    with pytest.raises(PreconditionFailedError, match="is not a whole Delta table: "):
        delta.open_table(tmp_path)


def test_second_archive_cannot_commit_the_same_offsets(tmp_path: Path) -> None:
    first, second = Writer(tmp_path), Writer(tmp_path)
    first.write(BATCH)
    with pytest.raises(PreconditionFailedError, match="another program has written to it"):
        second.write(BATCH)
    assert offsets(tmp_path) == list(range(BATCH))


def test_new_columns_are_null_in_old_messages(tmp_path: Path) -> None:
    younger = ("app_id", "x_death")
    old = pa.schema([field for field in SCHEMA if field.name not in younger])
    Writer(tmp_path, schema=old).write(BATCH)
    Writer(tmp_path).write(2 * BATCH)
    found = delta.open_table(tmp_path).to_pyarrow_table()
    assert set(found.column_names) == set(SCHEMA.names)
    assert found["app_id"].null_count == 2 * BATCH


def test_compaction_and_retention_keep_the_position(tmp_path: Path) -> None:
    for number, date in enumerate(("2026-11-15", "2026-11-16", "2026-11-16"), 1):
        Writer(tmp_path).write(number * BATCH, date=date)
    small = data_files(tmp_path)
    assert delta.compact_table(tmp_path, 1 << 20) == 2 * BATCH
    assert delta.vacuum(tmp_path, 3600) == 0, "somebody may be reading the small files"
    assert small < data_files(tmp_path)
    with pytest.raises(KilledError):
        Writer(tmp_path).write(4 * BATCH, killed_after="moved")
    assert delta.vacuum(tmp_path, 0) == 2
    assert len(data_files(tmp_path)) == 3, "files of the batch that is being written stay"
    delta.delete_before(tmp_path, datetime.date(2026, 11, 16))
    assert offsets(tmp_path) == list(range(BATCH, 3 * BATCH))
    delta.open_table(tmp_path).create_checkpoint()
    assert delta.table_position(delta.open_table(tmp_path), "s") == {"s": 3 * BATCH}


def test_stream_with_a_space_in_its_name_has_its_own_files(tmp_path: Path) -> None:
    lake, table = Lake(tmp_path), table_name("prod", "a b")
    assert (table, vhost_and_stream(table)) == ("prod@a b", ("prod", "a b"))
    folder = lake.folder(BRONZE, table)
    writer = Writer(folder, "a b")
    writer.write(BATCH)
    writer.write(2 * BATCH)
    assert set(lake.bronze_files(table)) == data_files(folder)
    delta.compact_table(folder, 1 << 20)
    history = lake.history(table)
    assert history.position == {"a b": 2 * BATCH}
    assert [path.exists() for path in history.files] == [True]
    assert set(delta.open_table(folder).to_pyarrow_table()["stream"].to_pylist()) == {"a b"}


def test_folder_that_delta_rs_cannot_open_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PreconditionFailedError, match="there is a '%' in the path"):
        Writer(Lake(tmp_path).folder(BRONZE, table_name("/", "a/b")), "a/b")


def test_position_of_a_super_stream_has_its_partitions(tmp_path: Path) -> None:
    delta.prepare_table(tmp_path, SCHEMA)
    ends = {"s-0": 5, "s-1": 0, "s-2": 7}
    batch = delta.plan_moves(tmp_path, "b", ends)
    delta.commit_batch(tmp_path, "s", batch, {})
    assert delta.table_position(delta.open_table(tmp_path), "s") == ends


def test_time_of_the_last_batch_is_not_that_of_compaction(tmp_path: Path) -> None:
    for number in (1, 2):
        Writer(tmp_path).write(number * BATCH)
    log = tmp_path / delta.LOG
    (first, second) = sorted(log.glob("*.json"))[1:]  # after the version that made the table
    os.utime(first, (1000, 1000))
    os.utime(second, (2000, 2000))
    delta.compact_table(tmp_path, 1 << 20)
    version = delta.open_table(tmp_path).version()
    assert version == 3
    assert delta.archived_at_s(tmp_path, version) == 2000
    assert delta.archived_at_s(tmp_path, 1) == 1000
    assert delta.archived_at_s(tmp_path, 0) is None
    second.unlink()
    assert delta.archived_at_s(tmp_path, version) is None, "the log does not go back so far"
