"""Read offset ranges as Arrow record batches, over HTTP or from the segment files.

An interrupted read continues after the last row that arrived, at another node if several are given.
If retention has deleted the next rows meanwhile, that is an error unless `failOnDataLoss` is false.
"""

import gc
from collections.abc import Iterator
from typing import Any, Final

from pyspark_leveret.client import LOST, Broker, Patience
from pyspark_leveret.errors import BrokerError, DataLostError
from pyspark_leveret.options import Options
from pyspark_leveret.positions import Streams, available_range
from pyspark_leveret.ranges import Range

GONE: Final = 410
BEHIND: Final = 416


def read_range(options: Options, part: Range, columns: list[str]) -> Iterator[Any]:
    """Return the record batches of a range, in order."""
    first = part.first
    options = options.at_address(part.number)
    patience = Patience(options.retry_s)
    while first < part.end:
        at = first
        try:
            for batch in _batches(options, Range(part.stream, first, part.end), columns):
                yield batch
                first += batch.num_rows
                patience = Patience(options.retry_s)
        except (BrokerError, DataLostError) as fault:
            if isinstance(fault, BrokerError) and fault.status not in (GONE, BEHIND):
                raise
            first = _after_loss(options, part, first)
            continue
        except LOST as fault:
            patience.pause(fault)
            options = options.at_address(1)
            continue
        if at == first:  # a complete answer without rows
            first = _after_loss(options, part, first)
    _freeze_garbage_collector()


def _freeze_garbage_collector() -> None:
    """Exclude all loaded objects from garbage collection, once in a process.

    Spark's worker runs the collector after each task, and the next task waits. With the objects of
    Spark's and Arrow's modules, which are never garbage, that takes 20 ms.
    """
    if gc.get_freeze_count() == 0:
        gc.freeze()


def _after_loss(options: Options, part: Range, first: int) -> int:
    """Return the offset at which to continue after a loss; raise if the query must not."""
    bound = Streams(options).bounds()[part.stream]
    low, end = available_range(options, part.stream, first, part.end, bound)
    return low if low < end else part.end


def _batches(options: Options, part: Range, columns: list[str]) -> Iterator[Any]:
    if options.data_dir is not None:
        from pyspark_leveret.segments import batches_of_files  # needs the storage code of leveret

        return batches_of_files(options, part, columns)
    return _batches_over_http(options, part, columns)


def _batches_over_http(options: Options, part: Range, columns: list[str]) -> Iterator[Any]:
    broker = Broker(options)
    path = broker.path("streams", part.stream, "batches")
    query = {"from": part.first, "to": part.end, "columns": ",".join(columns)}
    return read_answer(broker, "GET", path, None, query)


def read_answer(
    broker: Broker, method: str, path: str, body: object, query: dict[str, object]
) -> Iterator[Any]:
    """Return the record batches of an answer; raise OSError if it breaks off."""
    import pyarrow as pa

    with broker.answer(method, path, body, **query) as answer:
        try:
            with pa.ipc.open_stream(answer.body) as stream:
                yield from stream
        except pa.ArrowInvalid as fault:
            raise OSError(f"the answer breaks off: {fault}") from fault
