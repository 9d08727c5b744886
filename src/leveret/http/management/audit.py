"""Who did what, and how often logins failed."""

from typing import Final

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from leveret.auth.attempts import Tally
from leveret.auth.audit import EVENTS_MAX, Event
from leveret.errors import NotFoundError
from leveret.http.framework.answers import json
from leveret.http.framework.operations import Needs, Operation, Query
from leveret.http.framework.request_parts import facts_of, part_of

_EVENTS: Final = 100  # answered where no limit is given
_GROUP: Final = "audit"


class Attempts(msgspec.Struct):
    """Logins by a protocol."""

    protocol: str
    auth_attempts: int
    auth_attempts_failed: int
    auth_attempts_succeeded: int


class SourceAttempts(msgspec.Struct):
    """Logins of a user from an address."""

    remote_address: str
    username: str
    protocol: str
    auth_attempts: int
    auth_attempts_failed: int
    auth_attempts_succeeded: int


async def list_events(request: Request) -> Response:
    text = request.query_params.get("limit", str(_EVENTS))
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise HTTPException(400, "limit is not a whole number")
    return json(facts_of(request).authority.audit.recent(min(int(text), EVENTS_MAX)))


async def list_attempts(request: Request) -> Response:
    _require_node(request)
    attempts = facts_of(request).directory.attempts
    return json([Attempts(p, *_numbers(tally)) for p, tally in attempts.by_protocol.items()])


async def list_attempts_by_source(request: Request) -> Response:
    _require_node(request)
    attempts = facts_of(request).directory.attempts
    return json(
        [
            SourceAttempts(host, user, protocol, *_numbers(tally))
            for (host, user, protocol), tally in attempts.by_source.items()
        ]
    )


async def delete_attempts(request: Request) -> Response:
    _require_node(request)
    facts_of(request).directory.attempts.reset()
    return Response(status_code=204)


def _require_node(request: Request) -> None:
    if part_of(request, "node") != facts_of(request).node_name:
        raise NotFoundError("no such node")


def _numbers(tally: Tally) -> tuple[int, int, int]:
    return tally.failed + tally.succeeded, tally.failed, tally.succeeded


OPERATIONS: Final = (
    Operation(
        method="GET",
        path="/api/audit",
        handler=list_events,
        about="Who did what: logins, refusals and changes, the newest first.",
        group=_GROUP,
        needs=Needs.ADMINISTRATOR,
        query=(Query("limit", f"events to answer, {_EVENTS} by default", int),),
        answer=list[Event],
    ),
    Operation(
        method="GET",
        path="/api/auth/attempts/{node}",
        handler=list_attempts,
        about="How often logins succeeded and failed, by protocol.",
        group=_GROUP,
        needs=Needs.MONITORING,
        answer=list[Attempts],
    ),
    Operation(
        method="DELETE",
        path="/api/auth/attempts/{node}",
        handler=delete_attempts,
        about="Begin to count logins anew.",
        group=_GROUP,
        needs=Needs.ADMINISTRATOR,
        status=204,
    ),
    Operation(
        method="GET",
        path="/api/auth/attempts/{node}/source",
        handler=list_attempts_by_source,
        about="How often logins succeeded and failed, by address and user.",
        group=_GROUP,
        needs=Needs.MONITORING,
        answer=list[SourceAttempts],
    ),
    Operation(
        method="DELETE",
        path="/api/auth/attempts/{node}/source",
        handler=delete_attempts,
        about="Begin to count logins anew.",
        group=_GROUP,
        needs=Needs.ADMINISTRATOR,
        status=204,
    ),
)
