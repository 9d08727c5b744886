"""Spans of traced messages, and no spans of others."""

import threading
from collections.abc import Iterator

import pytest

from leveret.engine.history.tracing import TracedMessages, sampled_parent
from leveret.runtime.tracing import SPANS_MAX, Span, SpanExporter
from leveret.wire.properties import Properties, encode_header
from leveret.wire.tables import table_of
from tests.protocol.stage import START_MS, Stage
from tests.unit.engine.front import Client

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = f"00-{TRACE}-b7ad6b7169203331-01"


class Collector:
    """Takes spans in place of a collector."""

    def __init__(self) -> None:
        self.spans: list[Span] = []
        self.fails = False
        self.may_go = threading.Event()
        self.may_go.set()

    def export(self, batch: list[Span]) -> bool:
        self.may_go.wait(60)
        if self.fails:
            raise ConnectionError("password=hidden")
        self.spans.extend(batch)
        return True


def traced_client() -> tuple[Client, SpanExporter, Collector]:
    stage = Stage()
    traced_messages = TracedMessages()
    stage.broker.turn.traced_messages = traced_messages
    collector = Collector()
    return Client(stage), SpanExporter(traced_messages, collector.export), collector


def shown(tracer: SpanExporter, collector: Collector) -> list[tuple[str, int, int, str]]:
    tracer.flush()
    tracer.stop()
    spans = collector.spans
    return [(s.name, s.begin_ms - START_MS, s.end_ms - START_MS, s.outcome) for s in spans]


def test_a_message_has_a_span_while_it_waits_and_one_while_it_is_held() -> None:
    client, tracer, collector = traced_client()
    client.queue("q")
    client.publish("q", "a", headers={"traceparent": PARENT})
    client.advance(100)
    client.get("q", no_ack=False)
    client.advance(20)
    client.ack(1)
    assert shown(tracer, collector) == [
        ("q wait", 0, 100, "delivered"),
        ("q hold", 100, 120, "acked"),
    ]
    assert {span.parent for span in collector.spans} == {PARENT.encode()}
    assert (tracer.exported, tracer.dropped) == (2, 0)


def test_a_retry_and_a_dead_letter_are_in_the_same_trace() -> None:
    client, tracer, collector = traced_client()
    client.queue("dead")
    client.queue("q", x_dead_letter_exchange="", x_dead_letter_routing_key="dead")
    client.publish("q", "a", headers={"traceparent": PARENT})
    client.get("q", no_ack=False)
    client.nack(1)
    client.advance(5)
    client.get("q", no_ack=False)
    client.nack(2, requeue=False)
    client.get("dead", no_ack=True)
    assert shown(tracer, collector) == [
        ("q wait", 0, 0, "delivered"),
        ("q hold", 0, 0, "requeued"),
        ("q wait", 0, 5, "delivered"),
        ("q hold", 5, 5, "dead-lettered: rejected"),
        ("dead wait", 5, 5, "delivered"),
        ("dead hold", 5, 5, "acked: automatic"),
    ]
    assert {span.parent for span in collector.spans} == {PARENT.encode()}


def test_scheduled_message_has_a_span_until_it_is_due_and_one_until_it_is_delivered() -> None:
    client, tracer, collector = traced_client()
    client.queue("q", x_delayed=True)
    client.publish("q", "a", headers={"traceparent": PARENT, "x-delay": 1000})
    client.publish("q", "b", headers={"x-delay": 1000})
    client.advance(1000)
    client.advance(5)
    client.get("q", no_ack=True)
    client.get("q", no_ack=True)
    assert shown(tracer, collector) == [
        ("q wait", 0, 1000, "due"),
        ("q wait", 1000, 1005, "delivered"),
        ("q hold", 1005, 1005, "acked: automatic"),
    ]
    assert not tracer._since


def test_a_purge_ends_what_waits() -> None:
    client, tracer, collector = traced_client()
    client.queue("q")
    client.publish("q", "a", "b", headers={"traceparent": PARENT})
    client.send("queue.purge", queue="q")
    assert [outcome for *_, outcome in shown(tracer, collector)] == ["purged", "purged"]


@pytest.mark.parametrize(
    "parent",
    [None, PARENT[:-1] + "0", "00-xyz", PARENT.replace("00-", "ff-"), PARENT.replace("a", "A")],
)
def test_what_is_not_sampled_has_no_span(parent: str | None) -> None:
    client, tracer, collector = traced_client()
    client.queue("q")
    client.publish("q", "a", headers={"traceparent": parent} if parent is not None else {})
    client.get("q")
    assert shown(tracer, collector) == []


def test_a_traceparent_is_found_among_other_headers() -> None:
    properties = Properties()
    properties.headers = table_of({"a": "b", "traceparent": PARENT, "tracestate": "x=y"})
    assert sampled_parent(encode_header(properties, 3)) == PARENT.encode()


def test_spans_that_do_not_fit_or_cannot_be_sent_are_counted() -> None:
    client, tracer, collector = traced_client()
    collector.may_go.clear()
    collector.fails = True
    client.queue("q")
    count = SPANS_MAX // 2 + 1000
    for _ in range(count):
        client.publish("q", "a", headers={"traceparent": PARENT})
        client.get("q")
        tracer.flush()
    assert len(tracer._waiting) <= SPANS_MAX
    assert tracer.dropped > 0
    collector.may_go.set()
    tracer.stop()
    assert (tracer.exported, tracer.dropped) == (0, 2 * count)


def test_spans_that_are_not_sent_are_logged_once_and_shown_until_they_are(
    caplog: pytest.LogCaptureFixture,
) -> None:
    answers: Iterator[bool | Exception] = iter(
        [ConnectionError("refused"), False, ConnectionError("refused"), True]
    )

    def export(batch: list[Span]) -> bool:
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    tracer = SpanExporter(TracedMessages(), export)
    tracer.stop()
    span = Span("q wait", b"", 0, 1, "q", "q", 1, "acked")
    faults = []
    for _ in range(4):
        tracer.send([span])
        faults.append(tracer.fault.rpartition(": ")[2])
    assert faults == ["refused", "the collector refused them, or does not answer", "refused", ""]
    begin, end = [each.message for each in caplog.records]
    assert begin.endswith("lost: ConnectionError: refused")
    assert end == "spans are sent to otel_endpoint again"


def test_a_node_without_tracing_has_nothing_to_pay() -> None:
    client = Client()
    assert client.queue("q").chronicle is None


def test_a_queue_may_remember_and_be_traced() -> None:
    client, tracer, collector = traced_client()
    client.queue("q", x_remember="history")
    client.publish("q", "a", headers={"traceparent": PARENT})
    client.get("q")
    assert [name for name, *_ in shown(tracer, collector)] == ["q wait", "q hold"]
    assert client.stage.broker.vhost("/").queues["history"].message_count() > 0
