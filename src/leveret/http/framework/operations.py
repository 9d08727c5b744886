"""Operations: all requests that the HTTP front answers, each declared once.

An `Operation` is a method on a path, with the access it requires, the types of its body and its
answer, and a one-line summary. From the declarations come the routes of the application, the check
of every login (no handler can forget it), an audit entry for every request that is not a GET, and
the description at `/api/openapi.json`.

RabbitMQ: tags include others. An administrator may do everything; monitoring and policymaker
include management. An operation that a user's tags do not allow answers 401.
"""

from collections.abc import Awaitable, Callable, Sequence
from enum import StrEnum
from typing import Any, Final, TypeVar

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from leveret.auth import is_loopback
from leveret.errors import LeveretError
from leveret.http.framework.login import login
from leveret.http.framework.request_parts import host_of, node_of
from leveret.http.framework.responses import status_of

BODY_BYTES_MAX: Final = 16 * 1024 * 1024  # limit of a body that is read into memory
WHOLE_BODY: Final = "leveret.body"  # key in a scope: the body, if it was read before

Handler = Callable[[Request], Awaitable[ASGIApp]]
Body = TypeVar("Body")


class Access(StrEnum):
    """The access that an operation requires."""

    PUBLIC = ""  # no login
    ANY_USER = "login"  # any user; the handler checks permissions
    MANAGEMENT = "management"
    POLICYMAKER = "policymaker"
    MONITORING = "monitoring"
    ADMINISTRATOR = "administrator"
    JOB_TOKEN = "jobs"  # a token of the jobs service; the handler checks it
    METRICS = "metrics"  # MONITORING or PUBLIC, by the setting `metrics_login`


# The tags that give each kind of access.
_TAGS: Final = {
    Access.MANAGEMENT: {"management", "policymaker", "monitoring", "administrator"},
    Access.POLICYMAKER: {"policymaker", "administrator"},
    Access.MONITORING: {"monitoring", "administrator"},
    Access.ADMINISTRATOR: {"administrator"},
}
# RabbitMQ: the reason of each refusal.
_REFUSALS: Final = {
    Access.MANAGEMENT: "Not management user",
    Access.POLICYMAKER: "Not policymaker user",
    Access.MONITORING: "Not monitor user",
    Access.ADMINISTRATOR: "Not administrator user",
}


_READ_METHODS: Final = ("GET", "HEAD")
_OTHER_SITES: Final = (
    "cross-site",
    "same-site",
)  # values of `Sec-Fetch-Site`, which only browsers send


class Query(msgspec.Struct, frozen=True):
    """One query parameter."""

    name: str
    description: str
    type: Any = str
    required: bool = False


class Operation(msgspec.Struct, frozen=True, kw_only=True):
    """One method on one path."""

    method: str
    path: str
    handler: Handler
    summary: str  # one sentence
    group: str  # heading in the description, such as "queues"
    access: Access = Access.MANAGEMENT
    query: tuple[Query, ...] = ()
    body: Any = None  # type of the JSON body; None: no body
    body_bytes_max: int = BODY_BYTES_MAX
    answer: Any = None  # type of the JSON answer; None: no body
    media: str = "application/json"  # media type of the answer
    status: int = 200  # on success; 201 means 201 (created) or 204 (changed)
    failures: tuple[tuple[int, Any], ...] = ()  # statuses with a body other than ErrorBody
    failure_media: str = "application/json"  # media type of the failures from 400 on
    is_audited: bool = True  # GETs never are. False for messages, of which there are too many


def routes_of(operations: Sequence[Operation]) -> list[Route]:
    """Return one route for each path, in the order of the operations."""
    return [Route(path, endpoint) for path, endpoint in endpoints_of(operations).items()]


def endpoints_of(operations: Sequence[Operation]) -> dict[str, "Endpoint"]:
    """Return the endpoint of each path, in the order of the operations."""
    by_path: dict[str, dict[str, Operation]] = {}
    for operation in operations:
        methods = by_path.setdefault(operation.path, {})
        assert operation.method not in methods, f"{operation.method} {operation.path} twice"
        methods[operation.method] = operation
    return {path: Endpoint(methods) for path, methods in by_path.items()}


