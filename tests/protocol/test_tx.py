"""Transactions: no effect before the commit or after a rollback; tags are settled once.

RabbitMQ 3.10.8 behaves as asserted here.
"""

from __future__ import annotations

import pytest

from leveret.amqp.connection_base import ConnectionLimits
from tests.compat.client import Method
from tests.protocol.stage import Event, Peer, Stage, bodies, closes, method, publish


def transactional(messages: int = 0) -> Peer:
    """A peer in tx mode with a queue `q` that holds some messages."""
    peer = Stage().opened()
    peer.open_channel(1, 2)
    peer.send(1, "queue.declare", queue="q")
    peer.feed(b"".join(publish(2, "q", b"%d" % number) for number in range(messages)))
    peer.send(1, "tx.select")
    return peer


def ready(peer: Peer) -> int:
    return int(peer.stage.broker.vhost("/").queues["q"].ready.count)


def unacked(peer: Peer) -> int:
    return int(peer.stage.broker.vhost("/").queues["q"].unacked)


def get(peer: Peer) -> Method:
    (answer,) = peer.send(1, "basic.get", queue="q")
    assert isinstance(answer, Method)
    assert answer.name == "basic.get-ok"
    return answer


def names(events: list[Event]) -> list[str]:
    return [event.name for event in events if isinstance(event, Method)]


def test_publishes_are_seen_after_the_commit_in_order() -> None:
    peer = transactional()
    peer.feed(publish(1, "q", b"a") + publish(1, "q", b"b"))
    assert ready(peer) == 0
    assert names(peer.send(1, "tx.commit")) == ["tx.commit-ok"]
    assert [get(peer).body, get(peer).body] == [b"a", b"b"]


def test_rollback_forgets_publishes_and_a_new_transaction_begins() -> None:
    peer = transactional()
    peer.feed(publish(1, "q", b"gone"))
    assert names(peer.send(1, "tx.rollback")) == ["tx.rollback-ok"]
    peer.feed(publish(1, "q", b"kept"))
    peer.send(1, "tx.commit")
    assert get(peer).body == b"kept"
    assert ready(peer) == 0


def test_close_of_the_channel_rolls_back() -> None:
    for data in (method(1, "channel.close"), method(1, "queue.purge", queue="nope")):
        peer = transactional(1)
        get(peer)
        peer.feed(publish(1, "q", b"gone") + method(1, "basic.ack", delivery_tag=1))
        peer.feed(data)
        assert (ready(peer), unacked(peer)) == (1, 0)


def test_acks_count_after_the_commit() -> None:
    peer = transactional(3)
    for _ in range(3):
        get(peer)
    peer.feed(method(1, "basic.ack", delivery_tag=2))
    peer.feed(method(1, "basic.nack", delivery_tag=3, requeue=True))
    peer.feed(method(1, "basic.reject", delivery_tag=1))
    assert (ready(peer), unacked(peer)) == (0, 3)
    peer.send(1, "tx.commit")
    assert (ready(peer), unacked(peer)) == (1, 0)
    assert get(peer).body == b"2"


def test_rollback_makes_tags_ackable_again() -> None:
    peer = transactional(2)
    get(peer)
    get(peer)
    peer.feed(method(1, "basic.ack", delivery_tag=1))
    peer.feed(method(1, "basic.ack", delivery_tag=2, multiple=True))
    peer.send(1, "tx.rollback")
    assert unacked(peer) == 2
    peer.feed(method(1, "basic.ack", delivery_tag=1))
    peer.feed(method(1, "basic.nack", delivery_tag=2))
    assert names(peer.send(1, "tx.commit")) == ["tx.commit-ok"]
    assert (ready(peer), unacked(peer)) == (0, 0)


@pytest.mark.parametrize("settle", ["basic.ack", "basic.reject", "basic.nack"])
def test_unknown_tag_is_refused_at_once(settle: str) -> None:
    peer = transactional()
    assert closes(peer.send(1, settle, delivery_tag=9)) == [
        ("channel", 406, "PRECONDITION_FAILED - unknown delivery tag 9")
    ]


@pytest.mark.parametrize("again", ["basic.ack", "basic.reject", "basic.nack"])
def test_tag_settled_twice_in_one_transaction_is_refused_at_once(again: str) -> None:
    peer = transactional(1)
    get(peer)
    peer.feed(publish(1, "q", b"gone"))
    assert peer.send(1, "basic.ack", delivery_tag=1) == []
    assert closes(peer.send(1, again, delivery_tag=1)) == [
        ("channel", 406, "PRECONDITION_FAILED - unknown delivery tag 1")
    ]
    assert (ready(peer), unacked(peer)) == (1, 0)


def test_ack_of_all_does_not_reach_what_is_delivered_after_it() -> None:
    """Otherwise a message that the client has never seen would be acked and lost."""
    peer = transactional(2)
    get(peer)
    peer.feed(method(1, "basic.ack", delivery_tag=0, multiple=True))
    get(peer)
    assert names(peer.send(1, "tx.commit")) == ["tx.commit-ok"]
    assert unacked(peer) == 1
    assert peer.send(1, "basic.ack", delivery_tag=2) == []
    peer.send(1, "tx.commit")
    assert unacked(peer) == 0


def test_recover_leaves_alone_what_is_settled_in_the_transaction() -> None:
    peer = transactional(2)
    get(peer)
    get(peer)
    peer.feed(method(1, "basic.ack", delivery_tag=1))
    assert names(peer.send(1, "basic.recover", requeue=True)) == ["basic.recover-ok"]
    assert names(peer.send(1, "tx.commit")) == ["tx.commit-ok"]
    assert (ready(peer), unacked(peer)) == (1, 0)
    assert get(peer).body == b"1"


