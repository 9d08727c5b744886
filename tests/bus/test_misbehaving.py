"""Programs that misuse a bus on a broker: nothing hangs and nothing is lost silently."""

from __future__ import annotations

import asyncio
import os
import queue
import select
import signal
import threading
from dataclasses import replace
from typing import Any

import pytest

from leveret.bus import (
    Bus,
    EncodeError,
    NotConnectedError,
    PublishClosedError,
    PublishError,
    QueueType,
    SyncBus,
    TooLargeError,
    TopologyMismatchError,
    UnroutableError,
    consuming,
    fanout,
    publishing,
    topic,
)
from tests.bus.nodes import Node
from tests.bus.stage import FAST, WAIT_S, Placed, Seen, channel, depth, pytestmark_bus
from tests.proxy import proxy

pytestmark = pytestmark_bus


def plain(queue: str, **options: Any) -> Any:
    return topic.layout(queue, queue_type=QueueType.CLASSIC, **options)


async def test_a_start_that_failed_may_be_tried_again(node: Node, prefix: str) -> None:
    """A service may start again and again until its broker is there."""
    bus = Bus(node.url, plain(f"{prefix}.events"), settings=FAST)
    seen: Seen[int] = Seen()

    @bus.on(Placed)
    async def note(event: Placed) -> None:
        await seen.add(event.number)

    with pytest.raises(NotConnectedError):
        await bus.start(timeout_s=0.0)
    for number in (1, 2):  # a stopped bus may start again too
        async with bus:
            await bus.publish(Placed(number))
            await seen.wait(number)
    assert seen.all == [1, 2]


def test_a_bus_whose_loop_has_ended_says_so_and_starts_on_the_next(node: Node, prefix: str) -> None:
    bus = Bus(node.url, fanout.layout(f"{prefix}-loops"), settings=FAST)
    asyncio.run(bus.start())  # this closes the loop, and ends its tasks

    async def publish() -> None:
        with pytest.raises(RuntimeError, match="another event loop"):
            await bus.publish(Placed(1))
        async with bus:
            await bus.publish(Placed(1))

    asyncio.run(publish())


