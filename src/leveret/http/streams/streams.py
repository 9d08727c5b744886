"""Streams over HTTP: what they hold, ranges of them as Arrow, offsets by time, cursors.

GET         /api/streams/{vhost}/{name}                     where it begins and ends, cursors
GET         /api/streams/{vhost}/{name}/offset?timestamp=   the first offset of a time
GET         /api/streams/{vhost}/{name}/offset?from=&bytes= where about so many bytes end
GET         /api/streams/{vhost}/{name}/segments?from=&to=  the files that hold a range
GET         /api/streams/{vhost}/{name}/batches?from=&to=   a range, see `batches`
GET         /api/streams/{vhost}/{name}/messages?from=      a few as JSON, see `stream_messages`
PUT DELETE  /api/streams/{vhost}/{name}/cursors/{cursor}    a position kept under a name
"""

from bisect import bisect_right
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from leveret.arrow.requests import COLUMNS, parts_of
from leveret.arrow.requests import Request as Range
from leveret.auth import READ
from leveret.engine.streams.columns import shown
from leveret.engine.streams.stream import Stream
from leveret.http.framework.operations import Access, Operation, Query, body_of
from leveret.http.framework.permissions import vhost_of
from leveret.http.framework.request_parts import node_of, part_of, user_of
from leveret.http.framework.responses import json_response
from leveret.http.streams.arrow import StreamArrowResponse, range_gone
from leveret.wire.tables import NAME_BYTES_MAX

OFFSET_MAX: Final = (1 << 62) - 1


class StreamInfo(msgspec.Struct):
    """Body of /api/streams/{vhost}/{name}."""

    name: str
    vhost: str
    first_offset: int
    end_offset: int  # of the next message
    messages: int
    segments: int
    bytes: int
    first_timestamp_ms: int | None  # null while it is empty
    last_timestamp_ms: int | None
    cursors: dict[str, int]  # the next offset of each


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
        )
    )


class SegmentInfo(msgspec.Struct):
    """A file of a stream, and how far it may be read now."""

    name: str
    first_offset: int
    end: int


class SegmentsInfo(msgspec.Struct):
    """Body of …/segments."""

    number: int  # of the stream in the log
    segments: list[SegmentInfo]
    # A chunk in the first of them before which nothing of the range stands
    known_offset: int  # its first
    known_place: int  # in the file


async def get_segments(request: Request) -> Response:
    stream = stream_of(request)
    first = number_of(request, "from", 0)
    end = number_of(request, "to", OFFSET_MAX)
    parts = parts_of(stream, Path(), first, end)
    found = [SegmentInfo(part.path, part.first_offset, part.end) for part in parts]
    known = _known_chunk(stream, found[0].first_offset, first) if found else (0, 0)
    return json_response(SegmentsInfo(int(stream.ledger.id), found, *known))


def _known_chunk(stream: Stream, segment_first: int, first: int) -> tuple[int, int]:
    """The last chunk of the index of a segment that does not begin after an offset."""
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
    """Where about so many bytes end that begin with an offset; at least some messages on."""
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
    return StreamArrowResponse(node_of(request).bulk_reads, stream, wanted)


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
        summary="Where a stream begins and ends, and its cursors.",
        group="streams",
        access=Access.ANY_USER,
        answer=StreamInfo,
    ),
    Operation(
        method="GET",
        path=f"{_PATH}/offset",
        handler=get_offset,
        summary="The first offset of a time, or the one behind some bytes.",
        group="streams",
        access=Access.ANY_USER,
        query=(
            Query("timestamp", "ISO 8601, or milliseconds since 1970"),
            Query("from", "instead: the offset from which on bytes are counted", int),
            Query("bytes", "about how many bytes on disk", int),
        ),
        answer=Offset,
    ),
    Operation(
        method="GET",
        path=f"{_PATH}/segments",
        handler=get_segments,
        summary="The files that hold a range of a stream, and how far each may be read.",
        group="streams",
        access=Access.ANY_USER,
        query=(
            Query("from", "the first offset", int),
            Query("to", "the offset after the last", int),
        ),
        answer=SegmentsInfo,
    ),
    Operation(
        method="GET",
        path=f"{_PATH}/batches",
        handler=get_batches,
        summary="A range of a stream as an Arrow IPC stream.",
        group="streams",
        access=Access.ANY_USER,
        query=(
            Query("from", "the first offset", int, required=True),
            Query("to", "the offset after the last", int),
            Query("columns", "names of columns, with commas between"),
            Query("max_bytes", "about how many bytes of bodies at most", int),
        ),
        media="application/vnd.apache.arrow.stream",
    ),
    Operation(
        method="PUT",
        path=f"{_PATH}/cursors/{{cursor}}",
        handler=change_cursor,
        summary="Keep a position under a name.",
        group="streams",
        access=Access.ANY_USER,
        body=Offset,
        status=201,
    ),
    Operation(
        method="DELETE",
        path=f"{_PATH}/cursors/{{cursor}}",
        handler=change_cursor,
        summary="Forget a position.",
        group="streams",
        access=Access.ANY_USER,
        status=204,
    ),
)


def stream_of(request: Request) -> Stream:
    """The stream that the path names, if the user may read it."""
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
    """A name for JSON: bytes that are not UTF-8 as `\\xNN`."""
    return shown(name.encode("utf-8", "surrogateescape"))


def number_of(request: Request, name: str, default: int | None) -> int:
    text = request.query_params.get(name)
    if text is None and default is not None:
        return default
    if text is None or not (text.isascii() and text.isdigit()) or len(text) > 19:
        raise HTTPException(400, f"'{name}' must be a whole number, not {text!r}")
    return min(int(text), OFFSET_MAX)


def columns_of(request: Request) -> list[str]:
    """The columns that are wanted; 400 where there is no such one."""
    text = request.query_params.get("columns")
    columns = text.split(",") if text is not None else list(COLUMNS)
    for column in columns:
        if column not in COLUMNS:
            raise HTTPException(400, f"no column {column!r}; there are {', '.join(COLUMNS)}")
    if len(set(columns)) != len(columns):
        raise HTTPException(400, "a column can be asked for once")
    return columns


def _time_ms(text: str) -> int:
    """A time as ISO 8601, UTC where it says nothing else, or in milliseconds since 1970."""
    if text.isascii() and text.isdigit() and len(text) <= 18:
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise HTTPException(400, f"'timestamp' is no time: {text!r}") from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return max(int(moment.timestamp() * 1000), 0)
