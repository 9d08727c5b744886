"""Messages that come back without an answer: they are counted, and none of them is lost."""

from __future__ import annotations

import asyncio
import os
import re
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Final

import aio_pika
import pytest

import leveret
from leveret.bus import Bus, Delivery, QueueType, fanout, topic
from leveret.bus.topology import Layout
from tests.bus.nodes import Node
from tests.bus.stage import FAST, WAIT_S, Placed, Seen, channel, depth, put, pytestmark_bus, take
from tests.clients.process import Child
from tests.proxy import proxy

pytestmark = pytestmark_bus
APP: Final = Path(__file__).parent / "apps" / "crashing.py"
GOOD: Final = set(range(1, 8))
CRASHES_MAX: Final = 12  # two retries, and at least three deliveries without an answer


def layout_of(kind: str, name: str) -> Layout:
    return fanout.layout(name) if kind == "fanout" else topic.layout(name)


@pytest.mark.parametrize("kind", ["fanout", "topic"])
async def test_message_that_ends_its_process_is_buried_and_the_others_are_handled(
    node: Node, prefix: str, kind: str
) -> None:
    """At a delivery limit, brokers drop a message whose retry queue leads back without a reject."""
    name = f"{prefix}-crashing"
    layout = layout_of(kind, name)
    if kind == "topic":
        await asyncio.to_thread(node.set_policy, f"^{name}$", {"delivery-limit": 4})
    async with Bus(node.url, layout, settings=FAST) as publisher:
        async with channel(node.url) as other:
            await declare(other, layout)
        for number in (0, *sorted(GOOD)):
            await publisher.publish(Placed(number), mandatory=kind == "fanout")
    handled = await asyncio.to_thread(run_until_buried, node.url, kind, name, layout.dlq)
    assert handled == GOOD
    assert await depth(node.url, layout.queue) == 0
    for _ in range(await depth(node.url, layout.dlq)):  # a crash may leave a duplicate
        letter = await take(node.url, layout.dlq)
        assert letter.body == b'{"number":0}'
        assert "came back without an answer" in str(letter.headers["x-final-error"])


def run_until_buried(url: str, kind: str, name: str, dlq: str) -> set[int]:
    """Start the service again after each crash, as a supervisor does."""
    form = str(Path(leveret.__file__).parents[1])
    handled: set[int] = set()
    for _ in range(CRASHES_MAX):
        child = Child(
            [sys.executable, str(APP), url, kind, name], {**os.environ, "PYTHONPATH": form}
        )
        try:
            until_s = time.monotonic() + 60
            while child.is_running and time.monotonic() < until_s:
                time.sleep(0.05)
                if GOOD <= handled | numbers(child) and asyncio.run(depth(url, dlq)):
                    break
        finally:
            was_running = child.is_running
            child.kill()
        handled |= numbers(child)
        if was_running:
            return handled
    raise AssertionError(f"the service crashed {CRASHES_MAX} times, handled {handled}")


def numbers(child: Child) -> set[int]:
    return {int(found) for found in re.findall(r"handled (\d+)", child.output())}


async def declare(opened: aio_pika.abc.AbstractChannel, layout: Layout) -> None:
    for exchange in layout.consuming.exchanges:
        await opened.declare_exchange(exchange.name, str(exchange.type), durable=True)
    for queue in layout.consuming.queues:
        await opened.declare_queue(queue.name, durable=True, arguments=dict(queue.arguments))
    for binding in layout.consuming.bindings:
        queue_found = await opened.get_queue(binding.queue, ensure=False)
        await queue_found.bind(binding.exchange, binding.routing_key)


async def test_message_returned_by_others_is_counted_and_kept(node: Node, prefix: str) -> None:
    """A client that holds messages and goes away, more often than the limit of the queue."""
    layout = topic.layout(f"{prefix}.events")
    seen: Seen[int] = Seen()
    await asyncio.to_thread(node.set_policy, f"^{prefix}.events$", {"delivery-limit": 4})
    async with channel(node.url) as other:
        await declare(other, layout)
    await put(node.url, "", layout.queue, b'{"number":1}', type="Placed", message_id="m")
    for _ in range(3):
        await take_and_leave(node.url, layout.queue)
    bus = Bus(node.url, layout, settings=FAST)

    @bus.on(Placed)
    async def note(event: Placed, delivery: Delivery) -> None:
        await seen.add(delivery.retry_count)

    async with bus:
        assert await seen.wait(1) == [3], "each delivery without an answer is an attempt"


async def take_and_leave(url: str, queue: str) -> None:
    """Take a message and close the connection, as a crash does."""
    async with channel(url) as other:
        found = await other.get_queue(queue, ensure=False)
        async with asyncio.timeout(WAIT_S):
            while await found.get(fail=False) is None:
                pass  # each look is a round trip to the broker


