"""Read streams in batch queries. Offset ranges become partitions when the query is planned."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

from pyspark.sql.datasource import (
    DataSourceReader,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    InputPartition,
    LessThan,
    LessThanOrEqual,
)

from pyspark_leveret.options import EARLIEST, Options
from pyspark_leveret.positions import Streams, available_range
from pyspark_leveret.ranges import Range, split_ranges
from pyspark_leveret.reading import read_range


class StreamBatchReader(DataSourceReader):
    """Reads ranges of streams."""

    def __init__(self, options: Options, columns: list[str]) -> None:
        self.options = options
        self._columns = columns

    def partitions(self) -> Sequence[InputPartition]:
        options = self.options
        streams = Streams(options)
        bounds = streams.bounds()
        starting, ending = streams.starting(EARLIEST, bounds), streams.ending(bounds)
        ranges = []
        for name, bound in bounds.items():
            first, end = self.narrowed(streams, name, starting[name], ending[name])
            if first < end:
                ranges.append(Range(name, *available_range(options, name, first, end, bound)))
        return split_ranges(ranges, options.partitions_min, options.partition_records)

    def narrowed(self, streams: Streams, name: str, first: int, end: int) -> tuple[int, int]:
        """Return the part of a range that the query needs."""
        return first, end

    def read(self, partition: InputPartition) -> Iterator[Any]:
        if not isinstance(partition, Range):
            return iter(())  # Spark adds one partition to a query that has none
        return read_range(self.options, partition, self._columns)


class FilteringBatchReader(StreamBatchReader):
    """Reads ranges of streams that conditions on offset and time have narrowed.

    It is a separate class because Spark refuses every query of a reader with `pushFilters` while
    `spark.sql.python.filterPushdown.enabled` is off.
    """

    def __init__(self, options: Options, columns: list[str]) -> None:
        super().__init__(options, columns)
        self._first = 0
        self._end: int | None = None
        self._from_time: datetime | None = None

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802
        for one in filters:
            self._note(one)
            yield one  # Spark applies the filter too: ranges are only narrowed

    def _note(self, one: Filter) -> None:
        attribute = getattr(one, "attribute", ())
        value = getattr(one, "value", None)
        if attribute == ("offset",) and isinstance(value, int):
            self._note_offset(one, value)
        elif attribute == ("timestamp",) and isinstance(value, datetime):
            if isinstance(one, GreaterThan | GreaterThanOrEqual | EqualTo):
                self._from_time = max(value, self._from_time or value)

    def _note_offset(self, one: Filter, value: int) -> None:
        if isinstance(one, GreaterThanOrEqual | EqualTo):
            self._first = max(self._first, value)
        if isinstance(one, GreaterThan):
            self._first = max(self._first, value + 1)
        end = value if isinstance(one, LessThan) else value + 1
        if isinstance(one, LessThan | LessThanOrEqual | EqualTo):
            self._end = end if self._end is None else min(self._end, end)

    def narrowed(self, streams: Streams, name: str, first: int, end: int) -> tuple[int, int]:
        first = max(first, self._first)
        if self._end is not None:
            end = min(end, self._end)
        if self._from_time is not None:
            time = self._from_time.astimezone(UTC).isoformat()
            first = max(first, streams.offset_at(name, time))
        return first, end
