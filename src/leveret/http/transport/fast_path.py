"""A fast path for small, frequent calls: the busy paths of the jobs API.

uvicorn and Starlette cost several times as much as such a call itself. The fast path takes a
request before uvicorn sees it if all of this holds: its path is in the table, its head has arrived
completely, the head is plain HTTP/1.1 without unusual headers, its body has a small known length,
and the body has arrived too or the request has a valid token. It runs the same endpoint with the
same `Request`, and writes the answer in one piece. All other requests, malformed ones included, go
to uvicorn as if there were no fast path.

It handles one request at a time. Bytes that arrive during a call wait, up to a limit.

A quick call (`http/jobs/quick_calls.py`) also does without a task, if the whole request has arrived
with a token and no header that a browser or a proxy adds. The leader of a cluster has none: its
answers wait for a commit.
"""

import asyncio
import logging
import re
import time
from collections.abc import Callable, Mapping
from functools import lru_cache
from http import HTTPStatus
from typing import Any, Final, NamedTuple

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response

from leveret.errors import LeadLostError
from leveret.http.framework.body_budget import BodyBudget
from leveret.http.framework.node import NodeView
from leveret.http.framework.operations import WHOLE_BODY, Endpoint
from leveret.http.framework.request_counts import CLIENT_GONE, RequestCounts
from leveret.http.framework.sites import HOST_CHARS_MAX
from leveret.http.jobs.access import authorization_of, maybe_body_holder
from leveret.http.jobs.quick_calls import QUICK_CALLS, header_lines
from leveret.http.transport.common_headers import CommonHeaders

BODY_BYTES_MAX: Final = 1024 * 1024  # uvicorn passes on a larger body in pieces
HEADERS_MAX: Final = 64
log = logging.getLogger(__name__)
_END_OF_HEAD: Final = b"\r\n\r\n"
_NAME: Final = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_ODD_VALUE: Final = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")
_TARGET: Final = re.compile(rb"[!-~]+")
# Headers that change how the message or the connection works: uvicorn handles them.
_LEFT_TO_UVICORN: Final = frozenset((b"transfer-encoding", b"expect", b"upgrade"))
# A request with any other header may come from a browser or through a proxy.
_PLAIN_HEADERS: Final = frozenset(
    (
        b"accept",
        b"accept-encoding",
        b"authorization",
        b"connection",
        b"content-length",
        b"content-type",
        b"host",
        b"user-agent",
    )
)
_METHODS: Final = (b"GET", b"POST")
_PHRASES: Final = {s.value: f"HTTP/1.1 {s.value} {s.phrase}\r\n".encode() for s in HTTPStatus}

# Clients repeat the same head: a cache keeps the parsed ones.
_CACHE_HEADS: Final = 512
_CACHED_BYTES_MAX: Final = 2_048


class Head(NamedTuple):
    """The parsed head of a request on the fast path."""

    method: str
    path: str
    query: bytes
    headers: list[tuple[bytes, bytes]]
    body_start: int
    body_length: int
    host: str = ""  # the Host header, if the request has a token and plain headers
    token: str = ""  # the token, if the request has plain headers


def maybe_head(data: bytes, paths: Mapping[bytes, object]) -> Head | None:
    """Return the head of a request for the fast path, or None to leave it to uvicorn."""
    end = data.find(_END_OF_HEAD)
    if end < 0:
        return None
    head = _cached_head(data[:end]) if end <= _CACHED_BYTES_MAX else _head(data[:end])
    return head if head is not None and head.path.encode() in paths else None


def _head(data: bytes) -> Head | None:
    line, *rest = data.split(b"\r\n")
    words = line.split(b" ")
    if len(words) != 3 or words[0] not in _METHODS or words[2] != b"HTTP/1.1":
        return None
    if not _TARGET.fullmatch(words[1]) or len(rest) > HEADERS_MAX:
        return None
    headers = _headers(rest)
    if headers is None:
        return None
    length = _length(headers)
    if length is None:
        return None
    path, _, query = words[1].partition(b"?")
    start = len(data) + len(_END_OF_HEAD)
    head = Head(words[0].decode("latin-1"), path.decode(), query, headers, start, length)
    scheme, token = authorization_of(headers)
    if scheme != "bearer" or not {name for name, _ in headers} <= _PLAIN_HEADERS:
        return head
    host = dict(headers)[b"host"][:HOST_CHARS_MAX].decode("latin-1").lower()
    return head._replace(host=host, token=token)


def _headers(lines: list[bytes]) -> list[tuple[bytes, bytes]] | None:
    found = []
    hosts = 0
    for line in lines:
        name, colon, value = line.partition(b":")
        name = name.lower()
        if (
            not colon
            or not _NAME.fullmatch(name)
            or name in _LEFT_TO_UVICORN
            or _ODD_VALUE.search(value)
        ):
            return None
        value = value.strip(b" \t")
        if name == b"connection" and value.lower() != b"keep-alive":
            return None
        hosts += name == b"host"
        found.append((name, value))
    return found if hosts == 1 else None


