"""A stream from lake and broker as one table: each message once, at any moment. Without Spark."""

import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from leveret.arrow.schema import TYPES
from leveret.errors import NotFoundError, PreconditionFailedError
from leveret.lake import delta
from leveret.lake.layout import BRONZE, Lake, Merged, read_merged, write_merged
from pyspark_leveret.errors import BrokerError, DataLostError
from pyspark_leveret.history import LakeFile, UnionReader
from pyspark_leveret.options import parse_options
from pyspark_leveret.positions import Streams
from pyspark_leveret.ranges import Range
from pyspark_leveret.reading import read_range
from tests.spark.lake import Served, serving

DATE = "date=2026-11-17"
SMALL = {"x-max-length-bytes": 2000, "x-stream-max-segment-size-bytes": 1000}  # some 30 messages


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    with serving(tmp_path / "data") as found:
        yield found


def publish(served: Served, first: int, end: int, arguments: dict[str, int] | None = None) -> None:
    """Publish messages to the stream `s`, and wait until they are there."""
    with served.channel() as opened:
        kind = {"x-queue-type": "stream", **(arguments or {})}
        opened.queue_declare("s", durable=True, arguments=kind)
        for number in range(first, end):
            opened.basic_publish("", "s", b"%d" % number)


class Archive:
    """Writes a bronze table in the order in which Spark's file sink does."""

    def __init__(self, served: Served, folder: Path, stream: str = "s") -> None:
        self.lake = Lake(folder / "lake")
        self.stream = stream
        self._options = parse_options({"url": served.http, "stream": stream})
        self._folder = self.lake.folder(BRONZE, stream)
        self._batch = 0
        self._position: dict[str, int] = {}

    def run(self) -> None:
        """Archive all messages that the broker has."""
        bounds = Streams(self._options).bounds()
        ends = {name: bound.end for name, bound in bounds.items()}
        offsets = self.lake.checkpoint(self.stream) / BRONZE / "offsets"
        offsets.mkdir(parents=True, exist_ok=True)
        (offsets / str(self._batch)).write_text(f"v1\n{{}}\n{json.dumps(ends)}")
        lines = ["v1"]
        for name, bound in bounds.items():
            first = self._position.get(name, bound.first)
            if first < bound.end:
                lines.append(json.dumps({"path": str(self._write(Range(name, first, bound.end)))}))
        manifest = self._folder / "_spark_metadata"
        manifest.mkdir(parents=True, exist_ok=True)
        beside = manifest / f".{self._batch}.tmp"
        beside.write_text("\n".join(lines))
        beside.rename(manifest / str(self._batch))
        self._batch, self._position = self._batch + 1, ends

    def _write(self, part: Range) -> Path:
        found = pa.Table.from_batches(list(read_range(self._options, part, list(TYPES))))
        path = self.place() / f"stream={part.stream}" / DATE / f"part-{part.first}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        table = found.drop_columns(["stream"])
        pq.write_table(table, path, use_deprecated_int96_timestamps=True)
        return path

    def place(self) -> Path:
        """Return the folder into which the files are written."""
        return self._folder

    def compact(self) -> None:
        """Merge all files into one. The old files stay, as readers may have them open."""
        merged, files = read_merged(self._folder), self.lake.bronze_files(self.stream)
        place = self._folder / f"stream={self.stream}" / DATE
        path = place / f"merged-{merged.generation + 1}.parquet"
        pq.write_table(pa.concat_tables([pq.ParquetFile(one).read() for one in files]), path)
        gone = {str(one.relative_to(self._folder)): 0 for one in files}
        found = Merged(merged.generation + 1, [str(path.relative_to(self._folder))])
        found.replaced = {**merged.replaced, **gone}
        write_merged(self._folder, found)


class DeltaArchive(Archive):
    """Writes a Delta table as `archive` does, with pyarrow in place of Spark."""

    def __init__(self, served: Served, folder: Path) -> None:
        super().__init__(served, folder)
        schema = pa.schema([*TYPES.items(), ("date", pa.date32())])
        delta.prepare_table(self._folder, schema)

    def run(self) -> None:
        bounds = Streams(self._options).bounds()
        for name, bound in bounds.items():
            first = self._position.get(name, bound.first)
            if first < bound.end:
                self._write(Range(name, first, bound.end))
        ends = {name: bound.end for name, bound in bounds.items()}
        batch = delta.plan_moves(self._folder, str(self._batch), ends)
        delta.move_files(self._folder, batch)
        delta.commit_batch(self._folder, self.stream, batch, self._position)
        self._batch, self._position = self._batch + 1, ends

    def place(self) -> Path:
        return self._folder / delta.STAGING

    def compact(self) -> None:
        delta.compact_table(self._folder, 1 << 20)
        delta.vacuum(self._folder, 3600)


