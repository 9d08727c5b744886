"""Post every message of a service to a URL. The HTTP status of the answer settles the message.

The body of a message is the body of the request. Request headers carry the rest, by the names that
shovels use too:

    Content-Type                                 content type
    X-Message-Id, X-Type, X-Correlation-Id       properties
    X-Queue, X-Exchange, X-Routing-Key           where it comes from
    X-Attempt                                    1 at the first delivery, one more at each retry
    X-Header-<name>                              each header; tables and arrays as JSON
    traceparent, tracestate                      unchanged, so that a trace goes on

The status means the same as one that a handler of the bus returns (`outcome_of_status`): 2xx acks,
425 holds and requeues. Every other status, and a request without an answer, is retried; in the
topic topology a 4xx other than 409 and 429 makes the message a dead letter at once.

Each failure is one line in the log. `stop` waits for running requests.
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from leveret.bus.bus import START_TIMEOUT_S, Bus
from leveret.bus.delivery import Delivery
from leveret.bus.handler_result import DeliveryOutcome, HandlerResult, result_of_return
from leveret.bus.health import Health
from leveret.bus.settings import BusSettings
from leveret.bus.topology import Layout
from leveret.clock import Clock
from leveret.http_post import HttpPoster, PostError, message_header, printable

HEADERS_MAX: Final = 64  # of a message that are sent; servers accept about 100 in all
HEADER_CHARS_MAX: Final = 4096  # a longer value is left out
TIMEOUT_S: Final = 30.0
_DEFAULT_TYPE: Final = "application/octet-stream"

log = logging.getLogger(__name__)


@dataclass(slots=True)
class RequestCounts:
    """Results of the requests so far."""

    acked: int = 0
    failed: int = 0  # retried, or moved to the dead letters
    early: int = 0  # 425


class Webhook:
    """A bus with one handler, which posts each message."""

    def __init__(
        self,
        broker_url: str | Sequence[str],
        layout: Layout,
        target_url: str,
        *,
        concurrency: int = BusSettings.concurrency,
        timeout_s: float = TIMEOUT_S,
        headers: Mapping[str, str] | None = None,  # sent with every request
        clock: Clock | None = None,
    ) -> None:
        self.counts = RequestCounts()
        self._layout = layout
        self._headers = dict(headers or {})
        self._clock = clock or Clock()
        self._poster = HttpPoster(target_url, concurrency=concurrency, timeout_s=timeout_s)
        # `stop` waits for the handlers, so the deadline is longer than any request.
        stop_s = timeout_s + BusSettings.answer_timeout_s
        settings = BusSettings(concurrency=concurrency, stop_deadline_s=stop_s)
        self.bus = Bus(broker_url, layout, settings=settings)
        self.bus.on_message()(self._post)

    async def start(self, timeout_s: float = START_TIMEOUT_S) -> None:
        """Connect, declare the topology and consume."""
        await self.bus.start(timeout_s)

    async def stop(self) -> None:
        """Stop consuming, wait for running requests, and close all connections."""
        try:
            await self.bus.stop()
        finally:
            self._poster.close()

    async def health(self) -> Health:
        """Ask the broker whether it lists the consumer."""
        return await self.bus.health()

    async def _post(self, delivery: Delivery) -> HandlerResult:
        started_ms = self._clock.now_ms()
        try:
            answer = await self._poster.post(
                request_headers(delivery, self._headers), bytes(delivery.body)
            )
        except PostError as fault:
            # Returned instead of raised, because the bus would log an exception a second time.
            result = HandlerResult(DeliveryOutcome.RETRY, None, f"{type(fault).__name__}: {fault}")
        else:
            result = result_of_return(answer.status, self._layout)
        self._count(result, delivery, started_ms)
        return result

    def _count(self, result: HandlerResult, delivery: Delivery, started_ms: int) -> None:
        if result.outcome is DeliveryOutcome.ACK:
            self.counts.acked += 1
        elif result.outcome is DeliveryOutcome.REQUEUE:
            self.counts.early += 1  # expected, not a failure
        else:
            self.counts.failed += 1
            self._log_failure(result, delivery, self._clock.now_ms() - started_ms)

    def _log_failure(self, result: HandlerResult, delivery: Delivery, took_ms: int) -> None:
        """Log a failure."""
        facts: dict[str, object] = {
            "queue": delivery.queue,
            "message_id": delivery.message_id,
            "attempt": delivery.retry_count + 1,
            "ms": took_ms,
        }
        if result.status_code is not None:
            facts["status"] = result.status_code
        if result.error is not None:
            facts["error"] = result.error
        log.warning("webhook failed", extra={"facts": facts})


def request_headers(delivery: Delivery, configured: Mapping[str, str]) -> dict[str, str]:
    """Return the headers of the request that carries a message."""
    given = {
        "X-Message-Id": delivery.message_id,
        "X-Type": delivery.type,
        "X-Correlation-Id": delivery.correlation_id,
        "X-Queue": delivery.queue,
        "X-Exchange": delivery.exchange,
        "X-Routing-Key": delivery.routing_key,
    }
    headers = {"Content-Type": printable(delivery.content_type or _DEFAULT_TYPE)}
    headers.update({name: printable(text) for name, text in given.items() if text})
    headers["X-Attempt"] = str(delivery.retry_count + 1)
    headers["X-Redelivered"] = "true" if delivery.is_redelivered else "false"
    for name, value in list(delivery.headers.items())[:HEADERS_MAX]:
        shown, text = message_header(name, value)
        if len(text) <= HEADER_CHARS_MAX:
            headers[shown] = text
    headers.update(configured)
    return headers


async def run_until_stopped(webhook: Webhook, stop: asyncio.Event) -> None:
    """Wait for the event, then stop a started webhook gracefully."""
    try:
        await stop.wait()
    finally:
        await webhook.stop()
