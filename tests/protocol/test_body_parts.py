"""Large bodies are taken piece by piece: the message is the same for any split of the bytes."""

from __future__ import annotations

import random
import struct

import pytest

from leveret.amqp.connection_base import ConnectionLimits
from tests.compat.client import Method
from tests.protocol.stage import Peer, Stage, closes, content, method, publish

BODY = bytes(index * 7 & 0xFF for index in range(20_000))


def opened(stage: Stage | None = None) -> Peer:
    peer = (stage or Stage()).opened()
    peer.open_channel(1, 2)
    peer.send(1, "queue.declare", queue="q")
    return peer


def bodies(peer: Peer) -> list[bytes]:
    """Everything in the queue."""
    found: list[bytes] = []
    while True:
        (event,) = peer.send(2, "basic.get", queue="q", no_ack=True)
        assert isinstance(event, Method)
        if event.name == "basic.get-empty":
            return found
        found.append(event.body)


def body_frames(channel: int, body: bytes, size: int) -> bytes:
    frames = b""
    for at in range(0, len(body), size):
        part = body[at : at + size]
        frames += struct.pack("!BHI", 3, channel, len(part)) + part + b"\xce"
    return frames


def publish_in(channel: int, body: bytes, size: int) -> bytes:
    """A publish whose body frames have at most this size."""
    head = method(channel, "basic.publish", exchange="", routing_key="q")
    whole = content(channel, body, {})
    header_bytes = 7 + int.from_bytes(whole[3:7], "big") + 1
    return head + whole[:header_bytes] + body_frames(channel, body, size)


@pytest.mark.parametrize("size", [1000, 4096, 5000, 20_000])
@pytest.mark.parametrize("read", [1, 7, 997, 4096, 16_384])
def test_a_body_is_the_same_however_it_is_cut(size: int, read: int) -> None:
    peer = opened()
    data = publish_in(1, BODY, size) + publish_in(1, b"after", 100)
    for at in range(0, len(data), read):
        peer.feed(data[at : at + read])
    assert bodies(peer) == [BODY, b"after"]
    assert peer.connection.unfinished_bytes == 0


@pytest.mark.parametrize("seed", range(10))
def test_channels_may_take_turns_between_frames(seed: int) -> None:
    print(f"seed {seed}")
    chance = random.Random(seed)
    peer = opened()
    second = BODY[::-1]
    one = publish_in(1, BODY, 6000)
    two = publish_in(2, second, 4500)
    data = interleave(chance, one, two)
    at = 0
    while at < len(data):
        step = chance.randrange(1, 9000)
        peer.feed(data[at : at + step])
        at += step
    assert sorted(bodies(peer)) == sorted([BODY, second])


def interleave(chance: random.Random, *streams: bytes) -> bytes:
    """Frames of several channels in a random order that keeps each channel's own."""
    queues = [frames(stream) for stream in streams]
    merged = b""
    while any(queues):
        merged += chance.choice([queue for queue in queues if queue]).pop(0)
    return merged


def frames(data: bytes) -> list[bytes]:
    found: list[bytes] = []
    at = 0
    while at < len(data):
        stop = at + 8 + int.from_bytes(data[at + 3 : at + 7], "big")
        found.append(data[at:stop])
        at = stop
    return found


@pytest.mark.parametrize("read", [100, 8192, 100_000])
def test_a_frame_with_a_wrong_end_publishes_nothing(read: int) -> None:
    peer = opened()
    data = publish_in(1, BODY, len(BODY))[:-1] + b"\xcd"
    for at in range(0, len(data), read):
        peer.feed(data[at : at + read])
    (close,) = closes(peer.take())
    assert close[:2] == ("connection", 501)
    other = peer.stage.opened()
    other.open_channel(2)
    assert bodies(other) == []


def test_a_frame_beyond_the_body_is_refused() -> None:
    peer = opened()
    head = publish_in(1, BODY, len(BODY))[: -len(BODY) - 8]
    peer.feed(head + struct.pack("!BHI", 3, 1, len(BODY) + 1) + BODY[:9000])
    peer.feed(BODY[9000:] + b"x\xce")
    (close,) = closes(peer.take())
    assert close[:2] == ("connection", 505)


def test_the_rest_of_a_frame_is_passed_over_when_its_channel_ends() -> None:
    peer = opened()
    peer.send(1, "queue.declare", queue="slow", arguments={"x-consumer-timeout": 1000})
    peer.feed(publish(1, "slow", b"held"))
    peer.send(1, "basic.consume", queue="slow", consumer_tag="c")
    peer.connection.wants_cancel_notify = False
    data = publish_in(1, BODY, len(BODY))
    peer.feed(data[:9000])
    peer.stage.advance(1001)
    assert [close[:2] for close in closes(peer.take())] == [("channel", 406)]
    peer.feed(data[9000:] + method(1, "channel.close-ok"))
    assert bodies(peer) == []
    peer.open_channel(1)
    peer.feed(publish_in(1, b"again", 100))
    assert bodies(peer) == [b"again"]


def test_what_a_link_may_leave_unfinished_is_limited_inside_a_frame_too() -> None:
    limits = ConnectionLimits()
    limits.unfinished_bytes_max = 10_000
    peer = opened(Stage(limits))
    data = publish_in(1, BODY, len(BODY))
    for at in range(0, len(data), 3000):
        peer.feed(data[at : at + 3000])
    (close,) = closes(peer.take())
    assert close[:2] == ("connection", 530)
    assert peer.connection.unfinished_bytes <= 10_000
    peer.feed(method(0, "connection.close-ok"))
    assert peer.hung_up()
