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

As many requests run at once as `dest-concurrency` says; with 1 the order is kept.
"""

import asyncio
import json
from collections.abc import Sequence
from typing import Final
from urllib.parse import quote

from leveret.http_client.address import parse_address
from leveret.http_client.async_connections import AsyncConnectionPool
from leveret.http_client.errors import CallError
from leveret.http_client.requests import RequestEncoder
from leveret.shovels.ends import Carrier, Delivery, Target
from leveret.shovels.settings import ShovelSettings
from leveret.wire.properties import Properties, decode_properties
from leveret.wire.tables import plain_table

RETRY_S: Final = (1.0, 60.0)  # the first pause, and the longest
RETRY_AFTER_S_MAX: Final = 3600.0
ANSWER_BYTES_MAX: Final = 65536  # read of an answer; the connection of a longer one is closed

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
        address = parse_address(uri)
        self._encoder = RequestEncoder(address, accept="*/*")
        self._connections = AsyncConnectionPool(
            address,
            settings.http_concurrency,
            body_bytes_max=ANSWER_BYTES_MAX,
            cuts_bodies=True,
        )
        self._slots = asyncio.Semaphore(settings.http_concurrency)
        self._posting: set[asyncio.Task[None]] = set()
        self._carrier: Carrier | None = None

    async def open(self, carrier: Carrier) -> None:
        self._carrier = carrier

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
        request = self._encoder.encode_to_target("POST", bytes(delivery.body), headers)
        pause_s = RETRY_S[0]
        tries = 0
        while True:
            status, after_s = await self._post(request)
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

    async def _post(self, request: bytes) -> tuple[int, float]:
        """Post; return the status, 0 where there is none, and how many seconds to wait at least."""
        try:
            async with asyncio.timeout(self._settings.http_timeout_s):
                answer = await self._connections.ask(request)
        except (CallError, TimeoutError):
            return 0, 0.0
        return answer.status, _seconds(answer.headers.get("retry-after", ""))

    async def close(self) -> None:
        for task in list(self._posting):
            task.cancel()
        if self._posting:
            await asyncio.wait(self._posting)
        self._connections.abort()


def _seconds(text: str) -> float:
    """What Retry-After says, where it says seconds."""
    return min(float(text), RETRY_AFTER_S_MAX) if text.isdecimal() and len(text) < 9 else 0.0


def request_headers(own: dict[str, str], delivery: Delivery) -> dict[str, str]:
    """The headers of the request that carries a message."""
    properties = decode_properties(delivery.header)
    headers = {
        "Content-Type": _safe(properties.content_type or "application/octet-stream"),
        "X-Exchange": _safe(delivery.exchange),
        "X-Routing-Key": _safe(delivery.key),
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
