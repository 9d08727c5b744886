"""Deliveries are counted and acknowledged the same, however the bytes are split."""

import random

import pytest
from mypy_extensions import i64

from leveret.amqp.methods import (
    BASIC_ACK,
    BASIC_CANCEL,
    BASIC_DELIVER,
    FRAME_BODY,
    FRAME_HEADER,
    FRAME_METHOD,
)
from leveret.amqp.writer import MethodWriter
from leveret.errors import ClosedError
from leveret.perf.deliveries import Deliveries
from leveret.perf.protocol import CHANNEL, frame

SENT_NS = 1_000_000


def delivery(tag: int, *body: bytes) -> bytes:
    """Return the frames of a delivery with these body parts."""
    method = MethodWriter(BASIC_DELIVER).short_string("ctag-1").longlong(tag).octet(0)
    method.short_string("").short_string("queue")
    size = sum(len(part) for part in body)
    header = b"\x00\x3c\x00\x00" + size.to_bytes(8, "big") + b"\x00\x00"
    frames = [frame(FRAME_METHOD, CHANNEL, method.payload()), frame(FRAME_HEADER, CHANNEL, header)]
    return b"".join([*frames, *(frame(FRAME_BODY, CHANNEL, part) for part in body)])


def stamped(rest: bytes = b"") -> bytes:
    return SENT_NS.to_bytes(8, "big") + rest


def ack(tag: int) -> bytes:
    return frame(FRAME_METHOD, CHANNEL, MethodWriter(BASIC_ACK).longlong(tag).octet(1).payload())


def feed(deliveries: Deliveries, data: bytes, now_ns: int = SENT_NS) -> None:
    deliveries.feed(data, i64(now_ns))


def test_one_ack_covers_several_deliveries() -> None:
    deliveries = Deliveries(5, 1)
    feed(deliveries, b"".join(delivery(tag, b"body") for tag in range(1, 13)))
    assert deliveries.received == 12
    assert deliveries.take_acks() == ack(5) + ack(10)
    assert deliveries.take_acks() == b""


def test_each_message_may_be_acknowledged_by_itself() -> None:
    deliveries = Deliveries(1, 1)
    feed(deliveries, delivery(1, b"a") + delivery(2))
    assert deliveries.take_acks() == ack(1) + ack(2)


def test_without_acks_nothing_is_acknowledged() -> None:
    deliveries = Deliveries(0, 1)
    feed(deliveries, b"".join(delivery(tag, b"body") for tag in range(1, 100)))
    assert (deliveries.received, deliveries.take_acks()) == (99, b"")


def test_latency_is_measured_from_the_stamp() -> None:
    deliveries = Deliveries(0, 1)
    feed(deliveries, delivery(1, stamped(b"rest")), SENT_NS + 50)
    feed(deliveries, delivery(2, b"short"), SENT_NS + 60)
    assert (deliveries.latency.count, deliveries.latency.max_ns) == (1, 50)


def test_only_the_first_part_of_a_body_has_a_stamp() -> None:
    deliveries = Deliveries(0, 1)
    feed(deliveries, delivery(1, stamped(), b"\xff" * 10), SENT_NS + 50)
    assert (deliveries.received, deliveries.latency.count) == (1, 1)


def test_one_latency_in_seven_is_sampled() -> None:
    deliveries = Deliveries(0, 7)
    feed(deliveries, b"".join(delivery(tag, stamped()) for tag in range(1, 22)))
    assert deliveries.latency.count == 3


def test_without_samples_no_latency_is_measured() -> None:
    deliveries = Deliveries(0, 0)
    feed(deliveries, b"".join(delivery(tag, stamped()) for tag in range(1, 22)), SENT_NS + 5)
    assert (deliveries.received, deliveries.latency.count) == (21, 0)


@pytest.mark.parametrize("body", [b"x" * 16, b"\x00" * 16])
def test_messages_without_a_send_time_have_no_latency(body: bytes) -> None:
    deliveries = Deliveries(0, 1)
    feed(deliveries, delivery(1, body), 4_000_000_000_000)
    assert (deliveries.received, deliveries.latency.count) == (1, 0)


def test_consumer_that_ends_acknowledges_complete_deliveries() -> None:
    deliveries = Deliveries(100, 1)
    feed(deliveries, delivery(1, b"one") + delivery(2, b"two") + delivery(3, b"three")[:-3])
    deliveries.ack_rest()
    assert deliveries.take_acks() == ack(2)
    deliveries.ack_rest()
    assert deliveries.take_acks() == b""


def test_message_counts_when_its_last_byte_has_arrived() -> None:
    deliveries = Deliveries(1, 1)
    data = delivery(1, stamped(b"x" * 5000), b"y" * 100)
    feed(deliveries, data[:-1])
    assert (deliveries.received, deliveries.take_acks()) == (0, b"")
    feed(deliveries, data[-1:])
    assert (deliveries.received, deliveries.take_acks()) == (1, ack(1))


def test_counts_do_not_depend_on_how_bytes_are_split(seed: int) -> None:
    print(f"seed {seed}")
    chance = random.Random(seed)
    bodies = [b"", b"short", stamped(), stamped(b"x" * 900)]
    data = b"".join(delivery(tag, chance.choice(bodies), b"tail") for tag in range(1, 60))
    whole = Deliveries(4, 1)
    feed(whole, data, SENT_NS + 77)
    acks = whole.take_acks()
    for _ in range(100):
        cuts = sorted(chance.sample(range(1, len(data)), chance.randrange(40)))
        cut = Deliveries(4, 1)
        for start, stop in zip([0, *cuts], [*cuts, len(data)], strict=True):
            feed(cut, data[start:stop], SENT_NS + 77)
        assert (cut.received, cut.take_acks()) == (whole.received, acks)
        assert cut.latency.buckets == whole.latency.buckets


def test_cancel_by_the_broker_is_an_error() -> None:
    payload = MethodWriter(BASIC_CANCEL).short_string("ctag-1").octet(1).payload()
    with pytest.raises(ClosedError, match="cancelled"):
        feed(Deliveries(0, 1), frame(FRAME_METHOD, CHANNEL, payload))
