"""The topic topology against both brokers."""

from __future__ import annotations

from typing import Any

import pytest

from leveret.bus import (
    Bus,
    Delivery,
    PermanentError,
    QueueType,
    TopologyMismatchError,
    UnroutableError,
    topic,
)
from tests.bus.nodes import Node
from tests.bus.stage import (
    FAST,
    Placed,
    Seen,
    channel,
    death_counts,
    depth,
    put,
    pytestmark_bus,
    take,
)

pytestmark = [
    *pytestmark_bus,
    pytest.mark.parametrize("kind", [QueueType.QUORUM, QueueType.CLASSIC]),
]


def bus_of(node: Node, queue: str, kind: QueueType, **options: Any) -> Bus:
    options.setdefault("retry_delay_s", 0.03)
    return Bus(node.url, topic.layout(queue, queue_type=kind, **options), settings=FAST)


async def test_a_failure_is_tried_again_and_then_dead(
    node: Node, prefix: str, kind: QueueType
) -> None:
    queue = f"{prefix}.events"
    bus = bus_of(node, queue, kind, retries_max=3)
    seen: Seen[int] = Seen()

    @bus.on(Placed)
    async def fail(event: Placed, delivery: Delivery) -> None:
        assert delivery.headers["x-retry-count"] == delivery.retry_count
        await seen.add(delivery.retry_count)
        raise RuntimeError("not now")

    async with bus:
        message_id = await bus.publish(Placed(1))
        dead = await take(node.url, f"{queue}.dlq")
    assert seen.all == [0, 1, 2, 3]
    assert dead.message_id == message_id
    assert dead.headers["x-retry-count"] == 3
    assert dead.headers["x-final-retry-count"] == 3
    assert dead.headers["x-final-error"] == "RuntimeError: not now"
    assert death_counts(dead) == {(queue, "rejected"): 3, (f"{queue}.retry", "expired"): 3}


@pytest.mark.parametrize("how", ["raised", "returned", "undecodable", "unknown"])
async def test_a_permanent_fault_goes_to_the_dead_letters_at_once(
    node: Node, prefix: str, kind: QueueType, how: str
) -> None:
    queue = f"{prefix}.events"
    bus = bus_of(node, queue, kind)
    calls: Seen[int] = Seen()

    @bus.on(Placed)
    async def fail(event: Placed) -> int:
        await calls.add(event.number)
        if how == "raised":
            raise PermanentError("no such order")
        return 422

    async with bus:
        if how in ("raised", "returned"):
            await bus.publish(Placed(1))
        else:
            name = "Placed" if how == "undecodable" else "Unheard"
            await put(node.url, "", queue, b'{"number": "one"}', type=name)
        dead = await take(node.url, f"{queue}.dlq")
    assert len(calls.all) == (1 if how in ("raised", "returned") else 0)
    assert dead.headers["x-final-retry-count"] == 0
    assert dead.headers["x-original-queue"] == queue
    assert "x-death" not in dead.headers
    if how == "returned":
        assert dead.headers["x-final-status-code"] == 422
    else:
        assert dead.headers["x-final-error"]


async def test_an_incoming_count_is_added(node: Node, prefix: str, kind: QueueType) -> None:
    bus = bus_of(node, f"{prefix}.events", kind, retries_max=4)
    seen: Seen[int] = Seen()

    @bus.on(Placed)
    async def fail(event: Placed, delivery: Delivery) -> int:
        await seen.add(delivery.retry_count)
        return 500

    async with bus:
        await bus.publish(Placed(1), headers={"x-retry-count": 2})
        dead = await take(node.url, f"{prefix}.events.dlq")
    assert seen.all == [2, 3, 4]
    assert dead.headers["x-retry-count"] == 4


