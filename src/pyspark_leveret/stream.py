"""Read streams in streaming queries. Only the query's checkpoint holds its position.

An offset of the query holds the next offset of each stream. A batch is planned from these offsets
alone, so after a restart it has the same rows.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from pyspark_leveret.cursors import Cursor
from pyspark_leveret.options import LATEST, Options
from pyspark_leveret.positions import Bounds, Streams, available_range, report_data_loss
from pyspark_leveret.ranges import Range, share_limit, split_ranges
from pyspark_leveret.reading import read_range

Position = dict[str, int]


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Follows the streams of a query."""

    def __init__(self, options: Options, columns: list[str]) -> None:
        self._options = options
        self._columns = columns
        self._streams = Streams(options)
        self._target: Position | None = None  # the end of an AvailableNow query
        self._cursor = Cursor(options, options.cursor) if options.cursor is not None else None

    def initialOffset(self) -> Position:  # noqa: N802
        return self._streams.starting(LATEST, self._streams.bounds())

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        options = self._options
        if options.trigger_records is not None:
            return ReadMaxRows(options.trigger_records)
        if options.trigger_bytes is not None:
            return ReadMaxBytes(options.trigger_bytes)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._target = {name: bound.end for name, bound in self._streams.bounds().items()}

    def reportLatestOffset(self) -> Position:  # noqa: N802
        return {name: bound.end for name, bound in self._streams.bounds().items()}

    def latestOffset(self, start: Position, limit: ReadLimit) -> Position:  # noqa: N802
        bounds = self._streams.bounds()
        for name in start.keys() - bounds.keys():
            report_data_loss(self._options, f"the stream '{name}' is gone")
        first = {name: self._first(name, start, bound) for name, bound in bounds.items()}
        ends = {name: max(self._end(name, bounds), first[name]) for name in bounds}
        if not isinstance(limit, ReadAllAvailable):
            ends = self._limited(first, ends)
        return {**start, **ends}

    def _first(self, name: str, start: Position, bound: Bounds) -> int:
        """Return the next offset of a stream; a new stream begins with its first message."""
        position = start.get(name, bound.first)
        return available_range(self._options, name, position, position, bound)[0]

    def _end(self, name: str, bounds: dict[str, Bounds]) -> int:
        if self._target is None:
            return bounds[name].end
        return self._target.get(name, bounds[name].first)

    def _limited(self, first: Position, ends: Position) -> Position:
        options = self._options
        waiting = {name: ends[name] - first[name] for name in ends}
        if options.trigger_records is not None:
            waiting = share_limit(waiting, options.trigger_records)
        if options.trigger_bytes is not None:
            each = max(options.trigger_bytes // max(sum(map(bool, waiting.values())), 1), 1)
            for name in waiting:
                if waiting[name]:
                    end = self._streams.offset_after(name, first[name], each)
                    waiting[name] = min(waiting[name], max(end - first[name], 1))
        return {name: first[name] + waiting[name] for name in ends}

    def partitions(self, start: Position, end: Position) -> Sequence[InputPartition]:
        bounds = self._streams.bounds()
        ranges = []
        for name in end:
            if name in bounds:
                first = start.get(name, bounds[name].first)
                found = available_range(self._options, name, first, end[name], bounds[name])
                ranges.append(Range(name, *found))
            elif end[name] > start.get(name, end[name]):
                report_data_loss(self._options, f"the stream '{name}' is gone")
        return split_ranges(ranges, self._options.partitions_min, self._options.partition_records)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        assert isinstance(partition, Range)
        return read_range(self._options, partition, self._columns)

    def commit(self, end: Position) -> None:
        """Store the position as a cursor, if the query has one: the checkpoint holds it anyway."""
        if self._cursor is not None:
            self._cursor.move(end)
