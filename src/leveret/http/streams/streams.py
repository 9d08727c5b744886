"""Streams over HTTP: first and end offset, ranges as Arrow, offsets by time, cursors.

GET         /api/streams/{vhost}/{name}                     first and end offset, cursors
GET         /api/streams/{vhost}/{name}/offset?timestamp=   the first offset of a time
GET         /api/streams/{vhost}/{name}/offset?from=&bytes= the offset after about so many bytes
GET         /api/streams/{vhost}/{name}/segments?from=&to=  the files that hold a range
GET         /api/streams/{vhost}/{name}/batches?from=&to=   a range as Arrow (`arrow`)
GET         /api/streams/{vhost}/{name}/messages?from=      a few as JSON (`stream_messages`)
PUT DELETE  /api/streams/{vhost}/{name}/cursors/{cursor}    a position under a name
"""

from bisect import bisect_right
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from leveret.arrow.requests import COLUMNS, segment_parts
from leveret.arrow.requests import Request as Range
from leveret.auth import READ
from leveret.engine.streams.envelope_columns import text_of_bytes
from leveret.engine.streams.lag import message_time_ms, messages_behind, next_offset
from leveret.engine.streams.reader import Reader
from leveret.engine.streams.stream import OFFSET_MAX, Stream
from leveret.http.framework.operations import Access, Operation, Query, body_of
from leveret.http.framework.permissions import vhost_of
from leveret.http.framework.request_parts import node_of, part_of, user_of
from leveret.http.framework.responses import json_response
from leveret.http.streams.arrow import StreamArrowResponse, range_gone
from leveret.wire.tables import NAME_BYTES_MAX

TIMED_READERS_MAX: Final = 20  # readers whose delay is measured: each may cost a read of the disk
READERS_MAX: Final = 500


class StreamReader(msgspec.Struct):
    """A cursor, or a consumer that is connected, and how far it is behind."""

    name: str
    kind: str  # cursor or consumer
    offset: int  # of the next message: to be settled (cursor), to be delivered (consumer)
    behind: int  # messages
    behind_ms: int | None  # age of the next message; null: unknown
    connection: str | None = None  # of a consumer


class StreamInfo(msgspec.Struct):
    """Body of /api/streams/{vhost}/{name}."""

    name: str
    vhost: str
    first_offset: int
    end_offset: int  # of the next message
    messages: int
    segments: int
    bytes: int
    first_timestamp_ms: int | None  # null if the stream is empty
    last_timestamp_ms: int | None
    cursors: dict[str, int]  # the next offset of each cursor
    readers: list[StreamReader]  # furthest behind first


class Offset(msgspec.Struct):
    """Body of …/offset, and of PUT …/cursors/{cursor}."""

    offset: int


async def get_stream(request: Request) -> Response:
    stream = stream_of(request)
    segments = stream.segments.segments
    return json_response(
        StreamInfo(
            name=_escaped(stream.name),
            vhost=_escaped(stream.vhost),
            first_offset=stream.first_offset,
            end_offset=stream.end_offset,
            messages=stream.end_offset - stream.first_offset,
            segments=len(segments),
            bytes=stream.segments.total_bytes(),
            first_timestamp_ms=segments[0].first_ms if segments else None,
            last_timestamp_ms=stream.writer.last_ms if segments else None,
            cursors={_escaped(n): o for n, o in stream.cursors.cursors.items()},
            readers=_readers(stream, node_of(request).now_ms()),
        )
    )


def _readers(stream: Stream, now_ms: int) -> list[StreamReader]:
    found = [
        _reader(stream, _escaped(name), "cursor", offset)
        for name, offset in stream.cursors.cursors.items()
    ]
    for consumer in stream.consumers:
        if isinstance(consumer, Reader):
            one = _reader(stream, _escaped(consumer.tag), "consumer", consumer.offset)
            one.connection = consumer.session.outlet.name
            found.append(one)
    found.sort(key=lambda one: (-one.behind, one.name))
    for one in found[:TIMED_READERS_MAX]:
        if one.behind > 0:
            one.behind_ms = _age_ms(stream, one.offset, now_ms)
    return found[:READERS_MAX]


def _reader(stream: Stream, name: str, kind: str, offset: int) -> StreamReader:
    behind = int(messages_behind(stream, offset))
    next_ = int(next_offset(stream, offset))
    return StreamReader(name, kind, next_, behind, None if behind else 0)


def _age_ms(stream: Stream, offset: int, now_ms: int) -> int | None:
    """Return the age of a message, or None if it cannot be read."""
    time_ms = int(message_time_ms(stream, offset))
    return max(now_ms - time_ms, 0) if time_ms >= 0 else None