class Endpoint:
    """Answer all methods of one path."""

    def __init__(self, operations: dict[str, Operation]) -> None:
        self._operations = operations
        allowed = [*operations, "OPTIONS", *(["HEAD"] if "GET" in operations else [])]
        self._allow = {"Allow": ", ".join(sorted(allowed))}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive, send)
        response = await self.answer(request)
        await response(scope, receive, send)

    async def answer(self, request: Request) -> ASGIApp:
        """Return the response to a request. Raise errors, which the application answers."""
        if request.method == "OPTIONS":
            return Response(status_code=200, headers=self._allow)
        method = "GET" if request.method == "HEAD" else request.method
        operation = self._operations.get(method)
        if operation is None:
            raise HTTPException(405, "Method Not Allowed", self._allow)
        if method == "GET" or not operation.is_audited:
            await _admit(request, operation)
            return await operation.handler(request)
        return await _answer_change(request, operation)


async def _answer_change(request: Request, operation: Operation) -> ASGIApp:
    """Answer a request that may change something, and write it to the audit."""
    status = 500
    try:
        await _admit(request, operation)
        response = await operation.handler(request)
        status = response.status_code if isinstance(response, Response) else operation.status
        return response
    except (HTTPException, LeveretError) as fault:
        status = status_of(request, fault)
        raise
    finally:
        _audit(request, status)


def _audit(request: Request, status: int) -> None:
    user = getattr(request.state, "user", None)
    if user is not None:  # the authenticator has noted failed logins
        audit = node_of(request).authenticator.audit
        path = request.scope["path"]
        audit.note(user.name, host_of(request), request.method, path, str(status))


async def _admit(request: Request, operation: Operation) -> None:
    """Log in the user and put them into the state of the request, or refuse the request.

    The body is read before the handler begins. Otherwise objects that the handler has checked
    could be deleted while it waits for the body.
    """
    access = operation.access
    if access is Access.METRICS:
        access = _access_to_metrics(request)
    if access is Access.PUBLIC or access is Access.JOB_TOKEN:
        return
    _require_same_origin(request)
    user = await login(request)
    request.state.user = user
    if access is not Access.ANY_USER and not _TAGS[access].intersection(user.tags):
        raise HTTPException(401, _REFUSALS[access])
    if operation.body is not None:
        request.scope[WHOLE_BODY] = await whole_body(request, operation.body_bytes_max)


def _require_same_origin(request: Request) -> None:
    """Refuse changes sent by pages of other sites: browsers add a stored login to them."""
    if (
        request.method not in _READ_METHODS
        and request.headers.get("sec-fetch-site", "none") in _OTHER_SITES
    ):
        raise HTTPException(403, "the request was sent by a page of another site")


def _access_to_metrics(request: Request) -> Access:
    """Return the access to metrics: public if the setting says so, or if the scraper is local."""
    wanted = node_of(request).settings.metrics_login
    if wanted == "never" or (wanted == "remote" and is_loopback(host_of(request))):
        return Access.PUBLIC
    return Access.MONITORING


async def body_of(request: Request, kind: type[Body]) -> Body:
    """Return the JSON body, decoded as its type. Answer 400 with the reason if it does not fit."""
    data = await whole_body(request)
    try:
        return msgspec.json.decode(data or b"{}", type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as fault:
        raise HTTPException(400, str(fault)) from None


async def whole_body(request: Request, bytes_max: int = BODY_BYTES_MAX) -> bytes:
    """Return all bytes of the body. Answer 413 if there are too many."""
    known: bytes | None = request.scope.get(WHOLE_BODY)
    if known is not None and len(known) <= bytes_max:
        return known
    pieces: list[bytes] = []
    size = 0
    async for piece in request.stream():
        size += len(piece)
        if size > bytes_max:
            raise HTTPException(413, f"the body has more than {bytes_max} bytes")
        pieces.append(piece)
    return b"".join(pieces)
