"""Find a message: all its places, its deaths and, if it was remembered, its life events.

GET  /api/trace?message_id=    by the property that its publisher set
GET  /api/trace?id=            by the id of one copy, as peek and search show it

The trace reads all queues and streams that the user may read, or those of one vhost. When the time
of a request is over, it answers with its results so far and a cursor. Events come from streams that
remember (docs/remember.md), and from the `x-death` header of the copies that exist.
"""

from typing import Final

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from leveret.auth import READ
from leveret.engine.commands.dead_letter import deaths_of
from leveret.engine.history.life_events import copy_id, queue_of_copy, seq_of_copy
from leveret.engine.insight.filters import SCHEDULED, Filter
from leveret.engine.insight.walk import FoundMessage, Walk, WalkCursor
from leveret.engine.message import Message
from leveret.engine.queues.queue import Queue
from leveret.engine.streams.life_event_search import NUMBERS_MAX, LifeEvent, LifeEventSearch
from leveret.engine.streams.stream import Stream
from leveret.http.framework.names import printable
from leveret.http.framework.operations import Operation, Query
from leveret.http.framework.request_parts import node_of, slices_of, user_of
from leveret.http.framework.responses import json_response
from leveret.http.insight.cursors import (
    CursorFields,
    bad_cursor,
    decode_cursor,
    encode_cursor,
    read_cursor,
    write_cursor,
)
from leveret.http.insight.message_info import HolderInfo, holder_info, message_id, parse_id
from leveret.wire.properties import decode_properties
from leveret.wire.tables import Table, plain_value

MESSAGE_ID_BYTES_MAX: Final = 255
DEATH_SOURCE: Final = "x-death"  # the source of events from this header
PLACES_MAX: Final = 1000  # in one answer
_STEP: Final = 1024
_BYTES_MAX: Final = 64 * 1024 * 1024


# Sort order of queues: the queue of the given copy first, then by vhost and name, then the queues
# of delayed exchanges.
_Order = tuple[bool, str, str, bool]


class PlaceInfo(msgspec.Struct, omit_defaults=True, kw_only=True):
    """A place that holds a copy of the message."""

    vhost: str
    queue: str
    type: str
    state: str
    id: str
    message_id: str | None = None
    held_for: str | None = None  # instead of a queue: the delayed exchange that will route it
    due_at_ms: int | None = None
    holder: HolderInfo | None = None
    held_ms: int | None = None


class EventInfo(msgspec.Struct, omit_defaults=True, kw_only=True):
    """An event in the life of the message."""

    time_ms: int
    event: str  # the words of docs/remember.md; "died" from `x-death`
    queue: str
    source: str  # the stream that recorded it, or "x-death"
    id: str | None = None  # of the copy or the publish
    reason: str | None = None
    consumer: str | None = None
    exchange: str | None = None
    routing_key: str | None = None
    count: int | None = None  # deaths of this kind


class Trace(msgspec.Struct):
    """The places and events found, and a cursor to continue."""

    message_id: str | None
    places: list[PlaceInfo]
    events: list[EventInfo]
    scanned: int
    cursor: str | None  # null: the trace is complete


class _Position(msgspec.Struct, array_like=True):
    """The position of a trace, which its cursor carries."""

    order: _Order  # of the next queue
    walk: CursorFields  # position in that queue
    numbers: list[int]  # of copies and publishes that belong to the message
    message_id: str


async def trace(request: Request) -> Response:
    query = request.query_params
    message = query.get("message_id", "")
    if len(message.encode("utf-8", "surrogateescape")) > MESSAGE_ID_BYTES_MAX:
        raise HTTPException(400, f"a message id has at most {MESSAGE_ID_BYTES_MAX} bytes")
    number = parse_id(query["id"]) if "id" in query else 0
    if bool(message) == bool(number):
        raise HTTPException(400, "either 'message_id' or 'id' says which message is meant")
    cursor = query.get("cursor")
    at = read_cursor(cursor, _Position) if cursor else None
    if at is not None and len(at.numbers) > NUMBERS_MAX:
        raise bad_cursor()
    return json_response(await _Tracing(request, message, number, at).run())


