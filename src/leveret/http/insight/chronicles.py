"""Chronicles of a vhost, and the state of each message that they tell of, at one moment.

GET   /api/chronicles/{vhost}?queue=&queue=    queues and exchanges that remember, and their copies

The snapshot is taken in one turn: the ends of the chronicles and the messages of the queues belong
together. A client that reads the chronicles up to these ends must find the same copies
(docs/reports.md). The answer is sent when the ends are on disk. Copies are listed as runs of
numbers. Messages stay where they are, and their bodies are not read.

The request needs the permission *read* on each named queue. If it names no queue, it covers all
queues that the user may read.
"""

from array import array
from typing import Final

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from leveret.auth import READ
from leveret.engine.commands.picking import plan
from leveret.engine.history.tracing import remove_tracing
from leveret.engine.message import Message
from leveret.engine.queues.queue import Queue
from leveret.engine.streams.chronicle import StreamChronicle
from leveret.engine.streams.stream import Stream
from leveret.engine.turns.session import Session
from leveret.engine.vhosts.vhost import Vhost
from leveret.errors import NotFoundError
from leveret.http.framework.names import printable
from leveret.http.framework.operations import Access, Operation, Query
from leveret.http.framework.permissions import vhost_of
from leveret.http.framework.request_parts import node_of, slices_of, user_of
from leveret.http.framework.responses import json_response
from leveret.slices import Slices

COPIES_MAX: Final = 20_000_000  # in one answer; each takes eight bytes of memory
_STEP: Final = 4096  # numbers between two looks at the clock

Run = tuple[int, int]  # first and last number


class ChronicleInfo(msgspec.Struct):
    """A stream of life events."""

    name: str
    id: int  # the prefix of the numbers of publishes
    first_offset: int
    end_offset: int  # all events up to this moment are before it


class RememberingExchange(msgspec.Struct):
    """An exchange that remembers."""

    name: str
    stream: str


class UnackedRun(msgspec.Struct, array_like=True):
    """Copies in flight that were delivered at the same time."""

    first: int
    last: int
    taken_ms: int


class RememberingQueue(msgspec.Struct):
    """A queue that remembers, and the numbers of its messages by state."""

    name: str
    id: int  # the prefix of the numbers of copies
    stream: str
    declared: bool  # it was declared with x-remember, so it remembers all its messages
    dead_letter_exchange: str | None  # as declared; null if a policy sets it
    dead_letter_routing_key: str | None
    ready: list[Run]
    scheduled: list[Run]
    unacked: list[UnackedRun]
    stuck: list[Run]  # dead letters that no queue accepts
    damaged: list[Run]  # unreadable messages


class ChroniclesSnapshot(msgspec.Struct):
    """The state of all chronicles of a vhost at one moment."""

    time_ms: int
    streams: list[ChronicleInfo]
    exchanges: list[RememberingExchange]
    queues: list[RememberingQueue]


class _Copies:
    """The numbers of the messages of one queue, as of the turn."""

    def __init__(self, queue: Queue, stream: str) -> None:
        self.queue = queue
        self.stream = stream
        self.ready = plan(queue, with_ready=True, with_scheduled=False)
        self.scheduled = plan(queue, with_ready=False, with_scheduled=True)
        self.unacked: list[tuple[int, int]] = []
        self.damaged: array[int] = array("Q")
        self.stuck: array[int] = array("Q")
        for run in queue.ready.damaged:
            self.damaged.extend(run.seqs[run.at :])

    def count(self) -> int:
        return len(self.ready) + len(self.scheduled)


async def get_chronicles(request: Request) -> Response:
    node = node_of(request)
    vhost = node.broker.vhost(vhost_of(request))
    queues = _queues(request, vhost)
    with node.turn():
        now_ms = int(vhost.turn.now_ms)
        copies = [_Copies(queue, stream) for queue, stream in queues]
        if sum(one.count() for one in copies) > COPIES_MAX:
            raise HTTPException(400, f"more than {COPIES_MAX} messages: name fewer queues")
        _add_unacked(copies, node.sessions(), vhost)
        streams = _streams(vhost)
    await node.synced()
    slices = slices_of(request)
    shown = [await _queue_info(one, slices) for one in copies]
    exchanges = [
        RememberingExchange(printable(name), printable(stream))
        for name, stream in _exchanges(vhost)
    ]
    return json_response(ChroniclesSnapshot(now_ms, streams, exchanges, shown))