def reader(served: Served, lake: Lake, columns: list[str], **more: str) -> UnionReader:
    given = {"url": served.http, "stream": "s", "lake": str(lake.path), "minPartitions": "2"}
    return UnionReader(parse_options({**given, **more}), columns)


def offsets(served: Served, lake: Lake, **more: str) -> list[int]:
    """Return the offsets of the table, sorted."""
    found = reader(served, lake, ["offset"], **more)
    parts = found.partitions()
    return sorted(n for part in parts for batch in found.read(part) for n in batch[0].to_pylist())


def test_archived_messages_come_from_files_and_newer_ones_from_the_broker(
    served: Served, tmp_path: Path
) -> None:
    archive = Archive(served, tmp_path)
    publish(served, 0, 30)
    archive.run()
    publish(served, 30, 40)
    found = reader(served, archive.lake, list(TYPES))
    parts = found.partitions()
    assert [part for part in parts if isinstance(part, Range)] == [
        Range("s", 30, 35),
        Range("s", 35, 40),
    ]
    tables = [pa.Table.from_batches(list(found.read(part))) for part in parts]
    whole = pa.concat_tables(tables)  # all parts have the same types
    direct = pa.Table.from_batches(
        list(
            read_range(
                parse_options({"url": served.http, "stream": "s"}), Range("s", 0, 40), [*TYPES]
            )
        )
    )
    assert whole.combine_chunks().equals(direct.combine_chunks())
    archive.run()
    assert [type(part) for part in found.partitions()] == [LakeFile, LakeFile]
    assert offsets(served, archive.lake) == list(range(40))


@pytest.mark.parametrize("kind", [Archive, DeltaArchive])
def test_each_message_is_there_once_while_archive_and_compact_run(
    served: Served, tmp_path: Path, kind: type[Archive]
) -> None:
    archive = kind(served, tmp_path)
    publish(served, 0, 10)
    archive.run()
    faults: list[BaseException] = []

    def work() -> None:
        try:
            for first in range(10, 100, 10):
                publish(served, first, first + 10)
                archive.run()
                if first % 30 == 0:
                    archive.compact()
        except BaseException as fault:
            faults.append(fault)

    worker = threading.Thread(target=work)
    worker.start()
    last = 10
    while worker.is_alive():
        found = offsets(served, archive.lake)
        assert found == list(range(len(found)))
        assert len(found) >= last
        last = len(found)
    worker.join()
    assert not faults
    assert offsets(served, archive.lake) == list(range(100))


def test_messages_that_only_the_lake_has_stay_in_the_table(served: Served, tmp_path: Path) -> None:
    archive = Archive(served, tmp_path)
    for first in range(0, 100, 10):
        publish(served, first, first + 10, SMALL)
        archive.run()
    publish(served, 100, 105, SMALL)
    assert Streams(parse_options({"url": served.http, "stream": "s"})).bounds()["s"].first > 0
    assert offsets(served, archive.lake) == list(range(105))


def test_messages_that_neither_lake_nor_broker_has_are_reported(
    served: Served, tmp_path: Path
) -> None:
    archive = Archive(served, tmp_path)
    publish(served, 0, 5, SMALL)
    archive.run()
    publish(served, 5, 105, SMALL)
    bound = Streams(parse_options({"url": served.http, "stream": "s"})).bounds()["s"]
    assert bound.first > 5
    with pytest.raises(DataLostError, match=f"offsets 5 to {bound.first - 1} of stream 's'"):
        offsets(served, archive.lake)
    found = offsets(served, archive.lake, failOnDataLoss="false")
    assert found == [*range(5), *range(bound.first, 105)]


def test_stream_that_was_created_again_is_not_joined_with_the_old_one(
    served: Served, tmp_path: Path
) -> None:
    archive = Archive(served, tmp_path)
    publish(served, 0, 10)
    archive.run()
    with served.channel() as opened:
        opened.queue_delete("s")
    with pytest.raises(BrokerError, match="there is no stream 's'"):
        offsets(served, archive.lake)
    publish(served, 0, 3)
    with pytest.raises(DataLostError, match="it was created again, or restored"):
        offsets(served, archive.lake)
    assert offsets(served, archive.lake, failOnDataLoss="false") == list(range(10))


def test_table_without_batches_and_table_without_checkpoint(served: Served, tmp_path: Path) -> None:
    archive = Archive(served, tmp_path)
    publish(served, 0, 5)
    with pytest.raises(NotFoundError, match="there is no lake"):
        offsets(served, archive.lake)
    archive.lake.folder(BRONZE, "s").mkdir(parents=True)
    assert offsets(served, archive.lake) == list(range(5))
    archive.run()
    (archive.lake.checkpoint("s") / BRONZE / "offsets" / "0").unlink()
    with pytest.raises(PreconditionFailedError, match="nobody knows which offsets the lake has"):
        offsets(served, archive.lake)
