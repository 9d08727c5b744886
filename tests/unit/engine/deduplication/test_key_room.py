"""All queues and exchanges of a vhost share the room for deduplication keys."""

from typing import Any

import pytest

from leveret.engine.deduplication.key_room import KeyRoom
from tests.unit.engine.deduplication.test_deduplication import bind, client, exchange, key, once
from tests.unit.engine.front import Client, names, refusal

WINDOW_MS = 60_000


def full(keys_max: int = 3) -> Client:
    """Return a client whose queue `q` has taken as many keys as the vhost has room for."""
    c = client(q=once(window_ms=WINDOW_MS))
    room(c).keys_max = keys_max
    for number in range(keys_max):
        c.publish("q", str(number), **key(number))
    return c


def room(c: Client) -> KeyRoom:
    return c.stage.broker.vhost("/").key_room


def test_message_whose_key_has_no_room_is_refused_and_no_key_is_forgotten() -> None:
    c = full()
    c.send("confirm.select")
    assert names(c.publish("q", "new", **key("new"))) == ["basic.nack"]
    for number in range(3):
        assert names(c.publish("q", "again", **key(number))) == ["basic.ack"]
    assert names(c.publish("q", "without a key")) == ["basic.ack"]
    assert c.drain("q") == ["0", "1", "2", "without a key"]


def test_publisher_without_confirms_is_told_why() -> None:
    c = full()
    level, code, text = refusal(c.publish("q", "new", **key("new")))
    assert (level, code) == ("channel", 406)
    assert "remember 3 keys; the limit is 3" in text


def test_refused_message_may_come_again_when_keys_are_forgotten() -> None:
    c = full()
    c.send("confirm.select")
    c.advance(WINDOW_MS - 1)
    assert names(c.publish("q", "new", **key("new"))) == ["basic.nack"]
    c.advance(1)
    assert names(c.publish("q", "new", **key("new"))) == ["basic.ack"]
    assert room(c).keys == 1


def test_exchange_refuses_a_message_before_it_routes() -> None:
    c = full()
    x = exchange(c, "x", x_deduplication={"size": 9})
    bind(c, "x", "q")
    c.send("confirm.select")
    assert names(c.publish("k", "the queue has no room", exchange="x", **key("a"))) == [
        "basic.nack"
    ]
    c.queue("plain")
    bind(c, "x", "plain", "plain")
    for value in ("a", "b"):  # an equal share of the room, rounded up
        assert names(c.publish("plain", value, exchange="x", **key(value))) == ["basic.ack"]
    assert names(c.publish("plain", "c", exchange="x", **key("c"))) == ["basic.nack"]
    assert (c.drain("plain"), x.deduplicated) == (["a", "b"], 0)


def test_object_that_takes_all_room_leaves_an_equal_share_to_others() -> None:
    c = full(keys_max=4)
    c.queue("late", **once())
    c.send("confirm.select")
    answers = [names(c.publish("late", str(n), **key(n)))[0] for n in range(3)]
    assert answers == ["basic.ack", "basic.ack", "basic.nack"]
    assert names(c.publish("q", "new", **key("new"))) == ["basic.nack"]


def test_a_vhost_with_ever_more_objects_remembers_no_more_than_twice_its_room() -> None:
    """Each of them is filled when it is new, as long as its share is large."""
    c = full(keys_max=8)
    c.send("confirm.select")
    for number in range(20):
        name = f"late{number}"
        c.queue(name, **once())
        for value in range(8):
            c.publish(name, "m", **key(value))
    assert room(c).keys == 16


def test_object_that_has_as_many_keys_as_its_size_forgets_its_oldest_one() -> None:
    c = client(q=once(size=2))
    room(c).keys_max = 2
    c.send("confirm.select")
    for value in "abc":
        assert names(c.publish("q", value, **key(value))) == ["basic.ack"]
    assert room(c).keys == 2


def test_transaction_with_a_refused_message_is_partial() -> None:
    c = full()
    c.send("tx.select", on=2)
    c.publish("q", "new", on=2, **key("new"))
    assert refusal(c.send("tx.commit", on=2)) == (
        "channel",
        406,
        "PRECONDITION_FAILED - partial tx completion",
    )


@pytest.mark.parametrize("how", ["queue.delete", "exchange.delete"])
def test_room_is_given_back_with_the_object(how: str) -> None:
    c = client(q=once() if how == "queue.delete" else {})
    deduplication: dict[str, Any] = {} if how == "queue.delete" else {"x_deduplication": {}}
    exchange(c, "x", **deduplication)
    bind(c, "x", "q")
    for value in "ab":
        c.publish("k", value, exchange="x", **key(value))
    assert (room(c).keys, room(c).objects) == (2, 1)
    if how == "queue.delete":
        c.send(how, queue="q")
    else:
        c.send(how, exchange="x")
    assert (room(c).keys, room(c).objects) == (0, 0)


def test_log_says_once_that_there_is_no_room() -> None:
    c = full()
    turn = c.stage.broker.turn
    c.send("confirm.select")
    turn.faults.clear()
    for number in range(3):
        c.publish("q", "new", **key(f"new{number}"))
    assert [text for text in turn.faults if "remember 3 keys" in text] == turn.faults
    assert len(turn.faults) == 1
