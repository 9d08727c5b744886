"""The event exchange and the firehose, as a client sees them."""

import json
from collections.abc import Iterator
from typing import Any

import pika
import pytest

from leveret.testing.broker import RunningBroker, broker
from tests.http.asking import ask

WAIT_S = 60.0


class Client:
    """A channel, and a queue bound to the exchange under test."""

    def __init__(self, server: RunningBroker, exchange: str) -> None:
        self.server = server
        self.connection = pika.BlockingConnection(pika.URLParameters(server.url))
        self.channel = self.connection.channel()
        self.exchange = exchange
        self.queue = self.channel.queue_declare("", exclusive=True).method.queue

    def watch(self, key: str = "#") -> None:
        self.channel.queue_bind(self.queue, self.exchange, key)

    def next(self) -> tuple[str, dict[str, Any], bytes]:
        """Return routing key, headers and body of the next message."""
        found = next(self.channel.consume(self.queue, True, inactivity_timeout=WAIT_S))
        frame, properties, body = found
        assert frame is not None, "nothing came in time"
        assert properties is not None and body is not None
        return frame.routing_key, properties.headers or {}, body

    def until(self, key: str, **facts: object) -> dict[str, Any]:
        """Return the headers of the next message with this key and these fields."""
        while True:
            found, headers, _ = self.next()
            if found == key and all(headers.get(name) == value for name, value in facts.items()):
                return headers


@pytest.fixture
def server() -> Iterator[RunningBroker]:
    with broker(http=True) as server:
        yield server


@pytest.fixture
def events(server: RunningBroker) -> Iterator[Client]:
    yield from connected(server, "amq.rabbitmq.event")


@pytest.fixture
def trace(server: RunningBroker) -> Iterator[Client]:
    yield from connected(server, "amq.rabbitmq.trace")


def connected(server: RunningBroker, exchange: str) -> Iterator[Client]:
    client = Client(server, exchange)
    yield client
    client.connection.close()


def test_events_of_definitions_consumers_and_connections(
    server: RunningBroker, events: Client
) -> None:
    events.watch()
    with pika.BlockingConnection(pika.URLParameters(server.url)) as other:
        headers = events.until("connection.created")
        assert (headers["user"], headers["vhost"], headers["type"]) == ("guest", "/", "network")
        assert headers["client_properties"]["product"].startswith("Pika")
        connection = headers["name"]
        channel = other.channel()
        assert events.until("channel.created")["connection"] == connection
        channel.exchange_declare("e", "topic", arguments={"alternate-exchange": "amq.topic"})
        headers = events.until("exchange.created", name="e")
        assert (headers["type"], headers["durable"], headers["internal"]) == ("topic", False, False)
        assert headers["arguments"] == {"alternate-exchange": "amq.topic"}
        assert headers["user_who_performed_action"] == "guest"
        assert headers["timestamp_in_ms"] > 1_700_000_000_000
        channel.queue_declare("q", durable=True, arguments={"x-max-length": 5})
        headers = events.until("queue.created", name="q")
        assert (headers["durable"], headers["arguments"]) == (True, {"x-max-length": 5})
        channel.queue_bind("q", "e", "k")
        headers = events.until("binding.created", source_name="e")
        assert (headers["destination_name"], headers["routing_key"]) == ("q", "k")
        channel.basic_consume("q", lambda *_: None, consumer_tag="c")
        headers = events.until("consumer.created", consumer_tag="c")
        assert (headers["queue"], headers["ack_required"]) == ("q", True)
        channel.basic_cancel("c")
        events.until("consumer.deleted", consumer_tag="c", queue="q")
        channel.queue_unbind("q", "e", "k")
        events.until("binding.deleted", source_name="e", destination_name="q")
        channel.queue_bind("q", "e", "again")
        channel.basic_consume("q", lambda *_: None, consumer_tag="d")
        channel.queue_delete("q")
        seen = [events.next()[0] for _ in range(5)]
        assert sorted(seen) == [
            "binding.created", "binding.deleted", "consumer.created", "consumer.deleted",
            "queue.deleted",
        ]  # fmt: skip
        channel.exchange_delete("e")
        events.until("exchange.deleted", name="e")
    events.until("channel.closed", connection=connection)
    events.until("connection.closed", name=connection)


def test_events_of_users_policies_parameters_vhosts_and_alarms(
    server: RunningBroker, events: Client
) -> None:
    events.watch()

    def put(path: str, body: object) -> None:
        assert ask(server, "PUT", path, body)[0] in (201, 204)

    put("/api/users/u", {"password": "first", "tags": ""})
    events.until("user.created", name="u")
    put("/api/users/u", {"password": "second", "tags": "management"})
    events.until("user.password.changed", name="u")
    assert events.until("user.tags.set", name="u")["tags"] == ["management"]
    put("/api/vhosts/v", {})
    events.until("vhost.created", name="v")
    put("/api/permissions/v/u", {"configure": "", "write": "", "read": ""})
    events.until("permission.created", vhost="v", user="u")
    put("/api/policies/%2F/p", {"pattern": "^x", "definition": {"max-length": 1}})
    events.until("policy.set", vhost="/", name="p")
    assert ask(server, "DELETE", "/api/policies/%2F/p")[0] == 204
    events.until("policy.cleared", name="p")
    put("/api/parameters/federation-upstream/%2F/f", {"value": {"uri": "amqp://"}})
    events.until("parameter.set", component="federation-upstream", name="f")
    put("/api/vhost-limits/v/max-queues", {"value": 5})
    events.until("vhost.limits.set", vhost="v")
    assert ask(server, "DELETE", "/api/vhosts/v")[0] == 204
    events.until("vhost.deleted", name="v")
    assert ask(server, "DELETE", "/api/users/u")[0] == 204
    events.until("user.deleted", name="u")
    ask(server, "GET", "/api/queues", login="guest:wrong")
    events.until("user.authentication.failure", name="guest", protocol="http")
    node = server.node
    node.turns._loop.call_soon_threadsafe(node._events.on_disk, True)
    events.until("alarm.set", resource="disk")
    node.turns._loop.call_soon_threadsafe(node._events.on_disk, False)
    events.until("alarm.cleared", resource="disk")
    value = {"src-uri": "amqp://", "src-queue": "a", "dest-uri": "amqp://", "dest-queue": "b"}
    put("/api/parameters/shovel/%2F/s", {"value": value})
    events.until("shovel.worker.status", name="s", status="running")
    assert ask(server, "DELETE", "/api/parameters/shovel/%2F/s")[0] == 204
    events.until("shovel.worker.removed", name="s")
    assert "second" not in json.dumps(ask(server, "GET", "/api/audit?limit=1000")[1])