async def test_routing_keys_select_messages(node: Node, prefix: str, kind: QueueType) -> None:
    exchange = f"{prefix}.topics"
    eu = bus_of(node, f"{prefix}.eu", kind, exchange=exchange, routing_keys=("eu.#",))
    orders = bus_of(
        node, f"{prefix}.orders", kind, exchange=exchange, routing_keys=("*.order.placed",)
    )
    calls: Seen[tuple[str, int]] = Seen()

    @eu.on(Placed)
    async def in_eu(event: Placed) -> None:
        await calls.add(("eu", event.number))

    @orders.on(Placed)
    async def in_orders(event: Placed) -> None:
        await calls.add(("orders", event.number))

    publisher = Bus(node.url, topic.publisher(exchange), settings=FAST)
    async with eu, orders, publisher:
        await publisher.publish(Placed(1), routing_key="eu.order.placed")
        await publisher.publish(Placed(2), routing_key="us.order.placed")
        with pytest.raises(UnroutableError):
            await publisher.publish(Placed(3), routing_key="us.order.gone")
        await publisher.publish(Placed(4), routing_key="us.order.gone", mandatory=False)
        await calls.wait(3)
    assert sorted(calls.all) == [("eu", 1), ("orders", 1), ("orders", 2)]


async def test_a_queue_with_other_arguments_is_refused(
    node: Node, prefix: str, kind: QueueType
) -> None:
    async with channel(node.url) as other:
        await other.declare_queue(f"{prefix}.events.retry", durable=True)
    bus = bus_of(node, f"{prefix}.events", kind)

    @bus.on(Placed)
    async def note(event: Placed) -> None: ...

    with pytest.raises(TopologyMismatchError, match=f"{prefix}.events.retry"):
        await bus.start()


async def test_a_dead_letter_waits_for_its_queue(node: Node, prefix: str, kind: QueueType) -> None:
    """Without a dead-letter queue the message stays, until the topology is complete again."""
    queue = f"{prefix}.events"
    bus = bus_of(node, queue, kind, retries_max=0)

    @bus.on(Placed)
    async def fail(event: Placed) -> int:
        return 500

    async with bus:
        async with channel(node.url) as other:
            await other.queue_delete(f"{queue}.dlq")
        await bus.publish(Placed(1))
        # Only the bus declares the queue again.
        async with channel(node.url) as other:
            while not await is_there(other, f"{queue}.dlq"):
                await other.reopen()
        dead = await take(node.url, f"{queue}.dlq")
        assert dead.body == b'{"number":1}'
        assert await depth(node.url, queue) == 0


async def test_dead_letter_keeps_the_message(node: Node, prefix: str, kind: QueueType) -> None:
    """A copy has no expiration and no CC, so that it stays in the dead-letter queue."""
    queue = f"{prefix}.events"
    bus = bus_of(node, queue, kind, retries_max=0)

    @bus.on_message()
    async def fail(delivery: Delivery) -> int:
        return 500

    headers = {"text": "é", "deep": {"list": [1, None, True]}, "CC": [f"{queue}.cc"]}
    async with channel(node.url) as other, bus:
        await other.declare_queue(f"{queue}.cc")
        properties = {"expiration": 60, "user_id": "guest", "priority": 3, "reply_to": "me"}
        await put(node.url, "", queue, b"\x00\xff", headers=headers, **properties)
        dead = await take(node.url, f"{queue}.dlq")
        assert await depth(node.url, f"{queue}.cc") == 1, "its own copy, and no second one"
    assert (dead.body, dead.priority, dead.reply_to) == (b"\x00\xff", 3, "me")
    assert (dead.expiration, dead.user_id, dead.delivery_mode) == (None, None, 2)
    assert {name: dead.headers[name] for name in ("text", "deep")} == {
        name: headers[name] for name in ("text", "deep")
    }
    assert "CC" not in dead.headers and dead.headers["x-original-user-id"] == "guest"


async def is_there(other: Any, queue: str) -> bool:
    try:
        await other.declare_queue(queue, passive=True)
    except Exception:
        return False
    return True
