"""Publishing: a publish returns after the confirm, or raises the reason."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiormq.exceptions
import msgspec
import pydantic
import pytest

import leveret
from leveret.bus import (
    Bus,
    BusSettings,
    Delivery,
    EncodeError,
    NackedError,
    NotConnectedError,
    PublishBlockedError,
    PublishClosedError,
    PublishOptions,
    PublishTimeoutError,
    QueueType,
    TooLargeError,
    UnroutableError,
    fanout,
    topic,
)
from leveret.bus.headers import TRACEPARENT
from leveret.testing import broker
from tests.bus.nodes import Node
from tests.bus.stage import (
    FAST,
    WAIT_S,
    Placed,
    Seen,
    channel,
    depth,
    pytestmark_bus,
    take,
)
from tests.proxy import proxy

pytestmark = pytestmark_bus


class Shipped(msgspec.Struct):
    """A msgspec Struct as event."""

    number: int
    where: str = "here"


class Billed(pydantic.BaseModel):
    """A pydantic model as event."""

    number: int
    cents: int


def plain(queue: str, **options: Any) -> Any:
    return topic.layout(queue, queue_type=QueueType.CLASSIC, **options)


def reader(node: Node, queue: str, settings: BusSettings = FAST) -> tuple[Bus, Seen[object]]:
    bus = Bus(node.url, plain(queue), settings=settings)
    seen: Seen[object] = Seen()

    @bus.on(Placed)
    async def placed(event: Placed) -> None:
        await seen.add(event)

    @bus.on(Shipped)
    async def shipped(event: Shipped) -> None:
        await seen.add(event)

    @bus.on(Billed)
    async def billed(event: Billed) -> None:
        await seen.add(event)

    return bus, seen


async def test_events_of_every_kind_arrive_unchanged(node: Node, prefix: str) -> None:
    bus, seen = reader(node, f"{prefix}.events")
    events: list[object] = [Placed(1), Shipped(2, "there"), Billed(number=3, cents=99)]
    async with bus:
        for event in events:
            await bus.publish(event)
        await seen.wait(3)
    assert sorted(map(repr, seen.all)) == sorted(map(repr, events))


async def test_message_properties_for_other_programs(node: Node, prefix: str) -> None:
    bus = Bus(node.url, fanout.layout(f"{prefix}-a"), settings=FAST)
    async with channel(node.url) as other:
        exchange = await other.declare_exchange(f"{prefix}.main-exchange", "fanout", durable=True)
        queue = await other.declare_queue(f"{prefix}.seen")
        await queue.bind(exchange)
        async with bus:
            options = PublishOptions(correlation_id="c", headers={"k": 0.1}, message_id="m-1")
            assert await bus.publish_with(Placed(1), options) == "m-1"
        found = await queue.get(timeout=WAIT_S)
        assert (found.message_id, found.type, found.correlation_id) == ("m-1", "Placed", "c")
        assert (found.content_type, found.delivery_mode) == ("application/json", 2)
        assert found.headers == {"k": 0.1}
        assert found.timestamp is not None
        await found.ack()


async def test_a_publisher_declares_no_queue(node: Node, prefix: str) -> None:
    async with Bus(node.url, fanout.layout(f"{prefix}-a"), settings=FAST) as bus:
        await bus.publish(Placed(1))  # no queue is bound, which is no error in this topology
    async with channel(node.url) as other:
        with pytest.raises(aiormq.exceptions.ChannelNotFoundEntity):
            await other.declare_queue(f"{prefix}.queue.{prefix}-a", passive=True)


async def test_message_that_reaches_no_queue_is_an_error_with_its_id(
    node: Node, prefix: str
) -> None:
    bus, _ = reader(node, f"{prefix}.events")
    async with bus:
        with pytest.raises(UnroutableError) as caught:
            await bus.publish(Placed(1), routing_key=f"{prefix}.nowhere", message_id="m-7")
    assert caught.value.message_id == "m-7"


async def test_message_that_the_broker_refuses_is_an_error(node: Node, prefix: str) -> None:
    async with channel(node.url) as other:
        full: dict[str, Any] = {"x-max-length": 1, "x-overflow": "reject-publish"}
        await other.declare_queue(f"{prefix}.full", arguments=full)
        async with Bus(node.url, plain(f"{prefix}.full"), settings=FAST) as bus:
            await bus.publish(Placed(1))
            with pytest.raises(NackedError):
                await bus.publish(Placed(2))
            assert await depth(node.url, f"{prefix}.full") == 1
        await other.queue_delete(f"{prefix}.full")


async def test_too_large_for_the_bus(node: Node, prefix: str) -> None:
    settings = replace(FAST, body_bytes_max=100)
    bus, seen = reader(node, f"{prefix}.events", settings)
    async with bus:
        with pytest.raises(TooLargeError):
            await bus.publish(Shipped(1, "x" * 100))
        await bus.publish(Shipped(2, "short"))
        await seen.wait(1)


async def test_too_large_for_the_broker(prefix: str) -> None:
    with broker(message_bytes_max=1_000) as server:
        async with Bus(server.url, fanout.layout(f"{prefix}-a"), settings=FAST) as bus:
            publishing = [bus.publish(Shipped(number, "x" * 100)) for number in range(5)]
            large = bus.publish(Shipped(9, "x" * 2_000))
            found = await asyncio.gather(*publishing, large, return_exceptions=True)
            assert [type(each) for each in found] == [str] * 5 + [TooLargeError]
            await bus.publish(Shipped(10))


async def test_event_or_header_that_cannot_be_encoded_is_refused(node: Node, prefix: str) -> None:
    bus, seen = reader(node, f"{prefix}.events")
    async with bus:
        with pytest.raises(EncodeError):
            await bus.publish(object())
        for bad in ({"k": object()}, {"k": 1 << 80}, {"k" * 300: 1}):
            with pytest.raises(EncodeError):
                await bus.publish(Placed(1), headers=bad)
        with pytest.raises(EncodeError):
            await bus.publish(Placed(1), routing_key="k" * 300)
        await bus.publish(Placed(2))
        assert await seen.wait(1) == [Placed(2)], "the connection has not noticed"


async def test_a_message_that_closes_the_channel_ends_soon(node: Node, prefix: str) -> None:
    bus, seen = reader(node, f"{prefix}.events")
    async with bus:
        with pytest.raises(PublishClosedError, match="PRECONDITION_FAILED"):
            await bus.publish(Placed(1), headers={"CC": 5})
        await bus.publish(Placed(2))
        await seen.wait(1)
    assert seen.all == [Placed(2)]


def test_bus_does_not_import_pydantic() -> None:
    code = "import sys, leveret.bus, leveret.bus.testing; sys.exit('pydantic' in sys.modules)"
    form = str(Path(leveret.__file__).parents[1])
    command = [sys.executable, "-c", code]
    subprocess.run(command, check=True, env={**os.environ, "PYTHONPATH": form})


async def test_publish_without_an_answer_ends_at_its_timeout(node: Node, prefix: str) -> None:
    async with proxy(node.port) as line:
        async with Bus(line.url, plain(f"{prefix}.q"), settings=FAST) as bus:
            async with channel(node.url) as other:
                await other.declare_queue(f"{prefix}.q")
            line.silence()
            with pytest.raises(PublishTimeoutError):
                await bus.publish(Placed(1), timeout_s=0.2)


async def test_publish_during_an_alarm_fails_and_goes_on_after_it(prefix: str) -> None:
    """An alarm has an error of its own, and blocked publishes go on after it."""
    with broker(memory_high=10_000_000.0) as server:
        bus = Bus(server.url, fanout.layout(f"{prefix}-a"), settings=FAST)
        async with channel(server.url) as other:
            exchange = await other.declare_exchange(
                f"{prefix}.main-exchange", "fanout", durable=True
            )
            queue = await other.declare_queue("keeps")
            await queue.bind(exchange)
            async with bus:
                with pytest.raises(PublishBlockedError):
                    for _ in range(2_000):
                        await bus.publish(Shipped(1, "x" * 50_000), timeout_s=5.0)
                publishing = asyncio.get_running_loop().create_task(bus.publish(Shipped(2)))
                await queue.purge()
                await publishing


async def test_publish_before_the_start_or_after_the_stop_is_refused(
    node: Node, prefix: str
) -> None:
    bus = Bus(node.url, plain(f"{prefix}.q"), settings=FAST)
    with pytest.raises(NotConnectedError):
        await bus.publish(Placed(1))
    await bus.start()
    await bus.stop()
    with pytest.raises(PublishClosedError):
        await bus.publish(Placed(1))


async def test_lost_confirm_is_an_error_without_resend(node: Node, prefix: str) -> None:
    async with proxy(node.port) as line:
        settings = replace(FAST, resend=False)
        async with Bus(line.url, plain(f"{prefix}.q"), settings=settings) as bus:
            async with channel(node.url) as other:
                await other.declare_queue(f"{prefix}.q")
            line.silence()
            publishing = asyncio.get_running_loop().create_task(bus.publish(Placed(1)))
            await asyncio.sleep(0)
            line.reset()
            with pytest.raises(PublishClosedError):
                await publishing


async def test_a_lost_confirm_is_sent_again_under_the_same_id(node: Node, prefix: str) -> None:
    async with proxy(node.port) as line:
        async with Bus(line.url, plain(f"{prefix}.q"), settings=FAST) as bus:
            async with channel(node.url) as other:
                await other.declare_queue(f"{prefix}.q", durable=True)
            line.silence()
            publishing = asyncio.get_running_loop().create_task(bus.publish(Placed(1)))
            await asyncio.sleep(0.05)
            line.reset()
            message_id = await publishing
            assert (await take(node.url, f"{prefix}.q")).message_id == message_id


async def test_start_without_a_broker_ends_at_its_timeout() -> None:
    settings = replace(FAST, connect_timeout_s=0.2)
    with pytest.raises(NotConnectedError):
        await Bus("amqp://guest:guest@127.0.0.1:1/", plain("q"), settings=settings).start(0.5)


async def test_a_batch_waits_for_its_confirms(node: Node, prefix: str) -> None:
    settings = replace(FAST, outstanding_max=50)
    bus, seen = reader(node, f"{prefix}.events", settings)
    async with bus:
        for number in range(500):
            await bus.send(Placed(number))
        assert await bus.wait_for_confirms(60.0)
        await seen.wait(500)
        gone = await bus.send(Placed(1), PublishOptions(routing_key=f"{prefix}.nowhere"))
        assert not await bus.wait_for_confirms(30.0)
        (failure,) = bus.take_failures()
        assert isinstance(failure, UnroutableError) and failure.message_id == gone
        assert await bus.wait_for_confirms(60.0), "a failure is told once"


async def test_a_batch_is_not_confirmed_while_the_broker_is_silent(node: Node, prefix: str) -> None:
    async with proxy(node.port) as line:
        async with Bus(line.url, fanout.layout(f"{prefix}-a"), settings=FAST) as bus:
            line.silence()
            await bus.send(Placed(1))
            assert not await bus.wait_for_confirms(0.1)
            line.reset()
            assert await bus.wait_for_confirms(60.0)


async def test_what_a_handler_publishes_belongs_to_the_same_trace(node: Node, prefix: str) -> None:
    bus = Bus(node.url, plain(f"{prefix}.events"), settings=FAST)
    seen: Seen[tuple[str, str | None, object]] = Seen()
    given = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

    @bus.on(Placed)
    async def placed(event: Placed, delivery: Delivery) -> None:
        await seen.add(("placed", delivery.traceparent, delivery.headers.get("tracestate")))
        await bus.publish(Shipped(event.number))

    @bus.on(Shipped)
    async def shipped(event: Shipped, delivery: Delivery) -> None:
        await seen.add(("shipped", delivery.traceparent, delivery.headers.get("tracestate")))

    async with bus:
        headers = {TRACEPARENT: given, "tracestate": "vendor=1"}
        await bus.publish(Placed(1), headers=headers)
        first, second = await seen.wait(2)
        await bus.publish(Shipped(9))
        third = (await seen.wait(3))[2]
    assert first == ("placed", given, "vendor=1")
    assert second[1] is not None and second[2] == "vendor=1"
    assert second[1][:35] == given[:35] and second[1][-3:] == given[-3:]
    assert second[1] != given, "each hop has a parent id of its own"
    assert third[1] is None
