"""The end of a shovel that posts messages to an HTTP address.

The body of a message is the body of the request; properties and headers are headers of it:

    Content-Type, Content-Encoding          content_type, content_encoding
    X-Message-Id, X-Correlation-Id, …       the other properties
    X-Exchange, X-Routing-Key, X-Redelivered
    X-Header-<name>                         each header; tables and arrays as JSON
    traceparent, tracestate                 as they are, so that a trace goes on

    answer                what becomes of the message
    2xx                   acknowledged
    429, 5xx, 3xx, none   tried again: 1 s, 2 s, 4 s … 60 s, or what Retry-After says
    other 4xx             rejected: it goes to the dead-letter exchange of its queue

So many requests run at once as `dest-concurrency` says, in threads; with 1 the order is kept.
"""

import asyncio
import contextlib
import http.client
import json
import socket
import ssl
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final
from urllib.parse import quote, urlsplit

from leveret.amqp_client.client import Delivery
from leveret.shovels.ends import Carrier, Target
from leveret.shovels.settings import ShovelSettings
from leveret.wire.properties import Properties, decode_properties
from leveret.wire.tables import plain_table

RETRY_S: Final = (1.0, 60.0)  # the first pause, and the longest
RETRY_AFTER_S_MAX: Final = 3600.0
ANSWER_BYTES_MAX: Final = 65536  # of an answer that are read so that its connection can be kept

_TOO_MANY: Final = 429
_TEXTS: Final = (
    ("X-Message-Id", "message_id"),
    ("X-Correlation-Id", "correlation_id"),
    ("X-Reply-To", "reply_to"),
    ("X-Type", "type"),
    ("X-App-Id", "app_id"),
    ("X-Expiration", "expiration"),
    ("X-Priority", "priority"),
    ("X-Delivery-Mode", "delivery_mode"),
    ("X-Timestamp", "timestamp"),
)
_TRACE: Final = ("traceparent", "tracestate")


class Webhook(Target):
    """Posts messages."""

    def __init__(self, settings: ShovelSettings, uri: str) -> None:
        self._settings = settings
        parts = urlsplit(uri)
        self._is_secure = parts.scheme == "https"
        self._host = parts.hostname or ""
        self._port = parts.port
        self._path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        self._threads = threading.local()  # each keeps its connection
        self._connections: set[http.client.HTTPConnection] = set()  # of all threads
        self._pool: ThreadPoolExecutor | None = None
        self._slots = asyncio.Semaphore(settings.http_concurrency)
        self._posting: set[asyncio.Task[None]] = set()
        self._carrier: Carrier | None = None
        self._context = ssl.create_default_context() if self._is_secure else None

    async def open(self, carrier: Carrier) -> None:
        self._carrier = carrier
        self._pool = ThreadPoolExecutor(self._settings.http_concurrency, "webhook")

    async def send(self, deliveries: Sequence[Delivery]) -> None:
        loop = asyncio.get_running_loop()
        for delivery in deliveries:
            await self._slots.acquire()
            task = loop.create_task(self._deliver(delivery), name="webhook")
            self._posting.add(task)
            task.add_done_callback(self._on_ended)

    def _on_ended(self, task: asyncio.Task[None]) -> None:
        self._posting.discard(task)
        self._slots.release()
        if not task.cancelled() and (fault := task.exception()) is not None:
            assert self._carrier is not None
            self._carrier.on_lost(fault if isinstance(fault, Exception) else Exception(str(fault)))

    async def _deliver(self, delivery: Delivery) -> None:
        assert self._carrier is not None
        headers = request_headers(self._settings.http_headers, delivery)
        pause_s = RETRY_S[0]
        tries = 0
        while True:
            loop = asyncio.get_running_loop()
            status, after_s = await loop.run_in_executor(
                self._pool, self._post, headers, delivery.body
            )
            if 200 <= status < 300:
                self._carrier.on_done(delivery.tag)
                return
            tries += 1
            most = self._settings.http_retries_max
            is_final = 400 <= status < 500 and status != _TOO_MANY
            if is_final or (most is not None and tries > most):
                self._carrier.on_refused(delivery.tag, again=False)
                return
            await asyncio.sleep(max(pause_s, after_s))
            pause_s = min(2 * pause_s, RETRY_S[1])

    def _post(self, headers: dict[str, str], body: bytes) -> tuple[int, float]:
        """In a thread: post it; the status, 0 where there is none, and seconds to wait at least."""
        connection: http.client.HTTPConnection | None = getattr(self._threads, "kept", None)
        if connection is None:
            connection = self._connection()
            self._connections.add(connection)
        try:
            connection.request("POST", self._path, body, headers)
            answer = connection.getresponse()
            answer.read(ANSWER_BYTES_MAX)
            is_read = answer.isclosed()
        except (OSError, http.client.HTTPException):
            self._hang_up(connection)
            return 0, 0.0
        self._threads.kept = connection
        if not is_read:
            self._hang_up(connection)
        return answer.status, _seconds(answer.getheader("Retry-After", ""))

    def _hang_up(self, connection: http.client.HTTPConnection) -> None:
        self._threads.kept = None
        self._connections.discard(connection)
        connection.close()

    def _connection(self) -> http.client.HTTPConnection:
        timeout_s = self._settings.http_timeout_s
        if self._is_secure:
            return http.client.HTTPSConnection(
                self._host, self._port, timeout=timeout_s, context=self._context
            )
        return http.client.HTTPConnection(self._host, self._port, timeout=timeout_s)

    async def close(self) -> None:
        for task in list(self._posting):
            task.cancel()
        if self._posting:
            await asyncio.wait(self._posting)
        for connection in list(self._connections):
            if connection.sock is not None:  # ends the request that its thread may be waiting for
                with contextlib.suppress(OSError):
                    connection.sock.shutdown(socket.SHUT_RDWR)
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)


def _seconds(text: str) -> float:
    """What Retry-After says, where it says seconds."""
    return min(float(text), RETRY_AFTER_S_MAX) if text.isdecimal() and len(text) < 9 else 0.0


def request_headers(own: dict[str, str], delivery: Delivery) -> dict[str, str]:
    """The headers of the request that carries a message."""
    properties = decode_properties(delivery.header)
    headers = {
        "Content-Type": _safe(properties.content_type or "application/octet-stream"),
        "X-Exchange": _safe(delivery.exchange),
        "X-Routing-Key": _safe(delivery.routing_key),
        "X-Redelivered": "true" if delivery.redelivered else "false",
    }
    if properties.content_encoding is not None:
        headers["Content-Encoding"] = _safe(properties.content_encoding)
    for header, name in _TEXTS:
        value = getattr(properties, name)
        if value is not None:
            headers[header] = _safe(str(value))
    headers.update(_of_table(properties))
    headers.update(own)
    return headers


def _of_table(properties: Properties) -> dict[str, str]:
    found: dict[str, str] = {}
    if properties.headers is None:
        return found
    for name, value in plain_table(properties.headers).items():
        text = value if isinstance(value, str) else json.dumps(value, default=str)
        if name in _TRACE:
            found[name] = _safe(text)
        else:
            found[f"X-Header-{quote(name, safe='')}"] = _safe(text)
    return found


def _safe(text: str) -> str:
    """A text as a header can carry it: what is not printable ASCII is percent-encoded."""
    if text.isascii() and text.isprintable() and "%" not in text:
        return text
    safe = "".join(chr(code) for code in range(0x20, 0x7F) if chr(code) != "%")
    return quote(text, safe=safe, errors="surrogateescape")
