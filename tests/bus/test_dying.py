"""A consumer that dies, or a broker that is blocked, while a dead letter is moved."""

from __future__ import annotations

import asyncio
import os
import sys
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Final

import pytest

import leveret
from leveret.bus import (
    Bus,
    Delivery,
    PublishBlockedError,
    PublishTimeoutError,
    QueueType,
    topic,
)
from leveret.testing import broker
from tests.bus.nodes import Node
from tests.bus.stage import FAST, WAIT_S, Placed, channel, depth, put, pytestmark_bus
from tests.clients.process import Child
from tests.proxy import Proxy, proxy

pytestmark = pytestmark_bus
MESSAGES: Final = 300
KILLS: Final = 3
LOOK_S: Final = 0.02  # between two looks, which would keep a starting process from its CPU
APP: Final = Path(__file__).parent / "apps" / "dead_lettering.py"


@dataclass
class Text:
    """An event of any size, for which there is no handler."""

    text: str


def bus_without_retries(line: Proxy, queue: str) -> Bus:
    layout = topic.layout(queue, queue_type=QueueType.CLASSIC, retries_max=0)
    return Bus(line.url, layout, settings=FAST)


def port_of(bus: Bus, link: str) -> int:
    """Return the local port of the consumer's or publisher's connection."""
    part = bus._consumer if link == "consumer" else bus._publisher
    assert part is not None and part.connection.session is not None
    writer = part.connection.session.connection._transport.writer
    assert writer is not None
    port: int = writer.get_extra_info("sockname")[1]
    return port


@pytest.mark.parametrize("cut", ["consumer", "publisher"])
async def test_cut_off_around_the_publish_to_the_dead_letters(
    node: Node, prefix: str, cut: str
) -> None:
    """A death before the ack leaves a duplicate; a death before the publish leads to a retry."""
    queue = f"{prefix}.events"
    async with proxy(node.port) as line:
        dying, successor = bus_without_retries(line, queue), bus_without_retries(line, queue)
        failed = asyncio.Event()

        @dying.on(Placed)
        async def fail(event: Placed) -> int:
            line.silence(port_of(dying, cut))
            failed.set()
            return 500

        @successor.on(Placed)
        async def fail_too(event: Placed) -> int:
            return 500

        await dying.start()
        await put(node.url, "", queue, b'{"number":1}', type="Placed", message_id="m")
        await failed.wait()
        if cut == "consumer":
            await until_dead_lettered(node.url, f"{queue}.dlq", 1)
        line.reset()  # every connection of the process is gone
        await dying.stop(0)
        async with successor:
            await until_dead_lettered(node.url, f"{queue}.dlq", 2 if cut == "consumer" else 1)
    await finish(node, queue)
    ids = await drain(node.url, f"{queue}.dlq")
    assert set(ids) == {"m"}
    assert ids["m"] <= 2


