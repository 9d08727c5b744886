"""Spans of OpenTelemetry for publishing and handling, if the program uses it.

The bus does not depend on OpenTelemetry. A program that has set a tracer provider before the bus
starts gets a span for each publish and for each handled delivery. The header `traceparent` joins
them.
"""

import contextlib
import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

from leveret.bus import codec
from leveret.bus import headers as bus_headers
from leveret.bus.delivery import Delivery
from leveret.bus.handler_result import HandlerResult
from leveret.bus.outgoing_message import PublishOptions
from leveret.bus.topology import Layout

Span = Any  # of OpenTelemetry, which may be missing

_API: Final = "opentelemetry.trace"
_SYSTEM: Final = "rabbitmq"  # the value of the semantic conventions for AMQP 0-9-1


class Spans:
    """Makes spans by one tracer."""

    def __init__(self, tracer: Any) -> None:
        self._tracer = tracer

    @contextlib.contextmanager
    def publishing(
        self, event: object, options: PublishOptions, layout: Layout
    ) -> Iterator[PublishOptions]:
        """Make a span around a publish. Yield the options with its `traceparent`."""
        from opentelemetry.propagate import inject
        from opentelemetry.trace import SpanKind

        destination = layout.exchange or layout.queue
        attributes = {
            "messaging.system": _SYSTEM,
            "messaging.operation.type": "send",
            "messaging.destination.name": destination,
            "leveret.bus.event": codec.name_of(type(event)),
        }
        with self._tracer.start_as_current_span(
            f"send {destination}", kind=SpanKind.PRODUCER, attributes=attributes
        ):
            trace: dict[str, str] = {}
            inject(trace)
            # A program that gives a trace of its own keeps it.
            given = {**trace, **(options.headers or {})}
            yield replace(options, headers=given)

    @contextlib.contextmanager
    def handling(self, delivery: Delivery) -> Iterator[Span]:
        """Make a span around the handler, as a child of the span that published the message."""
        from opentelemetry.propagate import extract
        from opentelemetry.trace import SpanKind

        names = (bus_headers.TRACEPARENT, bus_headers.TRACESTATE)
        found = {name: delivery.headers.get(name) for name in names}
        carrier = {name: value for name, value in found.items() if isinstance(value, str)}
        attributes = {
            "messaging.system": _SYSTEM,
            "messaging.operation.type": "process",
            "messaging.destination.name": delivery.queue,
            "messaging.message.id": delivery.message_id,
            "leveret.bus.event": delivery.type,
            "leveret.bus.retry_count": delivery.retry_count,
        }
        with self._tracer.start_as_current_span(
            f"process {delivery.queue}",
            context=extract(carrier),
            kind=SpanKind.CONSUMER,
            attributes=attributes,
        ) as span:
            yield span


def set_outcome(span: Span, result: HandlerResult) -> None:
    """Note the result of the handler in its span."""
    from opentelemetry.trace import Status, StatusCode

    span.set_attribute("leveret.bus.outcome", str(result.outcome))
    if not result.is_success:
        text = result.error or f"status {result.status_code}"
        span.set_status(Status(StatusCode.ERROR, text))


def maybe_spans() -> Spans | None:
    """Return None if this program has not set up OpenTelemetry."""
    if _API not in sys.modules:
        return None
    from opentelemetry.trace import NoOpTracerProvider, ProxyTracerProvider, get_tracer_provider

    provider = get_tracer_provider()
    if isinstance(provider, NoOpTracerProvider | ProxyTracerProvider):
        return None
    return Spans(provider.get_tracer("leveret.bus"))
