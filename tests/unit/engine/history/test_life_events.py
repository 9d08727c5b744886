"""Life events: every step in the life of a message is in the stream, and every copy ends once."""

from __future__ import annotations

import random
from collections import Counter
from typing import cast

import pytest

from leveret.engine.history.life_events import FINAL, copy_id
from leveret.engine.queues.queue import Queue
from tests.compat.client import Method
from tests.unit.engine.front import Client, headers, names, publish, refusal


class Event:
    """One event of a stream, decoded."""

    def __init__(self, delivery: Method) -> None:
        table = headers(delivery)
        self.name = cast(str, table["x-event"])
        self.queue = cast(str, table.get("x-queue", ""))
        self.reason = cast(str, table.get("x-reason", ""))
        self.consumer = cast(str, table.get("x-consumer", ""))
        self.publish = cast(int, table.get("x-publish-id", 0))
        self.cause = cast(int, table.get("x-cause-id", 0))
        self.body = delivery.body.decode()
        self.table = table
        if "x-broker-id" in table:
            number = cast(int, table["x-broker-id"])
            self.ids = range(number, number + 1)
        else:
            first, _, last = self.body.partition("-")
            self.ids = range(int(first), int(last or first) + 1)


def events(client: Client, stream: str = "history") -> list[Event]:
    """Return all events in the stream."""
    reader = client.other()
    deliveries = reader.consume(stream, prefetch=60_000, x_stream_offset="first")
    return [Event(e) for e in deliveries if isinstance(e, Method) and e.name == "basic.deliver"]


def remembering(client: Client, name: str = "q", **arguments: object) -> Queue:
    return client.queue(name, x_remember="history", **arguments)


def story(client: Client) -> list[tuple[str, str]]:
    return [(event.name, event.reason) for event in events(client)]


def test_stream_is_created_with_the_first_queue_that_uses_it() -> None:
    client = Client()
    remembering(client)
    assert client.exists("history")
    assert events(client) == []


def test_x_remember_must_name_a_stream() -> None:
    client = Client()
    client.queue("history")
    sent = client.send("queue.declare", queue="q", arguments={"x-remember": "history"})
    level, code, text = refusal(sent)
    assert (level, code) == ("channel", 406)
    assert text.endswith("for queue 'q' in vhost '/': queue 'history' is not a stream")
    assert not client.exists("q")


@pytest.mark.parametrize("value", [1, "", "x" * 256, True])
def test_the_argument_must_be_a_name(value: object) -> None:
    client = Client()
    sent = client.send("queue.declare", queue="q", arguments={"x-remember": value})
    assert refusal(sent)[:2] == ("channel", 406)


def test_a_message_is_remembered_with_its_properties_and_body() -> None:
    client = Client()
    queue = remembering(client)
    client.publish("q", "a", content_type="text/plain", headers={"k": "v"})
    (event,) = events(client)
    assert (event.name, event.queue, event.body) == ("queued", "q", "a")
    assert event.table["k"] == "v"
    assert event.ids[0] == copy_id(queue.ledger.id, 0)


def test_an_acked_message_has_been_queued_delivered_and_acked() -> None:
    client = Client()
    remembering(client)
    client.publish("q", "a")
    client.consume("q", "worker")
    client.ack(1)
    told = events(client)
    assert [e.name for e in told] == ["queued", "delivered", "acked"]
    assert [e.consumer for e in told] == ["", "worker", ""]
    assert len({e.ids for e in told}) == 1


def test_no_ack_delivery_is_the_final_event() -> None:
    client = Client()
    remembering(client)
    client.publish("q", "a")
    client.get("q", no_ack=True)
    assert story(client) == [("queued", ""), ("delivered", ""), ("acked", "automatic")]


def test_nacked_message_is_requeued_and_rejected_message_is_dropped() -> None:
    client = Client()
    remembering(client)
    client.publish("q", "a")
    client.get("q", no_ack=False)
    client.nack(1, requeue=True)
    client.get("q", no_ack=False)
    client.reject(2, requeue=False)
    assert story(client) == [
        ("queued", ""),
        ("delivered", ""),
        ("nacked", ""),
        ("requeued", ""),
        ("delivered", ""),
        ("rejected", ""),
        ("dropped", "rejected"),
    ]


def test_messages_of_a_lost_consumer_are_requeued() -> None:
    client = Client()
    remembering(client)
    client.publish("q", "a")
    client.consume("q", on=2)
    client.send("channel.close", on=2, reply_code=200)
    assert story(client) == [("queued", ""), ("delivered", ""), ("requeued", "")]


def test_message_that_is_held_too_long_is_timed_out_and_requeued() -> None:
    client = Client()
    remembering(client, x_consumer_timeout=1000)
    client.publish("q", "a")
    client.consume("q", prefetch=1)
    client.advance(1000)
    assert [name for name, _ in story(client)] == ["queued", "delivered", "timed out", "requeued"]