async def test_a_handler_that_does_not_end_cannot_keep_a_bus_from_stopping(
    node: Node, prefix: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(consuming, "CANCEL_TIMEOUT_S", 0.1)
    bus = Bus(node.url, plain(f"{prefix}.events"), settings=replace(FAST, stop_deadline_s=0.0))
    began, over = asyncio.Event(), asyncio.Event()

    @bus.on(Placed)
    async def deaf(event: Placed) -> None:
        began.set()
        while not over.is_set():
            try:
                await over.wait()
            except asyncio.CancelledError:
                continue

    async with asyncio.timeout(WAIT_S):
        await bus.start()
        await bus.publish(Placed(1))
        await began.wait()
        await bus.stop()
    assert "1 handlers still run after they were cancelled" in caplog.text
    over.set()
    assert await depth(node.url, f"{prefix}.events") == 1


async def test_waiting_delivery_of_a_lost_session_is_not_handled(node: Node, prefix: str) -> None:
    """The broker delivers the message again, so a copy would be handled twice."""
    settings = replace(FAST, concurrency=1)
    async with proxy(node.port) as line:
        bus = Bus(line.url, plain(f"{prefix}.events"), settings=settings)
        held = asyncio.Event()
        seen: Seen[int] = Seen()

        @bus.on(Placed)
        async def hold(event: Placed) -> None:
            await seen.add(event.number)
            if event.number == 0:
                await held.wait()

        async with bus:
            for number in range(2):
                await bus.publish(Placed(number))
            await seen.wait(1)
            consumer = bus._consumer
            assert consumer is not None
            sessions = consumer.connection.session_count
            while len(consumer._working) < 2:  # noqa: ASYNC110 there is no event
                await asyncio.sleep(0.01)
            line.reset()
            async with asyncio.timeout(WAIT_S):
                # Wait until the new session has received both of them.
                while consumer.connection.session_count == sessions or len(consumer._working) < 3:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
            held.set()
            await bus.publish(Placed(99))
            await seen.wait_for({1, 99})
        # The handler of message 0 had begun. It is not called again for the second delivery.
        assert sorted(seen.all) == [0, 1, 99]


async def test_headers_that_fit_no_frame_do_not_close_the_connection(
    node: Node, prefix: str
) -> None:
    async with Bus(node.url, fanout.layout(f"{prefix}-headers"), settings=FAST) as bus:
        publisher = bus._publisher
        assert publisher is not None
        with pytest.raises(TooLargeError, match="for all headers"):
            await bus.publish(Placed(1), headers={"large": "x" * 200_000})
        names: Any = {1: "one"}
        with pytest.raises(EncodeError, match="a header name must be a str"):
            await bus.publish(Placed(1), headers=names)
        await bus.publish(Placed(1), headers={"large": "x" * 100_000})
        assert publisher.connection.session_count == 1


async def test_no_failure_of_a_batch_is_forgotten(
    node: Node, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publishing, "FAILURES_MAX", 3)
    async with Bus(node.url, topic.publisher(f"{prefix}.events"), settings=FAST) as bus:
        sent = [await bus.send(Placed(number)) for number in range(5)]
        assert not await bus.wait_for_confirms(10.0)
        with pytest.raises(PublishError, match="5 failures wait for take_failures"):
            await bus.send(Placed(6))
        failures = bus.take_failures()
        assert {each.message_id for each in failures if isinstance(each, UnroutableError)} == set(
            sent
        )
        await bus.send(Placed(7))


async def test_stop_reports_publishes_that_it_ended(node: Node, prefix: str) -> None:
    async with proxy(node.port) as line:
        bus = Bus(line.url, fanout.layout(f"{prefix}-batch"), settings=FAST)
        await bus.start()
        line.silence()
        sent = await bus.send(Placed(1))
        await bus.stop(deadline_s=0.0)
        (failure,) = bus.take_failures()
        assert isinstance(failure, PublishClosedError) and failure.message_id == sent
        with pytest.raises(PublishClosedError):
            await bus.send(Placed(2))


async def test_publish_fails_after_the_topology_was_changed(node: Node, prefix: str) -> None:
    queue = f"{prefix}.events"
    async with proxy(node.port) as line:
        # No probe may restore the queue that the test deletes.
        settings = replace(FAST, probe_interval_s=60.0)
        bus = Bus(line.url, plain(queue), settings=settings)

        @bus.on(Placed)
        async def note(event: Placed) -> None: ...

        async with bus:
            async with channel(node.url) as other:
                await other.queue_delete(f"{queue}.retry")
                arguments: dict[str, Any] = {"x-message-ttl": 77}
                await other.declare_queue(f"{queue}.retry", durable=True, arguments=arguments)
            line.reset()
            async with asyncio.timeout(WAIT_S):
                with pytest.raises(PublishClosedError, match=r"events\.retry") as refused:
                    while True:
                        await bus.publish(Placed(1))
            assert isinstance(refused.value.__cause__, TopologyMismatchError)


def _answer_of_child(bus: SyncBus) -> str:
    """Return the error of a publish in a forked child."""
    read, write = os.pipe()
    child = os.fork()
    if not child:
        try:
            bus.publish(Placed(1))
        except BaseException as fault:
            os.write(write, f"{type(fault).__name__}: {fault}".encode())
        finally:
            os._exit(0)
    try:
        ready, _, _ = select.select([read], [], [], WAIT_S)
        return os.read(read, 1000).decode() if ready else "nothing"
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(read)
        os.close(write)


def test_publish_in_a_forked_child_raises(node: Node, prefix: str) -> None:
    with SyncBus(Bus(node.url, fanout.layout(f"{prefix}-fork"), settings=FAST)) as bus:
        assert _answer_of_child(bus).startswith("NotConnectedError: the bus was started before")
        bus.publish(Placed(2))  # the bus of the parent still works


def test_a_call_that_is_not_over_when_the_bus_stops_ends(node: Node, prefix: str) -> None:
    """A call on a loop that does not run any more must end too."""
    bus = SyncBus(Bus(node.url, fanout.layout(f"{prefix}-stop"), settings=FAST))
    waits = threading.Event()
    ended: queue.Queue[BaseException] = queue.Queue()

    async def wait() -> None:
        waits.set()
        await asyncio.Event().wait()

    def call() -> None:
        try:
            bus._call(wait())
        except BaseException as fault:
            ended.put(fault)

    bus.start()
    threading.Thread(target=call, daemon=True).start()
    assert waits.wait(WAIT_S)
    bus.stop()
    assert isinstance(ended.get(timeout=WAIT_S), NotConnectedError)
    with bus:
        bus.publish(Placed(1))
