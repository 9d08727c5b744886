"""The request that the broker sends to the worker, and the part of a stream it may read.

The broker says how far each segment may be read (`end`), because later bytes are not yet visible to
consumers. A stream without files is sent chunk by chunk (`stream_chunks`).
"""

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from leveret.engine.streams.stream import Stream
from leveret.errors import LeveretError
from leveret.storage.file_names import segment_name

# Columns that can be requested; `leveret.arrow.schema` has their types.
COLUMNS: Final = (
    "stream",
    "offset",
    "timestamp",
    "broker_id",
    "exchange",
    "routing_key",
    "content_type",
    "content_encoding",
    "headers",
    "delivery_mode",
    "priority",
    "correlation_id",
    "reply_to",
    "expiration",
    "message_id",
    "message_timestamp",
    "type",
    "user_id",
    "app_id",
    "x_death",
    "properties",
    "body",
)


class RetentionPassedError(LeveretError):
    """Retention has removed a part of the range."""


@dataclass(frozen=True)
class SegmentPart:
    """A segment file, and how far it may be read."""

    path: str
    first_offset: int
    end: int


@dataclass
class Request:
    """A range of a stream, or messages of a queue, as columns."""

    stream: str
    number: int  # number of the stream in the log
    first: int
    end: int
    columns: list[str]
    bytes_max: int = 0  # limit for the bodies; 0 = no limit
    segments: list[SegmentPart] | None = None  # None if the broker sends chunks
    is_of_queue: bool = False  # the broker sends queue chunks, see `queue_chunks`


def encode_request(request: Request) -> bytes:
    return json.dumps(asdict(request)).encode()


def decode_request(data: bytes) -> Request:
    request = Request(**json.loads(data))
    if request.segments is not None:
        request.segments = [SegmentPart(**part) for part in json.loads(data)["segments"]]
    return request


def segment_parts(stream: Stream, folder: Path, first: int, end: int) -> list[SegmentPart]:
    """Return the segments that hold a range."""
    number = int(stream.ledger.id)
    found = stream.segments.segments
    parts = []
    for index, segment in enumerate(found):
        is_before = index + 1 < len(found) and found[index + 1].first_offset <= first
        if not is_before and segment.first_offset < end:
            start = int(segment.first_offset)
            path = folder / segment_name(number, start)
            parts.append(SegmentPart(str(path), start, int(segment.end)))
    return parts


def stream_chunks(stream: Stream, first: int, end: int) -> Iterator[bytes]:
    """Yield the chunks of a range; raise RetentionPassedError if one is removed meanwhile."""
    offset = first
    while offset < end:
        if offset < stream.first_offset or stream.deleted:
            raise RetentionPassedError(f"offset {offset} was removed by retention")
        chunk = stream.segments.find(offset)
        yield chunk.data
        offset = int(chunk.end_offset)