def _queues(request: Request, vhost: Vhost) -> list[tuple[Queue, str]]:
    """Return the requested queues, with the streams of their chronicles."""
    user = user_of(request)
    names = request.query_params.getlist("queue")
    found = []
    for name in dict.fromkeys(names) if names else list(vhost.queues):
        queue = vhost.queues.get(name)
        if queue is None:
            raise NotFoundError(f"no queue '{name}' in vhost '{vhost.name}'")
        stream = _chronicle_stream(queue)
        if stream is None and not names:  # most queues: no permission is looked up for them
            continue
        may_read = user.may(READ, vhost.name, "queue", name)
        if stream is not None and may_read:
            found.append((queue, stream))
        elif names and not may_read:
            raise HTTPException(401, f"User not authorised to read from the queue '{name}'")
        elif names:
            raise NotFoundError(f"the queue '{name}' remembers nothing: it has no x-remember")
    return found


def _chronicle_stream(queue: Queue) -> str | None:
    chronicle = remove_tracing(queue.chronicle)
    if isinstance(queue, Stream) or not isinstance(chronicle, StreamChronicle):
        return None
    return chronicle.stream


def _add_unacked(copies: list[_Copies], sessions: list[Session], vhost: Vhost) -> None:
    """Add the messages in flight, by queue."""
    if not copies:
        return
    by_slot = {int(one.queue.slot): one for one in copies}
    for session in sessions:
        for message in [*session.unacked.messages(), *session.undecided()]:
            found = by_slot.get(int(message.queue))
            if found is not None:
                found.unacked.append((int(message.seq), int(message.taken_ms)))
    for one in copies:
        stuck: list[Message] = vhost.stuck.of(one.queue)
        one.stuck.extend(sorted(int(message.seq) for message in stuck))


def _streams(vhost: Vhost) -> list[ChronicleInfo]:
    names = {stream for queue in vhost.queues.values() if (stream := _chronicle_stream(queue))}
    names.update(stream for _, stream in _exchanges(vhost))
    found: list[ChronicleInfo] = []
    for name in sorted(names):
        own = vhost.queues.get(name)
        if isinstance(own, Stream):
            first, end = int(own.first_offset), int(own.writer.next_offset)
            found.append(ChronicleInfo(printable(name), int(own.ledger.id), first, end))
    return found


def _exchanges(vhost: Vhost) -> list[tuple[str, str]]:
    """Return the exchanges that remember, with the streams of their chronicles."""
    found = []
    for name, exchange in vhost.exchanges.items():
        if isinstance(exchange.chronicle, StreamChronicle):
            found.append((name, exchange.chronicle.stream))
    return found


async def _queue_info(copies: _Copies, slices: Slices) -> RememberingQueue:
    queue = copies.queue
    return RememberingQueue(
        name=printable(queue.name),
        id=int(queue.ledger.id),
        stream=printable(copies.stream),
        declared="x-remember" in queue.arguments,
        dead_letter_exchange=_argument(queue, "x-dead-letter-exchange"),
        dead_letter_routing_key=_argument(queue, "x-dead-letter-routing-key"),
        ready=await _runs(copies.ready, slices),
        scheduled=await _runs(array("Q", sorted(copies.scheduled)), slices),
        unacked=_unacked_runs(sorted(copies.unacked)),
        stuck=await _runs(copies.stuck, slices),
        damaged=await _runs(copies.damaged, slices),
    )


def _argument(queue: Queue, name: str) -> str | None:
    field = queue.arguments.get(name)
    return printable(field.value) if field is not None and isinstance(field.value, str) else None


async def _runs(seqs: "array[int]", slices: Slices) -> list[Run]:
    """Merge consecutive numbers into runs, in slices."""
    runs: list[Run] = []
    first = last = -2
    for at in range(0, len(seqs), _STEP):
        for seq in seqs[at : at + _STEP]:
            if seq != last + 1:
                if first >= 0:
                    runs.append((first, last))
                first = seq
            last = seq
        await slices.rest_if_over()
    if first >= 0:
        runs.append((first, last))
    return runs


def _unacked_runs(unacked: list[tuple[int, int]]) -> list[UnackedRun]:
    runs: list[UnackedRun] = []
    for seq, taken_ms in unacked:
        if runs and runs[-1].last == seq - 1 and runs[-1].taken_ms == taken_ms:
            runs[-1].last = seq
        else:
            runs.append(UnackedRun(seq, seq, taken_ms))
    return runs


OPERATIONS: Final = (
    Operation(
        method="GET",
        path="/api/chronicles/{vhost}",
        handler=get_chronicles,
        summary="Return the chronicles of a vhost and the state of each copy, at one moment.",
        group="insight",
        access=Access.ANY_USER,
        query=(Query("queue", "only this queue; may be repeated"),),
        answer=ChroniclesSnapshot,
    ),
)