async def test_delayed_event_survives_a_low_delivery_limit(node: Node, prefix: str) -> None:
    await asyncio.to_thread(node.set_policy, f"^{prefix}.events$", {"delivery-limit": 1})
    bus = Bus(node.url, topic.layout(f"{prefix}.events"), settings=FAST)
    seen: Seen[tuple[int, int]] = Seen()
    answers = iter([425] * 5)

    @bus.on(Placed)
    async def early(event: Placed, delivery: Delivery) -> int:
        await seen.add((event.number, delivery.retry_count))
        return next(answers, 200)

    async with bus:
        await bus.publish(Placed(1), delay_s=1.5)
        assert await seen.wait(6) == [(1, 0)] * 6


async def test_handler_of_a_lost_session_is_not_called_twice(node: Node, prefix: str) -> None:
    """Its ack came too late. The second delivery is acked with the result of the first."""
    async with proxy(node.port) as line:
        layout = topic.layout(f"{prefix}.events", queue_type=QueueType.CLASSIC)
        bus = Bus(line.url, layout, settings=FAST)
        seen: Seen[int] = Seen()
        lost, again = asyncio.Event(), asyncio.Event()

        @bus.on(Placed)
        async def slow(event: Placed, delivery: Delivery) -> int:
            await seen.add(event.number)
            if event.number == 1:
                lost.set()
                await again.wait()
            return 200

        async with bus:
            consumer = bus._consumer
            assert consumer is not None
            await put(node.url, "", layout.queue, b'{"number":1}', type="Placed", message_id="m")
            await lost.wait()
            sessions = consumer.connection.session_count
            line.reset()
            async with asyncio.timeout(WAIT_S):
                while consumer.connection.session_count == sessions:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
            await bus.publish(Placed(3))
            await seen.wait_for({3})
            again.set()
            async with asyncio.timeout(WAIT_S):
                while await depth(node.url, layout.queue) or consumer._working:
                    pass  # each look is a round trip to the broker
        assert sorted(seen.all) == [1, 3]
    assert await depth(node.url, layout.queue) == 0


async def test_failure_that_could_not_be_told_counts(node: Node, prefix: str) -> None:
    """The handler failed and its session was lost: the next delivery is not a first attempt."""
    async with proxy(node.port) as line:
        layout = topic.layout(f"{prefix}.events", queue_type=QueueType.CLASSIC, retry_delay_s=0.03)
        bus = Bus(line.url, layout, settings=FAST)
        seen: Seen[int] = Seen()

        @bus.on(Placed)
        async def fail_once(event: Placed, delivery: Delivery) -> int:
            await seen.add(delivery.retry_count)
            if delivery.retry_count:
                return 200
            line.reset()
            return 500

        async with bus:
            # By another connection, because this one would be lost with it and publish again.
            await put(node.url, "", layout.queue, b'{"number":1}', type="Placed", message_id="m")
            assert await seen.wait(2) == [0, 1]


async def test_slow_handler_fails_and_is_retried(node: Node, prefix: str) -> None:
    layout = topic.layout(f"{prefix}.events", retry_delay_s=0.03, retries_max=1)
    bus = Bus(node.url, layout, settings=FAST)
    seen: Seen[int] = Seen()

    @bus.on(Placed, timeout_s=0.2)
    async def hang(event: Placed, delivery: Delivery) -> None:
        await seen.add(delivery.retry_count)
        await asyncio.Event().wait()

    async with bus:
        await bus.publish(Placed(1))
        letter = await take(node.url, layout.dlq)
    assert seen.all == [0, 1]
    assert "hang did not finish within 0.2 s" in str(letter.headers["x-final-error"])


async def test_hung_threads_show_in_the_health(node: Node, prefix: str) -> None:
    """A thread cannot be ended: it keeps its place, and its message fails."""
    layout = topic.layout(f"{prefix}.events", retries_max=0)
    settings = replace(FAST, concurrency=2, threads_max=1)
    bus = Bus(node.url, layout, settings=settings)
    over = threading.Event()

    @bus.on(Placed, timeout_s=0.2)
    def hang(event: Placed) -> None:
        over.wait()

    async with bus:
        await bus.publish(Placed(1), message_id="stuck")
        await take(node.url, layout.dlq)
        health = await bus.health()
        assert not health.is_consuming
        assert "all handlers hang" in health.reason
        assert "hang with message stuck" in health.hung_handlers[0]
        over.set()
        async with asyncio.timeout(WAIT_S):
            while not (await bus.health()).is_consuming:
                pass  # each look is a round trip to the broker


async def test_handler_that_blocks_the_loop_is_named(
    node: Node, prefix: str, caplog: pytest.LogCaptureFixture
) -> None:
    settings = replace(FAST, blocked_loop_s=0.2)
    bus = Bus(node.url, fanout.layout(f"{prefix}-blocks"), settings=settings)
    seen: Seen[int] = Seen()

    @bus.on(Placed)
    async def block(event: Placed) -> None:
        until_s = time.monotonic() + WAIT_S
        # A busy machine may have blocked another task before.
        while "slow blocks the event loop" not in caplog.text and time.monotonic() < until_s:
            time.sleep(0.01)  # noqa: ASYNC251 this is the fault
        await seen.add(event.number)

    async with bus:
        await bus.publish(Placed(1), message_id="slow")
        await seen.wait(1)
    assert re.search(
        r"block with message slow blocks the event loop .*test_returned.py", caplog.text
    )
