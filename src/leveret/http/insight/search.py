"""Look into queues without changing them: peek, search, and messages in flight.

GET   /api/queues/{vhost}/{name}/peek      ready messages, in the order of delivery
POST  /api/queues/{vhost}/{name}/search    messages in any state that match a filter
GET   /api/queues/{vhost}/{name}/unacked   messages in flight, and their holders

RabbitMQ: its `get` takes messages and returns them to the queue, which changes them. All three need
the permission *read* on the queue.
"""

from typing import Final, Literal

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from leveret.auth import READ
from leveret.engine.insight.filters import READY, SCHEDULED, STATES, STUCK, UNACKED, Filter
from leveret.engine.insight.peek import peek
from leveret.engine.insight.walk import FoundMessage, Walk, WalkCursor
from leveret.engine.message import Message
from leveret.engine.queues.queue import Queue
from leveret.engine.queues.stuck_dead_letters import StuckDeadLetters
from leveret.engine.streams.stream import Stream
from leveret.errors import NotFoundError, PreconditionFailedError
from leveret.http.framework.operations import Access, Operation, Query, body_of
from leveret.http.framework.permissions import permitted_queue
from leveret.http.framework.request_parts import node_of, number_of, slices_of
from leveret.http.framework.responses import json_response
from leveret.http.insight.cursors import (
    CursorFields,
    decode_cursor,
    encode_cursor,
    read_cursor,
    write_cursor,
)
from leveret.http.insight.filters import FilterBody, filter_of
from leveret.http.insight.message_info import MessageInfo, found_info, message_info

PEEK_COUNT_MAX: Final = 1000
PEEK_BYTES_MAX: Final = 4 * 1024 * 1024
PEEK_SKIPPED_MAX: Final = (1 << 53) - 1  # messages before the first one; JavaScript counts so far
SEARCH_LIMIT_MAX: Final = 1000
STEP: Final = 1024  # messages between two looks at the clock


class SearchBody(FilterBody, kw_only=True):
    """Body of a search: a filter, and the part of the results to return."""

    limit: int = 100  # messages in the answer
    cursor: str | None = None  # of the previous answer, to continue there
    truncate: int | None = None  # limit of each body, in bytes
    encoding: Literal["auto", "base64"] = "auto"


class SearchResult(msgspec.Struct):
    """The messages found, and a cursor to continue."""

    items: list[MessageInfo]
    scanned: int  # messages that this request has read
    total: int  # messages of the queue in the requested states
    cursor: str | None  # null: the search is complete


async def peek_queue(request: Request) -> Response:
    queue = permitted_queue(request, READ)
    query = request.query_params
    count = number_of(query, "count", 1, PEEK_COUNT_MAX)
    offset = number_of(query, "offset", 0, PEEK_SKIPPED_MAX)
    truncate = number_of(query, "truncate", PEEK_BYTES_MAX, PEEK_BYTES_MAX)
    is_binary = query.get("encoding", "auto") == "base64"
    from_end = query.get("from_end", "false") == "true"
    node = node_of(request)
    with node.turn():  # sets the current time
        total = int(queue.message_count())
    if isinstance(queue, Stream):
        stuck = node.broker.vhost(queue.vhost).stuck
        messages = _peek_stream(queue, stuck, count, offset, from_end)
    else:
        messages = peek(queue, count, PEEK_BYTES_MAX, from_end, offset)
    behind = offset + len(messages) - 1 if from_end else total - offset - 1
    items = [message_info(queue, message, READY, truncate, is_binary) for message in messages]
    for index, item in enumerate(items):
        item.message_count = max(behind - index, 0)
    return json_response(items)


async def search_queue(request: Request) -> Response:
    queue = permitted_queue(request, READ)
    body = await body_of(request, SearchBody)
    if not 1 <= body.limit <= SEARCH_LIMIT_MAX:
        raise PreconditionFailedError(f"'limit' is a number from 1 to {SEARCH_LIMIT_MAX}")
    if body.truncate is not None and body.truncate < 0:
        raise PreconditionFailedError("'truncate' is a number of bytes")
    found = await _walk(request, queue, filter_of(body), body.limit, body.cursor)
    truncate = PEEK_BYTES_MAX if body.truncate is None else body.truncate
    return json_response(found.result(truncate, body.encoding == "base64"))


