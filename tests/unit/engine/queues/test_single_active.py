"""A single active consumer: who is served, and when the next one takes over."""

import pytest

from tests.unit.engine.front import Client, got

KINDS = pytest.mark.parametrize("kind", ["classic", "quorum"])


def busy(kind: str, **arguments: object) -> tuple[Client, Client]:
    """Return two clients: consumer `a` of the first holds 0 and 1, `b` of the second waits."""
    first = Client()
    first.queue("q", x_queue_type=kind, x_single_active_consumer=True, **arguments)
    second = first.other()
    first.consume("q", "a", prefetch=2)
    second.consume("q", "b", prefetch=10)
    assert got(first.publish("q", *"01234")) == ["a:0", "a:1"]
    return first, second


def test_the_next_one_is_the_waiting_consumer_of_highest_priority() -> None:
    client = Client()
    client.queue("q", x_single_active_consumer=True)
    client.consume("q", "a", no_ack=True)
    client.consume("q", "b", no_ack=True)
    client.consume("q", "c", no_ack=True, x_priority=5)
    assert got(client.publish("q", "1", "2")) == ["a:1", "a:2"]
    client.send("basic.cancel", consumer_tag="a")
    assert got(client.publish("q", "3")) == ["c:3"]
    client.send("basic.cancel", consumer_tag="c")
    assert got(client.publish("q", "4")) == ["b:4"]


def test_on_a_quorum_queue_a_higher_priority_takes_over_once_the_active_one_is_drained() -> None:
    client = Client()
    client.queue("q", x_queue_type="quorum", x_single_active_consumer=True)
    client.consume("q", "a")
    assert got(client.publish("q", "1")) == ["a:1"]
    client.consume("q", "b", x_priority=1)
    assert got(client.publish("q", "2")) == []
    assert got(client.ack(1)) == ["b:2"]


@KINDS
def test_after_a_cancel_the_next_one_waits_for_the_messages_that_come_back(kind: str) -> None:
    first, second = busy(kind)
    first.send("basic.cancel", consumer_tag="a")
    assert got(second.peer.take()) == []
    first.nack(1)
    assert got(second.peer.take()) == []
    first.nack(2)
    assert got(second.peer.take()) == ["b:0!", "b:1!", "b:2", "b:3", "b:4"]


@KINDS
def test_after_a_cancel_the_next_one_waits_for_the_acks(kind: str) -> None:
    first, second = busy(kind)
    first.send("basic.cancel", consumer_tag="a")
    first.ack(1)
    assert got(second.peer.take()) == []
    first.ack(2)
    assert got(second.peer.take()) == ["b:2", "b:3", "b:4"]


@KINDS
def test_after_a_cancel_the_end_of_the_channel_starts_the_next_one(kind: str) -> None:
    first, second = busy(kind)
    first.send("basic.cancel", consumer_tag="a")
    first.send("channel.close")
    assert got(second.peer.take()) == ["b:0!", "b:1!", "b:2", "b:3", "b:4"]


@KINDS
@pytest.mark.parametrize("limit", [{}, {"x_max_length": 3}])
def test_a_channel_that_closes_gives_everything_back_before_the_next_one_starts(
    kind: str, limit: dict[str, object]
) -> None:
    first, second = busy(kind, **limit)
    first.send("channel.close")
    taken = [text.strip("b:!") for text in got(second.peer.take())]
    assert taken == sorted(taken)
    assert taken[-3:] == ["2", "3", "4"]


@KINDS
def test_a_consumer_that_comes_after_the_cancel_waits_too(kind: str) -> None:
    first, second = busy(kind)
    first.send("basic.cancel", consumer_tag="a")
    second.send("basic.cancel", consumer_tag="b")
    assert got(first.consume("q", "a")) == []
    assert got(first.nack(0, multiple=True)) == ["a:0!", "a:1!", "a:2", "a:3", "a:4"]


def test_messages_that_a_cancelled_consumer_keeps_too_long_are_taken_back() -> None:
    first, second = busy("classic", x_consumer_timeout=1000)
    first.send("basic.cancel", consumer_tag="a")
    first.advance(1000)
    assert got(second.peer.take()) == ["b:0!", "b:1!", "b:2", "b:3", "b:4"]


def test_a_queue_that_is_deleted_forgets_the_consumer_that_it_waited_for() -> None:
    first, second = busy("classic")
    first.send("basic.cancel", consumer_tag="a")
    second.send("queue.delete", queue="q")
    first.nack(0, multiple=True)
    assert not first.exists("q")
    first.queue("q", x_single_active_consumer=True)
    second.consume("q", "b")
    first.publish("q", "new")
    assert got(second.peer.take()) == ["b:new"]
