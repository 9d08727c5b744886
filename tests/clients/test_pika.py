"""pika's BlockingConnection: topology, publishing, consuming and settling messages."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pika
import pika.exceptions
import pytest
from pika import BasicProperties
from pika.adapters.blocking_connection import BlockingChannel

Fresh = Callable[[str], str]
WAIT_S = 60


@pytest.fixture
def connection(amqp_url: str) -> Iterator[pika.BlockingConnection]:
    connection = pika.BlockingConnection(pika.URLParameters(amqp_url))
    yield connection
    if connection.is_open:
        connection.close()


@pytest.fixture
def channel(connection: pika.BlockingConnection) -> BlockingChannel:
    return connection.channel()


def receive(channel: BlockingChannel, queue: str, **options: Any) -> tuple[Any, Any, bytes]:
    """The next delivery of a consumer, left unacknowledged."""
    for method, properties, body in channel.consume(queue, inactivity_timeout=WAIT_S, **options):
        assert method is not None, f"nothing came from {queue} in {WAIT_S} s"
        return method, properties, body
    raise AssertionError("the consumer was cancelled")


def process_until(connection: pika.BlockingConnection, done: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + WAIT_S
    while not done():
        assert time.monotonic() < deadline_s, f"did not happen in {WAIT_S} s"
        connection.process_data_events(time_limit=1)


def test_declare_answers_name_and_counts(channel: BlockingChannel, fresh: Fresh) -> None:
    name = fresh("counts")
    channel.confirm_delivery()
    assert channel.queue_declare(name, durable=True).method.queue == name
    channel.basic_publish("", name, b"one")
    assert channel.queue_declare(name, passive=True).method.message_count == 1
    assert channel.queue_purge(name).method.message_count == 1
    assert channel.queue_delete(name).method.message_count == 0


def test_server_named_queue_is_the_default_for_its_channel(channel: BlockingChannel) -> None:
    name = channel.queue_declare("", exclusive=True).method.queue
    assert name.startswith("amq.gen-")
    channel.queue_bind("", "amq.topic", "a.#")
    channel.basic_publish("amq.topic", "a.b", b"routed")
    assert receive(channel, name)[2] == b"routed"


def test_properties_arrive_as_sent(channel: BlockingChannel) -> None:
    sent = BasicProperties(
        content_type="text/plain",
        content_encoding="utf-8",
        headers={"int": 1, "text": "é", "nested": {"list": [1, "two", None]}, "flag": True},
        delivery_mode=2,
        priority=3,
        correlation_id="c-1",
        reply_to="somewhere",
        expiration="60000",
        message_id="m-1",
        timestamp=1_700_000_000,
        type="greeting",
        user_id="guest",
        app_id="tests",
    )
    name = channel.queue_declare("", exclusive=True).method.queue
    channel.basic_publish("", name, b"", sent)
    assert receive(channel, name)[1] == sent


def test_confirmed_publish_returns_when_routed(channel: BlockingChannel, fresh: Fresh) -> None:
    name = fresh("confirmed")
    channel.queue_declare(name)
    channel.confirm_delivery()
    for number in range(100):
        channel.basic_publish("", name, str(number).encode(), mandatory=True)
    assert channel.queue_declare(name, passive=True).method.message_count == 100


def test_mandatory_unroutable_raises_with_the_message(channel: BlockingChannel) -> None:
    channel.confirm_delivery()
    with pytest.raises(pika.exceptions.UnroutableError) as caught:
        channel.basic_publish("amq.direct", "nobody", b"lost", mandatory=True)
    returned = caught.value.messages[0]
    assert (returned.method.reply_code, returned.method.reply_text) == (312, "NO_ROUTE")
    assert returned.body == b"lost"


def test_rejected_publish_is_nacked(channel: BlockingChannel, fresh: Fresh) -> None:
    name = fresh("full")
    channel.queue_declare(name, arguments={"x-max-length": 1, "x-overflow": "reject-publish"})
    channel.confirm_delivery()
    channel.basic_publish("", name, b"fits")
    with pytest.raises(pika.exceptions.NackError):
        channel.basic_publish("", name, b"does not")


def test_returned_message_reaches_the_callback(
    connection: pika.BlockingConnection, channel: BlockingChannel
) -> None:
    returned: list[bytes] = []
    channel.add_on_return_callback(
        lambda _channel, _method, _properties, body: returned.append(body)
    )
    channel.basic_publish("amq.fanout", "", b"back", mandatory=True)
    process_until(connection, lambda: bool(returned))
    assert returned == [b"back"]


def test_ack_removes_nack_and_reject_requeue(channel: BlockingChannel, fresh: Fresh) -> None:
    name = fresh("settle")
    channel.queue_declare(name)
    for body in (b"a", b"b", b"c"):
        channel.basic_publish("", name, body)
    first = receive(channel, name)
    channel.basic_nack(first[0].delivery_tag, requeue=True)
    channel.cancel()
    again = receive(channel, name)
    assert (again[2], again[0].redelivered) == (b"a", True)
    channel.basic_ack(again[0].delivery_tag)
    second = receive(channel, name)
    channel.basic_reject(second[0].delivery_tag, requeue=False)
    channel.cancel()
    method, _, body = channel.basic_get(name)
    assert body == b"c"
    channel.basic_ack(method.delivery_tag)
    assert channel.queue_declare(name, passive=True).method.message_count == 0


def test_ack_multiple_settles_all_before(channel: BlockingChannel, fresh: Fresh) -> None:
    name = fresh("multiple")
    channel.queue_declare(name)
    for number in range(10):
        channel.basic_publish("", name, bytes([number]))
    for method, _, body in channel.consume(name, inactivity_timeout=WAIT_S):
        if body == bytes([6]):
            channel.basic_ack(method.delivery_tag, multiple=True)
            break
    channel.cancel()
    left = [channel.basic_get(name)[2] for _ in range(3)]
    assert left == [bytes([7]), bytes([8]), bytes([9])]


def test_get_answers_empty_and_remaining_count(channel: BlockingChannel, fresh: Fresh) -> None:
    name = fresh("get")
    channel.queue_declare(name)
    channel.confirm_delivery()
    assert channel.basic_get(name) == (None, None, None)
    channel.basic_publish("", name, b"1")
    channel.basic_publish("", name, b"2")
    method, _, body = channel.basic_get(name, auto_ack=True)
    assert (method.message_count, method.redelivered, body) == (1, False, b"1")


def test_qos_limits_what_is_in_flight(connection: pika.BlockingConnection, fresh: Fresh) -> None:
    name = fresh("qos")
    channel = connection.channel()
    channel.queue_declare(name)
    channel.basic_qos(prefetch_count=2)
    channel.confirm_delivery()
    for number in range(5):
        channel.basic_publish("", name, bytes([number]))
    method, _, _ = receive(channel, name)
    other = connection.channel()
    assert other.queue_declare(name, passive=True).method.message_count == 3
    channel.basic_ack(method.delivery_tag)
    assert receive(channel, name)[2] == bytes([1])


def test_global_qos_counts_over_all_consumers_of_the_channel(
    connection: pika.BlockingConnection, fresh: Fresh
) -> None:
    names = [fresh("left"), fresh("right")]
    channel, publisher = connection.channel(), connection.channel()
    publisher.confirm_delivery()
    channel.basic_qos(prefetch_count=3, global_qos=True)
    received: list[bytes] = []
    for name in names:
        channel.queue_declare(name)
        channel.basic_consume(name, lambda _c, _m, _p, body: received.append(body))
    for number in range(6):
        publisher.basic_publish("", names[number % 2], bytes([number]))
    process_until(connection, lambda: len(received) >= 3)
    ready = [publisher.queue_declare(n, passive=True).method.message_count for n in names]
    assert (len(received), sum(ready)) == (3, 3)


def test_cancel_puts_undelivered_messages_back(channel: BlockingChannel, fresh: Fresh) -> None:
    name = fresh("cancel")
    channel.queue_declare(name)
    channel.confirm_delivery()
    for number in range(4):
        channel.basic_publish("", name, bytes([number]))
    receive(channel, name)
    channel.cancel()
    channel.basic_recover(requeue=True)
    method, _, body = channel.basic_get(name)
    assert (method.message_count, method.redelivered, body) == (3, True, b"\x00")


def test_consumer_cancel_notify_when_the_queue_is_deleted(
    connection: pika.BlockingConnection, channel: BlockingChannel, fresh: Fresh
) -> None:
    name = fresh("doomed")
    channel.queue_declare(name)
    cancelled: list[str] = []
    channel.add_on_cancel_callback(lambda frame: cancelled.append(frame.method.consumer_tag))
    channel.basic_consume(name, lambda *_: None, consumer_tag="watcher")
    connection.channel().queue_delete(name)
    channel.start_consuming()  # returns when its last consumer is gone
    assert cancelled == ["watcher"]


def test_start_consuming_until_stopped(channel: BlockingChannel, fresh: Fresh) -> None:
    name = fresh("worker")
    channel.queue_declare(name)
    received: list[bytes] = []

    def on_message(channel: BlockingChannel, method: Any, _properties: Any, body: bytes) -> None:
        received.append(body)
        channel.basic_ack(method.delivery_tag)
        if len(received) == 50:
            channel.stop_consuming()

    channel.basic_qos(prefetch_count=10)
    channel.basic_consume(name, on_message)
    for number in range(50):
        channel.basic_publish("", name, bytes([number]))
    channel.start_consuming()
    assert received == [bytes([number]) for number in range(50)]


def test_bodies_larger_than_a_frame(channel: BlockingChannel, fresh: Fresh) -> None:
    name = fresh("large")
    channel.queue_declare(name)
    channel.confirm_delivery()
    bodies = [bytes(range(256)) * 4096, b"", b"x" * 131_072, b"y" * 131_064]
    for body in bodies:
        channel.basic_publish("", name, body)
    assert [channel.basic_get(name, auto_ack=True)[2] for _ in bodies] == bodies


def test_priorities_are_served_highest_first(channel: BlockingChannel, fresh: Fresh) -> None:
    name = fresh("priority")
    channel.queue_declare(name, arguments={"x-max-priority": 10})
    channel.confirm_delivery()
    for priority in (1, 5, 9, 5, 0):
        properties = BasicProperties(priority=priority)
        channel.basic_publish("", name, str(priority).encode(), properties)
    order = [channel.basic_get(name, auto_ack=True)[2] for _ in range(5)]
    assert order == [b"9", b"5", b"5", b"1", b"0"]


def test_exchange_to_exchange_and_alternate_exchange(
    channel: BlockingChannel, fresh: Fresh
) -> None:
    entry, inner, spare = fresh("entry"), fresh("inner"), fresh("spare")
    routed, unrouted = fresh("routed"), fresh("unrouted")
    channel.exchange_declare(spare, "fanout")
    channel.exchange_declare(entry, "topic", arguments={"alternate-exchange": spare})
    channel.exchange_declare(inner, "fanout", internal=True)
    for queue, exchange in ((routed, inner), (unrouted, spare)):
        channel.queue_declare(queue)
        channel.queue_bind(queue, exchange)
    channel.exchange_bind(inner, entry, "to.inner.#")
    channel.confirm_delivery()
    channel.basic_publish(entry, "to.inner", b"1")
    channel.basic_publish(entry, "elsewhere", b"2")
    assert channel.basic_get(routed, auto_ack=True)[2] == b"1"
    assert channel.basic_get(unrouted, auto_ack=True)[2] == b"2"
    channel.exchange_unbind(inner, entry, "to.inner.#")
    channel.basic_publish(entry, "to.inner", b"3")
    assert channel.basic_get(routed) == (None, None, None)


def test_dead_letter_retry_loop_counts_its_deaths(channel: BlockingChannel, fresh: Fresh) -> None:
    """Work is rejected, waits in a queue with a TTL and comes back, three times."""
    work, wait = fresh("work"), fresh("wait")
    to_wait = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": wait}
    to_work = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": work}
    channel.queue_declare(work, durable=True, arguments=to_wait)
    channel.queue_declare(wait, durable=True, arguments={"x-message-ttl": 50, **to_work})
    channel.basic_publish("", work, b"job", BasicProperties(delivery_mode=2))
    headers: dict[str, Any] = {}
    deaths: dict[str, Any] = {}
    for attempt in range(4):
        method, properties, body = receive(channel, work)
        headers = properties.headers or {}
        deaths = {death["queue"]: death for death in headers.get("x-death", [])}
        assert (body, deaths.get(work, {"count": 0})["count"]) == (b"job", attempt)
        channel.basic_nack(method.delivery_tag, requeue=False)
    assert deaths[work]["reason"] == "rejected"
    assert deaths[wait]["reason"] == "expired"
    assert headers["x-first-death-queue"] == work


def test_rpc_over_direct_reply_to(amqp_url: str, channel: BlockingChannel, fresh: Fresh) -> None:
    requests = fresh("rpc")
    channel.queue_declare(requests)
    with closing(pika.BlockingConnection(pika.URLParameters(amqp_url))) as caller:
        asking = caller.channel()
        answers: list[tuple[str, bytes]] = []
        asking.basic_consume(
            "amq.rabbitmq.reply-to",
            lambda _c, _m, properties, body: answers.append((properties.correlation_id, body)),
            auto_ack=True,
        )
        question = BasicProperties(reply_to="amq.rabbitmq.reply-to", correlation_id="7")
        asking.basic_publish("", requests, b"6 * 7", question)
        method, properties, _ = receive(channel, requests)
        assert properties.reply_to.startswith("amq.rabbitmq.reply-to.")
        reply = BasicProperties(correlation_id=properties.correlation_id)
        channel.basic_publish("", properties.reply_to, b"42", reply)
        channel.basic_ack(method.delivery_tag)
        caller.process_data_events(time_limit=WAIT_S)
        assert answers == [("7", b"42")]


def test_stream_is_read_from_an_offset_and_again(channel: BlockingChannel, fresh: Fresh) -> None:
    name = fresh("stream")
    channel.queue_declare(name, durable=True, arguments={"x-queue-type": "stream"})
    channel.confirm_delivery()
    for number in range(5):
        properties = BasicProperties(headers={"n": number})
        channel.basic_publish("", name, str(number).encode(), properties)
    channel.basic_qos(prefetch_count=2)
    for first in (0, 3):
        found = []
        given = {"x-stream-offset": first}
        for method, properties, body in channel.consume(
            name, arguments=given, inactivity_timeout=WAIT_S
        ):
            assert method is not None
            found.append((properties.headers["x-stream-offset"], properties.headers["n"], body))
            channel.basic_ack(method.delivery_tag)
            if len(found) == 5 - first:
                break
        channel.cancel()
        assert found == [(number, number, str(number).encode()) for number in range(first, 5)]
