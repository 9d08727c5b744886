"""Read queues: a streaming reader leases messages in epochs, a batch reader only peeks at them.

An offset of the query is the number of an epoch. The broker keeps the messages of an epoch until it
is acked, also over restarts. `latestOffset` acks, because Spark calls it with the position of its
checkpoint. `commit` alone is not enough: Spark does not call it for the last batch.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from pyspark_leveret.client import LOST, NOT_FOUND, Broker, Patience, named
from pyspark_leveret.errors import BrokerError, DataLostError, OptionError
from pyspark_leveret.options import LEASE, PEEK, Options
from pyspark_leveret.positions import report_data_loss
from pyspark_leveret.ranges import Range, split_ranges
from pyspark_leveret.reading import read_answer

EPOCH_RECORDS: Final = 100_000  # the default limit
EPOCH_RECORDS_MAX: Final = 1_000_000
EPOCH_BYTES_MAX: Final = 256 * 1024 * 1024
EPOCH: Final = "epoch"

Position = dict[str, int]


@dataclass
class EpochRows(InputPartition):
    """Partition: a range of rows of an epoch."""

    epoch: int
    first: int
    end: int


@dataclass
class MessageNumbers(InputPartition):
    """Partition: messages by runs of numbers."""

    runs: list[tuple[int, int]] = field(default_factory=list)


class QueueStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Consumes a queue, epoch by epoch."""

    def __init__(self, options: Options, columns: list[str]) -> None:
        if options.mode == PEEK:
            raise OptionError("a streaming query consumes the queue: 'peek' is for spark.read")
        if options.reader is None:
            text = "give the option 'reader': the name of this query's lease at the broker"
            raise OptionError(
                f"{text}; use the same one after a restart, and another one for each query"
            )
        assert options.queue is not None
        self._options = options
        self._columns = columns
        self._broker = Broker(options)
        self._path = self._broker.path("queues", options.queue, "leases", options.reader)
        self._left: int | None = None  # messages that an AvailableNow query still has to take

    def initialOffset(self) -> Position:  # noqa: N802
        lease = self._lease()
        if lease is None:
            return {EPOCH: 0}
        waiting = [epoch[EPOCH] for epoch in lease["epochs"]]
        return {EPOCH: min(waiting) - 1 if waiting else lease["acked"]}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        if self._options.trigger_records is None and self._options.trigger_bytes is not None:
            return ReadMaxBytes(self._options.trigger_bytes)
        return ReadMaxRows(self._options.trigger_records or EPOCH_RECORDS)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        assert self._options.queue is not None
        lease = self._lease()  # first: its error names a missing queue
        path = self._broker.path("queues", self._options.queue, "numbers")
        held = sum(epoch["messages"] for epoch in lease["epochs"]) if lease is not None else 0
        self._left = self._broker.ask("GET", path)["messages"] + held

    def latestOffset(self, start: Position, limit: ReadLimit) -> Position:  # noqa: N802
        self._ack(start[EPOCH])
        if self._left is not None and self._left <= 0:
            return start
        number = start[EPOCH] + 1
        try:
            taken = self._take(number, limit)
        except BrokerError as fault:
            acked = self._acked() if fault.status else 0  # 0: there was no answer
            if number > acked:
                raise
            self._report_old_checkpoint(number, acked)
            number = acked + 1
            taken = self._take(number, limit)
        if taken == 0:
            return start
        if self._left is not None:
            self._left -= taken
        return {EPOCH: number}

    def _acked(self) -> int:
        """Return the last acked epoch of this reader."""
        lease = self._lease()
        found: int = lease["acked"] if lease is not None else 0
        return found

    def _report_old_checkpoint(self, number: int, acked: int) -> None:
        epochs = f"epoch {number} is" if number == acked else f"epochs {number} to {acked} are"
        report_data_loss(
            self._options,
            f"this checkpoint is older than the lease of reader '{self._options.reader}': it ends"
            f" with epoch {number - 1}, but {epochs} acked, and their messages have left the queue."
            " Either the checkpoint is an old copy: start the query with the newest one. Or another"
            " query uses the same reader: give each query its own. A query with a new, empty"
            f" checkpoint continues with epoch {acked + 1}",
        )

    def _take(self, number: int, limit: ReadLimit) -> int:
        options = self._options
        count = options.trigger_records or EPOCH_RECORDS
        if isinstance(limit, ReadAllAvailable):
            count = EPOCH_RECORDS_MAX
        if self._left is not None:
            count = min(count, self._left)
        query = {
            "count": min(count, EPOCH_RECORDS_MAX),
            "max_bytes": min(options.trigger_bytes, EPOCH_BYTES_MAX)
            if options.trigger_bytes
            else None,
        }
        found = self._broker.ask("POST", f"{self._path}/{number}", None, **query)
        taken: int = found["messages"] + found["missing"]
        return taken

    def partitions(self, start: Position, end: Position) -> Sequence[InputPartition]:
        lease = self._lease() or {"epochs": []}
        there = {epoch[EPOCH]: epoch for epoch in lease["epochs"]}
        found: list[InputPartition] = []
        for number in range(start[EPOCH] + 1, end[EPOCH] + 1):
            epoch = there.get(number)
            if epoch is None:
                report_data_loss(
                    self._options, f"epoch {number} of reader '{self._options.reader}' is gone"
                )
                continue
            if epoch["missing"]:
                text = f"{epoch['missing']} messages of epoch {number} were lost by a restart of"
                report_data_loss(self._options, f"{text} the broker: they were not persistent")
            whole = [Range("", 0, epoch["messages"])]
            options = self._options
            parts = split_ranges(whole, options.partitions_min, options.partition_records)
            found += [EpochRows(number, part.first, part.end) for part in parts]
        return found

    def read(self, partition: InputPartition) -> Iterator[Any]:
        assert isinstance(partition, EpochRows)
        path = f"{self._path}/{partition.epoch}"
        first = partition.first
        patience = Patience(self._options.retry_s)
        while first < partition.end:
            query = {"from": first, "to": partition.end, "columns": ",".join(self._columns)}
            before = first
            try:
                for batch in read_answer(self._broker, "GET", path, None, query):
                    yield batch
                    first += batch.num_rows
            except LOST as fault:
                patience.pause(fault)
                continue
            if first == before:
                raise DataLostError(f"epoch {partition.epoch} has no row {first}")

    def commit(self, end: Position) -> None:
        self._ack(end[EPOCH])

    def _lease(self) -> Any:
        """Return the lease of this reader; None if the broker does not know it."""
        try:
            return self._broker.ask("GET", self._path)
        except BrokerError as fault:
            if fault.status == NOT_FOUND and self._has_queue():
                return None
            raise

    def _has_queue(self) -> bool:
        queue = self._options.queue
        assert queue is not None
        try:
            self._broker.ask("GET", self._broker.path("queues", queue, "leases"))
        except BrokerError as fault:
            raise named(fault, self._options, "queue", queue) from fault
        return True

    def _ack(self, upto: int) -> None:
        if upto == 0:
            return
        try:
            self._broker.ask("POST", f"{self._path}/ack", None, upto=upto)
        except BrokerError as fault:
            if fault.status != NOT_FOUND:  # this reader has never taken a message
                raise


