"""Chunks for tests: written as a stream writes them."""

from leveret.engine.message import Address
from leveret.journal.chunks import ChunkWriter, WritePosition, WrittenChunk
from leveret.wire.properties import Properties, encode_header
from leveret.wire.tables import Table

ADDRESS = Address("", "q").record()


def header(properties: Properties | None = None, headers: Table | None = None) -> bytes:
    """Return a content header as a publisher sends it."""
    made = properties or Properties()
    if headers is not None:
        made.headers = headers
    return encode_header(made, 0)


def writer(segment_bytes: int = 1 << 30, segment_ms: int = 0, head_bytes: int = 0) -> ChunkWriter:
    return ChunkWriter(WritePosition(segment_bytes, segment_ms, head_bytes))


def written(made: ChunkWriter, bodies: list[bytes], now_ms: int = 1000) -> WrittenChunk:
    """Return a chunk of these bodies, all with the same envelope."""
    plain = header()
    for body in bodies:
        made.add(ADDRESS, plain, body, now_ms)
    return made.close()
