"""Read segment files directly, if the executor can reach the broker's data directory.

The broker says which files hold a range, and up to which byte each file may be read. The files are
then read by the code of the broker's own process for bulk reads (`leveret.arrow`).
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from leveret.arrow.batches import make_batch
from leveret.arrow.chunk_sources import ChunkPositions, chunks_from_files
from leveret.arrow.encoding import group_rows
from leveret.arrow.requests import Request, RetentionPassedError, SegmentPart
from leveret.errors import CorruptionError
from pyspark_leveret.client import Broker
from pyspark_leveret.errors import BrokerError, DataLostError
from pyspark_leveret.options import Options
from pyspark_leveret.ranges import Range

_INDEXES: Final = ChunkPositions()


def batches_of_files(options: Options, part: Range, columns: list[str]) -> Iterator[Any]:
    """Return the record batches of a range."""
    assert options.data_dir is not None
    broker = Broker(options)
    query = {"from": part.first, "to": part.end}
    found = broker.ask("GET", broker.path("streams", part.stream, "segments"), None, **query)
    folder = Path(options.data_dir)
    parts = [
        SegmentPart(str(folder / one["name"]), one["first_offset"], one["end"])
        for one in found["segments"]
    ]
    if not parts or parts[0].first_offset > part.first:
        raise DataLostError(f"offset {part.first} of stream '{part.stream}' is gone")
    if not folder.is_dir():
        raise BrokerError(f"dataDir '{folder}' is not a directory that this executor can read")
    _INDEXES.note(parts[0].path, found["known_offset"], found["known_place"])
    wanted = Request(part.stream, found["number"], part.first, part.end, columns)
    chunks = chunks_from_files(parts, wanted.number, part.first, part.end, _INDEXES)
    try:
        for rows in group_rows(wanted, chunks):
            yield make_batch(part.stream, wanted.number, columns, rows)
    except RetentionPassedError as fault:
        raise DataLostError(str(fault)) from fault
    except CorruptionError as fault:
        raise BrokerError(f"stream '{part.stream}' cannot be read: {fault}") from fault
