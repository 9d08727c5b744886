"""A few messages of a stream as JSON, for people: `…/messages?from=&count=&truncate=`.

Nothing changes: there is no consumer and no cursor. Messages that retention has removed are left
out, so the answer begins with the first message that exists. If a message cannot be read, the
answer ends before it. A request that begins with it gets an error, which names the offsets and the
file. With `skip_damage=true` unreadable messages are left out, and `skipped` lists their offsets.
The answer holds at most MESSAGES_MAX messages and about BYTES_MAX bytes of bodies. Whole ranges are
for `batches`.
"""

import asyncio
from typing import Final

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from leveret.engine.streams.chunk import Chunk
from leveret.engine.streams.stream import Stream
from leveret.errors import CorruptionError
from leveret.http.framework.names import printable
from leveret.http.framework.operations import Access, Operation, Query
from leveret.http.framework.responses import json_response
from leveret.http.management.message_shapes import payload_start, property_values
from leveret.http.streams.arrow import shown_stream
from leveret.http.streams.streams import number_of, stream_of
from leveret.wire.properties import decode_properties

MESSAGES_MAX: Final = 500
BYTES_MAX: Final = 4 * 1024 * 1024


class StreamMessage(msgspec.Struct):
    """One message of a stream."""

    offset: int
    timestamp_ms: int  # when the broker received it
    exchange: str
    routing_key: str
    properties: dict[str, object]
    payload_bytes: int
    payload: str  # cut to `truncate` bytes
    payload_encoding: str  # "string" or "base64"


class SkippedOffsets(msgspec.Struct):
    """Offsets that cannot be read, and why."""

    first_offset: int
    last_offset: int
    reason: str


class StreamMessages(msgspec.Struct):
    """The messages, and the offset to continue from."""

    first_offset: int  # of the stream
    end_offset: int  # of the next message of the stream
    next_offset: int  # the next `from`
    items: list[StreamMessage]
    skipped: list[SkippedOffsets]  # empty unless `skip_damage` is true


async def get_messages(request: Request) -> Response:
    stream = stream_of(request)
    at = max(number_of(request, "from", None), int(stream.first_offset))
    count = number_of(request, "count", 50)
    if count > MESSAGES_MAX:
        raise HTTPException(400, f"'count' is at most {MESSAGES_MAX}")
    truncate = number_of(request, "truncate", BYTES_MAX)
    skips_damage = request.query_params.get("skip_damage") == "true"
    items: list[StreamMessage] = []
    skipped: list[SkippedOffsets] = []
    left = BYTES_MAX
    while at < stream.end_offset and len(items) < count and left > 0:
        try:
            found, at = _read_one_chunk(stream, at, count - len(items), truncate)
        except CorruptionError as fault:
            if items and not skips_damage:
                break  # the next request begins here and gets the error
            damage = _damage(stream, at, fault)
            if not skips_damage:
                raise CorruptionError(_refusal(stream, damage)) from fault
            skipped.append(damage)
            at = damage.last_offset + 1
            continue
        items += found
        left -= sum(min(item.payload_bytes, truncate) for item in found)
        await asyncio.sleep(0)  # reading a chunk is slow: yield the loop
        at = max(at, int(stream.first_offset))
    return json_response(
        StreamMessages(int(stream.first_offset), int(stream.end_offset), at, items, skipped)
    )


def _read_one_chunk(
    stream: Stream, at: int, count: int, truncate: int
) -> tuple[list[StreamMessage], int]:
    """Return messages from an offset on, and the next offset."""
    chunk = stream.segments.find(at)
    end = min(int(chunk.end_offset), at + count)
    first = int(chunk.first_offset)
    return [_stream_message(chunk, offset - first, truncate) for offset in range(at, end)], end


def _damage(stream: Stream, at: int, fault: CorruptionError) -> SkippedOffsets:
    """Return the range of offsets that cannot be read."""
    following = max(int(stream.segments.skip_damage(at, stream.end_offset)), at + 1)
    return SkippedOffsets(at, following - 1, str(fault))


def _refusal(stream: Stream, damage: SkippedOffsets) -> str:
    offsets = f"offsets {damage.first_offset} to {damage.last_offset}"
    text = f"{shown_stream(stream)}: {offsets} cannot be read: {damage.reason}"
    return f"{text}; skip_damage=true leaves them out"


def _stream_message(chunk: Chunk, index: int, truncate: int) -> StreamMessage:
    message = chunk.message(index, 0)
    payload, encoding = payload_start(message.body, truncate, False)
    return StreamMessage(
        offset=int(chunk.first_offset) + index,
        timestamp_ms=int(chunk.time_ms(index)),
        exchange=printable(message.address.exchange),
        routing_key=printable(message.address.routing_key),
        properties=property_values(decode_properties(message.header)),
        payload_bytes=len(message.body),
        payload=payload,
        payload_encoding=encoding,
    )


OPERATIONS: Final = (
    Operation(
        method="GET",
        path="/api/streams/{vhost}/{name}/messages",
        handler=get_messages,
        summary="Return a few messages of a stream from an offset on; nothing changes.",
        group="streams",
        access=Access.ANY_USER,
        query=(
            Query("from", "the first offset", int, required=True),
            Query("count", f"limit of messages, at most {MESSAGES_MAX}", int),
            Query("truncate", "limit of each body, in bytes", int),
            Query("skip_damage", "leave out unreadable messages instead of failing", bool),
        ),
        answer=StreamMessages,
    ),
)
