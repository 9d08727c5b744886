"""Subscriptions, single gets, prefetch, and the credit of a connection that does not read."""

from leveret.amqp.connection_base import CREDIT_BYTES
from tests.unit.engine.front import Client, got, names, refusal


def test_prefetch_bounds_what_each_consumer_holds() -> None:
    client = Client()
    client.queue("q")
    client.consume("q", "a", prefetch=2)
    client.consume("q", "b", prefetch=1)
    assert sorted(got(client.publish("q", *"12345"))) == ["a:1", "a:3", "b:2"]
    assert got(client.ack(2)) == ["b:4"]


def test_prefetch_in_bytes_limits_the_bytes_that_a_consumer_holds() -> None:
    client = Client()
    client.queue("q")
    client.send("basic.qos", prefetch_size=5)
    client.send("basic.consume", queue="q", consumer_tag="a")
    assert got(client.publish("q", "1234", "56", "7")) == ["a:1234", "a:56"]
    assert got(client.ack(1)) == ["a:7"]


def test_without_acks_there_is_no_prefetch() -> None:
    client = Client()
    queue = client.queue("q")
    client.consume("q", "a", prefetch=1, no_ack=True)
    assert len(got(client.publish("q", *"123"))) == 3
    assert queue.unacked == 0


def test_a_prefetch_shared_by_a_channel_holds_for_all_its_consumers() -> None:
    client = Client()
    client.queue("q")
    client.send("basic.qos", prefetch_count=2, **{"global": True})
    client.send("basic.consume", queue="q", consumer_tag="a")
    client.send("basic.consume", queue="q", consumer_tag="b")
    assert got(client.publish("q", *"12345")) == ["a:1", "b:2"]
    assert len(got(client.ack(1))) == 1
    assert len(got(client.send("basic.qos", prefetch_count=4, **{"global": True}))) == 2


def test_room_in_a_shared_prefetch_is_room_for_every_consumer_of_the_channel() -> None:
    client = Client()
    client.queue("q")
    client.queue("r")
    client.send("basic.qos", prefetch_count=1, **{"global": True})
    client.send("basic.consume", queue="q", consumer_tag="a")
    client.send("basic.consume", queue="r", consumer_tag="b")
    client.publish("q", "1")
    assert got(client.publish("r", "2")) == []
    assert got(client.ack(1)) == ["b:2"]


def test_a_prefetch_for_each_consumer_ends_the_shared_one() -> None:
    client = Client()
    client.queue("q")
    client.send("basic.qos", prefetch_count=1, **{"global": True})
    client.send("basic.consume", queue="q", consumer_tag="a")
    assert got(client.publish("q", *"123")) == ["a:1"]
    assert got(client.send("basic.qos", prefetch_count=1)) == ["a:2", "a:3"]
    client.send("basic.consume", queue="q", consumer_tag="b")
    consumers = sorted(text[0] for text in got(client.publish("q", *"4567")))
    assert consumers == ["a", "a", "a", "b"]


def test_get_is_not_bound_by_prefetch() -> None:
    client = Client()
    client.queue("q")
    client.publish("q", "a", "b")
    client.send("basic.qos", prefetch_count=1)
    assert client.get("q", no_ack=False) is not None
    assert client.get("q", no_ack=False) is not None


def test_higher_consumer_priorities_are_served_first() -> None:
    client = Client()
    client.queue("q")
    client.consume("q", "low", prefetch=10)
    client.consume("q", "high", prefetch=2, x_priority=10)
    assert got(client.publish("q", *"1234")) == ["high:1", "high:2", "low:3", "low:4"]


def test_messages_of_a_cancelled_consumer_stay_with_its_channel() -> None:
    client = Client()
    queue = client.queue("q")
    client.consume("q")
    client.publish("q", "a")
    assert names(client.send("basic.cancel", consumer_tag="t")) == ["basic.cancel-ok"]
    assert names(client.send("basic.cancel", consumer_tag="t")) == ["basic.cancel-ok"]
    assert queue.unacked == 1
    client.ack(1)
    assert queue.acked == 1


def test_an_exclusive_consumer_tolerates_no_other() -> None:
    client = Client()
    client.queue("q")
    client.send("basic.consume", queue="q", consumer_tag="a", exclusive=True)
    events = client.send("basic.consume", on=2, queue="q", consumer_tag="b")
    assert refusal(events)[:2] == ("channel", 403)
    client.send("basic.cancel", consumer_tag="a")
    client.consume("q", "c", on=3)
    events = client.send("basic.consume", queue="q", consumer_tag="d", exclusive=True)
    assert refusal(events)[:2] == ("channel", 403)


def test_a_connection_that_does_not_read_gets_no_more_than_its_credit() -> None:
    client = Client()
    reader = client.other()
    client.queue("q")
    client.consume("q", "slow")
    client.peer.reads = False
    body = "x" * 10_000
    for _ in range(40):
        reader.publish("q", body)
    queue = client.stage.broker.vhost("/").queues["q"]
    assert 0 <= queue.unacked * len(body) - CREDIT_BYTES < 2 * len(body)
    reader.consume("q", "fast")  # what the slow one cannot take is there for others
    assert (queue.ready.count, queue.unacked) == (0, 40)
    reader.send("basic.cancel", consumer_tag="fast")
    reader.publish("q", "last")
    assert queue.ready.count == 1
    client.peer.take()
    client.peer.resume_reading()
    assert got(client.peer.take()) == ["slow:last"]


def test_everything_in_flight_is_counted_once_whoever_holds_it() -> None:
    client = Client()
    queue = client.queue("q")
    client.publish("q", *"abc")
    client.get("q", no_ack=False)
    client.consume("q", prefetch=1)
    assert (queue.ready.count, queue.unacked, queue.unacked_bytes) == (1, 2, 2)
    client.send("channel.close")
    assert (queue.ready.count, queue.unacked, queue.unacked_bytes) == (3, 0, 0)


def test_memory_of_a_queue_counts_headers_wherever_its_messages_are() -> None:
    client = Client()
    queue = client.queue("q")
    empty = queue.memory_bytes()
    size = 20_000
    client.publish("q", "1", "2", headers={"long": "h" * size})
    assert queue.memory_bytes() - empty > 2 * size
    client.get("q", no_ack=False)
    client.get("q", no_ack=False)
    assert queue.unacked == 2
    assert queue.memory_bytes() - empty > 2 * size
    client.send("basic.recover", requeue=True)
    assert queue.ready.count == 2
    assert queue.memory_bytes() - empty > 2 * size
    assert client.drain("q") == ["1", "2"]
    assert queue.memory_bytes() == empty
