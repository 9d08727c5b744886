"""A queue as its clients see it: order, limits, expiry, delays, consumers, and its own end."""

import pytest

from leveret.engine.backlog.ready import Ready
from tests.unit.engine.front import Client, got, headers, names

# Order and coming back


def test_a_requeued_message_comes_again_in_its_old_place() -> None:
    client = Client()
    client.queue("q")
    client.publish("q", "a", "b", "c")
    assert got(client.consume("q", prefetch=2)) == ["t:a", "t:b"]
    assert got(client.nack(1)) == ["t:a!"]
    client.send("basic.cancel", consumer_tag="t")
    client.nack(0, multiple=True)
    assert client.drain("q") == ["a", "b", "c"]


def test_priorities_are_strict_and_clamped_to_the_greatest() -> None:
    client = Client()
    client.queue("q", x_max_priority=5)
    client.publish("q", "low", priority=1)
    client.publish("q", "none")
    for body, priority in (("over", 200), ("five", 5), ("one", 1)):
        client.publish("q", body, priority=priority)
    assert client.drain("q") == ["over", "five", "low", "one", "none"]


def test_a_queue_without_priorities_ignores_them() -> None:
    client = Client()
    client.queue("q")
    client.publish("q", "a", priority=1)
    client.publish("q", "b", priority=9)
    assert client.drain("q") == ["a", "b"]


def test_a_quorum_queue_has_priorities_and_four_without_being_asked() -> None:
    client = Client()
    client.queue("q", x_queue_type="quorum")
    client.publish("q", "three", priority=3)
    client.publish("q", "none")
    client.publish("q", "nine", priority=9)
    assert client.drain("q") == ["nine", "none", "three"]


