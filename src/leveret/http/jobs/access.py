"""Check who may use the jobs service, and refuse by problem documents (RFC 9457).

A call is admitted by a token (`Authorization: Bearer`), which an operator signed for namespaces or
the node signed for a user, or by the login of an administrator. Every operation of the service is
made by `job_operation`, which checks the access and the query first and answers each error as
`application/problem+json`. A handler then calls `Call.require` for each topic that it uses, with
the permissions that AMQP would ask for. Requests that reach no handler (an unknown path, or an
unknown method of a path) are refused by `with_problem_bodies`.
"""

import http
import math
from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from leveret.auth import ADMINISTRATOR, CONFIGURE, MANAGEMENT_TAGS, READ, JobAccess
from leveret.errors import (
    AccessRefusedError,
    EngineError,
    JobsDrainingError,
    JobsError,
    JobsFullError,
    JobsInvalidError,
    JobsRateLimitError,
    JobsUnavailableError,
    LeveretError,
    StorageError,
    TokenRefusedError,
)
from leveret.http.framework.login import login
from leveret.http.framework.node import NodeView
from leveret.http.framework.operations import (
    Access,
    Operation,
    Query,
    body_holder,
    set_actor,
    whole_body,
)
from leveret.http.framework.request_parts import node_of
from leveret.http.jobs.parameters import Parameters, read_parameters
from leveret.job_service.store import Store
from leveret.shortened import shortened
from leveret.slices import Slices

MEDIA: Final = "application/problem+json"
RETRY_AFTER_S: Final = 1  # if nothing else is known
CLIENT_GONE: Final = 499  # the client has disconnected
_CLIENT_GONE_TITLE: Final = "Client Gone"
INTERNAL_ERROR: Final = "internal error; see the log of the node"
_CHALLENGE: Final = 'Bearer realm="jobs"'
_BAD_TOKEN: Final = 'Bearer realm="jobs", error="invalid_token"'

_encode: Final = msgspec.json.Encoder().encode
# Statuses by error class; the first class that matches counts.
_STATUSES: Final[tuple[tuple[type[LeveretError], int], ...]] = (
    (JobsInvalidError, 400),
    (JobsRateLimitError, 429),
    (JobsDrainingError, 503),
    (JobsFullError, 503),
    (JobsUnavailableError, 500),
    (JobsError, 500),
    (TokenRefusedError, 401),
    (StorageError, 503),
    (AccessRefusedError, 403),
    (EngineError, 400),
)


class Problem(msgspec.Struct, omit_defaults=True):
    """Body of every error of the jobs service."""

    type: str
    title: str
    status: int
    detail: str
    item: int | None = None  # index of the job in its batch
    field: str = ""  # the invalid field

    def __post_init__(self) -> None:
        self.detail = shortened(self.detail)
        self.field = shortened(self.field)


REFUSALS: Final = tuple(
    (status, Problem) for status in (400, 401, 403, 404, 405, 413, 429, 500, 503)
)


class CallRefusedError(HTTPException):
    """The call may not use the namespace or the topic of one of its items."""

    def __init__(self, reason: str, field: str, item: int | None) -> None:
        super().__init__(403, reason)
        self.field = field
        self.item = item


class Caller:
    """A client that was admitted, and its rights."""

    def __init__(self, node: NodeView, store: Store, access: JobAccess) -> None:
        self.store = store
        self.access = access
        self._node = node
        self._vhosts = node.broker.vhosts

    def now_ms(self) -> int:
        return self._node.now_ms()

    def require_namespace(self, namespace: str, item: int | None = None) -> None:
        """Answer 403 unless the call may use a namespace."""
        refusal = self.access.namespace_refusal(namespace, self._vhosts)
        if refusal:
            raise CallRefusedError(refusal, "namespace", item)

    def require(
        self, namespace: str, queue: str, *permissions: str, item: int | None = None
    ) -> None:
        """Answer 403 unless the call has the permissions on a queue: a topic or its dead jobs."""
        self.require_namespace(namespace, item)
        for permission in permissions:
            refusal = self.access.topic_refusal(permission, namespace, queue, self._vhosts)
            if refusal:
                raise CallRefusedError(refusal, "topic", item)

    def require_use(
        self, namespace: str, topic: str, permission: str, item: int | None = None
    ) -> None:
        """Answer 403 as `require` does; a call that creates the queue also needs CONFIGURE."""
        self.require(namespace, topic, permission, item=item)
        if self.access.user is not None and self.store.creates_queue(namespace, topic):
            self.require(namespace, topic, CONFIGURE, item=item)

    def may_read(self, namespace: str, queue: str) -> bool:
        """Return True if lists show a topic to the call."""
        vhosts = self._vhosts
        return not (
            self.access.namespace_refusal(namespace, vhosts)
            or self.access.topic_refusal(READ, namespace, queue, vhosts)
        )


class Call(Caller):
    """A request of a client that was admitted."""

    def __init__(
        self, request: Request, parameters: Parameters, store: Store, access: JobAccess
    ) -> None:
        super().__init__(node_of(request), store, access)
        self.request = request
        self.parameters = parameters  # of the query

    async def whole_body(self, bytes_max: int) -> bytes:
        """Return the body. Check the access again if its user has changed meanwhile."""
        data = await whole_body(self.request, bytes_max)
        user = self.access.user
        if user is not None and user.is_stale(self.now_ms()):
            self.access = await _access_of(self.request)
        return data

    def slices(self) -> Slices:
        """Return slices of the event loop for a call that reads many topics or schedules."""
        return Slices(self.request.app.state.loop_share, self.access.identity)


JobHandler = Callable[[Call], Awaitable[Response]]


