"""Handlers: threads, concurrency, stopping, middleware and idempotency."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from leveret.bus import (
    Bus,
    BusSettings,
    ClaimState,
    Delivery,
    DeliveryOutcome,
    HandlerResult,
    Layout,
    MemoryStore,
    Next,
    QueueType,
    RetryPolicy,
    SqliteStore,
    topic,
)
from leveret.bus.idempotency import IdempotencyStore
from leveret.clock import Clock
from tests.bus.nodes import Node
from tests.bus.stage import FAST, WAIT_S, Placed, Seen, depth, pytestmark_bus

pytestmark = pytestmark_bus
HEARTBEAT_S = 3


def layout_of(prefix: str) -> Layout:
    return topic.layout(f"{prefix}.events", queue_type=QueueType.CLASSIC, retry_delay_s=0.03)


async def test_a_plain_function_runs_off_the_loop(node: Node, prefix: str) -> None:
    """A handler blocks for longer than the heartbeat timeout, and the connection stays."""
    settings = replace(FAST, heartbeat_s=HEARTBEAT_S)
    bus = Bus(node.url, layout_of(prefix), settings=settings)
    seen: Seen[tuple[int, bool, bool]] = Seen()
    loop = asyncio.get_running_loop()
    blocked = threading.Event()

    @bus.on(Placed)
    def block(event: Placed, delivery: Delivery) -> int:
        is_on_loop = threading.current_thread() is threading.main_thread()
        blocked.wait(2 * HEARTBEAT_S + 1)
        noted = seen.add((event.number, is_on_loop, delivery.is_redelivered))
        asyncio.run_coroutine_threadsafe(noted, loop).result()
        return 200

    async with bus:
        await bus.publish(Placed(1))
        assert await seen.wait(1) == [(1, False, False)]
        assert (await bus.health()).is_consuming
    assert await depth(node.url, f"{prefix}.events") == 0


async def test_concurrency_limits_running_handlers(node: Node, prefix: str) -> None:
    bus = Bus(node.url, layout_of(prefix), settings=replace(FAST, concurrency=3))
    most = 0
    running = 0
    full = asyncio.Event()
    seen: Seen[int] = Seen()

    @bus.on(Placed)
    async def count(event: Placed) -> None:
        nonlocal most, running
        running += 1
        most = max(most, running)
        if running == 3:
            full.set()
        await full.wait()
        await asyncio.sleep(0.01)
        running -= 1
        await seen.add(event.number)

    async with bus:
        for number in range(20):
            await bus.publish(Placed(number))
        await seen.wait(20)
    assert most == 3


async def test_stop_waits_for_running_handlers(node: Node, prefix: str) -> None:
    bus = Bus(node.url, layout_of(prefix), settings=replace(FAST, concurrency=2))
    began, may_end = asyncio.Event(), asyncio.Event()
    seen: Seen[int] = Seen()

    @bus.on(Placed)
    async def work(event: Placed) -> None:
        began.set()
        await may_end.wait()
        await seen.add(event.number)

    await bus.start()
    for number in range(5):
        await bus.publish(Placed(number))
    await began.wait()
    stopping = asyncio.get_running_loop().create_task(bus.stop())
    # Longer than the probe interval: a probe must accept that the consumer was cancelled.
    await asyncio.sleep(3 * FAST.probe_interval_s)
    assert not stopping.done()
    may_end.set()
    await stopping
    assert sorted(seen.all) == [0, 1], "no handler was begun after the stop"
    assert await depth(node.url, f"{prefix}.events") == 3


async def test_a_probe_that_a_stop_overtakes_does_not_end_the_session(
    node: Node, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a running handler could not ack, and its message would be handled twice."""
    bus = Bus(node.url, layout_of(prefix), settings=FAST)
    began, may_end = asyncio.Event(), asyncio.Event()
    is_probing, may_probe = asyncio.Event(), asyncio.Event()

    @bus.on(Placed)
    async def work(event: Placed) -> None:
        began.set()
        await may_end.wait()

    await bus.start()
    await bus.publish(Placed(1))
    await began.wait()
    assert bus._consumer is not None
    session = bus._consumer.connection.session
    assert session is not None
    probe = session.probe

    async def late_probe() -> str:
        is_probing.set()
        await may_probe.wait()
        return await probe()

    monkeypatch.setattr(session, "probe", late_probe)
    await is_probing.wait()
    stopping = asyncio.get_running_loop().create_task(bus.stop())
    consumers = session.channel.consumers  # type: ignore[attr-defined]
    async with asyncio.timeout(WAIT_S):
        while session.consumer_tag in consumers:  # noqa: ASYNC110 there is no event
            await asyncio.sleep(0.01)
    is_checked = asyncio.Event()
    check = session.check

    async def noted_check() -> str:
        is_checked.set()
        return await check()

    monkeypatch.setattr(session, "check", noted_check)
    may_probe.set()
    async with asyncio.timeout(WAIT_S):
        # A session that was lost is not checked again.
        while not (is_checked.is_set() or session.is_lost):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    may_end.set()
    await stopping
    assert is_checked.is_set(), "the session was lost"
    assert await depth(node.url, f"{prefix}.events") == 0