@pytest.mark.interpreted_only("compiled code cannot be patched")
def test_a_message_behind_others_comes_without_a_look_at_all_lines(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """There may be a line for each message, and the look would come every second."""
    client = Client()
    queue = client.queue("q", x_max_priority=5)
    client.publish("q", "first", priority=1)
    before = list(queue.arrival_times.seqs)
    client.advance(2000)
    with monkeypatch.context() as patched:
        patched.delattr(Ready, "oldest_rank")
        client.publish("q", "second", priority=2)
    assert list(queue.arrival_times.seqs) == [*before, 1]
    assert client.drain("q") == ["second", "first"]
    client.advance(2000)
    client.publish("q", "third")
    assert list(queue.arrival_times.seqs) == [2], "earlier marks are dropped with their messages"


# Limits


@pytest.mark.parametrize("limit", [{"x_max_length": 2}, {"x_max_length_bytes": 5}])
def test_drop_head_keeps_the_newest(limit: dict[str, object]) -> None:
    client = Client()
    queue = client.queue("q", **limit)
    client.publish("q", "aa", "bb", "cc")
    assert queue.dropped == 1
    assert client.drain("q") == ["bb", "cc"]


@pytest.mark.parametrize("limit", [{"x_max_length": 2}, {"x_max_length_bytes": 5}])
def test_reject_publish_keeps_the_oldest_and_nacks_the_rest(limit: dict[str, object]) -> None:
    client = Client()
    client.queue("q", x_overflow="reject-publish", **limit)
    client.send("confirm.select")
    assert names(client.publish("q", "aa", "bb", "cc")) == ["basic.ack", "basic.nack"]
    assert client.drain("q") == ["aa", "bb"]


def test_what_a_consumer_can_take_is_not_counted_against_a_limit() -> None:
    client = Client()
    client.queue("q", x_max_length=1, x_overflow="reject-publish")
    client.consume("q", prefetch=2)
    client.send("confirm.select", on=2)
    events = client.publish("q", "a", "b", "c", "d", on=2)
    assert got(events) == ["t:a", "t:b"]
    assert names(events)[-2:] == ["basic.ack", "basic.nack"]
    assert client.drain("q") == ["c"]


def test_drop_head_drops_the_highest_priority_as_rabbitmq_does() -> None:
    client = Client()
    client.queue("q", x_max_length=1, x_max_priority=5)
    client.publish("q", "high", priority=5)
    client.publish("q", "low", priority=0)
    assert client.drain("q") == ["low"]


def test_a_message_that_comes_back_to_a_full_queue_pushes_out_the_head() -> None:
    client = Client()
    client.queue("q", x_max_length=1)
    client.publish("q", "a")
    client.get("q", no_ack=False)
    client.publish("q", "b", "c")
    client.nack(1)
    assert client.drain("q") == ["c"]


# Expiry


def test_the_smaller_ttl_of_message_and_queue_applies() -> None:
    client = Client()
    queue = client.queue("q", x_message_ttl=100)
    client.publish("q", "a")
    client.publish("q", "b", expiration="50")
    client.publish("q", "c", expiration="500")
    client.advance(99)
    assert queue.ready.count == 3  # b has expired, but it is behind a living message
    client.advance(1)
    assert queue.ready.count == 0
    assert queue.expired == 3


def test_a_message_with_ttl_zero_is_delivered_only_if_a_consumer_waits() -> None:
    client = Client()
    queue = client.queue("q", x_message_ttl=0)
    client.publish("q", "a")
    assert queue.ready.count == 0
    client.consume("q")
    assert got(client.publish("q", "b")) == ["t:b"]


def test_a_dead_message_goes_as_soon_as_it_is_at_the_head() -> None:
    client = Client()
    queue = client.queue("q")
    client.publish("q", "head")
    client.publish("q", "dead", expiration="10")
    client.publish("q", "tail")
    client.advance(10)
    found = client.get("q")
    assert found is not None and found.body == b"head"
    assert found.fields["message_count"] == 1
    assert queue.expired == 1


def test_expiry_is_on_time_for_a_message_that_a_get_brought_to_the_head() -> None:
    client = Client()
    queue = client.queue("q")
    client.publish("q", "head")
    client.publish("q", "short", expiration="10")
    client.get("q")
    client.advance(10)
    assert (queue.ready.count, queue.expired) == (0, 1)


def test_a_message_that_expired_in_flight_does_not_come_back() -> None:
    client = Client()
    client.queue("q", x_message_ttl=10)
    client.publish("q", "a")
    client.get("q", no_ack=False)
    client.advance(10)
    client.nack(1)
    assert client.get("q") is None


# Delays


def test_a_delayed_queue_holds_messages_back_until_they_are_due() -> None:
    client = Client()
    queue = client.queue("q", x_delayed=True)
    client.publish("q", "late", headers={"x-delay": 100})
    client.publish("q", "soon", headers={"x-delay": 50})
    client.publish("q", "now")
    assert (queue.ready.count, len(queue.scheduled)) == (1, 2)
    client.consume("q")
    assert got(client.advance(50)) == ["t:soon"]
    assert got(client.advance(50)) == ["t:late"]


def test_the_ttl_of_a_delayed_message_starts_when_it_is_due() -> None:
    client = Client()
    queue = client.queue("q", x_delayed=True, x_message_ttl=10)
    client.publish("q", "a", headers={"x-delay": 100})
    client.advance(109)
    assert queue.ready.count == 1
    client.advance(1)
    assert queue.ready.count == 0


def test_rejected_messages_of_a_quorum_queue_wait_longer_each_time() -> None:
    client = Client()
    client.queue(
        "q",
        x_queue_type="quorum",
        x_delayed_retry_type="failed",
        x_delayed_retry_min=10,
        x_delayed_retry_max=25,
    )
    client.publish("q", "a")
    assert got(client.consume("q")) == ["t:a"]
    for tag, wait_ms in enumerate((10, 20, 25, 25), 1):
        assert got(client.reject(tag)) == []
        assert got(client.advance(wait_ms - 1)) == []
        assert got(client.advance(1)) == ["t:a!"]
    assert got(client.nack(5)) == ["t:a!"]  # no failure: at once


# Failing too often


def test_the_delivery_limit_counts_failures_and_tells_consumers() -> None:
    client = Client()
    client.queue("q", x_delivery_limit=2)
    client.publish("q", "a")
    counts = []
    for tag in range(1, 5):
        found = client.get("q", no_ack=False)
        counts.append(
            (headers(found).get("x-acquired-count"), headers(found).get("x-delivery-count"))
        )
        client.nack(tag) if tag == 1 else client.reject(tag)
    assert counts == [(None, None), (1, None), (2, 1), (3, 2)]
    assert client.get("q") is None
    assert client.drain("leveret.parked") == ["a"]


# Consumers


def test_consumers_take_turns() -> None:
    client = Client()
    client.queue("q")
    client.consume("q", "a")
    client.consume("q", "b", on=2)
    assert sorted(got(client.publish("q", *"1234"))) == ["a:1", "a:3", "b:2", "b:4"]


# The end of a queue


def test_an_unused_queue_expires_and_any_use_puts_it_off() -> None:
    client = Client()
    client.queue("q", x_expires=100)
    client.advance(99)
    client.get("q")
    client.advance(99)
    client.send("queue.declare", queue="q", passive=True)
    client.consume("q")
    client.advance(1000)
    client.send("basic.cancel", consumer_tag="t")
    client.advance(99)
    assert client.exists("q")
    client.advance(1)
    assert not client.exists("q")


def test_an_auto_delete_queue_goes_with_its_last_consumer_but_not_before_the_first() -> None:
    client = Client()
    client.send("queue.declare", queue="q", auto_delete=True)
    client.consume("q", "a")
    client.consume("q", "b")
    client.send("basic.cancel", consumer_tag="a")
    assert client.exists("q")
    client.send("basic.cancel", consumer_tag="b")
    assert not client.exists("q")


def test_purge_drops_only_ready_messages() -> None:
    client = Client()
    queue = client.queue("q", x_delayed=True)
    client.publish("q", "a", "b", "c")
    client.publish("q", "d", headers={"x-delay": 10})
    client.get("q", no_ack=False)
    (purged,) = client.send("queue.purge", queue="q")
    assert getattr(purged, "fields", {})["message_count"] == 2
    assert (queue.ready.count, queue.unacked, len(queue.scheduled)) == (0, 1, 1)
    client.nack(1)
    client.advance(10)
    assert client.drain("q") == ["a", "d"]


def test_a_deleted_queue_ends_its_consumers_and_forgets_messages_in_flight() -> None:
    client = Client()
    client.queue("q", x_dead_letter_exchange="", x_dead_letter_routing_key="dead")
    client.queue("dead")
    client.publish("q", "a", "b")
    client.consume("q", prefetch=1)
    assert names(client.send("queue.delete", queue="q")) == ["queue.delete-ok", "basic.cancel"]
    assert client.nack(1, requeue=False) == []
    assert client.get("dead") is None
