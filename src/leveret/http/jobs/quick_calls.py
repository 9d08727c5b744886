"""Calls of the jobs API that need no task: nothing is awaited between the request and the store.

A quick call answers good requests alone. It declines a request that is bad, refused or needs a
wait, before anything has changed; the usual handler answers that request. Checks, bodies and
answers are those of the usual handlers.
"""

import logging
from collections.abc import Callable
from typing import Final

from leveret.errors import LeveretError
from leveret.http.framework.node import NodeView
from leveret.http.framework.responses import encode_json
from leveret.http.jobs.access import INTERNAL_ERROR, Caller, error_response, problem, token_access
from leveret.http.jobs.calls import new_jobs
from leveret.job_model import Enqueued

# A larger body may hold many jobs. If the store declines them, the body is decoded twice.
BODY_BYTES_MAX: Final = 4_096

log = logging.getLogger(__name__)

# The headers of the answer to an enqueue, as `calls.enqueued_response` has them.
_ENQUEUED: Final = b"jobs-known: %d\r\ncontent-length: %d\r\ncontent-type: application/json\r\n"

Respond = Callable[[int, bytes, bytes], None]  # with the status, the header lines and the body
# Begins a call with a token and a body. Returns False, with nothing changed, to decline it.
QuickCall = Callable[[NodeView, str, bytes, Respond], bool]


def enqueue(node: NodeView, token: str, body: bytes, respond: Respond) -> bool:
    store = node.jobs.maybe_store()
    if store is None or len(body) > BODY_BYTES_MAX:
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


QUICK_CALLS: Final[dict[tuple[str, str], QuickCall]] = {("POST", "/enqueue"): enqueue}
