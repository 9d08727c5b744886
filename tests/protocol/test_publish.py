"""Publishing: cached routes and contents of a channel are dropped when they become wrong."""

from __future__ import annotations

from tests.protocol.stage import Peer, Stage, bodies, closes, publish


def opened() -> Peer:
    peer = Stage().opened()
    peer.open_channel(1, 2)
    peer.send(2, "queue.declare", queue="q")
    peer.send(2, "exchange.declare", exchange="x", type="fanout")
    peer.send(2, "queue.bind", queue="q", exchange="x")
    peer.feed(publish(1, "", b"first", exchange="x"))
    return peer


def test_exchange_that_was_deleted_is_missed() -> None:
    peer = opened()
    peer.send(2, "exchange.delete", exchange="x")
    peer.feed(publish(1, "", b"second", exchange="x"))
    assert closes(peer.take()) == [
        ("channel", 404, "NOT_FOUND - no exchange 'x' in vhost '/'"),
    ]


def test_exchange_that_came_back_internal_is_refused() -> None:
    peer = opened()
    peer.send(2, "exchange.delete", exchange="x")
    peer.send(2, "exchange.declare", exchange="x", type="fanout", internal=True)
    peer.feed(publish(1, "", b"second", exchange="x"))
    assert closes(peer.take()) == [
        ("channel", 403, "ACCESS_REFUSED - cannot publish to internal exchange 'x' in vhost '/'"),
    ]


def test_new_binding_counts_for_the_next_publish() -> None:
    peer = opened()
    peer.send(2, "queue.declare", queue="late")
    peer.send(2, "queue.bind", queue="late", exchange="x")
    peer.feed(publish(1, "", b"second", exchange="x"))
    assert bodies(peer.send(2, "basic.get", queue="late", no_ack=True)) == [b"second"]


def test_queue_that_was_declared_anew_is_the_one_that_is_published_to() -> None:
    peer = opened()
    peer.feed(publish(1, "q", b"second"))
    peer.send(2, "queue.delete", queue="q")
    peer.feed(publish(1, "q", b"lost"))
    peer.send(2, "queue.declare", queue="q")
    peer.feed(publish(1, "q", b"third"))
    assert bodies(peer.send(2, "basic.get", queue="q", no_ack=True)) == [b"third"]


def test_body_of_another_size_after_the_same_properties() -> None:
    peer = opened()
    for body in (b"", b"a", b"abc", b"a", b""):
        peer.feed(publish(1, "q", body, {"message_id": "same"}))
    peer.send(2, "basic.get", queue="q", no_ack=True)
    got = [bodies(peer.send(2, "basic.get", queue="q", no_ack=True))[0] for _ in range(5)]
    assert got == [b"", b"a", b"abc", b"a", b""]