def _length(headers: list[tuple[bytes, bytes]]) -> int | None:
    given = [value for name, value in headers if name == b"content-length"]
    if not given:
        return 0
    if len(given) > 1 or not given[0].isdigit() or len(given[0]) > 9:
        return None
    length = int(given[0])
    return length if length <= BODY_BYTES_MAX else None


_cached_head: Final = lru_cache(_CACHE_HEADS)(_head)


class FastPath:
    """The endpoints of the fast path, shared by all connections."""

    def __init__(
        self, app: Starlette, endpoints: Mapping[bytes, Endpoint], requests: RequestCounts
    ) -> None:
        self.endpoints = endpoints
        self.bodies: BodyBudget = app.state.bodies
        self._app = app
        self._requests = requests
        self._common_headers = CommonHeaders()

    def maybe_holder(self, head: Head) -> str | None:
        """Return who holds the rest of a body; None if the client may not send it yet."""
        return maybe_body_holder(self._app.state.node, head.headers)

    def begin(
        self,
        head: Head,
        body: bytes,
        send: Callable[[bytes], None],
        answer_by_task: Callable[[], None],
    ) -> bool:
        """Begin a quick call; call `send` with its answer, or `answer_by_task` to decline it late.

        Return False to decline it.
        """
        node: NodeView = self._app.state.node
        call = QUICK_CALLS.get((head.method, head.path))
        if call is None or node.cluster is not None or not self._is_plain(head):
            return False
        began_s = time.perf_counter()

        def respond(status: int, headers: bytes, body: bytes) -> None:
            self._requests.running -= 1
            self._requests.note(head.method, status, time.perf_counter() - began_s)
            send(self._join(status, headers, body))

        def decline() -> None:
            self._requests.running -= 1
            answer_by_task()

        self._requests.running += 1
        is_begun = call(node, head.token, head.query, body, respond, decline)
        if not is_begun:
            self._requests.running -= 1
        return is_begun

    def _is_plain(self, head: Head) -> bool:
        """Return True if a request has a token, and no page of another site can have caused it."""
        return head.token != "" and bool(self._app.state.own_names.is_own(head.host))

    async def answer(
        self, head: Head, scope: dict[str, Any], body: bytes, gone: asyncio.Event
    ) -> bytes | None:
        """Return the bytes of the answer to one request, and count the request.

        Return None if the connection has to be closed without an answer: the node has lost the lead
        of its cluster, and nobody knows whether the change was made.
        """
        began_s = time.perf_counter()
        status = CLIENT_GONE
        self._requests.running += 1
        try:
            response = await self._response(head, scope, body, gone)
            status = response.status_code
        except LeadLostError:
            return None
        finally:
            self._requests.running -= 1
            self._requests.note(scope["method"], status, time.perf_counter() - began_s)
        return self._encode(response)

    async def _response(
        self, head: Head, scope: dict[str, Any], body: bytes, gone: asyncio.Event
    ) -> Response:
        scope["app"] = self._app
        scope[WHOLE_BODY] = body
        request = Request(scope, _Body(body, gone).receive)
        try:
            endpoint = self.endpoints[scope["raw_path"]]
            handler = endpoint.maybe_handler(head.method) if self._is_plain(head) else None
            found = await (handler or endpoint.answer)(request)
            await self._app.state.node.tellable()
        except LeadLostError:
            raise
        except Exception as fault:
            return await self._error_response(request, fault)
        assert isinstance(found, Response), "endpoints of the fast path answer in one piece"
        return found

    async def _error_response(self, request: Request, fault: Exception) -> Response:
        """Answer an error as Starlette does: by the handler of its nearest class."""
        for kind in type(fault).__mro__:
            handler = self._app.exception_handlers.get(kind)
            if handler is not None:
                break
        else:
            raise fault
        if kind is Exception:
            text = "%s %s failed because of a bug: please report it"
            log.error(text, request.method, request.url.path, exc_info=fault)
        response: Response = await handler(request, fault)
        return response

    def _encode(self, response: Response) -> bytes:
        headers = header_lines(response.raw_headers)
        return self._join(response.status_code, headers, bytes(response.body))

    def _join(self, status: int, headers: bytes, body: bytes) -> bytes:
        line = _PHRASES.get(status) or b"HTTP/1.1 %d \r\n" % status
        return b"".join((line, self._common_headers.lines_now(), headers, b"\r\n", body))


class _Body:
    """The body in the form of ASGI: first all of it, then the disconnect of the client."""

    def __init__(self, body: bytes, gone: asyncio.Event) -> None:
        self._body: bytes | None = body
        self._gone = gone

    async def receive(self) -> dict[str, Any]:
        if self._body is not None:
            body, self._body = self._body, None
            return {"type": "http.request", "body": body, "more_body": False}
        await self._gone.wait()
        return {"type": "http.disconnect"}
