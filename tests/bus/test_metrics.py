"""The health port of every bus, its metrics, and spans of OpenTelemetry."""

from __future__ import annotations

import asyncio
import json
import urllib.error
import urllib.request
from dataclasses import replace
from typing import Any, Final

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client.parser import text_string_to_metric_families

from leveret.bus import Bus, Delivery, PublishOptions, RetryPolicy, UnroutableError, fanout, topic
from leveret.bus.handler_result import Action
from leveret.bus.metrics import OTHER, BusMetrics
from tests.bus.nodes import Node
from tests.bus.stage import FAST, WAIT_S, Placed, Seen, pytestmark_bus
from tests.proxy import proxy

pytestmark = pytestmark_bus
WITHIN_S: Final = 60.0


def samples(text: str) -> dict[str, float]:
    """Read metrics as Prometheus does: name and labels, without the service, to value."""
    found = {}
    for family in text_string_to_metric_families(text):
        for each in family.samples:
            labels = {name: value for name, value in each.labels.items() if name != "service"}
            words = ",".join(f"{name}={value}" for name, value in sorted(labels.items()))
            found[f"{each.name.removeprefix('leveret_bus_')}{{{words}}}"] = each.value
    return found


def test_metrics_are_read_by_prometheus() -> None:
    metrics = BusMetrics('a"b\\c\n')
    for took_s in (0.001, 0.2, 1_000.0):
        metrics.on_handled("Placed", Action.ACK, took_s)
    metrics.on_handled(OTHER, Action.WAIT, 0.0)
    metrics.confirmed = 3
    text = metrics.text(running=2, sessions={"consumer": (True, 5)})
    assert 'service="a\\"b\\\\c\\n"' in text
    found = samples(text)
    assert found["published_total{outcome=confirmed}"] == 3
    assert found["handled_total{event=Placed,outcome=acked}"] == 3
    assert found["handled_total{event=other,outcome=early}"] == 1
    assert found["handler_seconds_bucket{event=Placed,le=0.005}"] == 1
    assert found["handler_seconds_bucket{event=Placed,le=0.25}"] == 2
    assert found["handler_seconds_bucket{event=Placed,le=600}"] == 2
    assert found["handler_seconds_bucket{event=Placed,le=+Inf}"] == 3
    assert found["handlers_running{}"] == 2
    assert found["connected{connection=consumer}"] == 1
    assert found["sessions_total{connection=consumer}"] == 5


def get(port: int | None, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=WITHIN_S) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as refused:
        with refused:
            return refused.code, refused.read().decode()


async def ask(bus: Bus, path: str = "/health") -> tuple[int, Any]:
    status, text = await asyncio.to_thread(get, bus.health_port, path)
    return status, text if path == "/metrics" else json.loads(text)


async def test_a_consumer_answers_on_its_health_port(node: Node, prefix: str) -> None:
    layout = topic.layout(f"{prefix}.events", retry_delay_s=0.01, retries_max=1)
    bus = Bus(node.url, layout, settings=FAST, health_port=0)
    seen: Seen[str] = Seen()

    @bus.on(Placed, retry=RetryPolicy(1, (0.01,)))
    async def handle(event: Placed, delivery: Delivery) -> int:
        await seen.add(f"{event.number}.{delivery.retry_count}")
        return 500 if event.number else 200

    async with bus:
        status, health = await ask(bus)
        assert (status, health["is_consuming"], health["is_healthy"]) == (200, True, True)
        assert health["queue"] == f"{prefix}.events"
        for number in range(2):
            await bus.publish(Placed(number))
        with pytest.raises(UnroutableError):
            await bus.publish(Placed(2), routing_key=f"{prefix}.nowhere")
        await seen.wait(3)
        async with asyncio.timeout(WITHIN_S):
            while True:  # the dead letter is confirmed after the handler has answered
                status, text = await ask(bus, "/metrics")
                found = samples(text)
                if found["published_total{outcome=confirmed}"] == 3:
                    break
    assert status == 200
    assert found["handled_total{event=Placed,outcome=acked}"] == 1
    assert found["handled_total{event=Placed,outcome=retried}"] == 1
    assert found["handled_total{event=Placed,outcome=dead_lettered}"] == 1
    assert found["handler_seconds_count{event=Placed}"] == 3
    assert found["published_total{outcome=failed}"] == 1
    assert found["connected{connection=publisher}"] == 1
    assert bus.health_port is None, "the port is closed"