def test_no_event_is_made_without_a_listener(server: RunningBroker, events: Client) -> None:
    assert not _listens(server)
    events.watch("queue.*")
    events.channel.queue_declare("q")
    assert _listens(server)
    assert events.next()[0] == "queue.created"
    events.channel.queue_unbind(events.queue, "amq.rabbitmq.event", "queue.*")
    assert not _listens(server)
    with pytest.raises(pika.exceptions.ChannelClosedByBroker, match="ACCESS_REFUSED"):
        events.channel.basic_publish("amq.rabbitmq.event", "queue.created", b"forged")
        events.channel.queue_declare("q")


def set_tracing(server: RunningBroker, is_on: bool) -> None:
    assert ask(server, "PUT", "/api/vhosts/%2F", {"tracing": is_on})[0] in (201, 204)


def test_the_firehose_shows_publishes_and_deliveries(server: RunningBroker, trace: Client) -> None:
    trace.watch()
    channel = trace.channel
    channel.exchange_declare("e", "direct")
    channel.queue_declare("q")
    channel.queue_bind("q", "e", "k")
    properties = pika.BasicProperties(
        content_type="text/plain", message_id="m", headers={"h": 1}, timestamp=5
    )
    channel.basic_publish("e", "k", b"before", properties)
    set_tracing(server, True)
    channel.basic_publish("e", "k", b"traced", properties)
    key, headers, body = trace.next()
    assert (key, body) == ("publish.e", b"traced")
    assert (headers["exchange_name"], headers["routing_keys"]) == ("e", ["k"])
    assert headers["routed_queues"] == ["q"]
    assert (headers["node"], headers["vhost"], headers["user"]) == ("test", "/", "guest")
    shown = headers["properties"]
    assert (shown["content_type"], shown["message_id"]) == ("text/plain", "m")
    assert shown["headers"] == {"h": 1}
    channel.basic_publish("", "nowhere", b"lost")
    key, headers, body = trace.next()
    assert (key, headers["routed_queues"], body) == ("publish.", [], b"lost")
    frame, _, body = channel.basic_get("q", auto_ack=True)
    assert body == b"before"
    key, headers, body = trace.next()
    assert (key, body, headers["redelivered"]) == ("deliver.q", b"before", 0)
    for frame, _, body in channel.connection.channel().consume("q", inactivity_timeout=WAIT_S):
        assert frame is not None and body == b"traced"
        break
    key, headers, body = trace.next()
    assert (key, body, headers["routing_keys"]) == ("deliver.q", b"traced", ["k"])
    assert headers["channel"] == 2
    set_tracing(server, False)
    channel.basic_publish("e", "k", b"untraced", properties)
    channel.basic_publish("e", "k", b"untraced", properties)
    assert channel.queue_declare(trace.queue, passive=True).method.message_count == 0


def test_the_firehose_shows_a_message_with_the_highest_timestamp(
    server: RunningBroker, trace: Client
) -> None:
    """A timestamp has 64 bits without a sign."""
    trace.watch()
    trace.channel.queue_declare("q")
    set_tracing(server, True)
    trace.channel.confirm_delivery()
    trace.channel.basic_publish("", "q", b"late", pika.BasicProperties(timestamp=2**64 - 1))
    assert trace.channel.queue_declare("q", passive=True).method.message_count == 1
    shown = trace.channel.queue_declare(trace.queue, passive=True).method.message_count
    assert shown == 1


def test_tracing_is_of_one_vhost_and_survives_toggling(
    server: RunningBroker, trace: Client
) -> None:
    ask(server, "PUT", "/api/vhosts/other", {})
    ask(
        server,
        "PUT",
        "/api/permissions/other/guest",
        {"configure": ".*", "write": ".*", "read": ".*"},
    )
    ask(server, "PUT", "/api/vhosts/other", {"tracing": True})
    trace.watch()
    trace.channel.queue_declare("q")
    trace.channel.basic_publish("", "q", b"here")
    assert trace.channel.basic_get("q", auto_ack=True)[2] == b"here"
    passive = trace.channel.queue_declare(trace.queue, passive=True)
    assert passive.method.message_count == 0
    assert server.node.broker.turn.traced == 1
    ask(server, "DELETE", "/api/vhosts/other")
    assert server.node.broker.turn.traced == 0


def _listens(server: RunningBroker) -> bool:
    return server.node.broker.turn.listens
