"""Read a stream from lake and broker as one table, each message once.

The lake says at which offset of each stream its files end. The broker is read from exactly that
offset on. The offsets and the list of files are read together, so it does not matter how far
`archive` and `compact` get while the query runs.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pyspark.sql.datasource import DataSourceReader, InputPartition

from leveret.lake.layout import History, Lake, table_name
from leveret.lake.partitions import partition_of
from pyspark_leveret.options import Options
from pyspark_leveret.positions import Bounds, Streams, available_range, report_data_loss
from pyspark_leveret.ranges import Range, split_ranges
from pyspark_leveret.reading import read_range

LOOKS_MAX: Final = 10  # at the lake, while retention overtakes the offsets that it ends with
FILE_BATCH_RECORDS: Final = 65_536


@dataclass
class LakeFile(InputPartition):
    """Partition: a file of the lake, with messages of one stream."""

    path: str
    stream: str


@dataclass(frozen=True)
class Union:
    """A stream at one moment: files of the lake, and ranges at the broker that follow them."""

    history: History
    tail: list[Range]

    def starting(self) -> dict[str, int]:
        """Return the offsets at which the broker's part begins."""
        return {part.stream: part.first for part in self.tail}


def find_union(options: Options) -> Union:
    """Return the parts of a stream in lake and broker, and report messages that neither has.

    Retention at the broker may pass the end of the lake just after the lake was read. Then either
    `archive` has these messages meanwhile, or they are gone. So the lake is read again until its
    end stays the same.
    """
    assert options.lake is not None and options.stream is not None
    lake, table = Lake(Path(options.lake)), table_name(options.vhost, options.stream)
    streams = Streams(options)
    history, bounds = lake.history(table), streams.bounds()
    for _ in range(LOOKS_MAX):
        if not _is_overtaken(history, bounds):
            break
        known = history.position
        history, bounds = lake.history(table), streams.bounds()
        if history.position == known:
            break
    return Union(history, list(_tail(options, history, bounds)))


def _is_overtaken(history: History, bounds: dict[str, Bounds]) -> bool:
    """Return True if the broker has deleted messages that the lake did not have."""
    return any(history.position.get(name, one.first) < one.first for name, one in bounds.items())


def _tail(options: Options, history: History, bounds: dict[str, Bounds]) -> Iterator[Range]:
    for name in sorted(history.position.keys() - bounds.keys()):
        report_data_loss(options, f"the stream '{name}' is gone")
    for name, bound in bounds.items():
        first = history.position.get(name, bound.first)  # a stream that is not in the lake yet
        # A range that ends before it begins: the broker has fewer messages than the lake.
        end = max(first, bound.end)
        yield Range(name, *available_range(options, name, first, end, bound))


class UnionReader(DataSourceReader):
    """Reads a stream from lake and broker in Python workers.

    `leveret.pipeline.union_read` lets Spark read the files of the lake itself, which is faster.
    Spark cannot do that for a Python source, which returns rows and not a plan.
    """

    def __init__(self, options: Options, columns: list[str]) -> None:
        self._options = options
        self._columns = columns

    def partitions(self) -> Sequence[InputPartition]:
        options = self._options
        found = find_union(options)
        tail = split_ranges(found.tail, options.partitions_min, options.partition_records)
        files = [LakeFile(str(path), partition_of(path.parent)[0]) for path in found.history.files]
        return [*files, *tail]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        if isinstance(partition, LakeFile):
            return read_file(partition, self._columns)
        if not isinstance(partition, Range):
            return iter(())  # Spark adds one partition to a query that has none
        return read_range(self._options, partition, self._columns)


def read_file(part: LakeFile, columns: list[str]) -> Iterator[Any]:
    """Return the messages of a file as record batches. The folder has the name of the stream."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from leveret.arrow.schema import schema_of

    schema = schema_of(columns)
    with pq.ParquetFile(part.path, coerce_int96_timestamp_unit="us") as file:
        inside = [name for name in columns if name in file.schema_arrow.names]
        for batch in file.iter_batches(FILE_BATCH_RECORDS, columns=inside):
            arrays = [
                batch[name].cast(schema.field(name).type)
                if name in inside
                else _constant(pa, name, part.stream, batch.num_rows)
                for name in columns
            ]
            yield pa.record_batch(arrays, schema=schema)


def _constant(pa: Any, name: str, stream: str, rows: int) -> Any:
    """Return the column `stream`; for another one, nulls: it is younger than the file."""
    from leveret.arrow.schema import TYPES

    if name == "stream":
        return pa.repeat(pa.scalar(stream, TYPES[name]), rows)
    return pa.nulls(rows, TYPES[name])
