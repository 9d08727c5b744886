"""kombu over py-amqp: producers, consumers, simple queues, errors, heartbeats, recovery."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from typing import Any

import amqp.exceptions
import kombu.pools
import pytest
from kombu.connection import Connection
from kombu.entity import Exchange, Queue
from kombu.exceptions import OperationalError
from kombu.messaging import Consumer, Producer

from tests.clients.relay import Relay

Address = tuple[str, int]
Fresh = Callable[[str], str]
WAIT_S = 60


@pytest.fixture
def connection(amqp_url: str) -> Iterator[Connection]:
    with Connection(amqp_url) as connection:
        yield connection


def drain(connection: Connection, done: Callable[[], bool]) -> None:
    while not done():
        connection.drain_events(timeout=WAIT_S)


def test_producer_declares_what_it_needs(connection: Connection, fresh: Fresh) -> None:
    exchange = Exchange(fresh("media"), "direct", durable=True)
    video = Queue(fresh("video"), exchange=exchange, routing_key="video")
    received: list[Any] = []

    def on_message(body: Any, message: Any) -> None:
        received.append((body, message.content_type, message.headers["retry"]))
        message.ack()

    with connection.Producer(serializer="json") as producer:
        producer.publish(
            {"name": "a.mpg", "size": 1301013},
            exchange=exchange,
            routing_key="video",
            declare=[video],
            headers={"retry": 2},
            compression="zlib",
        )
    with connection.Consumer([video], callbacks=[on_message]):
        drain(connection, lambda: bool(received))
    assert received == [({"name": "a.mpg", "size": 1301013}, "application/json", 2)]


def test_consumer_settles_and_limits(connection: Connection, fresh: Fresh) -> None:
    queue = Queue(fresh("settle"), durable=False)
    received: list[str] = []

    def on_message(body: str, message: Any) -> None:
        received.append(body)
        if not message.delivery_info["redelivered"] and body == "again":
            message.requeue()
        elif body == "drop":
            message.reject()
        else:
            message.ack()

    with connection.channel() as channel:
        producer = Producer(channel, routing_key=queue.name)
        consumer = Consumer(channel, [queue], callbacks=[on_message], prefetch_count=1)
        for body in ("keep", "again", "drop"):
            producer.publish(body)
        with consumer:
            drain(connection, lambda: len(received) == 4)
        assert sorted(received) == ["again", "again", "drop", "keep"]
        assert queue(channel).queue_declare(passive=True).message_count == 0


def test_simple_queue_and_simple_buffer(connection: Connection, fresh: Fresh) -> None:
    with connection.SimpleQueue(fresh("simple")) as simple:
        simple.put({"n": 1})
        simple.put({"n": 2}, priority=3)
        message = simple.get(timeout=WAIT_S)
        assert message.payload == {"n": 1}
        message.requeue()
        rest = [simple.get(timeout=WAIT_S) for _ in range(2)]
        assert sorted(message.payload["n"] for message in rest) == [1, 2]
        for message in rest:
            message.ack()
        with pytest.raises(simple.Empty):
            simple.get_nowait()
    with connection.SimpleBuffer(fresh("buffer")) as buffer:
        buffer.put("fleeting")
        assert buffer.get(timeout=WAIT_S).payload == "fleeting"


def test_passive_declare_of_missing_entities(connection: Connection) -> None:
    with pytest.raises(amqp.exceptions.NotFound) as caught:
        Queue("clients.missing")(connection.channel()).queue_declare(passive=True)
    assert caught.value.code == 404
    with pytest.raises(amqp.exceptions.NotFound):
        Exchange("clients.missing")(connection.channel()).declare(passive=True)


def test_errors_map_to_classes_by_code(amqp_url: str, connection: Connection, fresh: Fresh) -> None:
    durable, locked = fresh("durable"), fresh("locked")
    Queue(durable, durable=True)(connection.channel()).queue_declare()
    Queue(locked, exclusive=True)(connection.channel()).queue_declare()
    with Connection(amqp_url) as other:
        with pytest.raises(amqp.exceptions.PreconditionFailed):
            Queue(durable, durable=False)(other.channel()).queue_declare()
        with pytest.raises(amqp.exceptions.AccessRefused):
            Queue("amq.reserved")(other.channel()).queue_declare()
        with pytest.raises(amqp.exceptions.ResourceLocked):
            Queue(locked, exclusive=True)(other.channel()).queue_declare()


def test_queue_arguments_by_name(connection: Connection, fresh: Fresh) -> None:
    dead = Queue(fresh("dead"))(connection.channel())
    dead.declare()
    arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead.name}
    queue = Queue(
        fresh("arguments"),
        expires=60,
        message_ttl=0.05,
        max_length=10,
        max_length_bytes=10_000,
        max_priority=5,
        queue_arguments=arguments,
    )(connection.channel())
    queue.declare()
    Producer(connection.channel(), routing_key=queue.name).publish("short-lived")
    received: list[Any] = []
    with connection.Consumer(
        [dead], callbacks=[lambda body, _: received.append(body)], no_ack=True
    ):
        drain(connection, lambda: bool(received))
    assert received == ["short-lived"]


def test_confirmed_and_mandatory_publish(amqp_url: str, fresh: Fresh) -> None:
    with Connection(amqp_url, transport_options={"confirm_publish": True}) as connection:
        returned: list[Any] = []
        producer = Producer(
            connection.channel(), on_return=lambda error, *_: returned.append(error.reply_code)
        )
        queue = Queue(fresh("confirmed"))
        producer.publish("routed", routing_key=queue.name, declare=[queue], mandatory=True)
        assert queue(connection.channel()).queue_declare(passive=True).message_count == 1
        producer.publish("lost", routing_key="clients.missing", mandatory=True)
        assert returned == [312]


def test_get_purge_and_delete(connection: Connection, fresh: Fresh) -> None:
    queue = Queue(fresh("get"))(connection.channel())
    queue.declare()
    producer = connection.Producer(routing_key=queue.name)
    for number in range(5):
        producer.publish(number)
    first: list[Any] = []
    while not first:
        if message := queue.get():
            first.append(message.payload)
            message.ack()
    assert first == [0]
    assert queue.purge() == 4
    assert queue.get() is None
    assert queue.delete() == 0


def test_heartbeats_are_sent_and_checked(amqp_address: Address) -> None:
    host, port = amqp_address
    with Connection(f"amqp://{host}:{port}//", heartbeat=3) as connection:  # cut after 6 s
        assert connection.connect().heartbeat == 3
        for _ in range(10):
            connection.heartbeat_check(rate=2)
            with pytest.raises(socket.timeout):
                connection.drain_events(timeout=0.4)
        assert connection.channel().is_open


def test_ensure_publishes_again_after_a_cut(relay: Relay, fresh: Fresh) -> None:
    host, port = relay.address
    with Connection(f"amqp://{host}:{port}//") as connection:
        queue = Queue(fresh("ensured"))
        producer = connection.Producer(auto_declare=True)
        retry = {"max_retries": 10, "interval_start": 0, "interval_step": 0.1}
        options = {"routing_key": queue.name, "retry": True, "retry_policy": retry}
        producer.publish("before", declare=[queue], **options)
        relay.cut()
        producer.publish("after", declare=[queue], **options)
        received: list[Any] = []
        with connection.Consumer([queue], callbacks=[lambda body, _: received.append(body)]):
            drain(connection, lambda: "after" in received)


def test_ensure_connection_gives_up_where_nobody_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with Connection(f"amqp://127.0.0.1:{port}//") as connection:
        with pytest.raises(OperationalError):
            connection.ensure_connection(max_retries=1, interval_start=0, timeout=WAIT_S)


def test_pools_share_connections(amqp_url: str, fresh: Fresh) -> None:
    queue = Queue(fresh("pooled"))
    connection = Connection(amqp_url)
    for number in range(10):
        with kombu.pools.producers[connection].acquire(block=True) as producer:
            producer.publish(number, routing_key=queue.name, declare=[queue])
    with kombu.pools.connections[connection].acquire(block=True) as pooled:
        assert queue(pooled.default_channel).queue_declare(passive=True).message_count > 0
    kombu.pools.reset()
