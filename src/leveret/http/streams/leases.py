"""Messages of a queue in bulk: leased by a reader in epochs, or only read. See docs/spark.md.

GET     /api/queues/{vhost}/{name}/leases                    list the readers
GET     /api/queues/{vhost}/{name}/leases/{reader}           show one reader
DELETE  /api/queues/{vhost}/{name}/leases/{reader}           return unacked messages to the queue
POST    /api/queues/{vhost}/{name}/leases/{reader}/ack       ack all epochs up to one
POST    /api/queues/{vhost}/{name}/leases/{reader}/{epoch}   take messages as an epoch
GET     /api/queues/{vhost}/{name}/leases/{reader}/{epoch}   the messages of an epoch, as Arrow
GET     /api/queues/{vhost}/{name}/numbers                   the numbers of all ready messages
POST    /api/queues/{vhost}/{name}/batches                   messages by number, as Arrow; they stay
"""

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from leveret.arrow.queue_chunks import QueueChunk, make_queue_chunks
from leveret.arrow.requests import Request as Range
from leveret.auth import READ
from leveret.engine.commands.picking import Lookup, plan
from leveret.engine.insight.walk import arrived_ms
from leveret.engine.message import Message
from leveret.engine.queues.queue import Queue
from leveret.engine.streams.stream import Stream
from leveret.http.framework.node import NodeView
from leveret.http.framework.operations import (
    BODY_BYTES_MAX,
    Access,
    Operation,
    Query,
    body_of,
)
from leveret.http.framework.permissions import permitted_queue
from leveret.http.framework.request_parts import node_of, number_of, part_of, user_of
from leveret.http.framework.responses import json_response
from leveret.http.streams.arrow import MEDIA_TYPE, QueueArrowResponse
from leveret.http.streams.streams import columns_of
from leveret.leases import Epoch, ReaderLease
from leveret.leases.reader_leases import EPOCH_BYTES_MAX, EPOCH_MESSAGES_MAX, LeaseBusyError

EPOCH_MAX: Final = (1 << 53) - 1  # the largest integer that every JSON parser reads exactly
MESSAGES_DEFAULT: Final = 100_000  # in an epoch
BYTES_DEFAULT: Final = 64 * 1024 * 1024
_STEP_MESSAGES: Final = 1000  # messages that are read in one turn
_STEP_BYTES: Final = 1024 * 1024
_STEP_NUMBERS: Final = 4096  # numbers that are merged into runs before a yield


class EpochInfo(msgspec.Struct):
    """One epoch of a lease."""

    epoch: int
    messages: int
    bytes: int  # of their bodies
    missing: int  # messages lost by a restart


class LeaseInfo(msgspec.Struct):
    """The epochs that a reader holds."""

    reader: str
    user: str
    acked: int  # the last epoch that is acked
    messages: int
    epochs: list[EpochInfo]


class SettledCount(msgspec.Struct):
    """How many messages were settled."""

    messages: int


class MessageNumbers(msgspec.Struct):
    """Numbers of ready messages in the order of delivery, as runs: first and last number."""

    messages: int
    runs: list[tuple[int, int]]


async def list_leases(request: Request) -> Response:
    queue = permitted_queue(request, READ)
    return json_response([_lease_info(lease) for lease in node_of(request).leases.of(queue)])


async def get_lease(request: Request) -> Response:
    return json_response(_lease_info(_lease_of(request)))


async def end_lease(request: Request) -> Response:
    lease = _lease_of(request)
    with _busy_as_503():
        count = await node_of(request).leases.end(lease.queue, lease.reader)
    return json_response(SettledCount(count))


async def ack_epochs(request: Request) -> Response:
    lease = _lease_of(request)
    upto = number_of(request.query_params, "upto", -1, EPOCH_MAX)
    if upto < 0:
        raise HTTPException(400, "'upto' is the last epoch that is done")
    with _busy_as_503():
        count = await node_of(request).leases.ack(lease.queue, lease.reader, upto)
    return json_response(SettledCount(count))


