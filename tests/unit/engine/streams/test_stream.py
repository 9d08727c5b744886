"""Streams in memory: offsets, retention, filters, cursors, and readers that come and go."""

from random import Random

import pytest

from leveret.engine.streams.reader import Reader
from leveret.engine.streams.stream import PASSED_MAX, RECENT_BYTES, Stream
from tests.compat.client import Method
from tests.protocol.stage import Event
from tests.unit.engine.front import Client, got, headers, names, refusal


def stream(client: Client, name: str = "s", **arguments: object) -> Stream:
    made = client.queue(name, x_queue_type="stream", **arguments)
    assert isinstance(made, Stream)
    return made


def offsets(events: list[Event]) -> list[object]:
    deliveries = [e for e in events if isinstance(e, Method) and e.name == "basic.deliver"]
    return [headers(event)["x-stream-offset"] for event in deliveries]


def follow(client: Client, tag: str = "t", prefetch: int = 1000, **given: object) -> list[Event]:
    arguments = {"x_stream_offset": "first", **given}
    return client.consume("s", tag, on=1, prefetch=prefetch, no_ack=False, **arguments)


# Offsets


def test_messages_of_several_turns_have_offsets_without_gaps() -> None:
    client = Client()
    made = stream(client)
    client.publish("s", *"abc")
    client.publish("s", "d")
    assert got(follow(client)) == ["t:a", "t:b", "t:c", "t:d"]
    assert offsets(client.publish("s", *"ef")) == [4, 5]
    assert (made.message_count(), made.first_offset, made.end_offset) == (6, 0, 6)


def test_last_is_the_last_chunk() -> None:
    client = Client()
    stream(client)
    client.publish("s", *"abc")
    client.publish("s", *"def")
    assert offsets(follow(client, x_stream_offset="last")) == [3, 4, 5]


def test_offset_behind_the_end_is_waited_for() -> None:
    client = Client()
    stream(client)
    client.publish("s", *"abc")
    assert offsets(follow(client, x_stream_offset=5)) == []
    assert offsets(client.publish("s", *"de")) == []
    assert offsets(client.publish("s", *"fg")) == [5, 6]


@pytest.mark.parametrize("offset", [2**63 - 1, 2**62, ("l", -(2**63))])
def test_offset_of_any_size_does_no_harm(offset: object) -> None:
    client = Client()
    stream(client)
    client.publish("s", "a")
    found = offsets(follow(client, x_stream_offset=offset))
    assert found == ([0] if isinstance(offset, tuple) else [])
    assert names(client.publish("s", "b")) in (["basic.deliver"], [])


@pytest.mark.parametrize("seconds", [0, 1_699_999_999, 1_700_000_003, 2**40, 2**63 - 1])
def test_time_is_where_a_reader_begins(seconds: int) -> None:
    client = Client()
    stream(client)
    for number in range(10):  # one each second from 1_700_000_000 on
        client.publish("s", str(number))
        client.advance(1000)
    first = min(max(seconds - 1_700_000_000, 0), 10)
    assert offsets(follow(client, x_stream_offset=("T", seconds))) == list(range(first, 10))


@pytest.mark.parametrize(("age", "first"), [("1s", 9), ("5s", 5), ("1m", 0), ("100Y", 0)])
def test_age_is_where_a_reader_begins(age: str, first: int) -> None:
    client = Client()
    stream(client)
    for number in range(10):
        client.publish("s", str(number))
        client.advance(1000)
    assert offsets(follow(client, x_stream_offset=age)) == list(range(first, 10))


def test_clock_that_is_set_back_keeps_times_in_order() -> None:
    client = Client()
    stream(client)
    client.publish("s", "a")
    client.stage.now_ms -= 3_600_000
    client.publish("s", "b")
    client.stage.now_ms += 7_200_000
    client.publish("s", "c")
    assert offsets(follow(client, x_stream_offset=("T", 1_700_000_000))) == [0, 1, 2]
    assert offsets(follow(client, "u", x_stream_offset=("T", 1_700_000_001))) == [2]


# Reading


def test_reader_goes_on_over_chunks_that_are_not_in_memory_as_recent() -> None:
    client = Client()
    stream(client)
    follow(client, x_stream_offset="next", prefetch=1)
    body = "x" * 100_000
    count = RECENT_BYTES // len(body) + 20
    seen = [offset for _ in range(count) for offset in offsets(client.publish("s", body))]
    for tag in range(1, count):
        seen += offsets(client.ack(tag))
    assert seen == list(range(count))


def test_connection_that_does_not_read_is_not_sent_more_than_its_credit() -> None:
    client = Client()
    made = stream(client)
    body = "x" * 10_000
    client.publish("s", *[body] * 1000)
    client.peer.reads = False
    first = len(offsets(follow(client, prefetch=5000)))
    assert 0 < first < 1000
    client.peer.resume_reading()
    more = len(offsets(client.peer.take()))
    assert first + more == 1000
    assert made.message_count() == 1000


