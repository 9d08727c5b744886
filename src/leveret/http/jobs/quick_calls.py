"""Calls of the jobs API that need no task: nothing is awaited between the request and the store.

A quick call answers good requests alone. It declines a request that is bad, refused or needs a
wait, before anything has changed; the usual handler answers that request. It may find out only
later that it has to decline. Checks, bodies and answers are those of the usual handlers.
"""

import logging
from collections.abc import Callable
from typing import Final

from leveret.auth import READ
from leveret.errors import LeveretError
from leveret.http.framework.node import NodeView
from leveret.http.framework.responses import encode_json
from leveret.http.jobs.access import INTERNAL_ERROR, Caller, error_response, problem, token_access
from leveret.http.jobs.bodies import leased_job_info
from leveret.http.jobs.calls import (
    WantedJobs,
    acked_and_leased,
    acked_and_wanted_jobs,
    are_acked_together,
    batch_status,
    new_jobs,
    settled_handles,
    wanted_jobs,
)
from leveret.job_model import Enqueued, Handle
from leveret.job_service.store import AckedAndTaken, Store

# A larger body may hold many jobs. If the store declines them, the body is decoded twice. A store
# that declines no enqueue has no limit.
BODY_BYTES_MAX: Final = 4_096

log = logging.getLogger(__name__)

# The headers of the answer to an enqueue, as `calls.enqueued_response` has them.
_ENQUEUED: Final = b"jobs-known: %d\r\ncontent-length: %d\r\ncontent-type: application/json\r\n"

_TAKEN: Final = b"content-length: %d\r\ncontent-type: application/json\r\n"

Respond = Callable[[int, bytes, bytes], None]  # with the status, the header lines and the body
Decline = Callable[[], None]  # lets the usual handler answer, instead of `Respond`
# Begins a call with a token, a query and a body. Returns False, with nothing changed, to decline.
QuickCall = Callable[[NodeView, str, bytes, bytes, Respond, Decline], bool]


def enqueue(
    node: NodeView, token: str, query: bytes, body: bytes, respond: Respond, _decline: Decline
) -> bool:
    store = node.jobs.maybe_store()
    if store is None or query or (len(body) > BODY_BYTES_MAX and not store.begins_batches):
        return False
    try:
        jobs = new_jobs(Caller(node, store, token_access(node, token)), body)
    except Exception:  # the usual handler answers it
        return False

    def on_done(found: Enqueued | Exception) -> None:
        if isinstance(found, Enqueued):
            ids = encode_json(found.ids)
            respond(200, _ENQUEUED % (found.known or 0, len(ids)), ids)
        else:
            _respond_failure(respond, found)

    try:
        is_begun: bool = store.begin_enqueue(jobs, on_done)
    except Exception as fault:
        _respond_failure(respond, fault)
        return True
    return is_begun


def ack_and_dequeue(
    node: NodeView, token: str, query: bytes, body: bytes, respond: Respond, decline: Decline
) -> bool:
    """Ack jobs of one topic and lease its next ones, if no call has to wait for that."""
    store = node.jobs.maybe_store()
    if store is None or len(body) > BODY_BYTES_MAX:
        return False
    try:
        caller = Caller(node, store, token_access(node, token))
        done, wanted = acked_and_wanted_jobs(caller, body, query)
        handles = settled_handles(caller, done, READ) if done else []
    except Exception:  # the usual handler answers it
        return False
    if not are_acked_together(done, handles, wanted):
        return False

    def shown(found: AckedAndTaken) -> tuple[int, object]:
        acked = [(outcome, 0) for outcome in found.outcomes]
        return batch_status(acked), acked_and_leased(acked, found.jobs)

    return _begin_take(store, wanted, handles, shown, respond, decline)


def dequeue(
    node: NodeView, token: str, query: bytes, body: bytes, respond: Respond, decline: Decline
) -> bool:
    """Lease jobs, if the call does not have to wait for one."""
    store = node.jobs.maybe_store()
    if store is None or body:
        return False
    try:
        wanted = wanted_jobs(Caller(node, store, token_access(node, token)), query)
    except Exception:  # the usual handler answers it
        return False

    def shown(found: AckedAndTaken) -> tuple[int, object]:
        return 200, [leased_job_info(job) for job in found.jobs]

    return _begin_take(store, wanted, [], shown, respond, decline)


def _begin_take(
    store: Store,
    wanted: WantedJobs,
    handles: list[Handle],
    shown: Callable[[AckedAndTaken], tuple[int, object]],
    respond: Respond,
    decline: Decline,
) -> bool:
    """Begin to ack and lease jobs. `shown` returns the status and the body of the answer."""

    def on_done(found: AckedAndTaken | Exception | None) -> None:
        if found is None:
            decline()
        elif isinstance(found, AckedAndTaken):
            status, body = shown(found)
            taken = encode_json(body)
            respond(status, _TAKEN % len(taken), taken)
        else:
            _respond_failure(respond, found)

    try:
        return store.begin_take(
            wanted.namespace,
            wanted.topic,
            handles,
            wanted.limit,
            wanted.lease_ms,
            on_done,
            may_find_none=wanted.wait_ms == 0,
        )
    except Exception as fault:
        _respond_failure(respond, fault)
        return True


def _respond_failure(respond: Respond, fault: Exception) -> None:
    if isinstance(fault, LeveretError):
        response = error_response(fault)
    else:
        log.error("an enqueue failed because of a bug: please report it", exc_info=fault)
        response = problem(500, INTERNAL_ERROR)
    respond(response.status_code, header_lines(response.raw_headers), bytes(response.body))


def header_lines(headers: list[tuple[bytes, bytes]]) -> bytes:
    """Return headers as they are sent."""
    return b"".join([b"%b: %b\r\n" % header for header in headers])


QUICK_CALLS: Final[dict[tuple[str, str], QuickCall]] = {
    ("POST", "/enqueue"): enqueue,
    ("GET", "/dequeue"): dequeue,
    ("POST", "/dequeue"): ack_and_dequeue,
}