async def take_epoch(request: Request) -> Response:
    queue = permitted_queue(request, READ)
    query = request.query_params
    with _busy_as_503():
        epoch = await node_of(request).leases.take(
            queue,
            part_of(request, "reader"),
            _epoch_number(request),
            max(number_of(query, "count", MESSAGES_DEFAULT, EPOCH_MESSAGES_MAX), 1),
            max(number_of(query, "max_bytes", BYTES_DEFAULT, EPOCH_BYTES_MAX), 1),
            user_of(request).name,
        )
    return json_response(_epoch_info(epoch))


async def get_epoch(request: Request) -> QueueArrowResponse:
    lease = _lease_of(request)
    number = _epoch_number(request)
    epoch = lease.epochs.get(number)
    if epoch is None:
        word = "is acked" if number <= lease.acked else "has not been taken"
        raise HTTPException(404, f"epoch {number} of lease '{lease.reader}' {word}")
    rows = epoch.rows
    first = number_of(request.query_params, "from", 0, EPOCH_MESSAGES_MAX)
    end = number_of(request.query_params, "to", len(rows), EPOCH_MESSAGES_MAX)
    return _answer(request, lease.queue, _packs(rows[first:end]))


async def get_numbers(request: Request) -> Response:
    queue = _plain_queue(request)
    with node_of(request).turn():
        queue.catch_up()
        seqs = plan(queue, with_ready=True, with_scheduled=False)
    return json_response(MessageNumbers(len(seqs), await merge_into_runs(seqs)))


async def merge_into_runs(seqs: Sequence[int]) -> list[tuple[int, int]]:
    """Merge numbers into runs without a gap. Yield the loop: a queue may have millions."""
    runs: list[tuple[int, int]] = []
    for start in range(0, len(seqs), _STEP_NUMBERS):
        for seq in seqs[start : start + _STEP_NUMBERS]:
            if runs and runs[-1][1] == seq - 1:
                runs[-1] = (runs[-1][0], seq)
            else:
                runs.append((seq, seq))
        await asyncio.sleep(0)
    return runs


async def read_numbers(request: Request) -> QueueArrowResponse:
    queue = _plain_queue(request)
    wanted = await body_of(request, MessageNumbers)
    total = sum(max(last - first + 1, 0) for first, last in wanted.runs)
    if total > EPOCH_MESSAGES_MAX or not all(0 <= first <= last for first, last in wanted.runs):
        raise HTTPException(400, f"'runs' are numbers in pairs, up to {EPOCH_MESSAGES_MAX} of them")
    seqs = [seq for first, last in wanted.runs for seq in range(first, last + 1)]
    return _answer(request, queue, _read_messages(node_of(request), queue, seqs))


def _plain_queue(request: Request) -> Queue:
    queue = permitted_queue(request, READ)
    if isinstance(queue, Stream):
        raise HTTPException(400, f"'{queue.name}' is a stream: ask for /api/streams")
    return queue


def _answer(request: Request, queue: Queue, packs: AsyncIterator[QueueChunk]) -> QueueArrowResponse:
    wanted = Range(queue.name, int(queue.ledger.id), 0, 0, columns_of(request))
    user = user_of(request).identity
    return QueueArrowResponse(node_of(request).bulk_reads, wanted, packs, user)


async def _packs(rows: list[tuple[int, Message]]) -> AsyncIterator[QueueChunk]:
    for pack in make_queue_chunks(rows):
        yield pack
        await asyncio.sleep(0)


async def _read_messages(
    node: NodeView, queue: Queue, seqs: list[int]
) -> AsyncIterator[QueueChunk]:
    """Yield the messages with these numbers that are still ready, some in each turn."""
    at = 0
    while at < len(seqs) and not queue.deleted:
        with node.turn():
            look = Lookup(queue, seqs[at : at + _STEP_MESSAGES], _STEP_BYTES)
            now_ms = int(queue.turn.now_ms)
            found = [one.message for one in look.picked if one.due_ms == 0]
            rows = [(int(arrived_ms(queue, m.seq)) or now_ms, m) for m in found]
            packs = list(make_queue_chunks(rows))
        at += int(look.count)
        for pack in packs:
            yield pack
        await asyncio.sleep(0)


