"""The fanout topology against both brokers: routing, retries and dead letters."""

from __future__ import annotations

import asyncio
import logging
from datetime import datetime
from typing import Any

import pytest
from aio_pika.abc import AbstractChannel

from leveret.bus import Bus, BusSettings, Delivery, PermanentError, RetryPolicy, fanout
from leveret.bus import headers as bus_headers
from leveret.clock import Clock
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

pytestmark = pytestmark_bus
DELAY_S = 0.03


def bus_of(node: Node, service: str, settings: BusSettings = FAST, **layout: Any) -> Bus:
    layout.setdefault("retry_delay_s", DELAY_S)
    return Bus(node.url, fanout.layout(service, **layout), settings=settings)


async def test_eleven_calls_then_the_dead_letters_with_their_headers(
    node: Node, prefix: str, caplog: pytest.LogCaptureFixture
) -> None:
    bus = bus_of(node, f"{prefix}-orders")
    seen: Seen[int] = Seen()

    @bus.on(Placed)
    async def fail(event: Placed, delivery: Delivery) -> int:
        assert delivery.headers[bus_headers.RETRY_COUNT] == delivery.retry_count
        await seen.add(delivery.retry_count)
        return 503

    with caplog.at_level(logging.ERROR, logger="leveret.bus"):
        async with bus:
            message_id = await bus.publish(Placed(1), headers={"mine": "kept"})
            dead = await take(node.url, f"{prefix}.dlq.{prefix}-orders")
    assert seen.all == list(range(11))
    assert (dead.message_id, dead.body, dead.type) == (message_id, b'{"number":1}', "Placed")
    headers = dict(dead.headers)
    del headers["x-death"]
    for name in [name for name in headers if name.startswith(("x-first-", "x-last-"))]:
        del headers[name]  # headers of the broker, which differ between versions
    died_at = headers.pop("x-died-at")
    assert isinstance(died_at, datetime)
    assert abs(died_at.timestamp() - Clock().now_ms() / 1000) < 60, (
        "of the last death, not of the first"
    )
    assert headers == {
        "mine": "kept",
        "x-original-queue": f"{prefix}.queue.{prefix}-orders",
        "x-final-status-code": 503,
        "x-final-retry-count": 10,
        "x-original-exchange": f"{prefix}.main-exchange",
        "x-original-routing-key": "Placed",
    }
    assert death_counts(dead) == {
        (f"{prefix}.queue.{prefix}-orders", "rejected"): 10,
        (f"{prefix}.retry-queue.{prefix}-orders", "expired"): 10,
    }
    logged = [each for each in caplog.messages if "RABBITMQ_MESSAGE_MAX_RETRIES_EXCEEDED" in each]
    assert len(logged) == 1 and message_id in logged[0]


async def test_an_exception_is_a_failure_whose_text_is_kept(node: Node, prefix: str) -> None:
    bus = bus_of(node, f"{prefix}-orders", retries_max=1)
    calls: Seen[int] = Seen()

    @bus.on(Placed)
    async def fail(event: Placed) -> None:
        await calls.add(event.number)
        raise PermanentError("no such order")  # the fanout topology retries permanent faults too

    async with bus:
        await bus.publish(Placed(7))
        dead = await take(node.url, f"{prefix}.dlq.{prefix}-orders")
    assert calls.all == [7, 7]
    assert dead.headers["x-final-error"] == "PermanentError: no such order"
    assert "x-final-status-code" not in dead.headers


async def test_only_the_service_that_failed_gets_the_retry(node: Node, prefix: str) -> None:
    good, bad = bus_of(node, f"{prefix}-good"), bus_of(node, f"{prefix}-bad")
    calls: Seen[tuple[str, int]] = Seen()

    @good.on(Placed)
    async def succeed(event: Placed) -> None:
        await calls.add(("good", event.number))

    @bad.on(Placed)
    async def fail_twice(event: Placed, delivery: Delivery) -> int:
        await calls.add(("bad", event.number))
        return 200 if delivery.retry_count == 2 else 500

    async with good, bad:
        await good.publish(Placed(1))
        await calls.wait(4)
        await good.publish(Placed(2))
        await calls.wait(8)
    assert sorted(calls.all) == [
        *[("bad", 1)] * 3,
        *[("bad", 2)] * 3,
        ("good", 1),
        ("good", 2),
    ]


async def test_every_service_of_the_prefix_gets_a_message_and_no_other(
    node: Node, prefix: str
) -> None:
    inside, outside = bus_of(node, f"{prefix}-a"), bus_of(node, f"{prefix}x-a")
    calls: Seen[str] = Seen()

    @inside.on(Placed)
    async def inner(event: Placed) -> None:
        await calls.add("inside")

    @outside.on(Placed)
    async def outer(event: Placed) -> None:
        await calls.add("outside")

    async with inside, outside:
        await inside.publish(Placed(1))
        await outside.publish(Placed(1))
        await calls.wait(2)
    assert sorted(calls.all) == ["inside", "outside"]


