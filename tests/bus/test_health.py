"""The health of a bus comes from the broker, not from the bus's own state."""

from __future__ import annotations

from dataclasses import replace

from leveret.bus import Bus, BusSettings, QueueType, fanout, topic
from tests.bus.nodes import Node
from tests.bus.stage import FAST, Placed, pytestmark_bus
from tests.proxy import proxy
from tools.ports import HOST, free_port

pytestmark = pytestmark_bus


def reader(
    url: str, prefix: str, management_url: str | None = None, settings: BusSettings = FAST
) -> Bus:
    layout = topic.layout(f"{prefix}.events", queue_type=QueueType.CLASSIC)
    bus = Bus(url, layout, settings=settings, management_url=management_url)

    @bus.on(Placed)
    async def note(event: Placed) -> None: ...

    return bus


async def test_health_is_true_only_while_it_consumes(node: Node, prefix: str) -> None:
    bus = reader(node.url, prefix)
    assert not (await bus.health()).is_consuming
    async with bus:
        health = await bus.health()
        assert health.is_consuming and health.since_s is not None
    stopped = await bus.health()
    assert not stopped.is_consuming and stopped.reason


async def test_health_is_false_without_a_handler(node: Node, prefix: str) -> None:
    async with Bus(node.url, fanout.layout(f"{prefix}-a"), settings=FAST) as bus:
        health = await bus.health()
    assert not health.is_consuming and "no handler" in health.reason


async def test_health_is_false_when_the_broker_does_not_answer(node: Node, prefix: str) -> None:
    # A probe would find the silence first and close the session.
    settings = replace(FAST, answer_timeout_s=1.0, probe_interval_s=60.0)
    async with proxy(node.port) as line:
        async with reader(line.url, prefix, settings=settings) as bus:
            line.silence()
            health = await bus.health()
            assert not health.is_consuming and "did not answer" in health.reason


async def test_the_management_api_must_list_the_consumer(leveret_node: Node, prefix: str) -> None:
    address = f"http://guest:guest@{HOST}:{leveret_node.http_port}"
    async with reader(leveret_node.url, prefix, address) as bus:
        health = await bus.health()
        assert health.is_consuming, health.reason
    nowhere = f"http://guest:guest@{HOST}:{free_port()}"
    async with reader(leveret_node.url, prefix, nowhere) as bus:
        health = await bus.health()
    assert not health.is_consuming and "management" in health.reason
