"""Explain why a queue or a message does not move.

GET  /api/queues/{vhost}/{name}/explain
GET  /api/queues/{vhost}/{name}/messages/{id}/explain
"""

from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from leveret.auth import READ
from leveret.engine.history.life_events import queue_of_copy, seq_of_copy
from leveret.engine.insight.explain_message import explain_message
from leveret.engine.insight.explain_queue import (
    CLUSTER,
    NOT_FOUND,
    PAUSED,
    Explanation,
    Reason,
    explain_queue,
)
from leveret.engine.insight.explain_queue import UNACKED as UNACKED_REASON
from leveret.engine.insight.filters import UNACKED, Filter
from leveret.engine.insight.walk import FoundMessage, Walk
from leveret.engine.queues.queue import Queue
from leveret.engine.vhosts.pausing import pause_details
from leveret.engine.vhosts.register import Register
from leveret.http.framework.names import printable
from leveret.http.framework.node import NodeView
from leveret.http.framework.operations import Access, Operation
from leveret.http.framework.permissions import permitted_queue, queue_of
from leveret.http.framework.request_parts import node_of, part_of, slices_of
from leveret.http.framework.responses import json_response
from leveret.http.insight.message_info import parse_id
from leveret.leases import ReaderLease

_STEP: Final = 4096


class ReasonInfo(msgspec.Struct):
    """One reason."""

    code: str
    text: str
    details: dict[str, object]


class ExplanationInfo(msgspec.Struct):
    """Answer to an explanation."""

    moving: bool  # of a queue: a ready message would be delivered now; of a message: it would be
    reasons: list[ReasonInfo]


async def explain_one_queue(request: Request) -> Response:
    node = node_of(request)
    queue = queue_of(request)
    with node.turn():  # sets the current time
        found = explain_queue(queue, list(node.alarms()))
    _add_pause_details(found, node.broker.register, queue)
    _add_lease_details(found, node.leases.of(queue))
    _add_cluster_reasons(found, node)
    return json_response(_explanation_info(found))


async def explain_one_message(request: Request) -> Response:
    node = node_of(request)
    queue = permitted_queue(request, READ)
    number = parse_id(part_of(request, "id"))
    if queue_of_copy(number) != queue.ledger.id:
        text = "The message is not of this queue."
        return json_response(
            _explanation_info(Explanation(False, [Reason(NOT_FOUND, text, {"id": str(number)})]))
        )
    seq = seq_of_copy(number)
    unacked = await find_unacked(request, queue, seq)
    with node.turn():
        stuck = node.broker.vhost(queue.vhost).stuck
        if unacked is None:
            found = explain_message(queue, stuck, seq, None, None)
        else:
            found = explain_message(queue, stuck, seq, unacked.message, unacked.session)
    _add_pause_details(found, node.broker.register, queue)
    _add_cluster_reasons(found, node)
    return json_response(_explanation_info(found))


def _add_pause_details(found: Explanation, register: Register, queue: Queue) -> None:
    """Add since when a queue is paused, and by which user."""
    for reason in found.reasons:
        if reason.code == PAUSED:
            reason.details.update(pause_details(register, queue))


def _add_cluster_reasons(found: Explanation, node: NodeView) -> None:
    """Add what the cluster waits for, or which of its nodes is not reached or behind."""
    if node.cluster is not None:
        found.reasons += [Reason(CLUSTER, text, {}) for text in node.cluster.reasons()]


def _add_lease_details(found: Explanation, leases: list[ReaderLease]) -> None:
    """Add which readers hold messages in epochs."""
    shown = [
        {"reader": lease.reader, "messages": int(lease.session.unacked.count)}
        for lease in leases
        if lease.session.unacked.count
    ]
    for reason in found.reasons:
        if reason.code == UNACKED_REASON and shown:
            reason.details["leases"] = shown


async def find_unacked(request: Request, queue: Queue, seq: int) -> FoundMessage | None:
    """Return a message in flight by its number, or None."""
    node = node_of(request)
    wanted = Filter()
    wanted.require_states([UNACKED])
    wanted.require_seq(seq)
    walk = Walk(queue, node.broker.vhost(queue.vhost).stuck, wanted, node.sessions())
    slices = slices_of(request)
    walk.step(_STEP, 1, 1)
    while not walk.is_done() and not walk.is_full():
        await slices.rest_if_over()
        walk.step(_STEP, 1, 1)
    found = walk.take()
    if found and found[0].message.holder is not None:  # it may be settled meanwhile
        return found[0]
    return None


def _explanation_info(found: Explanation) -> ExplanationInfo:
    return ExplanationInfo(
        moving=found.moving,
        reasons=[
            ReasonInfo(reason.code, printable(reason.text), reason.details)
            for reason in found.reasons
        ],
    )


_PATH: Final = "/api/queues/{vhost}/{name}"
OPERATIONS: Final = (
    Operation(
        method="GET",
        path=f"{_PATH}/explain",
        handler=explain_one_queue,
        summary="Explain why the messages of a queue do not move.",
        group="insight",
        answer=ExplanationInfo,
    ),
    Operation(
        method="GET",
        path=f"{_PATH}/messages/{{id}}/explain",
        handler=explain_one_message,
        summary="Explain why one message does not move.",
        group="insight",
        access=Access.ANY_USER,
        answer=ExplanationInfo,
    ),
)