def test_returns_come_with_the_commit_and_before_its_answer() -> None:
    peer = transactional()
    peer.feed(publish(1, "nowhere", b"back", mandatory=True))
    assert peer.take() == []
    events = peer.send(1, "tx.commit")
    assert names(events) == ["basic.return", "tx.commit-ok"]
    assert bodies(events) == [b"back"]


def test_publish_to_a_missing_exchange_is_refused_at_once() -> None:
    peer = transactional()
    peer.feed(publish(1, "k", b"x", exchange="nope"))
    assert [close[:2] for close in closes(peer.take())] == [("channel", 404)]


def test_exchange_that_goes_before_the_commit_harms_nobody() -> None:
    """The routes are found when a message is published; a commit cannot fail half-way."""
    peer = transactional()
    peer.send(2, "exchange.declare", exchange="x", type="fanout")
    peer.send(2, "queue.bind", queue="q", exchange="x")
    peer.feed(publish(1, "q", b"1") + publish(1, "", b"2", exchange="x") + publish(1, "q", b"3"))
    peer.send(2, "exchange.delete", exchange="x")
    assert names(peer.send(1, "tx.commit")) == ["tx.commit-ok"]
    assert ready(peer) >= 2


def test_empty_commit_and_rollback_are_answered() -> None:
    peer = transactional()
    for name in ("tx.commit", "tx.rollback", "tx.select", "tx.commit"):
        assert names(peer.send(1, name)) == [f"{name}-ok"]


def test_transaction_is_of_one_channel() -> None:
    peer = transactional()
    peer.feed(publish(1, "q", b"waits") + publish(2, "q", b"goes"))
    assert ready(peer) == 1
    assert closes(peer.send(2, "tx.commit")) == [
        ("channel", 406, "PRECONDITION_FAILED - channel is not transactional")
    ]


def test_refused_publish_makes_the_commit_fail() -> None:
    peer = transactional()
    peer.send(
        2,
        "queue.declare",
        queue="full",
        arguments={"x-max-length": 0, "x-overflow": "reject-publish"},
    )
    peer.feed(publish(1, "full", b"x"))
    assert closes(peer.send(1, "tx.commit")) == [
        ("channel", 406, "PRECONDITION_FAILED - partial tx completion")
    ]


def limited(steps: int) -> Peer:
    """A peer in tx mode that may make so many steps, with a fanout `f` of three queues."""
    limits = ConnectionLimits()
    limits.transaction_steps_max = steps
    peer = Stage(limits).opened()
    peer.open_channel(1, 2)
    peer.send(1, "queue.declare", queue="q")
    peer.send(1, "exchange.declare", exchange="f", type="fanout")
    for number in range(3):
        peer.send(1, "queue.declare", queue=f"f{number}")
        peer.send(1, "queue.bind", queue=f"f{number}", exchange="f")
    peer.send(1, "tx.select")
    return peer


def too_many(steps: int) -> list[tuple[str, int, str]]:
    text = (
        f"PRECONDITION_FAILED - transaction of over {steps} steps (publishes, their copies in "
        "queues, and settled messages): commit more often, or raise transaction_steps_max"
    )
    return [("channel", 406, text)]


def copies(peer: Peer) -> int:
    return sum(queue.ready.count for queue in peer.stage.broker.vhost("/").queues.values())


def test_commit_of_too_many_copies_is_refused_before_anything_is_done() -> None:
    peer = limited(8)
    peer.feed(publish(1, "", b"x", exchange="f") * 2)
    assert names(peer.send(1, "tx.commit")) == ["tx.commit-ok"]
    assert copies(peer) == 6
    peer.feed(publish(1, "q", b"x") + publish(1, "", b"x", exchange="f") * 2)
    assert closes(peer.send(1, "tx.commit")) == too_many(8)
    assert copies(peer) == 6


def test_copies_are_counted_with_the_bindings_of_the_commit() -> None:
    peer = limited(5)
    peer.send(2, "exchange.declare", exchange="h", type="headers")
    peer.feed(publish(1, "", b"x", exchange="h") * 2)
    for number in range(3):
        peer.send(2, "queue.bind", queue=f"f{number}", exchange="h")
    assert closes(peer.send(1, "tx.commit")) == too_many(5)
    assert copies(peer) == 0


def test_publishes_without_copies_are_limited_too() -> None:
    peer = limited(3)
    peer.feed(publish(1, "nowhere", b"x") * 3)
    assert names(peer.send(1, "tx.commit")) == ["tx.commit-ok"]
    peer.feed(publish(1, "nowhere", b"x") * 4)
    assert closes(peer.take()) == too_many(3)


def test_settled_messages_are_limited_and_come_back() -> None:
    peer = limited(3)
    peer.feed(publish(2, "q", b"x") * 4)
    for _ in range(4):
        get(peer)
    peer.feed(method(1, "basic.ack", delivery_tag=4, multiple=True))
    assert closes(peer.take()) == too_many(3)
    assert (ready(peer), unacked(peer)) == (4, 0)


def test_exchange_that_becomes_internal_makes_the_commit_fail_as_a_whole() -> None:
    peer = limited(100)
    peer.send(2, "exchange.declare", exchange="x", type="fanout")
    peer.feed(publish(1, "q", b"1") + publish(1, "", b"2", exchange="x"))
    peer.send(2, "exchange.delete", exchange="x")
    peer.send(2, "exchange.declare", exchange="x", type="fanout", internal=True)
    assert [close[:2] for close in closes(peer.send(1, "tx.commit"))] == [("channel", 403)]
    assert copies(peer) == 0
