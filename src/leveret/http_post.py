"""Post messages to an HTTP address, with kept connections and a deadline for each request.

The webhooks of the event bus and the HTTP target of shovels share this module. It also says how
headers of a message are written as headers of a request. Redirects are not followed; their status
is the answer.

Invariant: within the deadline a request either returns a complete answer or raises `PostError`,
whatever the server does.
"""

import asyncio
import json
from collections.abc import Mapping
from typing import Any, Final, NamedTuple
from urllib.parse import quote

from leveret.errors import ConfigError, LeveretError
from leveret.http_client.address import parse_address
from leveret.http_client.answers import Answer
from leveret.http_client.async_connections import AsyncConnectionPool, Resolver
from leveret.http_client.errors import CallError, UnreachableError
from leveret.http_client.requests import RequestEncoder

ANSWER_BYTES_MAX: Final = 65536  # a connection whose answer is longer is not kept
RETRY_AFTER_S_MAX: Final = 3600.0
SCHEMES: Final = ("http", "https")

_TRACE_HEADERS: Final = ("traceparent", "tracestate")
_SAFE_CHARS: Final = "".join(chr(code) for code in range(0x20, 0x7F) if chr(code) != "%")


class PostError(LeveretError):
    """The request got no answer: no connection, no time left, or the answer is not HTTP."""


class PostAnswer(NamedTuple):
    """The answer to one request."""

    status: int
    retry_after_s: float = 0.0  # of the header Retry-After; 0 without one, or if it is a date


class HttpPoster:
    """Posts to one address, with `concurrency` requests at once at most.

    A poster belongs to one event loop. `resolve` returns the addresses that it may connect to, and
    its LeveretError passes to the caller of `post`.
    """

    def __init__(
        self, url: str, *, concurrency: int, timeout_s: float, resolve: Resolver | None = None
    ) -> None:
        try:
            if url.lower().partition("://")[0] not in SCHEMES:
                raise ValueError("no scheme")
            address = parse_address(url)
        except ValueError as fault:
            raise ConfigError(f"{url!r} is not an http:// or https:// address") from fault
        self.url = url
        self._timeout_s = timeout_s  # for a whole request
        self._encoder = RequestEncoder(address, accept="*/*")
        self._connections = AsyncConnectionPool(
            address,
            concurrency,
            body_bytes_max=ANSWER_BYTES_MAX,
            cuts_bodies=True,
            resolve=resolve,
        )

    async def post(self, headers: Mapping[str, str], body: bytes) -> PostAnswer:
        """Post a body and return the answer. Raise PostError if none comes in time."""
        request = self._encoder.encode_to_target("POST", body, headers)
        try:
            async with asyncio.timeout(self._timeout_s):
                answer = await self._send(request)
        except TimeoutError:
            raise PostError(f"no answer within {self._timeout_s:g} s") from None
        except CallError as fault:
            raise PostError(str(fault)) from fault
        return PostAnswer(answer.status, _seconds(answer.headers.get("retry-after", "")))

    async def _send(self, request: bytes) -> Answer:
        """Send the request, a second time if the server had closed the kept connection."""
        try:
            return await self._connections.ask(request)
        except UnreachableError as fault:
            if not fault.was_idle:
                raise
        return await self._connections.ask(request, on_new_connection=True)

    def close(self) -> None:
        """Close every connection. Requests that are under way fail."""
        self._connections.abort()


def _seconds(text: str) -> float:
    return min(float(text), RETRY_AFTER_S_MAX) if text.isdecimal() and len(text) < 9 else 0.0


def message_header(name: str, value: Any) -> tuple[str, str]:
    """Return name and text of the request header that carries one header of a message.

    Tables and arrays become JSON. The headers of a trace keep their names, so that it goes on.
    """
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    shown = name if name in _TRACE_HEADERS else f"X-Header-{quote(name, safe='')}"
    return shown, printable(text)


def printable(text: str) -> str:
    """Return a text as a request header can carry it: other characters are percent-encoded."""
    if text.isascii() and text.isprintable() and "%" not in text:
        return text
    return quote(text, safe=_SAFE_CHARS, errors="surrogateescape")
