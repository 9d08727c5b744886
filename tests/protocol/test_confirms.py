"""Confirms: each publish is acked or nacked once, in order, with one frame per turn."""

from __future__ import annotations

from random import Random

from tests.compat.client import Method
from tests.protocol.stage import Event, Peer, Stage, closes, method, publish


def confirming(queue: dict[str, object] | None = None) -> Peer:
    """A peer in confirm mode with a queue `q`."""
    peer = Stage().opened()
    peer.open_channel(1)
    peer.send(1, "queue.declare", queue="q", arguments=queue or {})
    peer.send(1, "confirm.select")
    return peer


def confirms(events: list[Event]) -> list[tuple[str, int, bool]]:
    return [
        (event.name, event.tag, event.fields["multiple"] is True)
        for event in events
        if isinstance(event, Method) and event.name in ("basic.ack", "basic.nack")
    ]


FULL: dict[str, object] = {"x-max-length": 2, "x-overflow": "reject-publish"}


def test_publishes_of_one_turn_are_acked_by_one_multiple() -> None:
    peer = confirming()
    peer.feed(publish(1, "q", b"x") * 10)
    assert confirms(peer.take()) == [("basic.ack", 10, True)]
    peer.feed(publish(1, "q", b"x"))
    assert confirms(peer.take()) == [("basic.ack", 11, False)]
    peer.feed(publish(1, "q", b"x") * 2)
    assert confirms(peer.take()) == [("basic.ack", 13, True)]


def test_refused_publishes_are_nacked_between_the_acks() -> None:
    peer = confirming(FULL)
    peer.feed(publish(1, "q", b"1") * 5 + publish(1, "nowhere", b"6") + publish(1, "q", b"7"))
    assert confirms(peer.take()) == [
        ("basic.ack", 2, True),
        ("basic.nack", 3, False),
        ("basic.nack", 4, False),
        ("basic.nack", 5, False),
        ("basic.ack", 6, False),
        ("basic.nack", 7, False),
    ]


def test_first_publish_may_be_refused() -> None:
    peer = confirming({"x-max-length": 0, "x-overflow": "reject-publish"})
    peer.feed(publish(1, "q", b"x") + publish(1, "nowhere", b"x") * 2)
    assert confirms(peer.take()) == [("basic.nack", 1, False), ("basic.ack", 3, True)]


def test_multiple_never_covers_a_refused_one() -> None:
    """Random mixtures: expanding the multiples gives each number once, with the right verdict."""
    rng = Random(7)
    for _ in range(50):
        peer = confirming(FULL)
        expected: list[str] = []
        for _ in range(rng.randrange(1, 6)):
            data = b""
            for _ in range(rng.randrange(1, 8)):
                to_full = rng.random() < 0.5
                is_refused = to_full and expected.count("q") >= 2
                expected.append("basic.nack" if is_refused else "q" if to_full else "basic.ack")
                data += publish(1, "q" if to_full else "nowhere", b"x")
            peer.feed(data)
        settled: list[str] = []
        for name, tag, multiple in confirms(peer.take()):
            assert multiple or tag == len(settled) + 1
            settled.extend([name] * (tag - len(settled)))
        assert settled == ["basic.ack" if verdict == "q" else verdict for verdict in expected]


def test_unroutable_is_acked_and_a_return_comes_before_its_ack() -> None:
    peer = confirming()
    peer.feed(publish(1, "nowhere", b"back", {"message_id": "m"}, mandatory=True))
    returned, acked = peer.take()
    assert isinstance(returned, Method)
    assert returned.fields == {
        "reply_code": 312,
        "reply_text": "NO_ROUTE",
        "exchange": "",
        "routing_key": "nowhere",
    }
    assert returned.body == b"back"
    assert returned.content is not None
    assert returned.content.properties == {"message_id": "m"}
    assert confirms([acked]) == [("basic.ack", 1, False)]


def test_all_returns_of_a_turn_come_before_the_ack_that_covers_them() -> None:
    peer = confirming()
    peer.feed((publish(1, "q", b"a") + publish(1, "nowhere", b"b", mandatory=True)) * 3)
    names = peer.names()
    assert names == ["basic.return"] * 3 + ["basic.ack"]


def test_publishes_before_confirm_mode_are_not_counted() -> None:
    peer = Stage().opened()
    peer.open_channel(1)
    peer.feed(publish(1, "q", b"x") * 3)
    peer.feed(method(1, "confirm.select") + publish(1, "q", b"x"))
    events = peer.take()
    assert confirms(events) == [("basic.ack", 1, False)]


def test_confirm_mode_is_of_one_channel_and_each_counts_for_itself() -> None:
    peer = confirming()
    peer.open_channel(2, 3)
    peer.send(2, "confirm.select")
    peer.feed(publish(2, "q", b"x") + publish(1, "q", b"x") * 2 + publish(3, "q", b"x"))
    found = [
        (event.channel, event.tag)
        for event in peer.take()
        if isinstance(event, Method) and event.name == "basic.ack"
    ]
    assert sorted(found) == [(1, 2), (2, 1)]


def test_asking_for_confirms_again_does_not_start_over() -> None:
    peer = confirming()
    peer.feed(publish(1, "q", b"x"))
    peer.take()
    assert [e.name for e in peer.send(1, "confirm.select") if isinstance(e, Method)] == [
        "confirm.select-ok"
    ]
    peer.feed(publish(1, "q", b"x"))
    assert confirms(peer.take()) == [("basic.ack", 2, False)]


def test_no_wait_is_not_answered() -> None:
    peer = Stage().opened()
    peer.open_channel(1)
    assert peer.send(1, "confirm.select", nowait=True) == []
    peer.feed(publish(1, "q", b"x"))
    assert confirms(peer.take()) == [("basic.ack", 1, False)]


def test_publish_that_fails_closes_the_channel_and_is_not_confirmed() -> None:
    peer = confirming()
    peer.feed(publish(1, "q", b"x") + publish(1, "k", b"x", exchange="nope"))
    events = peer.take()
    assert [close[:2] for close in closes(events)] == [("channel", 404)]
    assert all(tag == 1 for _, tag, _ in confirms(events))


def test_delivery_and_confirm_of_one_publish_come_in_one_turn() -> None:
    peer = confirming()
    peer.send(1, "basic.consume", queue="q", consumer_tag="t", no_ack=True)
    peer.feed(publish(1, "q", b"x"))
    assert sorted(peer.names()) == ["basic.ack", "basic.deliver"]


def test_a_message_that_a_dead_letter_takes_is_still_nacked() -> None:
    """reject-publish-dlx: the publisher gets a nack, and the message is dead-lettered."""
    peer = confirming(
        {
            "x-max-length": 1,
            "x-overflow": "reject-publish-dlx",
            "x-dead-letter-exchange": "",
            "x-dead-letter-routing-key": "dead",
        }
    )
    peer.send(1, "queue.declare", queue="dead")
    peer.feed(publish(1, "q", b"1") + publish(1, "q", b"2"))
    assert confirms(peer.take()) == [("basic.ack", 1, False), ("basic.nack", 2, False)]
    (got,) = peer.send(1, "basic.get", queue="dead", no_ack=True)
    assert isinstance(got, Method)
    assert got.body == b"2"
