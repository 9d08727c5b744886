"""The bus for programs without an event loop."""

from __future__ import annotations

import queue
import threading

import pytest

from leveret.bus import (
    Bus,
    Delivery,
    NotConnectedError,
    PublishOptions,
    QueueType,
    SyncBus,
    UnroutableError,
    topic,
)
from tests.bus.nodes import Node
from tests.bus.stage import FAST, Placed

pytestmark = pytest.mark.compiled_only("the library is the same in both forms")
WAIT_S = 60
TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def bus_of(node: Node, prefix: str) -> SyncBus:
    layout = topic.layout(f"{prefix}.events", queue_type=QueueType.CLASSIC, retry_delay_s=0.02)
    return SyncBus(Bus(node.url, layout, settings=FAST))


def test_handlers_run_in_threads_and_may_publish(node: Node, prefix: str) -> None:
    bus = bus_of(node, prefix)
    seen: queue.Queue[tuple[int, str | None, int]] = queue.Queue()

    @bus.on(Placed)
    def note(event: Placed, delivery: Delivery) -> None:
        seen.put((event.number, delivery.traceparent, threading.get_ident()))
        if event.number == 1:
            bus.publish(Placed(2))

    with bus:
        assert bus.health().is_consuming
        bus.publish(Placed(1), PublishOptions(traceparent=TRACE))
        first, second = seen.get(timeout=WAIT_S), seen.get(timeout=WAIT_S)
    assert (first[0], first[1], second[0]) == (1, TRACE, 2)
    assert second[1] is not None and second[1][:35] == TRACE[:35] and second[1] != TRACE
    assert threading.get_ident() not in (first[2], second[2])


def test_errors_and_batches_are_the_same(node: Node, prefix: str) -> None:
    bus = bus_of(node, prefix)
    with pytest.raises(NotConnectedError):
        bus.publish(Placed(1))
    seen: queue.Queue[int] = queue.Queue()

    @bus.on(Placed)
    def note(event: Placed) -> None:
        seen.put(event.number)

    with bus:
        with pytest.raises(UnroutableError):
            bus.publish(Placed(1), PublishOptions(routing_key=f"{prefix}.nowhere"))
        for number in range(50):
            bus.send(Placed(number))
        assert bus.wait_for_confirms(60.0)
        assert sorted(seen.get(timeout=WAIT_S) for _ in range(50)) == list(range(50))
        bus.send(Placed(1), PublishOptions(routing_key=f"{prefix}.nowhere"))
        assert not bus.wait_for_confirms(10.0)
        assert len(bus.take_failures()) == 1


def test_an_async_handler_must_not_wait_for_its_own_loop(node: Node, prefix: str) -> None:
    bus = bus_of(node, prefix)
    seen: queue.Queue[str] = queue.Queue()

    @bus.on(Placed)
    async def wrong(event: Placed) -> None:
        try:
            bus.publish(Placed(2))
        except RuntimeError as fault:
            seen.put(str(fault))

    with bus:
        bus.publish(Placed(1))
        assert "async handler" in seen.get(timeout=WAIT_S)
