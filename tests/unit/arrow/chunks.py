"""Makes chunks of messages for tests, and reads them as Arrow tables."""

from collections.abc import Iterator
from typing import NamedTuple

import pyarrow as pa

from leveret.arrow.chunk_sources import chunks_from_broker
from leveret.arrow.encoding import encode
from leveret.arrow.requests import COLUMNS, Request
from leveret.engine.message import Address
from leveret.journal.chunks import ChunkWriter, WritePosition
from leveret.wire.properties import Properties, encode_header

NUMBER = 7  # of the stream in the log


class Sent(NamedTuple):
    """A message as it was published."""

    body: bytes = b""
    properties: Properties = Properties()
    exchange: str = ""
    routing_key: str = "s"
    time_ms: int = 1_700_000_000_000

    @property
    def header(self) -> bytes:
        return encode_header(self.properties, len(self.body))


def chunks(*groups: list[Sent], first_offset: int = 0) -> list[bytes]:
    """One chunk for each group of messages."""
    writer = ChunkWriter(WritePosition(1 << 40, 0, 24))
    writer.next_offset = first_offset
    made = []
    for group in groups:
        for sent in group:
            address = Address(sent.exchange, sent.routing_key).record()
            writer.add(address, sent.header, sent.body, sent.time_ms)
        made.append(writer.close().data)
    return made


def read(
    made: list[bytes], first: int, end: int, columns: tuple[str, ...] = COLUMNS, bytes_max: int = 0
) -> pa.Table:
    """Read a range as a table, with every buffer checked."""
    request = Request("s", NUMBER, first, end, list(columns), bytes_max)
    sent: Iterator[bytes] = iter(made)
    data = b"".join(
        bytes(p) for p in encode(request, chunks_from_broker(sent.__next__, first, end))
    )
    table = pa.ipc.open_stream(data).read_all()
    table.validate(full=True)
    return table
