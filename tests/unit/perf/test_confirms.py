"""The window of a producer, and confirms in every order that a broker may choose."""

import random

from mypy_extensions import i64

from leveret.amqp.methods import BASIC_ACK, BASIC_NACK, BASIC_RETURN, FRAME_METHOD
from leveret.amqp.writer import MethodWriter
from leveret.perf.confirms import Confirms
from leveret.perf.protocol import CHANNEL, frame


def settle(
    confirms: Confirms, method: int, tag: int, multiple: bool = False, now_ns: int = 1
) -> None:
    payload = MethodWriter(method).longlong(tag).octet(multiple).payload()
    confirms.feed(frame(FRAME_METHOD, CHANNEL, payload), i64(now_ns))


def sent(window: int, burst: int, count: int) -> Confirms:
    confirms = Confirms(window, burst)
    confirms.sent += count
    return confirms


def test_without_window_every_burst_is_allowed() -> None:
    assert sent(0, 32, 1_000_000).allowed() == 32


def test_burst_waits_until_it_fits() -> None:
    assert sent(100, 32, 68).allowed() == 32
    assert sent(100, 32, 69).allowed() == 0


def test_window_under_the_burst_is_filled() -> None:
    assert sent(5, 32, 0).allowed() == 5
    assert sent(5, 32, 3).allowed() == 2
    assert sent(5, 32, 5).allowed() == 0


def test_multiple_settles_all_before_it() -> None:
    confirms = sent(100, 10, 20)
    settle(confirms, BASIC_ACK, 12, multiple=True)
    settle(confirms, BASIC_NACK, 15, multiple=True)
    assert (confirms.confirmed, confirms.nacked, confirms.unsettled()) == (12, 3, 5)


def test_multiple_does_not_count_settled_tags_again() -> None:
    confirms = sent(100, 10, 6)
    settle(confirms, BASIC_ACK, 5)
    settle(confirms, BASIC_NACK, 2)
    settle(confirms, BASIC_ACK, 4, multiple=True)
    assert (confirms.confirmed, confirms.nacked, confirms.unsettled()) == (4, 1, 1)
    settle(confirms, BASIC_ACK, 6, multiple=True)
    assert confirms.unsettled() == 0


def test_any_order_settles_each_message_once(seed: int) -> None:
    print(f"seed {seed}")
    chance = random.Random(seed)
    confirms = sent(0, 1, 300)
    open_tags = set(range(1, 301))
    while open_tags:
        tag = chance.choice(sorted(open_tags))
        multiple = chance.random() < 0.2
        settle(confirms, chance.choice([BASIC_ACK, BASIC_NACK]), tag, multiple)
        open_tags = {t for t in open_tags if t > tag} if multiple else open_tags - {tag}
        assert confirms.unsettled() == len(open_tags)


def test_time_to_confirm_is_measured_per_block() -> None:
    confirms = Confirms(100, 10)
    confirms.note_block(3, 10)
    confirms.note_block(3, 20)
    settle(confirms, BASIC_ACK, 2, multiple=True, now_ns=40)
    assert confirms.latency.count == 0
    settle(confirms, BASIC_ACK, 6, multiple=True, now_ns=60)
    assert (confirms.latency.count, confirms.latency.max_ns) == (2, 50)


def test_settled_blocks_are_forgotten() -> None:
    confirms = Confirms(10, 1)
    for tag in range(1, 1001):
        confirms.note_block(1, tag)
        settle(confirms, BASIC_ACK, tag, now_ns=tag + 7)
    assert (confirms.latency.count, confirms.latency.max_ns) == (1000, 7)
    assert confirms.unsettled() == 0


def test_returned_messages_are_counted() -> None:
    confirms = Confirms(10, 1)
    method = MethodWriter(BASIC_RETURN).short(312).short_string("NO_ROUTE").short_string("e")
    confirms.feed(frame(FRAME_METHOD, CHANNEL, method.short_string("k").payload()), i64(1))
    assert (confirms.returned, confirms.answers) == (1, [])
