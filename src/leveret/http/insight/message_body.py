"""The whole body of one message, byte for byte.

GET  /api/queues/{vhost}/{name}/messages/{id}/body
GET  /api/streams/{vhost}/{name}/messages/{offset}/body

Other answers show bodies as text and cut them. This answer is the body alone, of any size. Browsers
save it and never show it, because a body may be a hostile page. Nothing changes.
"""

from collections.abc import AsyncIterator
from typing import Final

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from leveret.auth import READ
from leveret.engine.history.life_events import queue_of_copy, seq_of_copy
from leveret.engine.insight.locating import locate
from leveret.engine.queues.queue import Queue
from leveret.engine.streams.stream import Stream
from leveret.errors import CorruptionError, NotFoundError
from leveret.http.framework.operations import Access, Operation
from leveret.http.framework.permissions import permitted_queue
from leveret.http.framework.request_parts import node_of, part_of
from leveret.http.insight.explain import find_unacked
from leveret.http.insight.message_info import parse_id

PIECE_BYTES: Final = 64 * 1024
_MEDIA: Final = "application/octet-stream"
_HEADERS: Final = {
    "Content-Disposition": "attachment",
    "Content-Security-Policy": "sandbox",
    "X-Content-Type-Options": "nosniff",
}


async def get_body(request: Request) -> Response:
    queue = permitted_queue(request, READ)
    number = parse_id(part_of(request, "id"))
    body = None
    if queue_of_copy(number) == queue.ledger.id:
        body = await _body_of(request, queue, seq_of_copy(number))
    if body is None:
        raise NotFoundError(f"no message {number} in queue '{queue.name}'")
    return _answer(body)


async def get_stream_body(request: Request) -> Response:
    stream = permitted_queue(request, READ)
    offset = parse_id(part_of(request, "offset"))
    body = _stream_body(stream, offset) if isinstance(stream, Stream) else None
    if body is None:
        raise NotFoundError(f"no offset {offset} in stream '{stream.name}'")
    return _answer(body)


async def _body_of(request: Request, queue: Queue, seq: int) -> bytes | None:
    """Return the body of a message in any state, or None if there is no such message."""
    if isinstance(queue, Stream):
        return _stream_body(queue, seq)
    unacked = await find_unacked(request, queue, seq)
    if unacked is not None:
        return unacked.message.body
    found = locate(queue, node_of(request).broker.vhost(queue.vhost).stuck, seq)
    if found is None:
        return None
    if found.message is None:
        raise HTTPException(500, "the message cannot be read, because the log is damaged")
    return found.message.body


def _stream_body(stream: Stream, offset: int) -> bytes | None:
    if not stream.first_offset <= offset < stream.end_offset:
        return None
    chunk = stream.segments.find(offset)
    if not chunk.first_offset <= offset < chunk.end_offset:
        raise CorruptionError(f"offset {offset} cannot be read")
    return chunk.message(offset - int(chunk.first_offset), 0).body


def _answer(body: bytes) -> Response:
    headers = {**_HEADERS, "Content-Length": str(len(body))}
    return StreamingResponse(_pieces(body), headers=headers, media_type=_MEDIA)


async def _pieces(body: bytes) -> AsyncIterator[bytes]:
    """Yield the body in pieces, so that a client that reads slowly fills no buffer."""
    view = memoryview(body)
    for start in range(0, len(body), PIECE_BYTES):
        yield bytes(view[start : start + PIECE_BYTES])


OPERATIONS: Final = (
    Operation(
        method="GET",
        path="/api/queues/{vhost}/{name}/messages/{id}/body",
        handler=get_body,
        summary="Return the whole body of one message; nothing changes.",
        group="insight",
        access=Access.ANY_USER,
        media=_MEDIA,
    ),
    Operation(
        method="GET",
        path="/api/streams/{vhost}/{name}/messages/{offset}/body",
        handler=get_stream_body,
        summary="Return the whole body of one message of a stream; nothing changes.",
        group="streams",
        access=Access.ANY_USER,
        media=_MEDIA,
    ),
)