async def test_kill_9_while_dead_letters_are_moved(node: Node, prefix: str, seed: int) -> None:
    print(f"seed {seed}")
    rng = Random(seed)
    queue = f"{prefix}.events"
    layout = topic.layout(queue, queue_type=QueueType.CLASSIC, retries_max=0)
    async with Bus(node.url, layout, settings=FAST) as publisher:
        child = await asyncio.to_thread(start, node.url, queue)
        try:
            for _ in range(MESSAGES):
                await publisher.send(Placed(1))
            assert await publisher.wait_for_confirms(60.0)
            for _ in range(KILLS):
                goal = rng.randrange(1, MESSAGES // 4)
                await until_dead_lettered(node.url, f"{queue}.dlq", goal)
                await asyncio.to_thread(child.kill)
                child = await asyncio.to_thread(start, node.url, queue)
            await until_dead_lettered(node.url, f"{queue}.dlq", MESSAGES)
            await until_empty(node.url, queue)
        finally:
            await asyncio.to_thread(child.kill)
        await finish(node, queue)
    ids = await drain(node.url, f"{queue}.dlq")
    assert len(ids) == MESSAGES, "a message is lost"
    # Each kill copies at most the messages in flight: a prefetch of the queue and a returned one.
    # The last consumer is killed too, and may hold such messages.
    assert sum(ids.values()) - MESSAGES <= (KILLS + 1) * (FAST.prefetch + 1)


async def test_letter_buried_while_the_broker_is_blocked_is_there_once(prefix: str) -> None:
    """The broker takes all copies after the alarm that were published during it."""
    queue = f"{prefix}.events"
    layout = topic.layout(queue, queue_type=QueueType.CLASSIC, retries_max=0)
    settings = replace(FAST, publish_timeout_s=0.05, backoff_s_min=0.05, backoff_s_max=0.05)
    is_blocked = asyncio.Event()
    with broker(memory_high=10_000_000.0) as server:
        bus = Bus(server.url, layout, settings=settings)

        @bus.on(Placed)
        async def fail(event: Placed) -> int:
            await is_blocked.wait()
            return 500

        async with channel(server.url) as other, bus:
            await other.declare_queue("keeps")
            await bus.publish(Placed(1), message_id="letter", timeout_s=60.0)
            await until_blocked(bus, "keeps")
            is_blocked.set()
            with pytest.raises(PublishBlockedError):  # within this time each copy timed out
                await bus.publish(Text(""), routing_key="keeps", mandatory=False, timeout_s=1.0)
            await other.queue_delete("keeps")
            await until_dead_lettered(server.url, layout.dlq, 1)
        assert await drain(server.url, layout.dlq) == Counter({"letter": 1})


def start(url: str, queue: str) -> Child:
    form = str(Path(leveret.__file__).parents[1])
    child = Child([sys.executable, str(APP), url, queue], {**os.environ, "PYTHONPATH": form})
    child.wait_for("ready")
    return child


async def until_blocked(bus: Bus, queue: str) -> None:
    """Publish until the broker has an alarm."""
    while True:
        text = Text("x" * 500_000)
        try:
            await bus.publish(text, routing_key=queue, mandatory=False, timeout_s=1.0)
        except PublishBlockedError:
            return
        except PublishTimeoutError:
            continue  # the broker is slow


async def until_dead_lettered(url: str, dlq: str, count: int) -> None:
    async with asyncio.timeout(WAIT_S):
        while await depth(url, dlq) < count:  # noqa: ASYNC110 the broker sends no event
            await asyncio.sleep(LOOK_S)


async def until_empty(url: str, queue: str) -> None:
    async with asyncio.timeout(WAIT_S):
        while await depth(url, queue):  # noqa: ASYNC110 the broker sends no event
            await asyncio.sleep(LOOK_S)


async def finish(node: Node, queue: str) -> None:
    """Move the messages to the dead letters that a killed consumer held."""
    layout = topic.layout(queue, queue_type=QueueType.CLASSIC, retries_max=0)
    queues = (queue, layout.returned.name)
    while True:
        async with channel(node.url) as opened:
            declared = [await opened.declare_queue(name, passive=True) for name in queues]
            found = [each.declaration_result for each in declared]
        if any(each.consumer_count for each in found):
            await asyncio.sleep(LOOK_S)
            continue  # the broker has not noticed the death yet
        if not any(each.message_count for each in found):
            return
        last = Bus(node.url, layout, settings=FAST)
        last.on_message()(_fail)
        async with last:
            for name in queues:
                await until_empty(node.url, name)


async def _fail(delivery: Delivery) -> int:
    return 500


async def drain(url: str, queue: str) -> Counter[str]:
    found: Counter[str] = Counter()
    async with channel(url) as opened:
        source = await opened.get_queue(queue, ensure=False)
        while (message := await source.get(no_ack=True, fail=False)) is not None:
            found[str(message.message_id)] += 1
    return found
