"""Export spans of traced messages to an OpenTelemetry collector (the extra `leveret[otel]`).

For each stay of a traced message in a queue there are two spans, children of the publisher's span:
`<queue> wait` from arrival to delivery, and `<queue> hold` from delivery to settlement. The loop
only keeps times and appends to a bounded list; a thread makes the spans and sends them in batches.
Spans that do not fit or cannot be sent are counted as dropped.
"""

import logging
import secrets
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from leveret import __version__
from leveret.engine.history.life_events import (
    DELIVERED,
    DUE,
    FINAL,
    NACKED,
    QUEUED,
    REJECTED,
    REQUEUED,
    TIMED_OUT,
)
from leveret.engine.history.tracing import TracedEvent, TracedMessages
from leveret.errors import ConfigError

log = logging.getLogger(__name__)

SPANS_MAX: Final = 10_000  # spans that wait to be sent
BATCH: Final = 512
BATCH_WITHIN_S: Final = 1.0
SEND_WITHIN_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class Span:
    """The data of one span."""

    name: str
    parent: bytes
    begin_ms: int
    end_ms: int
    queue: str
    routing_key: str
    number: int
    outcome: str


NOT_SENT: Final = (
    "spans are not sent to otel_endpoint, and those that do not fit in memory are lost: %s"
)
SENT_AGAIN: Final = "spans are sent to %s again"
Export = Callable[[list[Span]], bool]


class SpanExporter:
    """Makes spans from the events of traced messages, and sends them from a thread."""

    def __init__(self, traced_messages: TracedMessages, export: Export) -> None:
        self.exported = 0
        self.fault = ""  # why the last spans were not sent; empty if they were
        self._failed = 0  # spans that could not be sent or did not fit
        self._traced_messages = traced_messages
        self._export = export
        self._since: dict[
            int, tuple[int, bool]
        ] = {}  # message -> begin of the current span, and whether it is a hold
        self._waiting: list[Span] = []
        self._wake = threading.Condition()
        self._is_stopped = False
        self._thread = threading.Thread(
            target=self._send_batches, name="leveret-spans", daemon=True
        )
        self._thread.start()

    @property
    def dropped(self) -> int:
        return self._failed + int(self._traced_messages.missed)

    def flush(self) -> None:
        """Take the events of a turn, at its end."""
        events = self._traced_messages.events
        if events:
            self._traced_messages.events = []
            made = [span for event in events if (span := self._note(event)) is not None]
            if made:
                self._hand_over(made)

    def _note(self, event: TracedEvent) -> Span | None:
        """Return the span that an event ends, or None."""
        number, now_ms = int(event.number), int(event.time_ms)
        before = self._since.pop(number, None)
        if event.event not in FINAL and event.event != DUE:  # due: it goes on under another number
            self._since[number] = (now_ms, event.event == DELIVERED)
        if event.event in (NACKED, REJECTED, TIMED_OUT) and before is not None:
            self._since[number] = before  # another event tells where the message goes
            return None
        if before is None or event.event == QUEUED:
            return None
        begin_ms, is_held = before
        what = "hold" if is_held else "wait"
        if event.event == REQUEUED and not is_held:
            return None
        outcome = f"{event.event}: {event.reason}" if event.reason else event.event
        return Span(
            f"{event.queue} {what}",
            event.parent,
            begin_ms,
            now_ms,
            event.queue,
            event.routing_key,
            number,
            outcome,
        )

    def _hand_over(self, made: list[Span]) -> None:
        with self._wake:
            room = SPANS_MAX - len(self._waiting)
            self._failed += max(0, len(made) - room)
            was_empty = not self._waiting
            self._waiting.extend(made[: max(0, room)])
            if was_empty or len(self._waiting) >= BATCH:
                self._wake.notify()

    def stop(self) -> None:
        """Send the waiting spans, within `SEND_WITHIN_S`."""
        with self._wake:
            self._is_stopped = True
            self._wake.notify()
        self._thread.join(SEND_WITHIN_S)

    def _send_batches(self) -> None:
        while True:
            with self._wake:
                while not self._waiting and not self._is_stopped:
                    self._wake.wait()
                if not self._is_stopped and len(self._waiting) < BATCH:
                    self._wake.wait(BATCH_WITHIN_S)
                batch, self._waiting = self._waiting[:BATCH], self._waiting[BATCH:]
                if not batch and self._is_stopped:
                    return
            self.send(batch)

    def send(self, batch: list[Span]) -> None:
        reason = ""
        try:
            if not self._export(batch):
                reason = "the collector refused them, or does not answer"
        except Exception as fault:
            reason = f"{type(fault).__name__}: {fault}"
        if reason:
            self._failed += len(batch)
        else:
            self.exported += len(batch)
        if bool(reason) != bool(self.fault):
            log.warning(NOT_SENT if reason else SENT_AGAIN, reason or "otel_endpoint")
        self.fault = reason and NOT_SENT % reason


def otlp_exporter(endpoint: str, node: str) -> Export:
    """Return a function that sends spans. Raises ConfigError if the extra is not installed."""
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace.export import SpanExportResult
    except ImportError as fault:
        raise ConfigError(
            "otel_endpoint: spans need the OpenTelemetry SDK, which is not installed: run pip"
            " install 'leveret[otel]'"
        ) from fault
    resource = Resource.create(
        {"service.name": "leveret", "service.instance.id": node, "service.version": __version__}
    )
    exporter = OTLPSpanExporter(endpoint=endpoint, timeout=SEND_WITHIN_S)

    def export(batch: list[Span]) -> bool:
        spans = [_readable(span, resource) for span in batch]
        return exporter.export(spans) is SpanExportResult.SUCCESS

    return export


def _readable(span: Span, resource: Any) -> Any:
    """Return a span in the form of the OpenTelemetry SDK."""
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope
    from opentelemetry.trace import SpanContext, SpanKind, TraceFlags

    trace_id = int(span.parent[3:35], 16)
    flags = TraceFlags(int(span.parent[53:55], 16))
    return ReadableSpan(
        name=span.name,
        context=SpanContext(trace_id, secrets.randbits(64) or 1, False, flags),
        parent=SpanContext(trace_id, int(span.parent[36:52], 16), True, flags),
        resource=resource,
        attributes={
            "messaging.system": "rabbitmq",
            "messaging.destination.name": span.queue,
            "messaging.rabbitmq.destination.routing_key": span.routing_key,
            "leveret.message": str(span.number),
            "leveret.outcome": span.outcome,
        },
        kind=SpanKind.INTERNAL,
        start_time=span.begin_ms * 1_000_000,
        end_time=span.end_ms * 1_000_000,
        instrumentation_scope=InstrumentationScope("leveret", __version__),
    )
