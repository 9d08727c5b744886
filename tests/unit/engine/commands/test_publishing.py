"""From a publish to the queues that take a copy."""

from leveret.engine.commands.publishing import ROUTE_QUEUES_MAX
from tests.protocol.stage import publish
from tests.unit.engine.front import Client, headers, names, refusal


def bound(client: Client, exchange: str, *queues: str, key: str = "") -> None:
    for queue in queues:
        client.queue(queue)
        client.send("queue.bind", queue=queue, exchange=exchange, routing_key=key)


def test_every_queue_that_is_bound_gets_a_copy() -> None:
    client = Client()
    bound(client, "amq.fanout", "a", "b")
    client.publish("", "x", exchange="amq.fanout")
    assert (client.drain("a"), client.drain("b")) == (["x"], ["x"])


def test_a_route_is_found_anew_after_any_change() -> None:
    client = Client()
    bound(client, "amq.fanout", "a")
    client.publish("", "1", exchange="amq.fanout")
    bound(client, "amq.fanout", "b")
    client.publish("", "2", exchange="amq.fanout")
    client.send("queue.unbind", queue="a", exchange="amq.fanout")
    client.publish("", "3", exchange="amq.fanout")
    client.send("queue.delete", queue="b")
    client.publish("", "4", exchange="amq.fanout")
    assert client.drain("a") == ["1", "2"]


def test_routes_do_not_keep_all_queues_of_a_vhost() -> None:
    """A connection keeps thousands of routes: a user with many queues must not fill the memory."""
    c = Client()
    for number in range(ROUTE_QUEUES_MAX + 9):
        c.queue(f"q{number}")
        c.send("queue.bind", queue=f"q{number}", exchange="amq.fanout", routing_key="")
    for body in ("1", "2"):
        c.publish("k", body, exchange="amq.fanout")
    kept = [len(route.queues) for route in c.peer.connection.channels[1].routes.values()]
    assert kept == [ROUTE_QUEUES_MAX]
    assert [c.drain(f"q{number}") for number in (0, ROUTE_QUEUES_MAX + 8)] == [["1", "2"]] * 2


def test_a_publish_to_a_deleted_exchange_fails() -> None:
    client = Client()
    client.send("exchange.declare", exchange="e", type="direct")
    client.publish("k", "x", exchange="e")
    client.send("exchange.delete", exchange="e")
    assert refusal(client.publish("k", "x", exchange="e")) == (
        "channel",
        404,
        "NOT_FOUND - no exchange 'e' in vhost '/'",
    )


def test_cc_and_bcc_are_routed_too_and_each_queue_gets_one_copy() -> None:
    client = Client()
    for name in ("a", "b", "c"):
        client.queue(name)
    client.publish("a", "x", headers={"CC": ["b", "a"], "BCC": ["c"]})
    assert headers(client.get("a")) == {"CC": ["b", "a"]}
    assert (client.drain("a"), client.drain("b"), client.drain("c")) == ([], ["x"], ["x"])


def test_mandatory_returns_what_nobody_takes_before_its_confirm() -> None:
    client = Client()
    client.send("confirm.select")
    client.peer.feed(publish(1, "nowhere", b"x", mandatory=True))
    assert names(client.peer.take()) == ["basic.return", "basic.ack"]
    client.peer.feed(publish(1, "nowhere", b"x"))
    assert names(client.peer.take()) == ["basic.ack"]


def test_one_full_queue_is_enough_for_a_nack_and_the_others_keep_their_copies() -> None:
    client = Client()
    client.queue("full", x_max_length=0, x_overflow="reject-publish")
    client.send("queue.bind", queue="full", exchange="amq.fanout")
    bound(client, "amq.fanout", "roomy")
    client.send("confirm.select")
    assert names(client.publish("", "x", exchange="amq.fanout")) == ["basic.nack"]
    assert client.drain("roomy") == ["x"]


def test_a_delayed_exchange_keeps_a_message_and_counts_it_as_routed() -> None:
    client = Client()
    client.send(
        "exchange.declare",
        exchange="later",
        type="x-delayed-message",
        arguments={"x-delayed-type": "direct"},
    )
    bound(client, "later", "q", key="k")
    client.publish("k", "slow", exchange="later", headers={"x-delay": 100})
    client.publish("k", "quick", exchange="later")
    assert client.drain("q") == ["quick"]
    client.advance(99)
    assert client.get("q") is None
    client.advance(1)
    found = client.get("q")
    assert found is not None and found.body == b"slow"
    assert headers(found) == {"x-delay": -100}


def test_a_delayed_message_is_routed_by_the_bindings_of_its_time() -> None:
    client = Client()
    client.send(
        "exchange.declare",
        exchange="later",
        type="x-delayed-message",
        arguments={"x-delayed-type": "fanout"},
    )
    bound(client, "later", "old")
    client.publish("", "x", exchange="later", headers={"x-delay": 100})
    client.send("queue.unbind", queue="old", exchange="later")
    bound(client, "later", "new")
    client.advance(100)
    assert (client.drain("old"), client.drain("new")) == ([], ["x"])


def test_a_direct_reply_goes_to_the_requester() -> None:
    client = Client()
    server = client.other()
    server.queue("service")
    client.consume("amq.rabbitmq.reply-to", "answers", no_ack=True)
    client.publish("service", "question", reply_to="amq.rabbitmq.reply-to")
    asked = server.get("service")
    assert asked is not None and asked.content is not None
    address = str(asked.content.properties["reply_to"])
    server.publish(address, "answer")
    (answer,) = client.peer.take()
    assert getattr(answer, "body", b"") == b"answer"


def test_a_reply_to_a_closed_requester_is_dropped_and_to_an_invented_name_returned() -> None:
    client = Client()
    client.queue("service")
    client.consume("amq.rabbitmq.reply-to", "answers", no_ack=True)
    client.publish("service", "question", reply_to="amq.rabbitmq.reply-to")
    asked = client.get("service")
    assert asked is not None and asked.content is not None
    address = str(asked.content.properties["reply_to"])
    client.send("basic.cancel", consumer_tag="answers")
    client.peer.feed(publish(1, address, b"late", mandatory=True))
    assert names(client.peer.take()) == []
    client.peer.feed(publish(1, address + "x", b"never", mandatory=True))
    assert names(client.peer.take()) == ["basic.return"]