def test_two_readers_are_independent() -> None:
    client = Client()
    stream(client)
    client.publish("s", *"abcd")
    assert got(follow(client, "a", prefetch=1)) == ["a:a"]
    assert got(follow(client, "b", prefetch=3)) == ["b:a", "b:b", "b:c"]
    assert got(client.ack(1)) == ["a:b"]


def test_deleted_stream_cancels_and_later_acks_do_no_harm() -> None:
    client = Client()
    stream(client)
    client.publish("s", *"ab")
    follow(client, x_stream_cursor="c")
    events = client.send("queue.delete", queue="s", on=2)
    assert sorted(names(events)) == ["basic.cancel", "queue.delete-ok"]
    assert names(client.ack(2, multiple=True)) == []
    stream(client)
    assert offsets(client.publish("s", "new")) == []
    assert offsets(follow(client, "u", x_stream_cursor="c")) == [0]


# Retention


def test_oldest_segments_are_forgotten_by_bytes() -> None:
    client = Client()
    made = stream(client, x_max_length_bytes=5000, x_stream_max_segment_size_bytes=1000)
    for number in range(200):
        client.publish("s", f"{number:04d}" * 25)
    assert made.segments.total_bytes() <= 5000 + 1000
    assert made.segments.total_bytes() > 3000
    first = int(made.first_offset)
    assert first > 100
    assert offsets(follow(client)) == list(range(first, 200))
    assert made.message_count() == 200 - first


def test_last_segment_is_never_forgotten() -> None:
    client = Client()
    made = stream(client, x_max_length_bytes=0, x_stream_max_segment_size_bytes=100)
    for _ in range(10):
        client.publish("s", "x" * 500)
    assert made.message_count() == 1
    assert offsets(follow(client)) == [9]


def test_oldest_segments_are_forgotten_by_age_without_publishes() -> None:
    client = Client()
    made = stream(client, x_max_age="100s")
    for number in range(20):
        client.publish("s", str(number))
        client.advance(10_000)
    kept = made.message_count()
    assert 10 <= kept <= 13  # an age is divided into four segments
    client.advance(60_000)
    assert made.message_count() < kept
    client.advance(3_600_000)
    assert 1 <= made.message_count() <= 3
    assert offsets(follow(client))[-1:] == [19]


def test_nothing_goes_before_its_age() -> None:
    client = Client()
    made = stream(client, x_max_age="100s", x_stream_max_segment_size_bytes=1)
    for number in range(50):
        client.publish("s", str(number))
        client.advance(5000)
        assert made.message_count() >= min(number + 1, 20)


def test_reader_of_what_is_forgotten_goes_on_at_the_first_that_is_there() -> None:
    client = Client()
    made = stream(client, x_max_length_bytes=2000, x_stream_max_segment_size_bytes=500)
    client.publish("s", "a" * 100)
    assert offsets(follow(client, prefetch=1)) == [0]
    for _ in range(100):
        client.publish("s", "x" * 100)
    assert made.first_offset > 50
    assert offsets(client.ack(1)) == [made.first_offset]
    assert offsets(follow(client, "u", prefetch=1, x_stream_offset=3)) == [made.first_offset]


# Filters


def colours(client: Client, count: int) -> None:
    for number in range(count):
        colour = ("red", "blue", None)[number % 3]
        table = {} if colour is None else {"x-stream-filter-value": colour}
        client.publish("s", str(number), headers=table)


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ({"x_stream_filter": "red"}, {0}),
        ({"x_stream_filter": ["red", "blue"]}, {0, 1}),
        ({"x_stream_filter": "red", "x_stream_match_unfiltered": True}, {0, 2}),
        ({"x_stream_filter": "green"}, set()),
        ({"x_stream_match_unfiltered": True}, {0, 1, 2}),
        ({"x_stream_filter": []}, {0, 1, 2}),
    ],
)
def test_reader_gets_what_passes_its_filter(given: dict[str, object], wanted: set[int]) -> None:
    client = Client()
    stream(client)
    colours(client, 30)
    assert offsets(follow(client, "t", 1000, **given)) == [n for n in range(30) if n % 3 in wanted]


def test_filtered_reader_of_much_does_not_hold_up_the_others() -> None:
    """The stream examines some messages, and continues by itself in another turn."""
    client = Client()
    stream(client)
    red = {"x-stream-filter-value": "red"}
    client.publish("s", *["x"] * (PASSED_MAX + 100))
    client.publish("s", "last", headers=red)
    assert offsets(follow(client, x_stream_filter="red")) == []
    assert offsets(client.advance(0) + client.advance(1)) == [PASSED_MAX + 100]


