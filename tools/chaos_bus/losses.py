"""The ways in which a bus can lose its broker. Each is caused from outside the bus.

A loss is over, and the clock of the recovery starts, when a new connection would find the broker.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

import aiormq

from leveret.bus.topology import Layout
from tests.bus.nodes import Node
from tools.chaos_bus.proxy import Proxy

ANSWER_S: Final = 30.0
# RabbitMQ 3: within some 50 ms of its deletion a quorum queue still confirms what it loses; if it
# is declared again then, it tells its consumers nothing, counts them still, and delivers to nobody.
CANCELLED_S: Final = 0.2


class Scene:
    """A broker, the proxy before it, and the queues of the bus."""

    def __init__(self, node: Node, proxy: Proxy, layout: Layout) -> None:
        self.node = node
        self.proxy = proxy
        self.layout = layout
        # Called after the queue and its messages were deleted.
        self.on_deleted: Callable[[], None] = lambda: None


async def broker_killed(scene: Scene) -> None:
    """Kill the broker with -9 and start it on the same data."""
    await asyncio.to_thread(scene.node.kill)
    await asyncio.to_thread(scene.node.start)


async def connection_reset(scene: Scene) -> None:
    """Reset every connection."""
    for passage in list(scene.proxy.passages):
        passage.reset()


async def black_hole(scene: Scene) -> None:
    """Drop all bytes in both directions, silently."""
    for passage in list(scene.proxy.passages):
        passage.is_black_hole = True


async def channel_error(scene: Scene) -> None:
    """Make the broker close the consumer's channel with 406."""
    for passage in list(scene.proxy.passages):
        if passage.consuming_channel is not None and not passage.is_black_hole:
            passage.break_channel()


async def server_cancel(scene: Scene) -> None:
    """Make the broker cancel the consumer, with its queue kept."""
    connection = await _delete(scene)
    channel = await connection.channel(timeout=ANSWER_S)
    topology = scene.layout.consuming
    for queue in topology.queues:
        arguments: dict[str, Any] = dict(queue.arguments)
        await channel.queue_declare(queue.name, durable=True, arguments=arguments, timeout=ANSWER_S)
    for binding in topology.bindings:
        await channel.queue_bind(
            binding.queue, binding.exchange, binding.routing_key, timeout=ANSWER_S
        )
    await connection.close()


async def queue_deleted(scene: Scene) -> None:
    """Delete the queue, which cancels its consumer."""
    connection = await _delete(scene)
    await connection.close()


async def _delete(scene: Scene) -> aiormq.abc.AbstractConnection:
    async with asyncio.timeout(ANSWER_S):
        connection = await aiormq.connect(scene.node.url)
    channel = await connection.channel(timeout=ANSWER_S)
    await channel.queue_delete(scene.layout.queue, timeout=ANSWER_S)
    await asyncio.sleep(CANCELLED_S)
    scene.on_deleted()
    return connection


Loss = Callable[[Scene], Awaitable[None]]
LOSSES: Final[dict[str, Loss]] = {
    "broker-killed": broker_killed,
    "connection-reset": connection_reset,
    "black-hole": black_hole,
    "channel-error": channel_error,
    "server-cancel": server_cancel,
    "queue-deleted": queue_deleted,
}
# A deleted queue loses its messages, so publishing pauses until it is deleted.
DESTROYS: Final = frozenset(("server-cancel", "queue-deleted"))
