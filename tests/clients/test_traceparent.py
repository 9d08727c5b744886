"""The trace of a message goes with it: through dead-lettering, delays and parking, and to OTLP."""

import http.server
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pika
import pytest

from leveret.testing.broker import RunningBroker, broker

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
HEADERS = {"traceparent": f"00-{TRACE}-00f067aa0ba902b7-01", "tracestate": "vendor=1,other=2"}


@contextmanager
def channel_of(
    server: RunningBroker,
) -> Iterator[pika.adapters.blocking_connection.BlockingChannel]:
    connection = pika.BlockingConnection(pika.URLParameters(server.url))
    yield connection.channel()
    connection.close()


def published(channel: object, queue: str, **more: object) -> None:
    properties = pika.BasicProperties(headers={**HEADERS, **more})
    channel.basic_publish("", queue, b"body", properties)  # type: ignore[attr-defined]


def trace_of(channel: object, queue: str) -> dict[str, object]:
    for _, properties, _ in channel.consume(queue, inactivity_timeout=60):  # type: ignore[attr-defined]
        assert properties is not None, "nothing came"
        channel.cancel()  # type: ignore[attr-defined]
        return {name: properties.headers[name] for name in HEADERS}
    raise AssertionError("nothing came")


def test_through_two_dead_letterings() -> None:
    with broker() as server, channel_of(server) as channel:
        channel.queue_declare("last")
        for name, then in (("first", "second"), ("second", "last")):
            arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": then}
            channel.queue_declare(name, arguments={**arguments, "x-message-ttl": 1})
        published(channel, "first")
        assert trace_of(channel, "last") == HEADERS


def test_through_a_delay() -> None:
    with broker() as server, channel_of(server) as channel:
        channel.queue_declare("q", arguments={"x-delayed": True})
        published(channel, "q", **{"x-delay": 20})
        assert trace_of(channel, "q") == HEADERS


def test_into_the_parking_queue() -> None:
    with broker() as server, channel_of(server) as channel:
        channel.queue_declare("q", arguments={"x-delivery-limit": 0})
        published(channel, "q")
        for method, _, _ in channel.consume("q", inactivity_timeout=60):
            channel.basic_reject(method.delivery_tag, requeue=True)
            break
        channel.cancel()
        assert trace_of(channel, "leveret.parked") == HEADERS


class _Collector(http.server.BaseHTTPRequestHandler):
    """Keeps the bodies of requests."""

    bodies: list[bytes]
    has_come: threading.Event

    def do_POST(self) -> None:
        self.bodies.append(self.rfile.read(int(self.headers["content-length"])))
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()
        self.has_come.set()

    def log_message(self, format: str, *arguments: object) -> None:
        """Says nothing."""


def test_spans_reach_a_collector_with_the_trace_of_the_publisher() -> None:
    proto = pytest.importorskip("opentelemetry.proto.collector.trace.v1.trace_service_pb2")
    _Collector.bodies, _Collector.has_come = [], threading.Event()
    with http.server.HTTPServer(("127.0.0.1", 0), _Collector) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        endpoint = f"http://127.0.0.1:{server.server_port}/v1/traces"
        with broker(otel_endpoint=endpoint) as running, channel_of(running) as channel:
            channel.queue_declare("q")
            published(channel, "q")
            assert trace_of(channel, "q") == HEADERS
            channel.queue_purge("q")
            assert _Collector.has_come.wait(60)
        server.shutdown()
        thread.join()
    found = []
    for body in _Collector.bodies:
        request = proto.ExportTraceServiceRequest()
        request.ParseFromString(body)
        for resource in request.resource_spans:
            found += [span for scope in resource.scope_spans for span in scope.spans]
    assert {span.name for span in found} >= {"q wait"}
    assert {span.trace_id.hex() for span in found} == {TRACE}
    assert {span.parent_span_id.hex() for span in found} == {"00f067aa0ba902b7"}
