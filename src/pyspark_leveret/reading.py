"""Reads offset ranges as Arrow record batches: over HTTP, or from the segment files themselves.

A read that breaks off goes on behind the last row that came. What has been forgotten meanwhile is
lost data, which is an error unless the query was told otherwise.
"""

import gc
from collections.abc import Iterator
from typing import Any, Final

from pyspark_leveret.client import LOST, Broker, Patience
from pyspark_leveret.errors import BrokerError, DataLostError
from pyspark_leveret.options import Options
from pyspark_leveret.positions import Streams, kept
from pyspark_leveret.ranges import Range

GONE: Final = 410
BEHIND: Final = 416


def read_range(options: Options, part: Range, columns: list[str]) -> Iterator[Any]:
    """The record batches of a range, in order."""
    first = part.first
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
            continue
        if at == first:  # whole, and nothing in it
            first = _after_loss(options, part, first)
    _settle()


def _settle() -> None:
    """Take what is loaded by now out of the garbage collector's sight, once in a process.

    Spark's worker collects after each task, and the next task waits for it: with the modules of
    Spark and Arrow, which are never garbage, that takes 20 ms.
    """
    if gc.get_freeze_count() == 0:
        gc.freeze()


def _after_loss(options: Options, part: Range, first: int) -> int:
    """Where to go on, if the query goes on."""
    bound = Streams(options).bounds()[part.stream]
    low, end = kept(options, part.stream, first, part.end, bound)
    return low if low < end else part.end


def _batches(options: Options, part: Range, columns: list[str]) -> Iterator[Any]:
    if options.data_dir is not None:
        from pyspark_leveret.segments import batches_of_files  # needs the broker's own package

        return batches_of_files(options, part, columns)
    return _batches_over_http(options, part, columns)


def _batches_over_http(options: Options, part: Range, columns: list[str]) -> Iterator[Any]:
    broker = Broker(options)
    path = broker.path("streams", part.stream, "batches")
    query = {"from": part.first, "to": part.end, "columns": ",".join(columns)}
    return received(broker, "GET", path, None, query)


def received(
    broker: Broker, method: str, path: str, body: object, query: dict[str, object]
) -> Iterator[Any]:
    """The batches of an answer; raises OSError where it breaks off."""
    import pyarrow as pa

    with broker.answer(method, path, body, **query) as answer:
        try:
            with pa.ipc.open_stream(answer.body) as stream:
                yield from stream
        except pa.ArrowInvalid as fault:
            raise OSError(f"the answer breaks off: {fault}") from fault
