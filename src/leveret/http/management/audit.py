"""The audit: who did what, and how often logins succeeded and failed."""

from typing import Final

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from leveret.auth.audit import EVENTS_MAX, AuditEvent
from leveret.auth.login_counts import OutcomeCounts
from leveret.errors import NotFoundError
from leveret.http.framework.operations import Access, Operation, Query
from leveret.http.framework.request_parts import node_of, part_of
from leveret.http.framework.responses import json_response

_EVENTS_DEFAULT: Final = 100
_GROUP: Final = "audit"


class LoginCounts(msgspec.Struct):
    """Counts of logins by one protocol."""

    protocol: str
    auth_attempts: int
    auth_attempts_failed: int
    auth_attempts_succeeded: int


class SourceLoginCounts(msgspec.Struct):
    """Counts of logins of one user from one address."""

    remote_address: str
    username: str
    protocol: str
    auth_attempts: int
    auth_attempts_failed: int
    auth_attempts_succeeded: int


async def list_events(request: Request) -> Response:
    text = request.query_params.get("limit", str(_EVENTS_DEFAULT))
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise HTTPException(400, "limit is not a whole number")
    return json_response(node_of(request).authenticator.audit.recent(min(int(text), EVENTS_MAX)))


async def list_login_counts(request: Request) -> Response:
    _require_node(request)
    logins = node_of(request).directory.login_counts
    return json_response(
        [LoginCounts(p, *_numbers(counts)) for p, counts in logins.by_protocol.items()]
    )


async def list_login_counts_by_source(request: Request) -> Response:
    _require_node(request)
    logins = node_of(request).directory.login_counts
    return json_response(
        [
            SourceLoginCounts(host, user, protocol, *_numbers(counts))
            for (host, user, protocol), counts in logins.by_source.items()
        ]
    )


async def reset_login_counts(request: Request) -> Response:
    _require_node(request)
    node_of(request).directory.login_counts.reset()
    return Response(status_code=204)


def _require_node(request: Request) -> None:
    if part_of(request, "node") != node_of(request).node_name:
        raise NotFoundError("no such node")


def _numbers(counts: OutcomeCounts) -> tuple[int, int, int]:
    return counts.failed + counts.succeeded, counts.failed, counts.succeeded


OPERATIONS: Final = (
    Operation(
        method="GET",
        path="/api/audit",
        handler=list_events,
        summary="List logins, refusals and changes, newest first.",
        group=_GROUP,
        access=Access.ADMINISTRATOR,
        query=(Query("limit", f"number of events; default {_EVENTS_DEFAULT}", int),),
        answer=list[AuditEvent],
    ),
    Operation(
        method="GET",
        path="/api/auth/attempts/{node}",
        handler=list_login_counts,
        summary="Count logins that succeeded and failed, by protocol.",
        group=_GROUP,
        access=Access.MONITORING,
        answer=list[LoginCounts],
    ),
    Operation(
        method="DELETE",
        path="/api/auth/attempts/{node}",
        handler=reset_login_counts,
        summary="Reset the counts of logins.",
        group=_GROUP,
        access=Access.ADMINISTRATOR,
        status=204,
    ),
    Operation(
        method="GET",
        path="/api/auth/attempts/{node}/source",
        handler=list_login_counts_by_source,
        summary="Count logins that succeeded and failed, by address and user.",
        group=_GROUP,
        access=Access.MONITORING,
        answer=list[SourceLoginCounts],
    ),
    Operation(
        method="DELETE",
        path="/api/auth/attempts/{node}/source",
        handler=reset_login_counts,
        summary="Reset the counts of logins.",
        group=_GROUP,
        access=Access.ADMINISTRATOR,
        status=204,
    ),
)