async def list_unacked(request: Request) -> Response:
    queue = permitted_queue(request, READ)
    limit = number_of(request.query_params, "limit", 100, SEARCH_LIMIT_MAX)
    truncate = number_of(request.query_params, "truncate", PEEK_BYTES_MAX, PEEK_BYTES_MAX)
    wanted = Filter()
    wanted.require_states([UNACKED])
    cursor = request.query_params.get("cursor") or None
    found = await _walk(request, queue, wanted, max(limit, 1), cursor)
    return json_response(found.result(truncate, False))


async def _walk(
    request: Request, queue: Queue, wanted: Filter, limit: int, cursor: str | None
) -> "_Found":
    """Walk from a cursor until enough is found or the time of the request is over."""
    node = node_of(request)
    start = decode_cursor(read_cursor(cursor, CursorFields)) if cursor is not None else WalkCursor()
    vhost = node.broker.vhost(queue.vhost)
    with node.turn():  # sets the current time
        walk = Walk(queue, vhost.stuck, wanted, node.sessions(), start)
    slices = slices_of(request)
    walk.step(STEP, limit, PEEK_BYTES_MAX)
    while not walk.is_done() and not walk.is_full() and not slices.is_late():
        await slices.rest_if_over()
        walk.step(STEP, limit, PEEK_BYTES_MAX)
    if queue.deleted:
        raise NotFoundError(f"no queue '{queue.name}' in vhost '{queue.vhost}'")
    return _Found(queue, walk)


class _Found:
    """The result of a walk."""

    def __init__(self, queue: Queue, walk: Walk) -> None:
        self._queue = queue
        self._walk = walk
        self._found: list[FoundMessage] = walk.take()

    def result(self, truncate: int, is_binary: bool) -> SearchResult:
        walk = self._walk
        return SearchResult(
            items=[found_info(self._queue, found, truncate, is_binary) for found in self._found],
            scanned=walk.scanned,
            total=_total(self._queue, walk.wanted.states),
            cursor=None if walk.is_done() else write_cursor(encode_cursor(walk.cursor)),
        )


def _total(queue: Queue, states: list[str]) -> int:
    counts = {
        READY: int(queue.message_count()),
        SCHEDULED: len(queue.scheduled),
        UNACKED: int(queue.unacked),
        STUCK: int(queue.stuck),
    }
    return sum(counts[state] for state in STATES if state in states)


def _peek_stream(
    stream: Stream, stuck: StuckDeadLetters, count: int, offset: int, from_end: bool
) -> list[Message]:
    """Return messages of a stream. Offset 0 is the first message that it still has."""
    first = int(stream.first_offset) + offset
    if from_end:
        first = max(int(stream.end_offset) - offset - count, int(stream.first_offset))
        count = int(stream.end_offset) - offset - first
    cursor = WalkCursor()
    cursor.minor = first - 1
    wanted = Filter()
    wanted.require_states([READY])
    walk = Walk(stream, stuck, wanted, [], cursor)
    if count > 0:
        walk.step(max(count, STEP), count, PEEK_BYTES_MAX)
    return [found.message for found in walk.take()]


_PATH: Final = "/api/queues/{vhost}/{name}"
_TRUNCATE: Final = Query("truncate", "limit of each body, in bytes", int)
OPERATIONS: Final = (
    Operation(
        method="GET",
        path=f"{_PATH}/peek",
        handler=peek_queue,
        summary="Return ready messages in the order of delivery; nothing changes.",
        group="insight",
        access=Access.ANY_USER,
        query=(
            Query("count", "limit of messages", int),
            Query("offset", "how many to skip", int),
            _TRUNCATE,
            Query("encoding", "auto, or base64"),
            Query("from_end", "true: the newest messages", bool),
        ),
        answer=list[MessageInfo],
    ),
    Operation(
        method="POST",
        path=f"{_PATH}/search",
        handler=search_queue,
        summary="Search the messages of a queue in all states; nothing changes.",
        group="insight",
        access=Access.ANY_USER,
        body=SearchBody,
        answer=SearchResult,
        is_export=True,
    ),
    Operation(
        method="GET",
        path=f"{_PATH}/unacked",
        handler=list_unacked,
        summary="List the messages that are delivered and not settled, with their holders.",
        group="insight",
        access=Access.ANY_USER,
        query=(
            Query("limit", "limit of messages", int),
            Query("cursor", "cursor of the previous answer"),
            _TRUNCATE,
        ),
        answer=SearchResult,
    ),
)