class _Tracing:
    """The work of one request."""

    def __init__(self, request: Request, message: str, number: int, at: _Position | None) -> None:
        self._node = node_of(request)
        self._user = user_of(request)
        self._only = request.query_params.get("vhost")
        self._slices = slices_of(request)
        self._message_id = message or (at.message_id if at is not None else "")
        self._number = number
        self._at = at
        self._numbers: list[int] = list(at.numbers) if at is not None else []
        self._places: list[PlaceInfo] = []
        self._events: list[EventInfo] = []
        self._scanned = 0

    async def run(self) -> Trace:
        with self._node.turn():  # sets the current time
            pass
        position: _Position | None = None
        for queue, is_held in self._targets():
            position = await self._visit(queue, is_held)
            if position is not None:
                break
        self._events.sort(key=_time)
        return Trace(
            message_id=self._message_id or None,
            places=self._places,
            events=self._events,
            scanned=self._scanned,
            cursor=write_cursor(position) if position is not None else None,
        )

    def _targets(self) -> list[tuple[Queue, bool]]:
        """Return the remaining queues; the queue of the given copy comes first."""
        found: list[tuple[Queue, bool]] = []
        for name, vhost in sorted(self._node.broker.vhosts.items()):
            if not self._user.may_open(name) or self._only not in (None, name):
                continue
            queues = [(queue, False) for queue in vhost.queues.values()]
            queues += [(queue, True) for queue in vhost.holding.values()]
            found += [
                (queue, is_held) for queue, is_held in queues if self._may_read(queue, is_held)
            ]
        found.sort(key=self._order)
        at = self._at
        if at is None:
            return found
        return [target for target in found if self._order(target) >= at.order]

    def _may_read(self, queue: Queue, is_held: bool) -> bool:
        what = "exchange" if is_held else "queue"
        return self._user.may(READ, queue.vhost, what, queue.name)

    def _order(self, target: tuple[Queue, bool]) -> _Order:
        queue, is_held = target
        is_given = self._number != 0 and queue.ledger.id == queue_of_copy(self._number)
        return (not is_given, queue.vhost, queue.name, is_held)

    async def _visit(self, queue: Queue, is_held: bool) -> _Position | None:
        """Read one queue. Return the position to continue from, or None if it is complete."""
        order = self._order((queue, is_held))
        at = self._at
        self._at = None
        start = at.walk if at is not None and at.order == order else None
        if isinstance(queue, Stream):
            walked = await self._visit_stream(queue, start)
        else:
            walked = await self._visit_queue(queue, is_held, start)
        if walked is None:
            return None
        return _Position(order, walked, self._numbers, self._message_id)

    def _is_over(self) -> bool:
        return self._slices.is_late() or len(self._places) + len(self._events) >= PLACES_MAX

    async def _visit_queue(
        self, queue: Queue, is_held: bool, start: CursorFields | None
    ) -> CursorFields | None:
        wanted = self._filter(queue)
        if wanted is None:
            return None
        stuck = self._node.broker.vhost(queue.vhost).stuck
        cursor = decode_cursor(start) if start is not None else WalkCursor()
        walk = Walk(queue, stuck, wanted, self._node.sessions(), cursor)
        while not walk.is_done():
            if self._is_over():
                return encode_cursor(walk.cursor)
            scanned = walk.scanned
            walk.step(_STEP, PLACES_MAX, _BYTES_MAX)
            self._scanned += walk.scanned - scanned
            for found in walk.take():
                self._note_place(queue, is_held, found)
            await self._slices.rest_if_over()
        return None

    def _filter(self, queue: Queue) -> Filter | None:
        """Return the filter for a queue, or None if the queue cannot have the message."""
        wanted = Filter()
        if self._message_id:
            wanted.require_property("message_id", self._message_id)
        elif queue.ledger.id == queue_of_copy(self._number):
            wanted.require_seq(seq_of_copy(self._number))
        else:
            return None
        return wanted

    def _note_place(self, queue: Queue, is_held: bool, found: FoundMessage) -> None:
        message = found.message
        properties = decode_properties(message.header)
        if not self._message_id and properties.message_id:
            self._message_id = properties.message_id  # from now on, find all copies
        place = PlaceInfo(
            vhost=printable(queue.vhost),
            queue=printable(queue.name) if not is_held else "",
            type=queue.settings.kind,
            state=found.state,
            id=message_id(queue, message.seq),
            message_id=printable(properties.message_id) if properties.message_id else None,
            held_for=printable(queue.name) if is_held else None,
        )
        if found.state == SCHEDULED:
            place.due_at_ms = found.time_ms
        elif found.session is not None:
            place.holder = holder_info(message.holder, found.session)
            place.held_ms = max(queue.turn.now_ms - found.time_ms, 0)
        self._places.append(place)
        self._note_deaths(message)

    def _note_deaths(self, message: Message) -> None:
        for death in deaths_of(decode_properties(message.header).headers):
            event = _death(death)
            if event not in self._events:
                self._events.append(event)

    async def _visit_stream(
        self, stream: Stream, start: CursorFields | None
    ) -> CursorFields | None:
        offset = decode_cursor(start).minor if start is not None else 0
        lives = LifeEventSearch(stream, self._message_id, self._number, offset)
        lives.numbers = sorted({*lives.numbers, *self._numbers})
        while not lives.is_done():
            if self._is_over():
                self._numbers = lives.numbers
                return (0, "", 0, int(lives.offset), 0, 0)
            scanned = lives.scanned
            lives.step()
            self._scanned += lives.scanned - scanned
            self._events += [_event_info(stream, event) for event in lives.events]
            self._places += [_stream_place(stream, place) for place in lives.places]
            lives.events = []
            lives.places = []
            await self._slices.rest_if_over()
        self._numbers = lives.numbers
        return None


