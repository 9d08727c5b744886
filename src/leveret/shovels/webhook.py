"""The target of a shovel that posts messages to an HTTP address.

The body of a message is the body of the request. Properties and headers become request headers:

    Content-Type, Content-Encoding          content_type, content_encoding
    X-Message-Id, X-Correlation-Id, …       the other properties
    X-Exchange, X-Routing-Key, X-Redelivered
    X-Header-<name>                         each header; tables and arrays as JSON
    traceparent, tracestate                 unchanged, so that a trace goes on

    answer                     the message is
    2xx                        acknowledged
    429, 5xx, 3xx, no answer   posted again after 1 s, 2 s, 4 s … 60 s, or after Retry-After
    other 4xx                  rejected: it goes to the dead-letter exchange of its queue

At most `dest-concurrency` requests run at the same time. With 1 the order is kept. `dest-timeout`
is the deadline of a whole request.
"""

import asyncio
import logging
from collections.abc import Sequence
from typing import Final

from leveret.amqp_client.client import Delivery
from leveret.amqp_client.uri import split_address
from leveret.http_post import HttpPoster, PostAnswer, PostError, message_header, printable
from leveret.shovels.interfaces import ShovelListener, ShovelTarget
from leveret.shovels.settings import ShovelSettings
from leveret.shovels.targets import TargetCheck
from leveret.wire.properties import decode_properties
from leveret.wire.tables import plain_table

log = logging.getLogger(__name__)

RETRY_FIRST_S: Final = 1.0
RETRY_LAST_S: Final = 60.0

_PORTS: Final = {"http": 80, "https": 443}
_TOO_MANY_REQUESTS: Final = 429
_NO_ANSWER: Final = PostAnswer(status=0)
_PROPERTY_HEADERS: Final = (
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


class WebhookTarget(ShovelTarget):
    """Posts messages to one address."""

    def __init__(self, settings: ShovelSettings, uri: str, check: TargetCheck) -> None:
        self._settings = settings
        self._check = check
        self._uri = uri
        self._poster: HttpPoster | None = None
        self._slots = asyncio.Semaphore(settings.http_concurrency)
        self._posting: set[asyncio.Task[None]] = set()
        self._listener: ShovelListener | None = None

    async def open(self, listener: ShovelListener) -> None:
        self._listener = listener
        settings = self._settings
        self._poster = HttpPoster(
            self._uri,
            concurrency=settings.http_concurrency,
            timeout_s=settings.http_timeout_s,
            resolve=self._check.resolve,
        )
        async with asyncio.timeout(settings.http_timeout_s):
            await self._check.resolve(*host_of(self._uri))

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
            assert self._listener is not None
            self._listener.on_lost(fault if isinstance(fault, Exception) else Exception(str(fault)))

    async def _deliver(self, delivery: Delivery) -> None:
        assert self._listener is not None
        headers = request_headers(self._settings.http_headers, delivery)
        retries_max = self._settings.http_retries_max
        pause_s = RETRY_FIRST_S
        attempts = 0
        while True:
            answer = await self._post(headers, delivery.body)
            if 200 <= answer.status < 300:
                self._listener.on_accepted(delivery.tag)
                return
            attempts += 1
            is_final = 400 <= answer.status < 500 and answer.status != _TOO_MANY_REQUESTS
            if is_final or (retries_max is not None and attempts > retries_max):
                self._listener.on_refused(delivery.tag, retry=False)
                return
            await asyncio.sleep(max(pause_s, answer.retry_after_s))
            pause_s = min(2 * pause_s, RETRY_LAST_S)

    async def _post(self, headers: dict[str, str], body: bytes) -> PostAnswer:
        assert self._poster is not None
        try:
            return await self._poster.post(headers, body)
        except PostError as fault:
            log.warning("no answer to a post to %s: %s", self._settings.shown_dest_uri, fault)
            return _NO_ANSWER

    def recheck(self) -> None:
        self._check.require()

    async def close(self) -> None:
        for task in list(self._posting):
            task.cancel()
        if self._posting:
            await asyncio.wait(self._posting)
        if self._poster is not None:
            self._poster.close()


def host_of(uri: str) -> tuple[str, int]:
    """Return host and port of an HTTP address that was checked before."""
    parts, port = split_address(uri)
    assert parts.hostname is not None
    return parts.hostname, port or _PORTS[parts.scheme]


def request_headers(configured: dict[str, str], delivery: Delivery) -> dict[str, str]:
    """Return the headers of the request that carries a message."""
    properties = decode_properties(delivery.header)
    headers = {
        "Content-Type": printable(properties.content_type or "application/octet-stream"),
        "X-Exchange": printable(delivery.exchange),
        "X-Routing-Key": printable(delivery.routing_key),
        "X-Redelivered": "true" if delivery.redelivered else "false",
    }
    if properties.content_encoding is not None:
        headers["Content-Encoding"] = printable(properties.content_encoding)
    for header, name in _PROPERTY_HEADERS:
        value = getattr(properties, name)
        if value is not None:
            headers[header] = printable(str(value))
    if properties.headers is not None:
        table = plain_table(properties.headers)
        headers.update(message_header(name, value) for name, value in table.items())
    headers.update(configured)
    return headers
