"""The webhook runner: posts every message of a service to a URL, and the answer settles it.

The body of a message is the body of the request. What else it has are headers of the request, by
the names that shovels use too:

    Content-Type                                 content type
    X-Message-Id, X-Type, X-Correlation-Id       properties
    X-Queue, X-Exchange, X-Routing-Key           where it comes from
    X-Attempt                                    1 at the first delivery, 11 at the last one
    X-Header-<name>                              each header; tables and arrays as JSON
    traceparent, tracestate                      as they are, so that a trace goes on

The status of the answer is what a handler of the bus would have returned: 2xx acks, 425 waits and
gives back, all else is tried again later. No answer in time, no connection and no HTTP are an
exception, with the same end. The bus does the counting, the retries and the dead letters.

A failure is one line of the log. Stopping lets requests end that run.
"""

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from leveret.bus.bus import START_TIMEOUT_S, Bus
from leveret.bus.delivery import Delivery
from leveret.bus.health import Health
from leveret.bus.outcome import ConsumerStatus, Handled, handled
from leveret.bus.settings import BusSettings
from leveret.bus.topology import Layout
from leveret.clock import Clock
from leveret.http_post import HttpPoster, PostError, message_header, printable

HEADERS_MAX: Final = 64  # of a message that are sent on; servers take about 100 in all
HEADER_CHARS_MAX: Final = 4096  # of one value; a longer one is left out
TIMEOUT_S: Final = 30.0
_DEFAULT_TYPE: Final = "application/octet-stream"

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Counts:
    """What became of the requests so far."""

    acked: int = 0
    failed: int = 0  # to be tried again, or dead
    early: int = 0  # 425


class Webhook:
    """A bus whose only handler posts."""

    def __init__(
        self,
        broker_url: str,
        layout: Layout,
        target_url: str,
        *,
        concurrency: int = BusSettings.concurrency,
        timeout_s: float = TIMEOUT_S,
        headers: Mapping[str, str] | None = None,  # sent with every request
        clock: Clock | None = None,
    ) -> None:
        self.counts = Counts()
        self._layout = layout
        self._own = dict(headers or {})
        self._clock = clock or Clock()
        self._poster = HttpPoster(target_url, concurrency=concurrency, timeout_s=timeout_s)
        # A bus that stops waits for its handlers: longer than any request takes.
        stop_s = timeout_s + BusSettings.answer_timeout_s
        settings = BusSettings(concurrency=concurrency, stop_deadline_s=stop_s)
        self.bus = Bus(broker_url, layout, settings=settings)
        self.bus.on_message()(self._handle)

    async def start(self, timeout_s: float = START_TIMEOUT_S) -> None:
        """Connects, applies the topology and consumes."""
        await self.bus.start(timeout_s)

    async def stop(self) -> None:
        """Takes nothing more, lets running requests end, and lets go of everything."""
        try:
            await self.bus.stop()
        finally:
            self._poster.close()

    async def health(self) -> Health:
        """Whether the broker lists the consumer."""
        return await self.bus.health()

    async def _handle(self, delivery: Delivery) -> Handled:
        started_ms = self._clock.now_ms()
        try:
            answer = await self._poster.post(
                request_headers(delivery, self._own), bytes(delivery.body)
            )
        except PostError as fault:
            # Not raised: the bus would log it a second time.
            outcome = Handled(ConsumerStatus.DROP, None, f"{type(fault).__name__}: {fault}")
        else:
            outcome = handled(answer.status, self._layout)
        self._count(outcome, delivery, started_ms)
        return outcome

    def _count(self, outcome: Handled, delivery: Delivery, started_ms: int) -> None:
        if outcome.status is ConsumerStatus.ACK:
            self.counts.acked += 1
        elif outcome.status is ConsumerStatus.REQUEUE:
            self.counts.early += 1  # expected, not a failure
        else:
            self.counts.failed += 1
            self._note(outcome, delivery, self._clock.now_ms() - started_ms)

    def _note(self, outcome: Handled, delivery: Delivery, took_ms: int) -> None:
        """The one line of a failure."""
        facts: dict[str, object] = {
            "queue": delivery.queue,
            "message_id": delivery.message_id,
            "attempt": delivery.retry_count + 1,
            "ms": took_ms,
        }
        if outcome.code is not None:
            facts["status"] = outcome.code
        if outcome.error is not None:
            facts["error"] = outcome.error
        log.warning("webhook failed", extra={"facts": facts})


def request_headers(delivery: Delivery, own: Mapping[str, str]) -> dict[str, str]:
    """The headers of the request that carries a message."""
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
    headers.update(own)
    return headers


async def run_until(webhook: Webhook, stop: asyncio.Event) -> None:
    """Runs a started webhook until it is told to stop, then stops it gracefully."""
    try:
        await stop.wait()
    finally:
        await webhook.stop()