class PeekReader(DataSourceReader):
    """Reads the ready messages of a queue without consuming them."""

    def __init__(self, options: Options, columns: list[str]) -> None:
        if options.mode == LEASE:
            raise OptionError("a batch query does not consume the queue: use spark.readStream")
        assert options.queue is not None
        self._options = options
        self._columns = columns
        self._queue = options.queue

    def partitions(self) -> Sequence[InputPartition]:
        broker, options = Broker(self._options), self._options
        try:
            found = broker.ask("GET", broker.path("queues", self._queue, "numbers"))
        except BrokerError as fault:
            raise named(fault, options, "queue", self._queue) from fault
        wanted = min(options.partition_records, EPOCH_RECORDS_MAX)
        size = min(wanted, -(-found["messages"] // (options.partitions_min or 1)))
        return list(_portions([(first, last) for first, last in found["runs"]], size))

    def read(self, partition: InputPartition) -> Iterator[Any]:
        if not isinstance(partition, MessageNumbers):
            return iter(())
        broker = Broker(self._options)
        body = {"messages": 0, "runs": partition.runs}
        path = broker.path("queues", self._queue, "batches")
        return read_answer(broker, "POST", path, body, {"columns": ",".join(self._columns)})


def _portions(runs: list[tuple[int, int]], size: int) -> Iterator[MessageNumbers]:
    """Split runs of numbers into partitions of `size` messages."""
    portion: list[tuple[int, int]] = []
    left = size
    for first, last in runs:
        while first <= last:
            end = min(last, first + left - 1)
            portion.append((first, end))
            left -= end - first + 1
            first = end + 1
            if left == 0:
                yield MessageNumbers(portion)
                portion, left = [], size
    if portion:
        yield MessageNumbers(portion)
