"""After every loss the bus consumes again and handles the messages published meanwhile.

A few rounds of each loss. The topology is the topic one, whose publishes are mandatory: whoever
publishes while the queue is gone is told, and publishes again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Final

import aiormq.exceptions
import pytest

from leveret.bus import Bus, BusSettings, Delivery, PublishError, QueueType, fanout, topic
from tests.bus.nodes import Node
from tests.bus.stage import FAST, NOTICING, Placed, Seen, channel, pytestmark_bus
from tests.proxy import Proxy, proxy

pytestmark = pytestmark_bus
AGAIN_S: Final = 60.0  # within which a bus must consume again, once the broker can be reached
PUBLISHED: Final = 20  # messages around each loss
ROUNDS: Final = 2
SILENT_ROUNDS: Final = 1  # each lasts some heartbeats

Loss = Callable[["Scene"], Awaitable[None]]


class Scene:
    """A bus behind a proxy, and the messages that its handler saw."""

    def __init__(
        self, node: Node, line: Proxy, queue: str, settings: BusSettings = NOTICING
    ) -> None:
        self.node = node
        self.line = line
        self.queue = queue
        self.seen: Seen[int] = Seen()
        layout = topic.layout(queue, queue_type=QueueType.CLASSIC, retry_delay_s=0.05)
        self.bus = Bus(line.url, layout, settings=settings)
        self._number = 0

        @self.bus.on(Placed)
        async def note(event: Placed, delivery: Delivery) -> None:
            await self.seen.add(event.number)

    async def publish(self, count: int) -> None:
        """Publish until each is confirmed."""
        first = self._number
        self._number += count
        for number in range(first, first + count):
            await self._publish(number)

    async def all_handled(self) -> None:
        await self.seen.wait_for(set(range(self._number)))

    async def _publish(self, number: int) -> None:
        while True:
            try:
                await self.bus.publish(Placed(number), timeout_s=5.0)
                return
            except PublishError:
                await asyncio.sleep(0.05)  # the broker is gone, and sends no event when it is back

    async def consumes_again(self) -> None:
        """Wait until the health is good and messages are handled."""
        async with asyncio.timeout(AGAIN_S):
            while not (health := await self.bus.health()).is_consuming:
                assert health.reason
                await asyncio.sleep(0.05)
            handled = len(self.seen.all)
            while len(self.seen.all) == handled:
                # A consumer that was cut off silently may get messages until the broker notices.
                await self.publish(1)
                await asyncio.sleep(0.02)


async def reset(scene: Scene) -> None:
    scene.line.reset()


async def black_hole(scene: Scene) -> None:
    scene.line.silence()


async def channel_errors(scene: Scene) -> None:
    """Both connections: an ack with an unknown tag, and a publish to a missing exchange."""
    consumer, publisher = scene.bus._consumer, scene.bus._publisher
    assert consumer is not None and publisher is not None
    acking, publishing = consumer.connection.session, publisher.connection.session
    assert acking is not None and publishing is not None
    await acking.channel.basic_ack(99_999, wait=False)
    with pytest.raises(aiormq.exceptions.ChannelNotFoundEntity):
        await publishing.channel.basic_publish(b"", exchange="missing")


async def cancel(scene: Scene) -> None:
    """The queue exists again before the next probe, so only the cancel tells that it was gone."""
    async with channel(scene.node.url) as other:
        await other.queue_delete(scene.queue)
        layout = scene.bus.layout
        queue = next(each for each in layout.consuming.queues if each.name == scene.queue)
        await other.declare_queue(queue.name, durable=True, arguments=dict(queue.arguments))


async def queue_deleted(scene: Scene) -> None:
    """The whole topology is deleted, the dead-letter queue with it."""
    async with channel(scene.node.url) as other:
        for queue in scene.bus.layout.consuming.queues:
            await other.queue_delete(queue.name)
        await other.exchange_delete(f"{scene.queue}.dlq")


@pytest.mark.parametrize("loss", [reset, black_hole, channel_errors, cancel, queue_deleted])
async def test_bus_consumes_again_after(loss: Loss, node: Node, prefix: str) -> None:
    async with proxy(node.port) as line:
        scene = Scene(node, line, f"{prefix}.events")
        async with scene.bus:
            for _ in range(SILENT_ROUNDS if loss is black_hole else ROUNDS):
                # A deleted queue loses its messages, so it must be empty.
                await scene.publish(PUBLISHED)
                await scene.all_handled()
                await loss(scene)
                await scene.publish(PUBLISHED)
                await scene.consumes_again()
                await scene.all_handled()


async def test_whole_topology_is_declared_again(node: Node, prefix: str) -> None:
    async with proxy(node.port) as line:
        scene = Scene(node, line, f"{prefix}.events")
        async with scene.bus:
            await queue_deleted(scene)
            await scene.consumes_again()
            async with channel(node.url) as other:
                for queue in scene.bus.layout.consuming.queues:
                    await other.declare_queue(queue.name, passive=True)
                await other.get_exchange(f"{prefix}.events.dlq")


async def test_a_silent_broker_is_found_without_heartbeats(node: Node, prefix: str) -> None:
    """Only the probe notices the loss. The broker keeps the old consumer and its messages."""
    async with proxy(node.port) as line:
        scene = Scene(node, line, f"{prefix}.events", replace(NOTICING, heartbeat_s=0))
        async with scene.bus:
            line.silence()
            await scene.publish(3 * FAST.prefetch)
            await scene.seen.wait(FAST.prefetch)


@pytest.mark.parametrize("gone", ["queue", "exchange"])
async def test_rejected_message_is_not_lost_without_its_retry_queue(
    node: Node, prefix: str, gone: str
) -> None:
    """A broker drops a rejected message without a retry queue, so the bus checks before."""
    settings = replace(FAST, probe_interval_s=60.0)
    service = f"{prefix}-orders"
    bus = Bus(node.url, fanout.layout(service, retry_delay_s=0.03), settings=settings)
    seen: Seen[int] = Seen()

    @bus.on(Placed)
    async def fail_once(event: Placed, delivery: Delivery) -> int:
        await seen.add(delivery.retry_count)
        return 200 if delivery.retry_count else 500

    async with bus:
        async with channel(node.url) as other:
            if gone == "queue":
                await other.queue_delete(f"{prefix}.retry-queue.{service}")
            else:
                await other.exchange_delete(f"{prefix}.retry-exchange.{service}")
        await bus.publish(Placed(1))
        await seen.wait_for({0, 1}, AGAIN_S)


async def test_bus_consumes_again_after_kill_9(node: Node, prefix: str) -> None:
    async with proxy(node.port) as line:
        scene = Scene(node, line, f"{prefix}.events")
        async with scene.bus:
            await scene.publish(PUBLISHED)
            await asyncio.to_thread(node.kill)
            assert not (await scene.bus.health()).is_consuming
            publishing = asyncio.get_running_loop().create_task(scene.publish(PUBLISHED))
            await asyncio.to_thread(node.start)
            await scene.consumes_again()
            await publishing
            await scene.all_handled()
