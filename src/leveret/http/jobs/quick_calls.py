"""Calls of the jobs API that need no task: nothing is awaited between the request and the store.

A quick call answers good requests alone. It declines a request that is bad, refused or needs a
wait, before anything has changed; the usual handler answers that request. Checks, bodies and
answers are those of the usual handlers.
"""

import logging
from collections.abc import Callable
from typing import Final

from starlette.responses import Response

from leveret.errors import LeveretError
from leveret.http.framework.node import NodeView
from leveret.http.jobs.access import INTERNAL_ERROR, Caller, error_response, problem, token_access
from leveret.http.jobs.calls import enqueued_response, new_jobs
from leveret.job_model import Enqueued

# A larger body may hold many jobs. If the store declines them, the body is decoded twice.
BODY_BYTES_MAX: Final = 4_096

log = logging.getLogger(__name__)

Respond = Callable[[Response], None]
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
        respond(enqueued_response(found) if isinstance(found, Enqueued) else _failure(found))

    try:
        is_begun: bool = store.begin_enqueue(jobs, on_done)
    except Exception as fault:
        respond(_failure(fault))
        return True
    return is_begun


def _failure(fault: Exception) -> Response:
    if isinstance(fault, LeveretError):
        return error_response(fault)
    log.error("a request failed", exc_info=fault)
    return problem(500, INTERNAL_ERROR)


QUICK_CALLS: Final[dict[tuple[str, str], QuickCall]] = {("POST", "/enqueue"): enqueue}
