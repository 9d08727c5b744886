"""Limits of the memory that a peer can occupy, and the closes that enforce them."""

from __future__ import annotations

import pytest

from leveret.amqp.channel import ROUTES_MAX
from leveret.amqp.connection_base import CREDIT_BYTES, ConnectionLimits
from leveret.errors import PreconditionFailedError
from tests.compat import wire
from tests.compat.client import Method
from tests.protocol.stage import Peer, Stage, bodies, closes, method, publish, tune_ok


def limited(**values: int) -> Stage:
    limits = ConnectionLimits()
    for name, value in values.items():
        assert hasattr(limits, name)
        setattr(limits, name, value)
    return Stage(limits)


def opened(stage: Stage) -> Peer:
    peer = stage.opened()
    peer.open_channel(1, 2)
    peer.send(1, "queue.declare", queue="q")
    return peer


def test_message_over_the_maximum_closes_the_channel_by_its_header() -> None:
    peer = opened(limited(message_bytes_max=1000))
    peer.feed(publish(1, "q", b"x" * 1000))
    assert peer.take() == []
    peer.feed(method(1, "basic.publish", routing_key="q"))
    peer.feed(wire.frame(wire.HEADER, 1, wire.header(1001, {})))
    (close,) = peer.take()
    assert closes([close]) == [
        (
            "channel",
            406,
            "PRECONDITION_FAILED - message size 1001 is larger than configured max size 1000",
        )
    ]
    assert isinstance(close, Method)
    assert (close.fields["class_id"], close.fields["method_id"]) == (60, 40)


def test_body_of_a_refused_message_is_dropped_and_the_channel_may_be_opened_again() -> None:
    peer = opened(limited(message_bytes_max=1000))
    peer.feed(publish(1, "q", b"x" * 9000))
    peer.take()
    peer.feed(publish(1, "q", b"x" * 100))
    assert peer.take() == []
    peer.feed(method(1, "channel.close-ok"))
    peer.open_channel(1)
    peer.feed(publish(1, "q", b"small"))
    assert bodies(peer.send(1, "basic.get", queue="q", no_ack=True)) == [b"small"]
    assert peer.connection.unfinished_bytes == 0


@pytest.mark.parametrize("size", [2**31, 2**32, 2**62, 2**63 - 1, 2**63, 2**64 - 1])
def test_announced_size_beyond_all_reason_is_refused(size: int) -> None:
    peer = opened(Stage())
    peer.feed(method(1, "basic.publish", routing_key="q"))
    peer.feed(wire.frame(wire.HEADER, 1, wire.header(size, {})))
    ((level, code, _),) = closes(peer.take())
    assert (level, code) in (("channel", 406), ("connection", 501))


def test_default_maximum_is_128_mebibytes() -> None:
    peer = opened(Stage())
    for size, is_refused in ((134_217_728, False), (134_217_729, True)):
        peer.feed(method(1, "basic.publish", routing_key="q"))
        peer.feed(wire.frame(wire.HEADER, 1, wire.header(size, {})))
        assert bool(closes(peer.take())) == is_refused
        peer = opened(Stage())


def test_incomplete_bodies_of_all_channels_are_bounded() -> None:
    stage = limited(message_bytes_max=10_000, unfinished_bytes_max=20_000)
    peer = stage.opened()
    peer.open_channel(*range(1, 6))
    for number in range(1, 6):
        peer.feed(method(number, "basic.publish", routing_key="q"))
        peer.feed(wire.frame(wire.HEADER, number, wire.header(10_000, {})))
    for number in range(1, 6):
        peer.feed(wire.frame(wire.BODY, number, b"x" * 4_000))
    assert peer.take() == []
    assert peer.connection.unfinished_bytes == 20_000
    peer.feed(wire.frame(wire.BODY, 5, b"x"))
    assert [close[:2] for close in closes(peer.take())] == [("connection", 530)]
    assert all(not channel.parts for channel in peer.connection.channels.values())


@pytest.mark.parametrize("end", ["complete", "error"])
def test_bytes_of_a_body_are_given_back(end: str) -> None:
    stage = limited(unfinished_bytes_max=5_000)
    peer = opened(stage)
    for _ in range(5):
        peer.feed(method(1, "basic.publish", routing_key="q"))
        peer.feed(wire.frame(wire.HEADER, 1, wire.header(4_000, {})))
        peer.feed(wire.frame(wire.BODY, 1, b"x" * 3_000))
        assert peer.connection.unfinished_bytes == 3_000
        if end == "complete":
            peer.feed(wire.frame(wire.BODY, 1, b"x" * 1_000))
            assert peer.take() == []
        else:
            peer.connection.fail_channel(1, PreconditionFailedError("for the test"))
            peer.feed(method(1, "channel.close-ok") + method(1, "channel.open"))
            peer.take()
        assert peer.connection.unfinished_bytes == 0


def test_open_channels_are_counted_not_their_numbers() -> None:
    peer = Stage().opened(tune_ok(channel_max=3))
    peer.open_channel(1, 65535, 500)
    assert closes(peer.send(2, "channel.open")) == [
        (
            "connection",
            530,
            "NOT_ALLOWED - number of channels opened (3) has reached the"
            " negotiated channel_max (3)",
        )
    ]


def test_closed_channel_makes_room() -> None:
    peer = Stage().opened(tune_ok(channel_max=2))
    peer.open_channel(1, 2)
    for _ in range(10):
        peer.send(1, "channel.close")
        peer.open_channel(1)


