"""A fault of the broker while it sends to one connection ends that connection alone.

The fault is raised when a function is entered for one connection, as a failed allocation would be.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import CodeType, FrameType

import pytest

from leveret.amqp.channel import Channel
from leveret.amqp.connection_base import ConnectionBase
from leveret.testing.disk import FakeDisk
from tests.compat.client import Method
from tests.protocol.stage import Peer, Stage, bodies, closes, method, publish
from tests.simulation.storage_stage import StorageStage

pytestmark = pytest.mark.interpreted_only("compiled functions cannot be made to fail")

FAILED = ("connection", 541, "INTERNAL_ERROR")


@contextmanager
def failing(code: CodeType, owner: object) -> Iterator[None]:
    """Let a method of one object fail."""

    def on_event(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code is code and frame.f_locals.get("self") is owner:
            raise MemoryError(code.co_qualname)

    sys.settrace(on_event)
    try:
        yield
    finally:
        sys.settrace(None)


def consumer(stage: Stage, *numbers: int) -> Peer:
    """Return a peer with a channel and a consumer of a queue for each number."""
    peer = stage.opened()
    for number in numbers:
        peer.open_channel(number)
        peer.send(number, "queue.declare", queue=f"q{number}", durable=True)
        peer.send(number, "basic.consume", queue=f"q{number}")
    return peer


def publisher(stage: Stage) -> Peer:
    peer = stage.opened()
    peer.open_channel(1)
    peer.send(1, "confirm.select")
    return peer


def acks(peer: Peer) -> list[str]:
    return [event.name for event in peer.take() if isinstance(event, Method)]


def test_fault_in_a_delivery_ends_its_connection_and_the_others_get_theirs() -> None:
    stage = Stage()
    broken = consumer(stage, 1)
    whole = consumer(stage, 2)
    source = publisher(stage)
    with failing(ConnectionBase.send_content.__code__, broken.connection):
        source.feed(publish(1, "q1", b"first") + publish(1, "q2", b"second"))
    assert bodies(whole.take()) == [b"second"]
    assert acks(source) == ["basic.ack"]
    assert closes(broken.take()) == [FAILED]
    (fault,) = stage.broker.turn.faults
    assert fault.startswith(f"sending deliveries to connection '{broken.connection.name}' failed")
    broken.lose()
    again = stage.opened()
    again.open_channel(1)
    assert bodies(again.send(1, "basic.get", queue="q1")) == [b"first"]


def test_fault_in_a_confirm_ends_its_connection_and_the_others_get_theirs() -> None:
    stage = Stage()
    broken = publisher(stage)
    whole = consumer(stage, 1)
    channel = broken.connection.channels[1]
    with failing(Channel.send_confirm.__code__, channel):
        broken.feed(publish(1, "q1", b"first"))
    assert bodies(whole.take()) == [b"first"]
    assert closes(broken.take()) == [FAILED]


def test_fault_in_the_end_of_a_consumer_ends_its_connection_and_the_others_get_theirs() -> None:
    stage = Stage()
    broken = consumer(stage, 1)
    whole = consumer(stage, 1)
    channel = broken.connection.channels[1]
    source = publisher(stage)
    with failing(Channel.send_ended.__code__, channel):
        source.feed(method(1, "queue.delete", queue="q1"))
    assert closes(broken.take()) == [FAILED]
    assert whole.names() == ["basic.cancel"]


def test_fault_in_a_confirm_after_the_sync_ends_its_connection_and_the_others_get_theirs() -> None:
    stage = StorageStage(FakeDisk())
    consumer(stage, 1).send(1, "basic.cancel", consumer_tag="")
    stage.sync_all()
    stage.holds = True
    broken = publisher(stage)
    whole = publisher(stage)
    persistent: dict[str, object] = {"delivery_mode": 2}
    broken.feed(publish(1, "q1", b"first", persistent))
    whole.feed(publish(1, "q1", b"second", persistent))
    with failing(Channel.send_confirm.__code__, broken.connection.channels[1]):
        stage.sync_all()
    assert acks(whole) == ["basic.ack"]
    assert closes(broken.take()) == [FAILED]