def _time(event: EventInfo) -> int:
    """Return the sort key of an event. Deaths have whole seconds: sort them last in theirs."""
    return event.time_ms + (999 if event.source == DEATH_SOURCE else 0)


def _event_info(stream: Stream, event: LifeEvent) -> EventInfo:
    return EventInfo(
        time_ms=event.time_ms,
        event=event.event,
        queue=printable(event.queue),
        source=printable(stream.name),
        id=str(event.number) if event.number else None,
        reason=printable(event.reason) or None,
        consumer=printable(event.consumer) or None,
        exchange=printable(event.exchange),
        routing_key=printable(event.routing_key),
    )


def _stream_place(stream: Stream, offset: int) -> PlaceInfo:
    return PlaceInfo(
        vhost=printable(stream.vhost),
        queue=printable(stream.name),
        type=stream.settings.kind,
        state="ready",
        id=str(copy_id(stream.ledger.id, offset)),
    )


def _death(death: Table) -> EventInfo:
    plain = {name: plain_value(field) for name, field in death.items()}
    time_s, count, keys = plain.get("time"), plain.get("count"), plain.get("routing-keys")
    return EventInfo(
        time_ms=time_s * 1000 if isinstance(time_s, int) else 0,
        event="died",
        queue=str(plain.get("queue", "")),
        source=DEATH_SOURCE,
        reason=str(plain.get("reason", "")) or None,
        exchange=str(plain.get("exchange", "")),
        routing_key=str(keys[0]) if isinstance(keys, list) and keys else None,
        count=count if isinstance(count, int) else None,
    )


OPERATIONS: Final = (
    Operation(
        method="GET",
        path="/api/trace",
        handler=trace,
        summary="Return all places of a message and its events.",
        group="insight",
        query=(
            Query("message_id", "the property that its publisher set"),
            Query("id", "id of one copy, as peek and search show it"),
            Query("vhost", "only this vhost"),
            Query("cursor", "cursor of the previous answer"),
        ),
        answer=Trace,
    ),
)
