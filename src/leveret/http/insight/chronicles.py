"""What remembers in a vhost, and where each of its copies is, all at one moment.

GET   /api/chronicles/{vhost}?queue=&queue=    queues and exchanges that remember, their copies

It is taken in one turn: the ends of the chronicles and the messages of the queues belong together,
so whoever reads the chronicles up to these ends must come to these copies (docs/audit.md). The
answer is sent when the ends are on disk. Copies are runs of numbers, as messages stay where they
are and their bodies are not looked at. Needs the permission *read* on each queue that is named;
where none is named, those that may not be read are left out.
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
from leveret.http.framework.answers import json
from leveret.http.framework.login import facts_of, user_of, vhost_of
from leveret.http.framework.operations import Needs, Operation, Query
from leveret.http.framework.pace import Slices
from leveret.http.framework.queue_access import pace_of
from leveret.http.insight.shapes import printable

COPIES_MAX: Final = 20_000_000  # of one answer: eight bytes of memory each
_STEP: Final = 4096  # numbers between two looks at the clock

Run = tuple[int, int]  # the first and the last number


class ChronicleInfo(msgspec.Struct):
    """A stream of life events."""

    name: str
    id: int  # numbers of publishes begin with it
    first_offset: int
    end_offset: int  # what happened up to this moment is before it


class RememberingExchange(msgspec.Struct):
    """An exchange that remembers."""

    name: str
    stream: str


class Held(msgspec.Struct, array_like=True):
    """Copies in flight that were delivered at the same time."""

    first: int
    last: int
    taken_ms: int


class RememberingQueue(msgspec.Struct):
    """A queue that remembers, and the numbers of its messages by state."""

    name: str
    id: int  # numbers of copies begin with it
    stream: str
    declared: bool  # it was declared with x-remember: it remembers all of its messages
    dead_letter_exchange: str | None  # as it was declared; null also where a policy says it
    dead_letter_routing_key: str | None
    ready: list[Run]
    scheduled: list[Run]
    unacked: list[Held]
    stuck: list[Run]  # dead letters that nobody takes
    damaged: list[Run]  # cannot be read


class Remembering(msgspec.Struct):
    """One moment."""

    time_ms: int
    streams: list[ChronicleInfo]
    exchanges: list[RememberingExchange]
    queues: list[RememberingQueue]


class _Copies:
    """The numbers of one queue's messages, as they were in the turn."""

    def __init__(self, queue: Queue, stream: str) -> None:
        self.queue = queue
        self.stream = stream
        self.ready = plan(queue, True, False)
        self.scheduled = plan(queue, False, True)
        self.unacked: list[tuple[int, int]] = []
        self.damaged: array[int] = array("Q")
        self.stuck: array[int] = array("Q")
        for run in queue.ready.damaged:
            self.damaged.extend(run.seqs[run.at :])

    def count(self) -> int:
        return len(self.ready) + len(self.scheduled)


async def get_chronicles(request: Request) -> Response:
    facts = facts_of(request)
    vhost = facts.broker.vhost(vhost_of(request))
    queues = _queues(request, vhost)
    with facts.turn():
        now_ms = int(vhost.turn.now_ms)
        copies = [_Copies(queue, stream) for queue, stream in queues]
        if sum(one.count() for one in copies) > COPIES_MAX:
            raise HTTPException(400, f"more than {COPIES_MAX} messages: name fewer queues")
        _add_held(copies, facts.sessions(), vhost)
        streams = _streams(vhost)
    await facts.synced()
    slices = Slices(pace_of(request))
    shown = [await _shown(one, slices) for one in copies]
    exchanges = [
        RememberingExchange(printable(name), printable(stream))
        for name, stream in _exchanges(vhost)
    ]
    return json(Remembering(now_ms, streams, exchanges, shown))


