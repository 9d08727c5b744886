"""Posts bodies to one HTTP address: kept connections, and a deadline for the whole of a request.

A request runs in a thread (`http.client`), each thread keeps its connection, and there are as many
threads as requests may run at once. A socket's own timeout starts anew with every byte, so a server
that drips could hold a request forever: the deadline is kept by the loop, which shuts the socket
down under the thread. Redirects are not followed: their status is the answer.

Invariant: a request either gives the status of a complete answer or raises `PostError`, within the
deadline, whatever the server does.
"""

import asyncio
import contextlib
import http.client
import socket
import ssl
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Final
from urllib.parse import urlsplit

from leveret.errors import ConfigError, LeveretError

ANSWER_BYTES_MAX: Final = 65536  # of an answer that are read so that its connection can be kept
SCHEMES: Final = ("http", "https")

# How a server says that it had closed a kept connection before the request came: nothing was read.
_HUNG_UP: Final = (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError)


class PostError(LeveretError):
    """There was no answer: no connection, no time left, or no HTTP."""


class Poster:
    """Posts to one address, so many at once as it has threads."""

    def __init__(self, url: str, *, concurrency: int, timeout_s: float) -> None:
        parts = urlsplit(url)
        if parts.scheme not in SCHEMES or not parts.hostname:
            raise ConfigError(f"{url!r} is not an http:// or https:// address")
        self.url = url
        self._host = parts.hostname
        self._port = parts.port
        self._path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        self._context = ssl.create_default_context() if parts.scheme == "https" else None
        self._timeout_s = timeout_s  # of a whole request
        self._pool = ThreadPoolExecutor(concurrency, "webhook")
        self._kept = threading.local()  # the connection of each thread
        self._busy: set[_Connection] = set()  # of all threads; they close what is in here
        self._idle: set[_Connection] = set()
        self._is_closed = False

    async def post(self, headers: Mapping[str, str], body: bytes) -> int:
        """The status of the answer. PostError where there is none within the deadline."""
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
            raise PostError(_told(fault)) from fault
        except asyncio.CancelledError:
            request.give_up()
            _ignore_result(running)
            raise

    def _run(self, request: "_Request") -> int:
        """In a thread: the request, once more where a kept connection was closed meanwhile."""
        kept: _Connection | None = getattr(self._kept, "connection", None)
        if kept is not None:
            try:
                return self._ask(kept, request)
            except _HUNG_UP:
                if request.is_given_up:
                    raise
        return self._ask(self._connection(), request)

    def _ask(self, connection: "_Connection", request: "_Request") -> int:
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
                return answer.status
        finally:
            self._busy.discard(connection)
            if is_usable and not request.is_given_up and not self._is_closed:
                self._idle.add(connection)
                self._kept.connection = connection
            else:
                connection.close()

    def _connection(self) -> "_Connection":
        if self._context is not None:
            return http.client.HTTPSConnection(
                self._host, self._port, timeout=self._timeout_s, context=self._context
            )
        return http.client.HTTPConnection(self._host, self._port, timeout=self._timeout_s)

    def close(self) -> None:
        """Ends what still runs, and lets the connections go."""
        self._is_closed = True
        for connection in list(self._busy):
            _shut_down(connection)
        for connection in list(self._idle):
            connection.close()
        self._pool.shutdown(wait=False, cancel_futures=True)


_Connection = http.client.HTTPConnection


class _Request:
    """One request, which the loop can give up while a thread is in it."""

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
    """Wakes the thread that waits for this connection; the thread closes it."""
    if connection.sock is not None:
        with contextlib.suppress(OSError):
            connection.sock.shutdown(socket.SHUT_RDWR)


def _ignore_result(running: "asyncio.Future[int]") -> None:
    """Nobody waits any more: what the thread ends with is known already."""
    running.add_done_callback(lambda ended: ended.cancelled() or ended.exception())


def _told(fault: BaseException) -> str:
    text = str(fault)
    return f"{type(fault).__name__}: {text}" if text else type(fault).__name__