def job_operation(
    method: str,
    path: str,
    handler: JobHandler,
    summary: str,
    *,
    query: tuple[Query, ...] = (),
    body: Any = None,
    **more: Any,
) -> Operation:
    """Return an operation of the service: its handler is called for an admitted call only."""
    return Operation(
        method=method,
        path=path,
        handler=_with_checks(handler, query, takes_body=body is not None),
        summary=summary,
        group="jobs",
        access=Access.JOB_TOKEN,
        query=query,
        body=body,
        failure_media=MEDIA,
        **{"failures": REFUSALS, "is_audited": False, **more},
    )


def _with_checks(
    handler: JobHandler, query: tuple[Query, ...], *, takes_body: bool
) -> Callable[[Request], Awaitable[Response]]:
    """Wrap a handler: check access and query, and answer errors as problem documents."""
    known = names_of(query)

    async def answer(request: Request) -> Response:
        try:
            access = await _access_of(request)
            set_actor(request, access.identity, access.user)
            parameters = read_parameters(request.scope["query_string"], known)
            if not takes_body and await _has_body(request):
                raise JobsInvalidError("this call takes no body; its parameters are in the query")
            store: Store = await node_of(request).jobs.store()
            return await handler(Call(request, parameters, store, access))
        except CallRefusedError as fault:
            return problem(fault.status_code, fault.detail, fault.item, fault.field)
        except HTTPException as fault:
            return problem(fault.status_code, fault.detail, headers=dict(fault.headers or {}))
        except LeveretError as fault:
            return error_response(fault)

    return answer


async def _has_body(request: Request) -> bool:
    """Return whether a request has a body. One that comes in chunks is read: it may be empty."""
    for name, value in request.scope["headers"]:
        if name == b"content-length":
            return bool(value.strip(b"0 "))
        if name == b"transfer-encoding":
            return bool(await whole_body(request))
    return False


def names_of(query: tuple[Query, ...]) -> tuple[str, ...]:
    return tuple(one.name for one in query)


ErrorHandler = Callable[[Request, Exception], Awaitable[Response]]


def with_problem_bodies(first_parts: frozenset[str], usual: ErrorHandler) -> ErrorHandler:
    """Return an error handler that answers problem documents for paths of the jobs API."""

    async def answer(request: Request, fault: Exception) -> Response:
        if first_part(request.scope["path"]) not in first_parts:
            return await usual(request, fault)
        if isinstance(fault, HTTPException):
            return problem(fault.status_code, fault.detail, headers=dict(fault.headers or {}))
        return problem(500, INTERNAL_ERROR)

    return answer


def first_part(path: str) -> str:
    return path.split("/", 2)[1] if path.startswith("/") else ""


async def _access_of(request: Request) -> JobAccess:
    """Return the access of the client. Answer 401 without a valid token or login."""
    scheme, sent = authorization_of(request.scope["headers"])
    if scheme == "basic":
        user = await login(request)
        if ADMINISTRATOR not in user.tags:
            raise HTTPException(403, "the user must be an administrator")
        return JobAccess(frozenset(), user)
    if scheme != "bearer" or not sent:
        raise HTTPException(401, "a token is needed", {"WWW-Authenticate": _CHALLENGE})
    return token_access(node_of(request), sent)


def token_access(node: NodeView, token: str) -> JobAccess:
    """Return the access that a token gives. Answer 401 or 403 if it gives none."""
    access = node.jobs.access(token)
    if access.user is not None and MANAGEMENT_TAGS.isdisjoint(access.user.tags):
        raise HTTPException(403, "the user has lost the tag that a token needs")
    return access


def maybe_body_holder(node: NodeView, headers: list[tuple[bytes, bytes]]) -> str | None:
    """Return who holds the body of a request with a valid token. The rest of it may be read."""
    scheme, sent = authorization_of(headers)
    if scheme != "bearer":
        return None
    try:
        access = node.jobs.access(sent)
    except LeveretError:
        return None
    return body_holder(access.identity, access.user)


def authorization_of(headers: list[tuple[bytes, bytes]]) -> tuple[str, str]:
    """Return the scheme in lower case and the credentials; both are empty without the header."""
    for name, value in headers:
        if name == b"authorization":
            scheme, _, sent = value.decode("latin-1").partition(" ")
            return scheme.lower(), sent.strip()
    return "", ""


def error_response(fault: LeveretError) -> Response:
    """Return the problem document for an error."""
    status = next((code for kind, code in _STATUSES if isinstance(fault, kind)), 500)
    headers: dict[str, str] = {}
    if status == 401:
        headers["WWW-Authenticate"] = _BAD_TOKEN
    elif isinstance(fault, JobsRateLimitError):
        headers["Retry-After"] = str(max(1, math.ceil(fault.retry_after_s)))
    elif status == 503:
        headers["Retry-After"] = str(RETRY_AFTER_S)
    if isinstance(fault, JobsInvalidError):
        return problem(status, str(fault), fault.item, fault.field, headers)
    if isinstance(fault, JobsUnavailableError):
        return problem(status, fault.public_text, headers=headers)
    return problem(status, str(fault), headers=headers)


def problem(
    status: int,
    detail: str,
    item: int | None = None,
    field: str = "",
    headers: dict[str, str] | None = None,
) -> Response:
    """Return a problem document."""
    title = _CLIENT_GONE_TITLE if status == CLIENT_GONE else http.HTTPStatus(status).phrase
    kind = f"urn:leveret:jobs:{title.lower().replace(' ', '-')}"
    body = Problem(kind, title, status, detail, item, field)
    return Response(_encode(body), status, headers, media_type=MEDIA)