def _lease_of(request: Request) -> ReaderLease:
    queue = permitted_queue(request, READ)
    return node_of(request).leases.get(queue, part_of(request, "reader"))


@contextmanager
def _busy_as_503() -> Iterator[None]:
    """Answer 503 if another request works on the lease: the client tries again."""
    try:
        yield
    except LeaseBusyError as fault:
        raise HTTPException(503, str(fault)) from None


def _epoch_number(request: Request) -> int:
    text = part_of(request, "epoch")
    if not (text.isascii() and text.isdigit()) or len(text) > 16 or not 0 < int(text) <= EPOCH_MAX:
        raise HTTPException(400, f"an epoch is a number from 1 on, not {text!r}")
    return int(text)


def _epoch_info(epoch: Epoch) -> EpochInfo:
    return EpochInfo(epoch.number, len(epoch.rows), epoch.bytes, epoch.missing)


def _lease_info(lease: ReaderLease) -> LeaseInfo:
    epochs = [_epoch_info(epoch) for epoch in lease.epochs.values()]
    held = int(lease.session.unacked.count)
    return LeaseInfo(lease.reader, lease.session.outlet.user_name, lease.acked, held, epochs)


_PATH: Final = "/api/queues/{vhost}/{name}"
_LEASE: Final = f"{_PATH}/leases/{{reader}}"
_COLUMNS: Final = Query("columns", "names of columns, separated by commas")
OPERATIONS: Final = (
    Operation(
        method="GET",
        path=f"{_PATH}/leases",
        handler=list_leases,
        summary="List the readers that hold messages of a queue in epochs.",
        group="leases",
        access=Access.ANY_USER,
        answer=list[LeaseInfo],
    ),
    Operation(
        method="GET",
        path=_LEASE,
        handler=get_lease,
        summary="Return the epochs that a reader holds.",
        group="leases",
        access=Access.ANY_USER,
        answer=LeaseInfo,
    ),
    Operation(
        method="DELETE",
        path=_LEASE,
        handler=end_lease,
        summary="Return unacked messages to the queue, and forget the reader.",
        group="leases",
        access=Access.ANY_USER,
        answer=SettledCount,
    ),
    Operation(
        method="POST",
        path=f"{_LEASE}/ack",
        handler=ack_epochs,
        summary="Ack all epochs up to one.",
        group="leases",
        access=Access.ANY_USER,
        query=(Query("upto", "the last epoch to ack", int, required=True),),
        answer=SettledCount,
        is_audited=False,
    ),
    Operation(
        method="POST",
        path=f"{_LEASE}/{{epoch}}",
        handler=take_epoch,
        summary="Take messages as an epoch; an epoch that exists is unchanged.",
        group="leases",
        access=Access.ANY_USER,
        query=(
            Query("count", "limit of messages", int),
            Query("max_bytes", "approximate limit of the bodies, in bytes", int),
        ),
        answer=EpochInfo,
        is_audited=False,
    ),
    Operation(
        method="GET",
        path=f"{_LEASE}/{{epoch}}",
        handler=get_epoch,
        summary="Return the messages of an epoch as an Arrow IPC stream; the same ones each time.",
        group="leases",
        access=Access.ANY_USER,
        query=(
            Query("from", "the first row, from 0", int),
            Query("to", "the row after the last", int),
            _COLUMNS,
        ),
        media=MEDIA_TYPE,
    ),
    Operation(
        method="GET",
        path=f"{_PATH}/numbers",
        handler=get_numbers,
        summary="Return the numbers of all ready messages, in the order of delivery.",
        group="insight",
        access=Access.ANY_USER,
        answer=MessageNumbers,
    ),
    Operation(
        method="POST",
        path=f"{_PATH}/batches",
        handler=read_numbers,
        summary="Return messages by number as an Arrow IPC stream; they stay in the queue.",
        group="insight",
        access=Access.ANY_USER,
        query=(_COLUMNS,),
        body=MessageNumbers,
        body_bytes_max=BODY_BYTES_MAX,
        media=MEDIA_TYPE,
        is_export=True,
    ),
)