class SegmentInfo(msgspec.Struct):
    """A file of a stream, and how far it may be read."""

    name: str
    first_offset: int
    end: int


class SegmentsInfo(msgspec.Struct):
    """Body of …/segments."""

    number: int  # number of the stream in the log
    stream_first: int  # first offset of the stream
    stream_end: int  # offset of its next message
    user: str  # whose share of the reads it takes, if a node that follows answers
    segments: list[SegmentInfo]
    # A chunk in the first segment; nothing of the range is before it.
    known_offset: int  # first offset of the chunk
    known_place: int  # position in the file


async def get_segments(request: Request) -> Response:
    stream = stream_of(request)
    first = number_of(request, "from", 0)
    end = number_of(request, "to", OFFSET_MAX)
    parts = segment_parts(stream, Path(), first, end)
    found = [SegmentInfo(part.path, part.first_offset, part.end) for part in parts]
    known = _known_chunk(stream, found[0].first_offset, first) if found else (0, 0)
    return json_response(
        SegmentsInfo(
            number=int(stream.ledger.id),
            stream_first=int(stream.first_offset),
            stream_end=int(stream.end_offset),
            user=user_of(request).identity,
            segments=found,
            known_offset=known[0],
            known_place=known[1],
        )
    )


def _known_chunk(stream: Stream, segment_first: int, first: int) -> tuple[int, int]:
    """Return offset and place of the last indexed chunk that begins at or before an offset."""
    for segment in stream.segments.segments:
        if segment.first_offset == segment_first:
            index = stream.segments.index(segment)
            place = max(bisect_right(index.offsets, first) - 1, 0)
            return index.offsets[place], index.places[place]
    return 0, 0


async def get_offset(request: Request) -> Response:
    stream = stream_of(request)
    if "bytes" in request.query_params:
        first = number_of(request, "from", None)
        return json_response(
            Offset(_offset_after(stream, first, number_of(request, "bytes", None)))
        )
    time_ms = _time_ms(request.query_params.get("timestamp", ""))
    return json_response(Offset(stream.offset_at(time_ms)))


def _offset_after(stream: Stream, first: int, bytes_max: int) -> int:
    """Return the offset about `bytes_max` bytes after an offset, and at least one chunk later."""
    segments = stream.segments.segments
    left = bytes_max
    for number, segment in enumerate(segments):
        is_last = number + 1 == len(segments)
        if not is_last and segments[number + 1].first_offset <= first:
            continue
        index = stream.segments.index(segment)
        start = int(index.by_offset(first))
        if int(segment.end) - start > left:
            later = bisect_right(index.offsets, max(first, int(segment.first_offset)))
            place = max(bisect_right(index.places, start + left) - 1, later)
            if place < len(index.offsets):
                return min(index.offsets[place], int(stream.end_offset))
        left = max(left - (int(segment.end) - start), 0)
        if left == 0 and not is_last:
            return int(segments[number + 1].first_offset)
    return int(stream.end_offset)


async def get_batches(request: Request) -> StreamArrowResponse | Response:
    stream = stream_of(request)
    first = number_of(request, "from", None)
    end = min(number_of(request, "to", OFFSET_MAX), int(stream.end_offset))
    if first > stream.end_offset:
        raise HTTPException(416, f"the stream ends with offset {stream.end_offset - 1}")
    if first < stream.first_offset:
        return json_response(range_gone(stream, first), status=410)
    wanted = Range(
        stream=stream.name,
        number=int(stream.ledger.id),
        first=first,
        end=max(end, first),
        columns=columns_of(request),
        bytes_max=number_of(request, "max_bytes", 0),
    )
    user = user_of(request).identity
    return StreamArrowResponse(node_of(request).bulk_reads, stream, wanted, user)


async def change_cursor(request: Request) -> Response:
    stream = stream_of(request)
    cursor = part_of(request, "cursor")
    if len(cursor.encode("utf-8", "surrogateescape")) > NAME_BYTES_MAX:
        raise HTTPException(400, f"a cursor's name has at most {NAME_BYTES_MAX} bytes")
    is_known = cursor in stream.cursors.cursors
    offset = -1
    if request.method == "PUT":
        offset = (await body_of(request, Offset)).offset
        if not 0 <= offset <= stream.writer.next_offset:
            raise HTTPException(400, f"offset {offset} is not in the stream, nor its end")
        stream.cursors.require_room(cursor)
    elif not is_known:
        raise HTTPException(404, f"no cursor '{_escaped(cursor)}'")
    with node_of(request).turn():
        stream.cursors.move(cursor, offset)
    return Response(status_code=204 if is_known else 201)