async def test_success_is_acked_whatever_the_count(node: Node, prefix: str) -> None:
    bus = bus_of(node, f"{prefix}-orders")
    seen: Seen[int] = Seen()

    @bus.on(Placed)
    async def succeed(event: Placed, delivery: Delivery) -> None:
        await seen.add(delivery.retry_count)

    async with bus:
        await bus.publish(Placed(1), headers={bus_headers.RETRY_COUNT: 10})
        await seen.wait(1)
    assert seen.all == [10]
    assert await depth(node.url, f"{prefix}.queue.{prefix}-orders") == 0
    assert await depth(node.url, f"{prefix}.dlq.{prefix}-orders") == 0


async def test_retry_count_header_of_a_redrive_counts_too(node: Node, prefix: str) -> None:
    bus = bus_of(node, f"{prefix}-orders")
    seen: Seen[int] = Seen()

    @bus.on(Placed)
    async def fail(event: Placed, delivery: Delivery) -> int:
        await seen.add(delivery.retry_count)
        return 500

    async with bus:
        await bus.publish(Placed(1), headers={bus_headers.RETRY_COUNT: 8})
        dead = await take(node.url, f"{prefix}.dlq.{prefix}-orders")
    assert seen.all == [8, 9, 10]
    assert dead.headers["x-final-retry-count"] == 10


async def test_redriven_message_continues_its_count_or_starts_at_zero(
    node: Node, prefix: str
) -> None:
    service, queue = f"{prefix}-orders", f"{prefix}.queue.{prefix}-orders"
    bus = bus_of(node, service)
    seen: Seen[int] = Seen()

    @bus.on(Placed)
    async def fail(event: Placed, delivery: Delivery) -> int:
        await seen.add(delivery.retry_count)
        return 500

    async with bus:
        await bus.publish(Placed(1))
        dead = await take(node.url, f"{prefix}.dlq.{service}")
        for reset, calls in ((False, [10]), (True, list(range(11)))):
            async with channel(node.url) as other:
                properties = await properties_of(other)
            continues = bus_headers.continues_deaths(properties)
            assert continues, "Leveret and RabbitMQ 3 count on"
            headers = bus_headers.redrive_headers(
                dict(dead.headers), queue, continues=continues, reset=reset
            )
            seen.all.clear()
            await put(node.url, "", queue, dead.body, type="Placed", headers=headers)
            dead = await take(node.url, f"{prefix}.dlq.{service}")
            assert seen.all == calls
            assert dead.headers["x-final-retry-count"] == 10
    assert dead.headers["x-redrive-count"] == 2


async def properties_of(other: AbstractChannel) -> dict[str, Any]:
    underlay = await other.get_underlay_channel()
    connection: Any = underlay.connection
    found: dict[str, Any] = connection.server_properties
    return found


async def test_message_that_is_not_due_is_held_and_requeued(node: Node, prefix: str) -> None:
    bus = bus_of(node, f"{prefix}-orders")
    seen: Seen[tuple[int, float]] = Seen()
    loop = asyncio.get_running_loop()

    @bus.on(Placed)
    async def note(event: Placed, delivery: Delivery) -> None:
        assert delivery.headers.get("processAfterDelayMs") == (3000 if event.number == 1 else None)
        await seen.add((event.number, loop.time()))

    async with bus:
        began_s = loop.time()
        await bus.publish(Placed(1), delay_s=3.0)
        await bus.publish(Placed(2))
        found = await seen.wait(2)
    assert [number for number, _ in found] == [2, 1], "what is due does not wait for what is not"
    assert found[1][1] - began_s > 2.998  # the publish time has whole milliseconds
    assert await depth(node.url, f"{prefix}.dlq.{prefix}-orders") == 0


async def test_425_of_a_handler_requeues_whatever_the_count(node: Node, prefix: str) -> None:
    bus = bus_of(node, f"{prefix}-orders")
    seen: Seen[int] = Seen()

    @bus.on(Placed)
    async def wait_a_little(event: Placed, delivery: Delivery) -> int:
        await seen.add(delivery.retry_count)
        return 200 if len(seen.all) == 4 else 425

    async with bus:
        await bus.publish(Placed(1), headers={bus_headers.RETRY_COUNT: 10})
        await seen.wait(4)
    assert seen.all == [10] * 4, "a requeue is no retry"
    assert await depth(node.url, f"{prefix}.dlq.{prefix}-orders") == 0


