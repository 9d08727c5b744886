"""Post messages to an HTTP address, with kept connections and a deadline for each request.

The webhooks of the event bus and the HTTP target of shovels share this module. It also says how
headers of a message are written as headers of a request.

A request runs in a thread (`http.client`). Each thread keeps its connection, and there are as many
threads as requests may run at once. The timeout of a socket starts again with every byte, so a slow
server could hold a request forever. That is why the event loop keeps the deadline: it shuts the
socket down, and the thread wakes up. Redirects are not followed; their status is the answer.

Invariant: within the deadline a request either returns a complete answer or raises `PostError`,
whatever the server does.
"""

import asyncio
import contextlib
import http.client
import json
import socket
import ssl
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, NamedTuple
from urllib.parse import quote, urlsplit

from leveret.errors import ConfigError, LeveretError

ANSWER_BYTES_MAX: Final = 65536  # a connection whose answer is longer is not kept
RETRY_AFTER_S_MAX: Final = 3600.0
SCHEMES: Final = ("http", "https")

# These errors on a kept connection mean that the server closed it before it read the request.
_CLOSED_BY_SERVER: Final = (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError)
_TRACE_HEADERS: Final = ("traceparent", "tracestate")
_SAFE_CHARS: Final = "".join(chr(code) for code in range(0x20, 0x7F) if chr(code) != "%")


class PostError(LeveretError):
    """The request got no answer: no connection, no time left, or the answer is not HTTP."""


class PostAnswer(NamedTuple):
    """The answer to one request."""

    status: int
    retry_after_s: float = 0.0  # of the header Retry-After; 0 without one, or if it is a date


class HttpPoster:
    """Posts to one address, with `concurrency` requests at once at most."""

    def __init__(self, url: str, *, concurrency: int, timeout_s: float) -> None:
        parts = urlsplit(url)
        if parts.scheme not in SCHEMES or not parts.hostname:
            raise ConfigError(f"{url!r} is not an http:// or https:// address")
        self.url = url
        self._host = parts.hostname
        self._port = parts.port
        self._path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        self._context = ssl.create_default_context() if parts.scheme == "https" else None
        self._timeout_s = timeout_s  # for a whole request
        self._pool = ThreadPoolExecutor(concurrency, "webhook")
        self._kept = threading.local()  # the connection of each thread
        self._busy: set[_Connection] = set()  # the thread that uses one closes it
        self._idle: set[_Connection] = set()
        self._is_closed = False

    async def post(self, headers: Mapping[str, str], body: bytes) -> PostAnswer:
        """Post a body and return the answer. Raise PostError if none comes in time."""
        request = _Request(headers, body)
        loop = asyncio.get_running_loop()
        running = loop.run_in_executor(self._pool, self._run, request)
        try:
            async with asyncio.timeout(self._timeout_s):
                return await asyncio.shield(running)
        except TimeoutError:
            request.give_up()
            _ignore_result(running)
            raise PostError(f"no answer within {self._timeout_s:g} s") from None
        except (OSError, http.client.HTTPException) as fault:
            raise PostError(_described(fault)) from fault
        except asyncio.CancelledError:
            request.give_up()
            _ignore_result(running)
            raise

    def _run(self, request: "_Request") -> PostAnswer:
        """In a thread: send the request, a second time if the server had closed the connection."""
        kept: _Connection | None = getattr(self._kept, "connection", None)
        if kept is not None:
            try:
                return self._send(kept, request)
            except _CLOSED_BY_SERVER:
                if request.is_given_up:
                    raise
        return self._send(self._new_connection(), request)

    def _send(self, connection: "_Connection", request: "_Request") -> PostAnswer:
        self._kept.connection = None
        self._busy.add(connection)
        self._idle.discard(connection)
        is_usable = False
        try:
            request.begin(connection)
            connection.request("POST", self._path, request.body, dict(request.headers))
            with connection.getresponse() as answer:
                answer.read(ANSWER_BYTES_MAX)
                is_usable = answer.isclosed() and not answer.will_close
                return PostAnswer(answer.status, _seconds(answer.getheader("Retry-After", "")))
        finally:
            self._busy.discard(connection)
            if is_usable and not request.is_given_up and not self._is_closed:
                self._idle.add(connection)
                self._kept.connection = connection
            else:
                connection.close()

    def _new_connection(self) -> "_Connection":
        if self._context is not None:
            return http.client.HTTPSConnection(
                self._host, self._port, timeout=self._timeout_s, context=self._context
            )
        return http.client.HTTPConnection(self._host, self._port, timeout=self._timeout_s)

    def close(self) -> None:
        """End the running requests and close the connections."""
        self._is_closed = True
        for connection in list(self._busy):
            _shut_down(connection)
        for connection in list(self._idle):
            connection.close()
        self._pool.shutdown(wait=False, cancel_futures=True)


_Connection = http.client.HTTPConnection


class _Request:
    """One request. The event loop can give it up while a thread sends it."""

    def __init__(self, headers: Mapping[str, str], body: bytes) -> None:
        self.headers = headers
        self.body = body
        self.is_given_up = False
        self._connection: _Connection | None = None

    def begin(self, connection: _Connection) -> None:
        self._connection = connection
        if self.is_given_up:
            raise TimeoutError("given up before it began")

    def give_up(self) -> None:
        self.is_given_up = True
        if self._connection is not None:
            _shut_down(self._connection)


def _shut_down(connection: _Connection) -> None:
    """Wake the thread that waits for this connection; the thread closes it."""
    if connection.sock is not None:
        with contextlib.suppress(OSError):
            connection.sock.shutdown(socket.SHUT_RDWR)


def _ignore_result(running: "asyncio.Future[PostAnswer]") -> None:
    """Read the exception of a request that was given up, so that asyncio does not log it."""
    running.add_done_callback(lambda ended: ended.cancelled() or ended.exception())


def _described(fault: BaseException) -> str:
    text = str(fault)
    return f"{type(fault).__name__}: {text}" if text else type(fault).__name__


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