def test_expiry_ends_a_message() -> None:
    client = Client()
    remembering(client, x_message_ttl=10)
    client.publish("q", "a")
    client.advance(11)
    assert story(client) == [("queued", ""), ("expired", "expired")]


def test_dead_letter_names_the_copy_that_died() -> None:
    client = Client()
    queue = remembering(
        client, x_message_ttl=10, x_dead_letter_exchange="", x_dead_letter_routing_key="dead"
    )
    dead = remembering(client, "dead")
    client.publish("q", "a")
    client.advance(11)
    told = events(client)
    assert [(e.name, e.queue, e.reason) for e in told] == [
        ("queued", "q", ""),
        ("queued", "dead", ""),
        ("dead-lettered", "q", "expired"),
    ]
    assert told[1].cause == told[0].ids[0] == copy_id(queue.ledger.id, 0)
    assert told[1].ids[0] == copy_id(dead.ledger.id, 0)


def test_oldest_message_over_the_limit_and_refused_message_are_dropped() -> None:
    client = Client()
    remembering(client, x_max_length=1)
    remembering(client, "strict", x_max_length=1, x_overflow="reject-publish")
    client.publish("q", "a", "b")
    client.publish("strict", "c", "d")
    told = [(e.queue, e.name, e.ids[0] & 0xFF, e.reason) for e in events(client)]
    assert ("q", "dropped", 0, "maxlen") in told
    assert ("strict", "dropped", 1, "maxlen") in told
    assert sum(name == "dropped" for _, name, _, _ in told) == 2


def test_a_message_over_its_delivery_limit_is_parked() -> None:
    client = Client()
    remembering(client, x_delivery_limit=0)
    client.publish("q", "a")
    client.get("q", no_ack=False)
    client.reject(1, requeue=True)
    assert story(client)[-2:] == [("rejected", ""), ("parked", "delivery_limit")]


def test_purged_and_deleted_messages_have_events() -> None:
    client = Client()
    remembering(client)
    client.publish("q", "a", "b")
    client.send("queue.purge", queue="q")
    client.publish("q", "c", "d")
    client.get("q", no_ack=False)
    client.send("queue.delete", queue="q")
    client.nack(1, requeue=True)
    ends = [(e.name, [number & 0xFF for number in e.ids]) for e in events(client)]
    assert ends[2:4] == [("purged", [0]), ("purged", [1])]
    assert ends[-3:] == [("deleted", [3]), ("nacked", [2]), ("deleted", [2])]


def test_exchange_records_routed_and_unroutable_messages() -> None:
    client = Client()
    client.send("exchange.declare", exchange="x", type="topic", arguments={"x-remember": "history"})
    client.queue("one")
    remembering(client, "two")
    for queue in ("one", "two"):
        client.send("queue.bind", queue=queue, exchange="x", routing_key="a.#")
    client.publish("a.b", "body", exchange="x")
    client.publish("z", "lost", exchange="x")
    told = events(client)
    assert [(e.name, e.queue) for e in told] == [
        ("published", ""),
        ("routed", "one"),
        ("routed", "two"),
        ("queued", "two"),
        ("published", ""),
        ("unroutable", ""),
    ]
    assert told[0].body == "body"
    assert told[1].ids == told[2].ids == told[0].ids
    assert told[3].publish == told[0].ids[0]
    assert told[5].ids == told[4].ids != told[0].ids


def test_a_returned_message_is_not_unroutable() -> None:
    client = Client()
    client.send(
        "exchange.declare", exchange="x", type="fanout", arguments={"x-remember": "history"}
    )
    client.peer.feed(publish(1, "k", b"a", {}, exchange="x", mandatory=True))
    client.peer.take()
    assert [name for name, _ in story(client)] == ["published", "returned"]


def test_exchange_after_another_records_events_too() -> None:
    client = Client()
    client.send("exchange.declare", exchange="front", type="fanout")
    client.send(
        "exchange.declare", exchange="x", type="fanout", arguments={"x-remember": "history"}
    )
    client.send("exchange.bind", destination="x", source="front")
    client.queue("q")
    client.send("queue.bind", queue="q", exchange="x")
    client.publish("k", "a", exchange="front")
    client.publish("k", "b", exchange="front")
    assert [name for name, _ in story(client)] == ["published", "routed"] * 2


def test_second_recording_exchange_names_the_event_of_the_first() -> None:
    client = Client()
    for name in ("first", "second"):
        arguments = {"x-remember": "history"}
        client.send("exchange.declare", exchange=name, type="fanout", arguments=arguments)
    client.send("exchange.bind", destination="second", source="first")
    remembering(client)
    client.send("queue.bind", queue="q", exchange="second")
    client.publish("k", "a", exchange="first")
    told = events(client)
    assert [e.name for e in told] == ["published", "routed", "published", "routed", "queued"]
    assert [e.publish for e in told] == [0, 0, told[0].ids[0], 0, told[2].ids[0]]