_PATH: Final = "/api/streams/{vhost}/{name}"
OPERATIONS: Final = (
    Operation(
        method="GET",
        path=_PATH,
        handler=get_stream,
        summary="Return the first and the end offset of a stream, and its cursors.",
        group="streams",
        access=Access.ANY_USER,
        answer=StreamInfo,
    ),
    Operation(
        method="GET",
        path=f"{_PATH}/offset",
        handler=get_offset,
        summary="Return the first offset of a time, or the offset after a number of bytes.",
        group="streams",
        access=Access.ANY_USER,
        query=(
            Query("timestamp", "ISO 8601, or milliseconds since 1970"),
            Query("from", "with `bytes`: the offset to count from", int),
            Query("bytes", "approximate number of bytes on disk", int),
        ),
        answer=Offset,
    ),
    Operation(
        method="GET",
        path=f"{_PATH}/segments",
        handler=get_segments,
        summary="List the files that hold a range of a stream, and how far each may be read.",
        group="streams",
        access=Access.ANY_USER,
        query=(
            Query("from", "the first offset", int),
            Query("to", "the offset after the last", int),
        ),
        answer=SegmentsInfo,
        is_export=True,  # who asks reads the files, or lets a node that follows read its own
    ),
    Operation(
        method="GET",
        path=f"{_PATH}/batches",
        handler=get_batches,
        summary="Return a range of a stream as an Arrow IPC stream.",
        group="streams",
        access=Access.ANY_USER,
        query=(
            Query("from", "the first offset", int, required=True),
            Query("to", "the offset after the last", int),
            Query("columns", "names of columns, separated by commas"),
            Query("max_bytes", "approximate limit of the bodies, in bytes", int),
        ),
        media="application/vnd.apache.arrow.stream",
        is_export=True,
    ),
    Operation(
        method="PUT",
        path=f"{_PATH}/cursors/{{cursor}}",
        handler=change_cursor,
        summary="Store a position under a name.",
        group="streams",
        access=Access.ANY_USER,
        body=Offset,
        status=201,
    ),
    Operation(
        method="DELETE",
        path=f"{_PATH}/cursors/{{cursor}}",
        handler=change_cursor,
        summary="Delete a stored position.",
        group="streams",
        access=Access.ANY_USER,
        status=204,
    ),
)


def stream_of(request: Request) -> Stream:
    """Return the stream that the path names. Answer 401 if the user may not read it."""
    user = user_of(request)
    vhost_name, name = vhost_of(request), part_of(request, "name")
    if not user.may(READ, vhost_name, "queue", name):
        raise HTTPException(401, "User not authorised to read from the queue")
    what = f"queue '{_escaped(name)}' in vhost '{_escaped(vhost_name)}'"
    vhost = node_of(request).broker.vhosts.get(vhost_name)
    queue = vhost.queues.get(name) if vhost is not None else None
    if queue is None:
        raise HTTPException(404, f"no {what}")
    if not isinstance(queue, Stream):
        raise HTTPException(400, f"{what} is not a stream")
    return queue


def _escaped(name: str) -> str:
    """Return a name for JSON; bytes that are not UTF-8 become `\\xNN`."""
    return text_of_bytes(name.encode("utf-8", "surrogateescape"))


def number_of(request: Request, name: str, default: int | None) -> int:
    text = request.query_params.get(name)
    if text is None and default is not None:
        return default
    if text is None or not (text.isascii() and text.isdigit()) or len(text) > 19:
        raise HTTPException(400, f"'{name}' must be a whole number, not {text!r}")
    return min(int(text), OFFSET_MAX)


def columns_of(request: Request) -> list[str]:
    """Return the requested columns. Answer 400 for an unknown column."""
    text = request.query_params.get("columns")
    columns = text.split(",") if text is not None else list(COLUMNS)
    for column in columns:
        if column not in COLUMNS:
            raise HTTPException(400, f"no column {column!r}; there are {', '.join(COLUMNS)}")
    if len(set(columns)) != len(columns):
        raise HTTPException(400, "a column can be asked for once")
    return columns


def _time_ms(text: str) -> int:
    """Decode a time: ISO 8601 (UTC without a zone), or milliseconds since 1970."""
    if text.isascii() and text.isdigit() and len(text) <= 18:
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise HTTPException(400, f"'timestamp' is no time: {text!r}") from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return max(int(moment.timestamp() * 1000), 0)