async def test_stop_requeues_after_the_deadline(node: Node, prefix: str) -> None:
    bus = Bus(node.url, layout_of(prefix), settings=FAST)
    began = asyncio.Event()

    @bus.on(Placed)
    async def hang(event: Placed) -> None:
        began.set()
        await asyncio.Event().wait()

    await bus.start()
    await bus.publish(Placed(1))
    await began.wait()
    await bus.stop(deadline_s=0.1)
    assert await depth(node.url, f"{prefix}.events") == 1


async def test_middleware_is_around_the_handler(node: Node, prefix: str) -> None:
    seen: Seen[str] = Seen()

    async def outer(delivery: Delivery, call: Next) -> HandlerResult:
        await seen.add("outer before")
        result = await call(delivery)
        await seen.add(f"outer after {result.outcome}")
        return result

    async def inner(delivery: Delivery, call: Next) -> HandlerResult:
        if delivery.retry_count == 0:
            await seen.add("inner retries")
            return HandlerResult(DeliveryOutcome.RETRY, error="not yet")
        return await call(delivery)

    bus = Bus(node.url, layout_of(prefix), settings=FAST, middleware=[outer, inner])

    @bus.on(Placed)
    async def note(event: Placed, delivery: Delivery) -> None:
        await seen.add("handler")
        if delivery.retry_count == 1:
            raise RuntimeError("middleware sees a result")

    async with bus:
        await bus.publish(Placed(1))
        await seen.wait(9)
    assert seen.all == [
        "outer before",
        "inner retries",
        "outer after retry",
        "outer before",
        "handler",
        "outer after retry",
        "outer before",
        "handler",
        "outer after ack",
    ]


def memory_store(path: Path) -> IdempotencyStore:
    return MemoryStore()


def sqlite_store(path: Path) -> IdempotencyStore:
    return SqliteStore(path / "handled.db")


@pytest.mark.parametrize("make", [memory_store, sqlite_store])
async def test_a_duplicate_is_handled_once(
    node: Node, prefix: str, tmp_path: Path, make: Callable[[Path], IdempotencyStore]
) -> None:
    store = make(tmp_path)
    bus = Bus(node.url, layout_of(prefix), settings=FAST, idempotency=store)
    seen: Seen[int] = Seen()

    @bus.on(Placed)
    async def fail_once(event: Placed, delivery: Delivery) -> int:
        await seen.add(event.number)
        return 500 if event.number == 1 and delivery.retry_count == 0 else 200

    async with bus:
        await bus.publish(Placed(1), message_id="same")
        await seen.wait(2)  # a failed message is not remembered as handled
        await bus.publish(Placed(1), message_id="same")
        await bus.publish(Placed(2), message_id="other")
        await seen.wait(3)
    assert seen.all == [1, 1, 2]
    assert await depth(node.url, f"{prefix}.events") == 0
    if isinstance(store, SqliteStore):
        store.close()
        again = SqliteStore(tmp_path / "handled.db")
        state = await again.claim(f"{prefix}.events/same", "other", 1.0)
        assert state is ClaimState.DONE, "it is remembered over a restart"
        again.close()


async def test_delayed_messages_wait_in_a_queue_of_their_own(node: Node, prefix: str) -> None:
    """However many wait, the messages behind them are handled."""
    bus = Bus(node.url, layout_of(prefix), settings=replace(FAST, concurrency=1))
    seen: Seen[int] = Seen()

    @bus.on(Placed)
    async def note(event: Placed) -> None:
        await seen.add(event.number)

    async with bus:
        for number in range(10):
            await bus.publish(Placed(number), delay_s=100.0)
        await bus.publish(Placed(10))
        assert await seen.wait(1) == [10]
    assert await depth(node.url, f"{prefix}.events.retry.64000ms") == 10
    assert await depth(node.url, f"{prefix}.events") == 0


def test_times_of_the_settings_are_checked() -> None:
    with pytest.raises(ValueError, match="early_wait_s"):
        BusSettings(early_wait_s=0.0)


async def test_a_retry_with_jitter_waits_for_its_time(node: Node, prefix: str) -> None:
    clock = Clock()
    bus = Bus(node.url, layout_of(prefix), settings=FAST)
    seen: Seen[tuple[int, int, int]] = Seen()

    @bus.on(Placed, retry=RetryPolicy(2, (0.02, 5.0), jitter=1.0))
    async def handle(event: Placed, delivery: Delivery) -> int:
        retry_at_ms = int(delivery.headers.get("x-retry-at-ms", 0))
        await seen.add((delivery.retry_count, retry_at_ms, clock.now_ms()))
        return 200 if delivery.retry_count else 500

    async with bus:
        began_ms = clock.now_ms()
        await bus.publish(Placed(1))
        first, second = await seen.wait(2)
    assert first[:2] == (0, 0)
    assert second[0] == 1
    assert began_ms + 20 <= second[1] <= second[2]