def _queues(request: Request, vhost: Vhost) -> list[tuple[Queue, str]]:
    """The queues that are meant, with the streams that they remember in."""
    user = user_of(request)
    names = request.query_params.getlist("queue")
    found = []
    for name in dict.fromkeys(names) if names else list(vhost.queues):
        queue = vhost.queues.get(name)
        if queue is None:
            raise NotFoundError(f"no queue '{name}' in vhost '{vhost.name}'")
        stream = _remembered(queue)
        may_read = user.may(READ, vhost.name, "queue", name)
        if stream is not None and may_read:
            found.append((queue, stream))
        elif names and not may_read:
            raise HTTPException(401, f"User not authorised to read from the queue '{name}'")
        elif names:
            raise NotFoundError(f"the queue '{name}' remembers nothing: it has no x-remember")
    return found


def _remembered(queue: Queue) -> str | None:
    chronicle = remove_tracing(queue.chronicle)
    if isinstance(queue, Stream) or not isinstance(chronicle, StreamChronicle):
        return None
    return chronicle.stream


def _add_held(copies: list[_Copies], sessions: list[Session], vhost: Vhost) -> None:
    """What is in flight, by queue."""
    of = {int(one.queue.slot): one for one in copies}
    for session in sessions:
        for message in [*session.unacked.messages(), *session.undecided()]:
            found = of.get(int(message.queue))
            if found is not None:
                found.unacked.append((int(message.seq), int(message.taken_ms)))
    for one in copies:
        stuck: list[Message] = vhost.stuck.of(one.queue)
        one.stuck.extend(sorted(int(message.seq) for message in stuck))


def _streams(vhost: Vhost) -> list[ChronicleInfo]:
    names = {stream for queue in vhost.queues.values() if (stream := _remembered(queue))}
    names.update(stream for _, stream in _exchanges(vhost))
    found: list[ChronicleInfo] = []
    for name in sorted(names):
        own = vhost.queues.get(name)
        if isinstance(own, Stream):
            first, end = int(own.first_offset), int(own.writer.next_offset)
            found.append(ChronicleInfo(printable(name), int(own.ledger.id), first, end))
    return found


def _exchanges(vhost: Vhost) -> list[tuple[str, str]]:
    """Exchanges that remember, and the streams that they do it in."""
    found = []
    for name, exchange in vhost.exchanges.items():
        if isinstance(exchange.chronicle, StreamChronicle):
            found.append((name, exchange.chronicle.stream))
    return found


async def _shown(copies: _Copies, slices: Slices) -> RememberingQueue:
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
        unacked=_held(sorted(copies.unacked)),
        stuck=await _runs(copies.stuck, slices),
        damaged=await _runs(copies.damaged, slices),
    )


def _argument(queue: Queue, name: str) -> str | None:
    field = queue.arguments.get(name)
    return printable(field.value) if field is not None and isinstance(field.value, str) else None


async def _runs(seqs: "array[int]", slices: Slices) -> list[Run]:
    """Neighbours as runs, some in each slice."""
    runs: list[Run] = []
    first = last = -2
    for at in range(0, len(seqs), _STEP):
        for seq in seqs[at : at + _STEP]:
            if seq != last + 1:
                if first >= 0:
                    runs.append((first, last))
                first = seq
            last = seq
        await slices.maybe_rest()
    if first >= 0:
        runs.append((first, last))
    return runs


def _held(unacked: list[tuple[int, int]]) -> list[Held]:
    runs: list[Held] = []
    for seq, taken_ms in unacked:
        if runs and runs[-1].last == seq - 1 and runs[-1].taken_ms == taken_ms:
            runs[-1].last = seq
        else:
            runs.append(Held(seq, seq, taken_ms))
    return runs


OPERATIONS: Final = (
    Operation(
        method="GET",
        path="/api/chronicles/{vhost}",
        handler=get_chronicles,
        about="What remembers in a vhost, and where each of its copies is, at one moment.",
        group="insight",
        needs=Needs.LOGIN,
        query=(Query("queue", "only this queue; may be given several times"),),
        answer=Remembering,
    ),
)