def test_message_held_by_a_delayed_exchange_has_an_event() -> None:
    client = Client()
    arguments = {"x-remember": "history"}
    client.send("exchange.declare", exchange="x", type="fanout", arguments=arguments)
    delayed = {"x-delayed-type": "fanout"}
    client.send("exchange.declare", exchange="later", type="x-delayed-message", arguments=delayed)
    client.send("exchange.bind", destination="later", source="x")
    client.publish("k", "a", exchange="x", headers={"x-delay": 1000})
    client.publish("k", "b", exchange="x")
    assert [name for name, _ in story(client)] == ["published", "held", "published", "unroutable"]


def test_event_headers_sent_by_a_client_are_removed() -> None:
    client = Client()
    remembering(client)
    client.publish("q", "a", headers={"x-cause-id": 7, "x-publish-id": 8, "x-next-id": 9})
    (event,) = events(client)
    assert (event.cause, event.publish) == (0, 0)
    assert "x-next-id" not in event.table


def test_redeclared_exchange_needs_the_same_x_remember() -> None:
    client = Client()
    client.send(
        "exchange.declare", exchange="x", type="fanout", arguments={"x-remember": "history"}
    )
    level, code, text = refusal(client.send("exchange.declare", exchange="x", type="fanout"))
    assert (level, code) == ("channel", 406)
    assert "inequivalent arg 'x-remember'" in text


def test_queue_works_on_after_its_event_stream_is_deleted() -> None:
    client = Client()
    remembering(client)
    client.send("queue.delete", queue="history")
    client.publish("q", "a")
    assert client.drain("q") == ["a"]


def test_queue_without_x_remember_records_no_events() -> None:
    client = Client()
    remembering(client)
    client.queue("other")
    client.publish("other", "a")
    client.drain("other")
    assert events(client) == []


@pytest.mark.parametrize("seed", range(12))
def test_every_copy_ends_once_or_is_still_there(seed: int) -> None:
    print(f"seed {seed}")
    chance = random.Random(seed)
    client = Client()
    client.send("exchange.declare", exchange="x", type="topic", arguments={"x-remember": "history"})
    remembering(client, "dead")
    queues = {
        "plain": remembering(client, "plain"),
        "short": remembering(client, "short", x_max_length=3),
        "strict": remembering(client, "strict", x_max_length=4, x_overflow="reject-publish"),
        "mortal": remembering(
            client,
            "mortal",
            x_message_ttl=20,
            x_dead_letter_exchange="",
            x_dead_letter_routing_key="dead",
        ),
        "limited": remembering(client, "limited", x_queue_type="quorum", x_delivery_limit=1),
        "dead": client.stage.broker.vhost("/").queues["dead"],
    }
    for name in queues:
        client.send("queue.bind", queue=name, exchange="x", routing_key=f"{name[0]}.#")
    held: list[int] = []
    published = 0
    for _ in range(300):
        step = chance.random()
        name = chance.choice(list(queues))
        if step < 0.45:
            client.publish(chance.choice("psmldz") + ".k", f"m{published}", exchange="x")
            published += 1
        elif step < 0.75:
            found = client.get(name, no_ack=chance.random() < 0.3)
            if found is not None and held_tag(found) not in held:
                held.append(held_tag(found))
        elif step < 0.9 and held:
            tag = held.pop(chance.randrange(len(held)))
            way = chance.random()
            if way < 0.5:
                sent = client.ack(tag)
            elif way < 0.8:
                sent = client.nack(tag, requeue=chance.random() < 0.5)
            else:
                sent = client.reject(tag, requeue=chance.random() < 0.7)
            if "channel.close" in names(sent):  # the tag belonged to a no_ack delivery
                client.send("channel.close-ok")
                client.peer.open_channel(1)
                held.clear()
        elif step < 0.93:
            client.send("queue.purge", queue=name)
        else:
            client.advance(chance.randrange(15))
    told = events(client)
    check_publishes(told, published)
    check_copies(told, queues)


def held_tag(found: Method) -> int:
    return cast(int, found.fields["delivery_tag"])


def check_publishes(told: list[Event], published: int) -> None:
    """Check that every publish was routed or is unroutable."""
    names_of: dict[int, set[str]] = {}
    for event in told:
        if event.name in ("published", "routed", "unroutable"):
            names_of.setdefault(event.ids[0], set()).add(event.name)
    assert len(names_of) == published
    for told_of in names_of.values():
        assert told_of in ({"published", "routed"}, {"published", "unroutable"})


def check_copies(told: list[Event], queues: dict[str, Queue]) -> None:
    """Check that every copy was queued once, and ended once unless it is still in its queue."""
    queued: Counter[int] = Counter()
    ended: Counter[int] = Counter()
    for event in told:
        for number in event.ids:
            if event.name == "queued":
                queued[number] += 1
            elif event.name in FINAL:
                ended[number] += 1
    assert set(queued.values()) <= {1}
    assert set(ended.values()) <= {1}
    assert set(ended) <= set(queued)
    alive = set(queued) - set(ended)
    for queue in queues.values():
        mine = [number for number in alive if number >> 40 == queue.ledger.id]
        assert len(mine) == queue.ready.count + queue.unacked + len(queue.scheduled)