def test_channel_that_waits_for_close_ok_still_counts() -> None:
    peer = Stage().opened(tune_ok(channel_max=2))
    peer.open_channel(1, 2)
    peer.send(1, "queue.purge", queue="nope")
    assert [close[:2] for close in closes(peer.send(3, "channel.open"))] == [("connection", 530)]


def test_all_channels_that_were_offered_can_be_open() -> None:
    peer = Stage().opened()
    peer.open_channel(*range(1, 2048))
    assert [close[:2] for close in closes(peer.send(2048, "channel.open"))] == [("connection", 530)]


def test_transaction_is_bounded_in_bytes() -> None:
    """An open transaction counts like an incomplete body."""
    stage = limited(message_bytes_max=10_000, unfinished_bytes_max=20_000)
    peer = opened(stage)
    peer.send(1, "tx.select")
    for _ in range(100):
        if peer.connection.state != 4:
            break
        peer.feed(publish(1, "q", b"x" * 4_000))
    found = [close[:2] for close in closes(peer.take())]
    assert found
    assert found[0][1] in (406, 530)


def test_routes_that_a_connection_remembers_are_bounded() -> None:
    peer = opened(Stage())
    channels = peer.connection.channels
    for number in range(ROUTES_MAX + 10):
        channel = 1 + number % 2
        peer.feed(publish(channel, f"key{number}", b""))
        assert peer.connection.routes == sum(len(each.routes) for each in channels.values())
        assert peer.connection.routes <= ROUTES_MAX
    peer.send(2, "channel.close", reply_code=200, reply_text="", class_id=0, method_id=0)
    assert peer.connection.routes == len(channels[1].routes)


def test_unread_deliveries_are_bounded_by_credit() -> None:
    stage = Stage()
    publisher = opened(stage)
    consumer = stage.opened()
    consumer.open_channel(1)
    consumer.send(1, "basic.consume", queue="q", consumer_tag="t", no_ack=True)
    consumer.reads = False
    for _ in range(200):
        publisher.feed(publish(1, "q", b"x" * 10_000))
    held = len(consumer.received)
    assert held < 300_000
    other = stage.opened()
    other.open_channel(1)
    assert bodies(other.send(1, "basic.get", queue="q", no_ack=True)) == [b"x" * 10_000]
    while True:
        before = len(consumer.received)
        consumer.resume_reading()
        consumer.reads = False
        if len(consumer.received) == before:
            break
    assert len(bodies(consumer.take())) == 199


def test_gets_of_a_peer_that_does_not_read_wait_for_their_credit() -> None:
    stage = Stage()
    peer = opened(stage)
    body_bytes = 100_000
    for number in range(20):
        peer.feed(publish(1, "q", b"%02d" % number + b"x" * body_bytes))
    peer.take()
    peer.reads = False
    gets = method(1, "basic.get", queue="q", no_ack=True) * 21
    peer.feed(gets + method(1, "queue.declare", queue="later"))
    assert len(peer.received) < CREDIT_BYTES + 2 * body_bytes
    queue = stage.broker.vhost("/").queues["q"]
    assert queue.ready.count > 15
    peer.feed(method(1, "queue.declare", queue="last"))
    assert not {"later", "last"} & stage.broker.vhost("/").queues.keys()
    peer.resume_reading()
    events = [event for event in peer.take() if isinstance(event, Method)]
    assert [event.body[:2] for event in events[:20]] == [b"%02d" % n for n in range(20)]
    names = [event.name for event in events[20:]]
    assert names == ["basic.get-empty", "queue.declare-ok", "queue.declare-ok"]


def test_a_connection_with_waiting_gets_can_be_lost() -> None:
    stage = Stage()
    peer = opened(stage)
    for _ in range(8):
        peer.feed(publish(1, "q", b"x" * 100_000))
    peer.reads = False
    peer.feed(method(1, "basic.get", queue="q") * 8)
    queue = stage.broker.vhost("/").queues["q"]
    assert 0 < queue.unacked < 8
    peer.lose()
    assert (queue.ready.count, queue.unacked) == (8, 0)


def test_one_consumer_too_many_closes_the_connection() -> None:
    peer = opened(limited(consumer_max_per_channel=2))
    for channel, tag in ((1, "a"), (2, "b"), (1, "c")):
        peer.send(channel, "basic.consume", queue="q", consumer_tag=tag)
    peer.send(1, "basic.cancel", consumer_tag="a")
    assert closes(peer.send(1, "basic.consume", queue="q", consumer_tag="d")) == []
    assert closes(peer.send(1, "basic.consume", queue="q", consumer_tag="e")) == [
        ("connection", 530, "NOT_ALLOWED - reached maximum (2) of consumers per channel")
    ]


def test_cancellations_among_many_consumers_take_several_turns() -> None:
    peer = opened(limited())
    for number in range(2_000):
        peer.feed(method(1, "basic.consume", queue="q", consumer_tag=str(number)))
    broker = peer.stage.broker
    broker.begin_turn(peer.stage.now_ms)
    tags = b"".join(method(1, "basic.cancel", consumer_tag=str(n)) for n in range(2_000))
    peer.connection.feed(tags)
    assert peer.connection.has_rest
    peer.stage.end_turn()
    peer.feed(b"")  # the stage goes on with the rest
    assert broker.vhost("/").queues["q"].consumers == []