def test_filters_of_all_readers_together_pass_over_so_much_in_a_turn() -> None:
    """Thousands of readers that each may pass over so much would stop all other clients."""
    client = Client()
    made = stream(client)
    client.publish("s", *["x"] * PASSED_MAX)
    client.publish("s", "last", headers={"x-stream-filter-value": "red"})
    made.paused = True
    for tag in "abc":
        follow(client, tag, x_stream_filter="red")
    follow(client, "d", 10)
    made.paused = False
    made.pump()
    assert [r.offset for r in made.consumers if isinstance(r, Reader)] == [PASSED_MAX, 0, 0, 10]
    came = [event for _ in range(4) for event in client.advance(1)]
    assert sorted(got(came)) == ["a:last", "b:last", "c:last", *["d:x"] * 10]


# Cursors


def test_cursor_stands_behind_what_is_settled_without_a_gap(seed: int) -> None:
    print(f"seed {seed}")
    rng = Random(seed)
    for _ in range(10):
        client = Client()
        made = stream(client)
        client.publish("s", *[str(number) for number in range(30)])
        follow(client, x_stream_cursor="c")
        tags = list(range(1, 31))
        rng.shuffle(tags)
        settled: set[int] = set()
        for tag in tags:
            settle(client, tag, rng)
            settled.add(tag)
            gap = next(number for number in range(1, 32) if number not in settled)
            assert made.cursors.cursors.get("c", 0) == gap - 1


def settle(client: Client, tag: int, rng: Random) -> None:
    way = rng.choice(("ack", "nack", "reject"))
    if way == "ack":
        client.ack(tag)
    elif way == "nack":
        client.nack(tag, requeue=False)
    else:
        client.reject(tag, requeue=False)


def test_a_requeued_message_is_not_settled() -> None:
    client = Client()
    made = stream(client)
    client.publish("s", *"abc")
    follow(client, x_stream_cursor="c")
    client.ack(1)
    client.nack(2)
    client.ack(3)
    assert made.cursors.cursors == {"c": 1}
    client.send("basic.cancel", consumer_tag="t")
    assert offsets(follow(client, "u", x_stream_cursor="c")) == [1, 2]


def test_messages_of_a_closed_channel_are_not_settled() -> None:
    client = Client()
    made = stream(client)
    client.publish("s", *"abc")
    follow(client, x_stream_cursor="c")
    client.ack(1)
    client.send("channel.close", reply_code=200)
    assert made.cursors.cursors == {"c": 1}
    assert made.consumers == []
    other = client.other()
    assert offsets(other.consume("s", "u", prefetch=9, x_stream_cursor="c")) == [1, 2]


def test_cursors_of_a_vhost_are_limited() -> None:
    client = Client()
    made = stream(client)
    stream(client, "other")
    room = client.stage.broker.vhost("/").cursor_room
    room.cursors_max = 2
    client.publish("s", "a", "b")
    for name in ("one", "two"):
        follow(client, name, x_stream_cursor=name)
    client.ack(0, multiple=True)
    assert room.cursors == 2
    arguments = {"x-stream-cursor": "three"}
    client.send("basic.qos", on=2, prefetch_count=1)
    events = client.send("basic.consume", on=2, queue="other", arguments=arguments)
    level, code, text = refusal(events)
    assert (level, code) == ("channel", 406)
    assert "have 2 cursors; the limit is 2" in text
    client.send("basic.cancel", consumer_tag="one")
    assert offsets(follow(client, "again", x_stream_cursor="one")) == []
    made.cursors.move("two", -1)
    client.send("basic.qos", on=3, prefetch_count=1)
    events = client.send("basic.consume", on=3, queue="other", arguments=arguments)
    assert names(events) == ["basic.consume-ok"]
    client.send("queue.delete", queue="s")
    assert room.cursors == 0


def test_cursor_moves_forward_only() -> None:
    """With two readers of one cursor, the slower one does not move it back."""
    client = Client()
    made = stream(client)
    client.publish("s", *"abcdef")
    follow(client, "slow", x_stream_cursor="c")
    follow(client, "fast", x_stream_cursor="c")
    client.ack(11)
    for tag in (7, 8, 9, 10):
        client.ack(tag)
    assert made.cursors.cursors == {"c": 5}
    client.ack(1)
    assert made.cursors.cursors == {"c": 5}


def test_cursor_stands_over_the_offset_that_is_asked_for() -> None:
    client = Client()
    stream(client)
    client.publish("s", *"abcdef")
    follow(client, x_stream_cursor="c", x_stream_offset=2)
    client.ack(2, multiple=True)
    client.send("basic.cancel", consumer_tag="t")
    assert offsets(follow(client, "u", x_stream_cursor="c", x_stream_offset="first")) == [4, 5]
    assert offsets(follow(client, "v", x_stream_cursor="other")) == [0, 1, 2, 3, 4, 5]


def test_cursor_passes_over_what_a_filter_leaves_out() -> None:
    client = Client()
    made = stream(client)
    colours(client, 9)
    follow(client, x_stream_cursor="c", x_stream_filter="blue")
    client.ack(2, multiple=True)
    assert made.cursors.cursors == {"c": 5}
