"""Direct reply-to: a reply reaches the channel of its request without a queue."""

from __future__ import annotations

from typing import cast

from tests.compat.client import Method
from tests.protocol.stage import Event, Peer, Stage, closes, method, publish

NAME = "amq.rabbitmq.reply-to"
ASK: dict[str, object] = {"reply_to": NAME}


def pair() -> tuple[Peer, Peer]:
    """A client that listens for replies, and a server with a queue for requests."""
    stage = Stage()
    server = stage.opened()
    server.open_channel(1)
    server.send(1, "queue.declare", queue="rpc")
    client = stage.opened()
    client.open_channel(1, 2)
    client.send(1, "basic.consume", queue=NAME, consumer_tag="r", no_ack=True)
    return client, server


def ask(client: Peer, server: Peer) -> str:
    """Send a request; the address that its server sees."""
    client.feed(publish(1, "rpc", b"ask", ASK))
    assert client.take() == []
    (request,) = server.send(1, "basic.get", queue="rpc", no_ack=True)
    assert isinstance(request, Method)
    assert request.content is not None
    return cast(str, request.content.properties["reply_to"])


def described(events: list[Event]) -> list[str]:
    return [event.name for event in events if isinstance(event, Method)]


MISSING = ("channel", 406, "PRECONDITION_FAILED - fast reply consumer does not exist")


def test_request_and_reply() -> None:
    client, server = pair()
    address = ask(client, server)
    assert address.startswith(NAME + ".")
    for number in (1, 2):
        server.feed(publish(1, address, b"answer", {"correlation_id": "7"}))
        (reply,) = client.take()
        assert isinstance(reply, Method)
        assert reply.fields == {
            "consumer_tag": "r",
            "delivery_tag": number,
            "redelivered": False,
            "exchange": "",
            "routing_key": address,
        }
        assert reply.body == b"answer"
        assert reply.content is not None
        assert reply.content.properties == {"correlation_id": "7"}


def test_other_properties_of_the_request_stay() -> None:
    client, server = pair()
    properties: dict[str, object] = ASK | {"message_id": "m", "headers": {"k": 1}, "priority": 3}
    client.feed(publish(1, "rpc", b"ask", properties))
    (request,) = server.send(1, "basic.get", queue="rpc", no_ack=True)
    assert isinstance(request, Method)
    assert request.content is not None
    seen = dict(request.content.properties)
    assert seen.pop("reply_to") != NAME
    assert seen == {"message_id": "m", "headers": {"k": ("I", 1)}, "priority": 3}


def test_address_is_the_channels_own() -> None:
    client, server = pair()
    client.send(2, "basic.consume", queue=NAME, consumer_tag="r", no_ack=True)
    first = ask(client, server)
    client.feed(publish(2, "rpc", b"ask", ASK))
    (request,) = server.send(1, "basic.get", queue="rpc", no_ack=True)
    assert isinstance(request, Method)
    assert request.content is not None
    assert request.content.properties["reply_to"] != first


def test_replies_must_be_consumed_without_acks_and_once() -> None:
    peer = Stage().opened()
    peer.open_channel(1, 2)
    assert closes(peer.send(1, "basic.consume", queue=NAME)) == [
        ("channel", 406, "PRECONDITION_FAILED - reply consumer cannot acknowledge")
    ]
    peer.send(2, "basic.consume", queue=NAME, no_ack=True)
    assert closes(peer.send(2, "basic.consume", queue=NAME, no_ack=True)) == [
        ("channel", 406, "PRECONDITION_FAILED - reply consumer already set")
    ]


def test_request_without_a_listener_is_refused() -> None:
    peer = Stage().opened()
    peer.open_channel(1)
    peer.feed(publish(1, "rpc", b"ask", ASK))
    assert closes(peer.take()) == [MISSING]


def test_request_after_the_listener_was_cancelled_is_refused() -> None:
    """Even if the same header was sent before: its cached content is dropped."""
    client, server = pair()
    ask(client, server)
    assert described(client.send(1, "basic.cancel", consumer_tag="r")) == ["basic.cancel-ok"]
    client.feed(publish(1, "rpc", b"ask", ASK))
    assert closes(client.take()) == [MISSING]


def test_new_listener_has_a_new_address() -> None:
    client, server = pair()
    first = ask(client, server)
    client.send(1, "basic.cancel", consumer_tag="r")
    client.send(1, "basic.consume", queue=NAME, consumer_tag="s", no_ack=True)
    second = ask(client, server)
    server.feed(publish(1, first, b"late") + publish(1, second, b"answer"))
    (reply,) = client.take()
    assert isinstance(reply, Method)
    assert (reply.fields["consumer_tag"], reply.body) == ("s", b"answer")


def test_late_reply_is_dropped_and_a_made_up_address_is_unroutable() -> None:
    """RabbitMQ 4: a client that is gone is not the server's fault, so nothing is returned."""
    client, server = pair()
    address = ask(client, server)
    client.send(1, "channel.close")
    for mandatory in (False, True):
        server.feed(publish(1, address, b"late", mandatory=mandatory))
        assert server.take() == []
    server.feed(publish(1, f"{NAME}.made-up", b"x", mandatory=True))
    assert described(server.take()) == ["basic.return"]
    client.lose()
    server.feed(publish(1, address, b"later"))
    assert server.take() == []


def test_passive_declare_tells_whether_the_client_is_there() -> None:
    client, server = pair()
    address = ask(client, server)
    (found,) = server.send(1, "queue.declare", queue=address, passive=True)
    assert isinstance(found, Method)
    assert found.fields == {"queue": address, "message_count": 0, "consumer_count": 1}
    client.lose()
    text = f"NOT_FOUND - no queue '{address}' in vhost '/'"
    assert closes(server.send(1, "queue.declare", queue=address, passive=True)) == [
        ("channel", 404, text)
    ]


def test_nothing_is_left_of_a_listener() -> None:
    client, _ = pair()
    replies = client.stage.broker.vhost("/").replies
    consume = method(1, "basic.consume", queue=NAME, consumer_tag="r", no_ack=True)
    for end in ("basic.cancel", "channel.close", "queue.purge"):
        assert len(replies) == 1
        client.feed(method(1, end, **({"consumer_tag": "r"} if end == "basic.cancel" else {})))
        assert len(replies) == 0
        client.feed(method(1, "channel.close-ok") if end == "queue.purge" else b"")
        client.feed(b"" if end == "basic.cancel" else method(1, "channel.open"))
        client.feed(consume)
    client.lose()
    assert len(replies) == 0


def test_replies_to_a_client_that_does_not_read_are_bounded() -> None:
    """They cannot wait in a queue: far beyond its credit the client loses them."""
    client, server = pair()
    address = ask(client, server)
    client.reads = False
    for _ in range(80):
        server.feed(publish(1, address, b"x" * 1_000_000))
    assert len(client.received) < 40_000_000
