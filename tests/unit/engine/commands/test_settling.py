"""Ack, reject, requeue, and taking back messages that were held too long."""

from tests.protocol.stage import method, publish
from tests.unit.engine.front import Client, got, names, refusal


def busy(*bodies: str, timeout_ms: int = 0) -> Client:
    """Return a client whose consumer `t` holds all messages of `q`."""
    client = Client()
    client.queue("q")
    client.publish("q", *bodies)
    assert len(got(client.consume("q", x_consumer_timeout=timeout_ms))) == len(bodies)
    return client


def test_acks_one_by_one_and_up_to_a_tag() -> None:
    client = busy(*"abcd")
    queue = client.stage.broker.vhost("/").queues["q"]
    client.ack(3)
    assert (queue.unacked, queue.acked) == (3, 1)
    client.ack(2, multiple=True)
    assert (queue.unacked, queue.acked) == (1, 3)
    client.ack(0, multiple=True)
    assert (queue.unacked, queue.acked) == (0, 4)
    assert client.ack(0, multiple=True) == []


def test_an_unknown_tag_closes_the_channel_and_gives_back_what_it_held() -> None:
    client = busy("a")
    queue = client.stage.broker.vhost("/").queues["q"]
    assert refusal(client.ack(2)) == (
        "channel",
        406,
        "PRECONDITION_FAILED - unknown delivery tag 2",
    )
    assert (queue.ready.count, queue.unacked) == (1, 0)


def test_nack_up_to_a_tag_without_requeue_drops_all_of_it() -> None:
    client = busy(*"abc")
    queue = client.stage.broker.vhost("/").queues["q"]
    client.nack(2, multiple=True, requeue=False)
    assert (queue.ready.count, queue.unacked) == (0, 1)


def test_everything_that_comes_back_at_once_keeps_its_order() -> None:
    client = busy(*"abcd")
    assert got(client.nack(3, multiple=True)) == ["t:a!", "t:b!", "t:c!"]
    assert got(client.send("basic.recover", requeue=True)) == ["t:a!", "t:b!", "t:c!", "t:d!"]


def test_messages_of_a_lost_connection_are_ready_again_in_order() -> None:
    client = busy(*"abc")
    other = client.other()
    client.peer.lose()
    assert got(other.consume("q", "u")) == ["u:a!", "u:b!", "u:c!"]


def test_messages_of_a_lost_connection_are_not_delivered_to_its_other_channels() -> None:
    """Otherwise the message would come back once more, and count as failed twice."""
    client = Client()
    client.queue("q", x_max_length=1, x_delivery_limit=1)
    client.consume("q", "first", on=1)
    client.publish("q", "a")
    client.publish("q", "b")
    client.consume("q", "second", on=2)
    other = client.other()
    client.peer.lose()
    assert not other.exists("leveret.parked")
    assert other.drain("q") == ["b"]


def test_an_ack_that_guesses_the_tag_of_a_delivery_not_yet_sent_does_no_harm() -> None:
    """A queue with a limit delivers within the command, so that both can be in one read."""
    client = Client()
    queue = client.queue("q", x_max_length=0)
    client.consume("q")
    client.peer.feed(publish(1, "q", b"a") + method(1, "basic.ack", delivery_tag=1))
    assert got(client.peer.take()) == ["t:a"]
    assert (queue.unacked, queue.acked) == (0, 1)


def test_a_recover_in_the_same_read_does_not_send_one_delivery_twice() -> None:
    client = Client()
    client.queue("q", x_max_length=0)
    client.consume("q")
    client.peer.feed(publish(1, "q", b"a") + method(1, "basic.recover-async", requeue=True))
    events = client.peer.take()
    tags = [getattr(event, "tag", 0) for event in events]
    assert tags == sorted(set(tags))


# Holding for too long


