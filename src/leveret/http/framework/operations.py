"""Operations: all requests that the HTTP front answers, each declared once.

An `Operation` is a method on a path, with the access it requires, the types of its body and its
answer, and a one-line summary. From the declarations come the routes of the application, the check
of every login (no handler can forget it), an audit entry for every request that is not a GET or
that exports data, and the description at `/api/openapi.json`.

RabbitMQ: tags include others. An administrator may do everything; monitoring and policymaker
include management. An operation that a user's tags do not allow answers 401.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from enum import StrEnum
from typing import Any, Final, TypeVar

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from leveret.auth import ADMINISTRATOR, MANAGEMENT_TAGS, User
from leveret.decode_errors import DECODE_ERRORS
from leveret.errors import LeveretError
from leveret.http.framework.body_budget import NO_HOLDER, BodyBudget
from leveret.http.framework.body_faults import plain_fault
from leveret.http.framework.clients import client_of
from leveret.http.framework.login import login
from leveret.http.framework.request_parts import host_of, node_of
from leveret.http.framework.responses import status_of
from leveret.http.framework.sites import require_own_site

# Limits of bodies that are read into memory. JSON of 256 KiB takes up to 50 ms to decode and check,
# and no other client is served meanwhile.
OBJECT_BYTES_MAX: Final = 256 * 1024  # a body that describes an object, or a command
BODY_BYTES_MAX: Final = 16 * 1024 * 1024  # a body with a message, or with many names or numbers
ACTOR: Final = "leveret.actor"  # key in a scope: the identity that the audit notes
BODY_S: Final = 60.0  # time in which a body must arrive; a long body has more time
BODY_BYTES_PER_S: Final = 64 * 1024  # slowest rate at which a long body may arrive
WHOLE_BODY: Final = "leveret.body"  # key in a scope: the body, if it was read before
_HOLDER: Final = "leveret.body_holder"  # key in a scope: the holder of its body in the budget
_COUNTED: Final = "leveret.body_bytes"  # key in a scope: bytes that the budget has counted
_RETRY_SOON: Final = {"Retry-After": "1"}

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
_TAGS: Final[dict[Access, frozenset[str]]] = {
    Access.MANAGEMENT: MANAGEMENT_TAGS,
    Access.POLICYMAKER: frozenset(("policymaker", "administrator")),
    Access.MONITORING: frozenset(("monitoring", "administrator")),
    Access.ADMINISTRATOR: frozenset(("administrator",)),
}
# RabbitMQ: the reason of each refusal.
_REFUSALS: Final = {
    Access.MANAGEMENT: "Not management user",
    Access.POLICYMAKER: "Not policymaker user",
    Access.MONITORING: "Not monitor user",
    Access.ADMINISTRATOR: "Not administrator user",
}


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
    body_bytes_max: int = OBJECT_BYTES_MAX
    answer: Any = None  # type of the JSON answer; None: no body
    media: str = "application/json"  # media type of the answer
    status: int = 200  # on success; 201 means 201 (created) or 204 (changed)
    failures: tuple[tuple[int, Any], ...] = ()  # statuses with a body other than ErrorBody
    failure_media: str = "application/json"  # media type of the failures from 400 on
    is_audited: bool = True  # unless it is a GET; False for messages, which would flood the audit
    is_export: bool = False  # returns secrets or many messages: the audit notes a GET too


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
        try:
            response = await self.answer(request)
            await response(scope, receive, send)
        finally:
            request.app.state.request_shares.give_back(request)

    def maybe_handler(self, method: str) -> Handler | None:
        """Return the handler of a method, if it checks the access itself and is not audited."""
        operation = self._operations.get(method)
        if operation is None or operation.access is not Access.JOB_TOKEN:
            return None
        return None if operation.is_export or operation.is_audited else operation.handler

    async def answer(self, request: Request) -> ASGIApp:
        """Return the response to a request. Raise errors, which the application answers."""
        require_own_site(request)
        if request.method == "OPTIONS":
            return Response(status_code=200, headers=self._allow)
        method = "GET" if request.method == "HEAD" else request.method
        operation = self._operations.get(method)
        if operation is None:
            raise HTTPException(405, "Method Not Allowed", self._allow)
        try:
            if operation.is_export or (method != "GET" and operation.is_audited):
                return await _answer_audited(request, operation)
            await _admit(request, operation)
            return await operation.handler(request)
        finally:
            _budget(request).give_back(request.scope.pop(_COUNTED, 0), _holder(request))


async def _answer_audited(request: Request, operation: Operation) -> ASGIApp:
    """Answer a request that may change something or exports data, and write it to the audit."""
    status = 500
    try:
        await _admit(request, operation)
        response = await operation.handler(request)
        status = response.status_code if isinstance(response, Response) else operation.status
        return response
    except (HTTPException, LeveretError) as fault:
        status = status_of(fault)
        raise
    finally:
        _audit(request, operation, status)


def _audit(request: Request, operation: Operation, status: int) -> None:
    actor: str | None = request.scope.get(ACTOR)
    if actor is None:  # the authenticator has noted the failed login
        return
    audit = node_of(request).authenticator.audit
    note = audit.note_read if operation.is_export else audit.note
    note(actor, host_of(request), request.method, request.scope["path"], str(status))


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
    user = await login(request)
    set_actor(request, user.identity, user)
    _take_user(request, user, access)
    request.app.state.request_shares.take(request, user)
    if operation.body is not None:
        request.scope[WHOLE_BODY] = await whole_body(request, operation.body_bytes_max)
        await require_current_user(request)


def _take_user(request: Request, user: User, access: Access) -> None:
    """Put the user into the state of the request. Answer 401 if the user lacks the tag."""
    request.state.user = user
    request.state.access = access
    if access is not Access.ANY_USER and _TAGS[access].isdisjoint(user.tags):
        raise HTTPException(401, _REFUSALS[access])


async def require_current_user(request: Request) -> None:
    """Log in again if the user was changed or deleted while the request waited for something.

    A slow body may take minutes. A user who is deleted meanwhile must not make another one.
    """
    user: User = request.state.user
    if user.is_stale(node_of(request).now_ms()):
        _take_user(request, await login(request), request.state.access)


def set_actor(request: Request, identity: str, user: User | None) -> None:
    """Note in the scope who sends the request, for the audit and for the budget of bodies."""
    request.scope[ACTOR] = identity
    request.scope[_HOLDER] = body_holder(identity, user)


def body_holder(identity: str, user: User | None) -> str:
    """Return the holder of a body in the budget."""
    return NO_HOLDER if user is not None and ADMINISTRATOR in user.tags else identity


def _holder(request: Request) -> str:
    holder: str = request.scope.get(_HOLDER, NO_HOLDER)
    return holder


def _access_to_metrics(request: Request) -> Access:
    """Return the access to metrics: public if the setting says so, or if the scraper is local."""
    wanted = node_of(request).settings.metrics_login
    if wanted == "never" or (wanted == "remote" and client_of(request).is_local):
        return Access.PUBLIC
    return Access.MONITORING


async def body_of(request: Request, kind: type[Body]) -> Body:
    """Return the JSON body, decoded as its type. Answer 400 with the reason if it does not fit."""
    data = await whole_body(request)
    try:
        return msgspec.json.decode(data or b"{}", type=kind)
    except DECODE_ERRORS as fault:
        raise HTTPException(400, plain_fault(str(fault))) from None


async def whole_body(request: Request, bytes_max: int = BODY_BYTES_MAX) -> bytes:
    """Return all bytes of the body.

    Answer 413 if there are too many, 408 if they are too slow, and 503 if the bodies of all
    requests are too large together.
    """
    known: bytes | None = request.scope.get(WHOLE_BODY)
    if known is not None and len(known) <= bytes_max:
        return known
    try:
        return await _read_body(request, bytes_max)
    except TimeoutError:
        headers = {"Connection": "close"}
        raise HTTPException(408, "the body of the request arrives too slowly", headers) from None


async def _read_body(request: Request, bytes_max: int) -> bytes:
    pieces: list[bytes] = []
    size = 0
    began_s = asyncio.get_running_loop().time()
    async with asyncio.timeout_at(began_s + body_time_s(0)) as deadline:
        async for piece in request.stream():
            size += len(piece)
            if size > bytes_max:
                raise HTTPException(413, f"the body has more than {bytes_max} bytes")
            if not _budget(request).take(len(piece), _holder(request)):
                raise HTTPException(503, "too many request bodies at once; try again", _RETRY_SOON)
            request.scope[_COUNTED] = request.scope.get(_COUNTED, 0) + len(piece)
            pieces.append(piece)
            deadline.reschedule(began_s + body_time_s(size))
    return b"".join(pieces)


def body_time_s(size: int) -> float:
    """Return the time in which this many bytes of a body must arrive."""
    return BODY_S + size / BODY_BYTES_PER_S


def _budget(request: Request) -> BodyBudget:
    budget: BodyBudget = request.app.state.bodies
    return budget