async def test_delay_steps_have_a_queue_each_and_do_not_wait_for_each_other(
    node: Node, prefix: str
) -> None:
    bus = bus_of(node, f"{prefix}-orders", retry_delay_s=0.05)
    policy = RetryPolicy(retries_max=3, delays_s=(0.05, 0.1, 5.0))
    seen: Seen[tuple[int, int]] = Seen()

    @bus.on(Placed, retry=policy)
    async def fail(event: Placed, delivery: Delivery) -> int:
        await seen.add((event.number, delivery.retry_count))
        return 500

    async with bus:
        # The first message starts at the long delay; the later ones must not wait for it.
        await bus.publish(Placed(1), headers={bus_headers.RETRY_COUNT: 2})
        await seen.wait(1)
        await bus.publish(Placed(2))
        await seen.wait(4)
        assert await depth(node.url, f"{prefix}.retry-queue.{prefix}-orders.5000ms") == 2
    assert seen.all == [(1, 2), (2, 0), (2, 1), (2, 2)]


async def test_after_its_steps_a_message_is_dead_with_the_whole_count(
    node: Node, prefix: str
) -> None:
    bus = bus_of(node, f"{prefix}-orders")
    seen: Seen[int] = Seen()

    @bus.on(Placed, retry=RetryPolicy(retries_max=4, delays_s=(DELAY_S, 0.02, 0.04, DELAY_S)))
    async def fail(event: Placed, delivery: Delivery) -> int:
        await seen.add(delivery.retry_count)
        return 500

    async with bus:
        await bus.publish(Placed(1))
        dead = await take(node.url, f"{prefix}.dlq.{prefix}-orders")
    assert seen.all == [0, 1, 2, 3, 4]
    assert dead.headers["x-final-retry-count"] == 4


async def test_messages_of_another_program_are_handled(node: Node, prefix: str) -> None:
    bus = bus_of(node, f"{prefix}-orders")
    seen: Seen[tuple[str, bytes]] = Seen()

    @bus.on_message()
    async def any_message(delivery: Delivery) -> int:
        await seen.add((delivery.type, delivery.body))
        return 200

    async with bus:
        await put(node.url, f"{prefix}.main-exchange", "", b"not json", type="other")
        await put(node.url, f"{prefix}.main-exchange", "whatever", b"{}")
        await seen.wait(2)
    assert seen.all == [("other", b"not json"), ("", b"{}")]


async def test_an_event_without_a_handler_is_acked(node: Node, prefix: str) -> None:
    bus = bus_of(node, f"{prefix}-orders")
    seen: Seen[int] = Seen()

    @bus.on(Placed)
    async def note(event: Placed) -> None:
        await seen.add(event.number)

    async with bus:
        await put(node.url, f"{prefix}.main-exchange", "", b"{}", type="Unknown")
        await bus.publish(Placed(1))
        await seen.wait(1)
    assert await depth(node.url, f"{prefix}.queue.{prefix}-orders") == 0
    assert await depth(node.url, f"{prefix}.retry-queue.{prefix}-orders") == 0


@pytest.mark.parametrize("typed", [{}, {"x-queue-type": "classic"}], ids=["untyped", "typed"])
async def test_topology_of_another_program_is_accepted(
    node: Node, prefix: str, typed: dict[str, str]
) -> None:
    service = f"{prefix}-orders"
    queue, retry = f"{prefix}.queue.{service}", f"{prefix}.retry-exchange.{service}"
    waiting, dlq = f"{prefix}.retry-queue.{service}", f"{prefix}.dlq.{service}"
    async with channel(node.url) as other:
        main = await other.declare_exchange(f"{prefix}.main-exchange", "fanout", durable=True)
        back = await other.declare_exchange(retry, "direct", durable=True)
        rejected = {"x-dead-letter-exchange": retry, "x-dead-letter-routing-key": "retry"}
        declared = await other.declare_queue(queue, durable=True, arguments={**typed, **rejected})
        await declared.bind(main)
        later: dict[str, Any] = {
            "x-dead-letter-exchange": "",
            "x-dead-letter-routing-key": queue,
            "x-message-ttl": 5_000,
        }
        delayed = await other.declare_queue(waiting, durable=True, arguments={**typed, **later})
        await delayed.bind(back, "retry")
        await other.declare_queue(dlq, durable=True, arguments={**typed})
    bus = Bus(node.url, fanout.layout(service), settings=FAST)
    seen: Seen[int] = Seen()

    @bus.on(Placed)
    async def note(event: Placed) -> None:
        await seen.add(event.number)

    async with bus:
        await bus.publish(Placed(1))
        await seen.wait(1)