def test_a_consumer_that_holds_a_message_too_long_is_ended_and_the_message_goes_on() -> None:
    client = busy("a", timeout_ms=1000)
    other = client.other()
    other.consume("q", "u")
    assert client.advance(999) == []
    events = client.advance(1)
    assert names(events) == ["basic.cancel"]
    assert got(other.peer.take()) == ["u:a!"]
    assert client.ack(1) == []  # late, and no error


def test_each_consumer_of_a_channel_has_its_own_time() -> None:
    client = Client()
    client.queue("slow")
    client.queue("quick")
    client.consume("slow", "s", x_consumer_timeout=100_000)
    client.consume("quick", "q", x_consumer_timeout=1000)
    client.publish("slow", "a")
    client.publish("quick", "b")
    events = client.advance(1000)
    assert [getattr(event, "fields", {})["consumer_tag"] for event in events] == ["q"]
    events = client.advance(99_000)
    assert [getattr(event, "fields", {})["consumer_tag"] for event in events] == ["s"]


def test_a_message_acked_in_time_is_not_taken_back_and_the_next_has_its_own_timeout() -> None:
    client = busy("a", timeout_ms=1000)
    client.advance(900)
    client.publish("q", "b")
    client.ack(1)
    assert client.advance(999) == []
    assert names(client.advance(1)) == ["basic.cancel"]


def test_a_get_that_holds_a_message_too_long_loses_it() -> None:
    client = Client()
    queue = client.queue("q", x_consumer_timeout=1000)
    client.publish("q", "a")
    client.get("q", no_ack=False)
    client.advance(1000)
    assert (queue.ready.count, queue.unacked) == (1, 0)


def test_a_message_held_too_long_counts_as_failed() -> None:
    client = Client()
    client.queue("q", x_delivery_limit=0, x_consumer_timeout=1000)
    client.publish("q", "a")
    client.consume("q")
    client.advance(1000)
    assert client.drain("leveret.parked") == ["a"]


def test_a_timeout_of_a_cancelled_consumer_spares_the_next_one_of_the_same_tag() -> None:
    client = busy("a", timeout_ms=1000)
    client.send("basic.cancel", consumer_tag="t")
    client.advance(500)
    client.consume("q", "t")
    assert got(client.advance(500)) == ["t:a!"]
    assert got(client.publish("q", "b")) == ["t:b"]


def test_a_channel_with_several_consumers_leaves_those_of_others_in_turn() -> None:
    client = Client()
    queue = client.queue("q")
    for tag in "abcd":
        client.consume("q", f"one-{tag}", on=1 if tag in "ac" else 2, no_ack=True)
        client.consume("q", f"two-{tag}", on=2, no_ack=True, x_priority=-1)
    assert len(got(client.publish("q", *"123"))) == 3
    client.send("channel.close", on=1)
    assert [consumer.tag for consumer in queue.consumers] == [
        "two-a",
        "one-b",
        "two-b",
        "two-c",
        "one-d",
        "two-d",
    ]
    taken = [text.partition(":")[0] for text in got(client.publish("q", *"4567", on=2))]
    assert sorted(taken) == ["one-b", "one-b", "one-d", "one-d"]
    client.send("channel.close", on=2)
    assert (queue.consumers, queue.subscribers.round_robin.groups) == ([], [])


def test_a_channel_with_several_single_active_consumers_hands_over_to_another_channel() -> None:
    client = Client()
    client.queue("q", x_single_active_consumer=True)
    for tag in "abc":
        client.consume("q", tag)
    client.consume("q", "d", on=2)
    assert got(client.publish("q", "1", "2")) == ["a:1", "a:2"]
    closed = client.send("channel.close")
    assert got(closed) == ["d:1!", "d:2!"]


def test_a_channel_with_several_readers_of_a_stream_leaves_the_others() -> None:
    client = Client()
    client.queue("s", x_queue_type="stream")
    for tag in "abc":
        client.consume("s", tag, on=1 if tag in "ab" else 2, prefetch=5)
    client.send("channel.close")
    stream = client.stage.broker.vhost("/").queues["s"]
    assert [consumer.tag for consumer in stream.consumers] == ["c"]