async def test_a_publish_counts_as_failed_when_it_has_ended(
    leveret_node: Node, prefix: str
) -> None:
    async with proxy(leveret_node.port) as line:
        layout = fanout.layout(f"{prefix}-a")
        async with Bus(line.url, layout, settings=FAST, health_port=0) as bus:
            line.silence()
            async with asyncio.TaskGroup() as group:
                publish = group.create_task(bus.publish(Placed(1)))
                _, text = await ask(bus, "/metrics")
                assert samples(text)["published_total{outcome=failed}"] == 0, "counters never fall"
                publish.cancel()
            _, text = await ask(bus, "/metrics")
            assert samples(text)["published_total{outcome=failed}"] == 1


async def test_a_publisher_answers_on_its_health_port(node: Node, prefix: str) -> None:
    settings = replace(FAST, answer_timeout_s=1.0)  # of the silent line below
    async with proxy(node.port) as line:
        layout = fanout.layout(f"{prefix}-a")
        async with Bus(line.url, layout, settings=settings, health_port=0) as bus:
            async with asyncio.timeout(WAIT_S):
                while (found := await ask(bus))[0] != 200:
                    pass  # a busy broker may need more than the second that `settings` give it
            assert (found[1]["is_healthy"], found[1]["is_consuming"]) == (True, False)
            line.silence()
            status, health = await ask(bus)
            assert (status, health["is_publishing"]) == (503, False)


async def test_a_port_that_is_taken_is_told_and_the_bus_can_start_later(
    leveret_node: Node, prefix: str
) -> None:
    server = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    bus = Bus(leveret_node.url, fanout.layout(f"{prefix}-a"), settings=FAST, health_port=port)
    async with server:
        with pytest.raises(OSError, match="in use"):
            await bus.start()
    async with bus:
        assert (await ask(bus))[0] == 200


@pytest.fixture
def exported(monkeypatch: pytest.MonkeyPatch) -> InMemorySpanExporter:
    """The spans of this test. A program sets its tracer provider once and for ever."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", provider)
    return exporter


async def test_spans_of_publisher_and_handler_are_one_trace(
    node: Node, prefix: str, exported: InMemorySpanExporter
) -> None:
    bus = Bus(node.url, topic.layout(f"{prefix}.events"), settings=FAST)
    seen: Seen[int] = Seen()

    @bus.on(Placed)
    async def handle(event: Placed) -> None:
        if event.number == 1:
            await bus.publish(Placed(2))
        await seen.add(event.number)

    async with bus:
        with trace.get_tracer("test").start_as_current_span("request"):
            await bus.publish(Placed(1), headers={"k": "v"})
        await seen.wait(2)
    spans = {each.context.span_id: each for each in exported.get_finished_spans() if each.context}
    handled = [each for each in spans.values() if each.name == f"process {prefix}.events"]
    assert len(handled) == 2
    last: ReadableSpan | None = max(handled, key=lambda each: each.start_time or 0)
    names = []
    while last is not None:
        names.append(last.name.split()[0])
        last = spans.get(last.parent.span_id) if last.parent else None
    assert names == ["process", "send", "process", "send", "request"]


async def test_a_span_shows_a_failure(
    node: Node, prefix: str, exported: InMemorySpanExporter
) -> None:
    bus = Bus(node.url, topic.layout(f"{prefix}.events"), settings=FAST)
    given = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    seen: Seen[str | None] = Seen()

    @bus.on(Placed)
    async def handle(event: Placed, delivery: Delivery) -> int:
        await seen.add(delivery.traceparent)
        return 422

    async with bus:
        await bus.publish_with(Placed(1), PublishOptions(traceparent=given))
        assert await seen.wait(1) == [given]
    [span] = [each for each in exported.get_finished_spans() if each.name.startswith("process")]
    assert not span.status.is_ok
    assert span.attributes is not None
    assert span.attributes["leveret.bus.outcome"] == "dead_letter"
    assert span.parent is not None and span.parent.trace_id == int(given[3:35], 16)
