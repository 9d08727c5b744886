"""Frames: any split of the bytes gives the same conversation; bodies of all sizes arrive."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pytest

from tests.compat import wire
from tests.compat.client import Method
from tests.protocol.conversations import CONVERSATIONS, GREETING, GREETING_FRAMES
from tests.protocol.stage import (
    Event,
    Peer,
    Stage,
    bodies,
    closes,
    method,
    name_of,
    opening,
    publish,
    tune_ok,
)

# In these everything that comes back answers a method, so that not even the turns show.
ASKING = ("transactions", "delaying")
# In these the client settles what it was sent: it cannot say all of it before it has read.
SETTLING = ("consuming", "dying", "retrying")


def talk(chunks: Iterable[bytes]) -> Peer:
    peer = Stage().peer()
    for chunk in chunks:
        peer.feed(chunk)
    return peer


def cut(data: bytes, size: int) -> Iterator[bytes]:
    return (data[at : at + size] for at in range(0, len(data), size))


def meaning(events: list[Event]) -> dict[str, list[object]]:
    """Return the events by kind: grouping of confirms and order between answers may differ."""
    found: dict[str, list[object]] = {}
    settled = 0
    for event in events:
        assert isinstance(event, Method)
        kind = event.name
        if kind in ("basic.ack", "basic.nack"):
            first = settled + 1 if event.fields["multiple"] else event.tag
            settled = event.tag
            found.setdefault("confirms", []).extend((kind, n) for n in range(first, settled + 1))
        elif kind in ("basic.deliver", "basic.return"):
            found.setdefault(kind, []).append(event)
        else:
            found.setdefault("answers", []).append(event)
    return found


@pytest.mark.parametrize("name", CONVERSATIONS)
def test_frames_may_come_octet_by_octet_and_split_at_any_place(name: str) -> None:
    frames = [wire.PROTOCOL_HEADER, *GREETING_FRAMES, *CONVERSATIONS[name]]
    whole = talk(frames).take_bytes()
    assert talk(cut(b"".join(frames), 1)).take_bytes() == whole
    for at in range(1, max(map(len, frames))):
        pieces = [piece for frame in frames for piece in (frame[:at], frame[at:]) if piece]
        assert talk(pieces).take_bytes() == whole, at


@pytest.mark.parametrize("name", ASKING)
def test_conversation_may_come_at_once_and_split_at_any_place(name: str) -> None:
    data = GREETING + b"".join(CONVERSATIONS[name])
    whole = talk([data]).take_bytes()
    for at in range(1, len(data)):
        assert talk([data[:at], data[at:]]).take_bytes() == whole, at


@pytest.mark.parametrize("name", sorted(set(CONVERSATIONS) - set(SETTLING)))
def test_conversation_means_the_same_in_pieces_of_any_size(name: str) -> None:
    data = GREETING + b"".join(CONVERSATIONS[name])
    whole = meaning(talk([data]).take())
    for size in (1, 2, 3, 7, 8, 9, 64, 100, 1000):
        assert meaning(talk(cut(data, size)).take()) == whole, size


@pytest.mark.parametrize("name", CONVERSATIONS)
def test_conversation_goes_without_an_error(name: str) -> None:
    peer = talk([GREETING, *CONVERSATIONS[name]])
    assert closes(peer.take()) == []
    assert peer.hung_up() == (name == "getting")


def open_peer(stage: Stage, frame_max: int = 131072) -> Peer:
    """A peer with two channels, a queue, and a consumer of it on channel 2."""
    peer = stage.opened(tune_ok(frame_max=frame_max))
    peer.open_channel(1, 2)
    peer.send(1, "queue.declare", queue="q")
    peer.send(2, "basic.consume", queue="q", consumer_tag="t", no_ack=True)
    return peer


@pytest.mark.parametrize("size", [0, 1, 2, 4087, 4088, 4089, 8176, 16384, 16385, 131064, 131065])
@pytest.mark.parametrize("part", [4088, 131064])
def test_body_of_any_size_comes_through(size: int, part: int) -> None:
    body = bytes(i * 7 & 0xFF for i in range(size))
    peer = open_peer(Stage())
    peer.feed(
        method(1, "basic.publish", routing_key="q")
        + wire.frame(wire.HEADER, 1, wire.header(size, {}))
        + b"".join(wire.frame(wire.BODY, 1, body[at : at + part]) for at in range(0, size, part))
    )
    (delivery,) = peer.take()
    assert isinstance(delivery, Method)
    assert delivery.body == body


def test_body_goes_out_in_frames_that_the_peer_takes() -> None:
    stage = Stage()
    writer = open_peer(stage)
    writer.send(2, "basic.cancel", consumer_tag="t")
    reader = stage.opened(tune_ok(frame_max=4096))
    reader.open_channel(1)
    for size, frames in ((10000, (4088, 4088, 1824)), (4088, (4088,)), (4089, (4088, 1)), (0, ())):
        writer.feed(publish(1, "q", b"x" * size))
        (answer,) = reader.send(1, "basic.get", queue="q", no_ack=True)
        assert isinstance(answer, Method)
        assert answer.content is not None
        assert answer.content.frame_sizes == frames


def test_body_in_frames_of_one_octet() -> None:
    body = bytes(range(256)) * 20
    peer = open_peer(Stage())
    peer.feed(method(1, "basic.publish", routing_key="q"))
    peer.feed(wire.frame(wire.HEADER, 1, wire.header(len(body), {})))
    for octet in body:
        peer.feed(wire.frame(wire.BODY, 1, b"") + wire.frame(wire.BODY, 1, bytes((octet,))))
    assert bodies(peer.take()) == [body]


def test_body_of_megabytes_is_whole() -> None:
    body = bytes(range(251)) * 40_000
    peer = open_peer(Stage())
    data = publish(1, "q", body)
    for chunk in cut(data, 65_536):
        peer.feed(chunk)
    assert bodies(peer.take()) == [body]
    assert peer.connection.unfinished_bytes == 0


def test_empty_body_needs_no_body_frame() -> None:
    peer = open_peer(Stage())
    peer.feed(publish(1, "q", b"") * 3)
    assert bodies(peer.take()) == [b"", b"", b""]


def test_content_of_two_channels_may_be_interleaved() -> None:
    peer = open_peer(Stage())
    frames = [
        [wire.frame(wire.HEADER, number, wire.header(9, {"message_id": str(number)}))]
        + [wire.frame(wire.BODY, number, part * 3) for part in parts]
        for number, parts in ((1, (b"a", b"b", b"c")), (2, (b"x", b"y", b"z")))
    ]
    for number in (1, 2):
        peer.feed(method(number, "basic.publish", routing_key="q"))
    for first, second in zip(*frames, strict=True):
        peer.feed(first + second)
    found = [
        (e.body, e.content.properties) for e in peer.take() if isinstance(e, Method) and e.content
    ]
    assert found == [(b"aaabbbccc", {"message_id": "1"}), (b"xxxyyyzzz", {"message_id": "2"})]


def test_heartbeats_may_come_between_the_frames_of_a_content() -> None:
    peer = open_peer(Stage())
    beat = wire.frame(wire.HEARTBEAT, 0, b"")
    peer.feed(
        method(1, "basic.publish", routing_key="q")
        + beat
        + wire.frame(wire.HEADER, 1, wire.header(2, {}))
        + beat
        + wire.frame(wire.BODY, 1, b"a")
        + beat
        + wire.frame(wire.BODY, 1, b"b")
    )
    assert bodies(peer.take()) == [b"ab"]


@pytest.mark.parametrize("split", [False, True])
def test_body_with_more_octets_than_announced_ends_the_connection(split: bool) -> None:
    peer = open_peer(Stage())
    peer.feed(method(1, "basic.publish", routing_key="q"))
    peer.feed(wire.frame(wire.HEADER, 1, wire.header(3, {})))
    peer.feed(wire.frame(wire.BODY, 1, b"ab") if split else b"")
    peer.feed(wire.frame(wire.BODY, 1, b"abcd"))
    assert [(level, code) for level, code, _ in closes(peer.take())] == [("connection", 505)]


@pytest.mark.parametrize("frame_max", [4096, 131072])
def test_frame_over_the_agreed_size_is_refused_by_its_head_alone(frame_max: int) -> None:
    for size, is_refused in ((frame_max, False), (frame_max + 1, True), (2**32 - 1, True)):
        peer = Stage().opened(tune_ok(frame_max=frame_max))
        peer.open_channel(1)
        peer.feed(b"\x03\x00\x01" + size.to_bytes(4, "big"))
        expected = [
            (
                "connection",
                501,
                "FRAME_ERROR - type 3, all octets = <<>>: "
                f"{{frame_too_large,{size},{frame_max - 8}}}",
            )
        ]
        assert closes(peer.take()) == (expected if is_refused else [])


def test_frame_before_login_is_small() -> None:
    stage = Stage()
    for size, is_refused in ((8192, False), (8193, True), (131072, True)):
        peer = stage.peer()
        peer.feed(wire.PROTOCOL_HEADER)
        peer.take()
        peer.feed(b"\x01\x00\x00" + size.to_bytes(4, "big"))
        stage.advance(3_000)
        assert peer.hung_up() == is_refused
        assert peer.take() == []


def test_bad_frame_end_ends_the_connection_and_what_follows_is_not_read() -> None:
    peer = open_peer(Stage())
    bad = method(1, "queue.declare", queue="never")[:-1] + b"\x00"
    events = []
    peer.feed(bad + method(1, "queue.declare", queue="neither"))
    events += peer.take()
    assert [(level, code) for level, code, _ in closes(events)] == [("connection", 501)]
    assert set(peer.stage.broker.vhost("/").queues) == {"q"}
    peer.feed(method(0, "connection.close-ok"))
    assert peer.hung_up()


def test_everything_in_one_read() -> None:
    """A client may send all its frames before it reads an answer."""
    peer = Stage().peer()
    peer.feed(
        opening()
        + method(1, "channel.open")
        + method(1, "queue.declare", queue="q")
        + publish(1, "q", b"x")
        + method(1, "basic.get", queue="q", no_ack=True)
        + method(1, "channel.close")
        + method(0, "connection.close")
    )
    assert [name_of(event) for event in peer.take()] == [
        "connection.start",
        "connection.tune",
        "connection.open-ok",
        "channel.open-ok",
        "queue.declare-ok",
        "basic.get-ok",
        "channel.close-ok",
        "connection.close-ok",
    ]
    assert peer.hung_up()


TRUNCATED = (
    "exchange.declare",
    "exchange.delete",
    "exchange.bind",
    "exchange.unbind",
    "queue.declare",
    "queue.bind",
    "queue.unbind",
    "queue.purge",
    "queue.delete",
    "basic.qos",
    "basic.consume",
    "basic.cancel",
    "basic.publish",
    "basic.get",
    "basic.ack",
    "basic.reject",
    "basic.nack",
    "basic.recover",
    "basic.recover-async",
    "confirm.select",
    "channel.flow",
    "channel.close",
)


@pytest.mark.parametrize("name", TRUNCATED)
def test_method_cut_short_anywhere_is_a_frame_error_and_changes_nothing(name: str) -> None:
    whole = wire.method(name, {})
    for size in range(4, len(whole)):
        peer = Stage().opened()
        peer.open_channel(1)
        peer.feed(wire.frame(wire.METHOD, 1, whole[:size]))
        assert [close[:2] for close in closes(peer.take())] == [("connection", 501)], size
        assert peer.stage.broker.vhost("/").queues == {}


@pytest.mark.parametrize("name", [*TRUNCATED, "tx.select", "tx.commit", "tx.rollback"])
def test_octets_after_the_last_argument_are_a_frame_error(name: str) -> None:
    peer = Stage().opened()
    peer.open_channel(1)
    peer.feed(wire.frame(wire.METHOD, 1, wire.method(name, {}) + b"zz"))
    assert [close[:2] for close in closes(peer.take())] == [("connection", 501)]
