"""The frames of messages, which the bus reads and writes without the client library."""

from __future__ import annotations

import asyncio
import struct
from functools import partial
from typing import Any

import pamqp.frame
import pytest
from pamqp.body import ContentBody
from pamqp.commands import Basic, Queue
from pamqp.header import ContentHeader
from pamqp.heartbeat import Heartbeat

from leveret.bus.connections.confirms import (
    ChannelLostError,
    Confirms,
    RefusedError,
    ReturnedError,
)
from leveret.bus.connections.content_frames import (
    ContentReceiver,
    DeliveredContent,
    MalformedFrameError,
    encode_ack,
    encode_nack,
    encode_publish,
)
from leveret.bus.connections.frame_reader import FrameReader
from leveret.bus.lossless_properties import LosslessProperties, copy_properties
from tests.bus.stage import pytestmark_bus

pytestmark = pytestmark_bus
BODY = bytes(range(256)) * 40


def frames_of(data: bytes) -> list[tuple[int, Any]]:
    """Decode by the client library: each frame with its channel."""
    found = []
    while data:
        consumed, channel, frame = pamqp.frame.unmarshal(data)
        data = data[consumed:]
        found.append((channel, frame))
    return found


def published(frame_bytes_max: int, body: bytes = BODY) -> list[tuple[int, Any]]:
    properties = LosslessProperties(message_id="m", delivery_mode=2, headers={"k": 0.5})
    data = encode_publish(
        7,
        "events",
        "größe",
        mandatory=True,
        properties=properties.marshal(),
        body=body,
        frame_bytes_max=frame_bytes_max,
    )
    return frames_of(data)


@pytest.mark.parametrize("frame_bytes_max", [0, 4096, 1 << 20])
def test_publish_is_read_by_the_library(frame_bytes_max: int) -> None:
    (channel, method), (_, header), *body = published(frame_bytes_max)
    assert channel == 7
    assert (method.exchange, method.routing_key, method.mandatory) == ("events", "größe", True)
    assert (header.body_size, header.properties.message_id) == (len(BODY), "m")
    assert header.properties.headers == {"k": 0.5}
    assert b"".join(each.value for _, each in body) == BODY
    if frame_bytes_max:
        assert all(len(each.value) <= frame_bytes_max - 8 for _, each in body)


def test_an_empty_body_has_no_frame() -> None:
    assert len(published(4096, b"")) == 2


def test_names_longer_than_amqp_allows_are_refused() -> None:
    with pytest.raises(ValueError, match="300 bytes"):
        encode_publish(
            1, "", "k" * 300, mandatory=False, properties=b"", body=b"", frame_bytes_max=0
        )


def test_answers_are_read_by_the_library() -> None:
    [(channel, ack)] = frames_of(encode_ack(3, 1 << 40))
    assert (channel, ack.name, ack.delivery_tag, ack.multiple) == (3, "Basic.Ack", 1 << 40, False)
    for requeue in (True, False):
        [(_, nack)] = frames_of(encode_nack(3, 9, requeue=requeue))
        assert (nack.delivery_tag, nack.multiple, nack.requeue) == (9, False, requeue)


def delivery(channel: int, tag: int, body: bytes, pieces: int = 1) -> bytes:
    """Encode a delivery as a broker does."""
    deliver = Basic.Deliver("consumer", tag, True, "events", "order.placed")
    header = ContentHeader(0, len(body), Basic.Properties(message_id=f"m{tag}"))
    step = -(-len(body) // pieces) or 1
    parts = [ContentBody(body[at : at + step]) for at in range(0, len(body), step)]
    marshal = partial(pamqp.frame.marshal, channel_id=channel)
    return b"".join([marshal(deliver), marshal(header), *map(marshal, parts)])


async def read_frame(reader: FrameReader) -> Any:
    """Read one frame in the pieces in which the library reads it."""
    head = await reader.readexactly(1) + await reader.readexactly(6)
    size_bytes = struct.unpack(">BHI", head)[2]
    data = head + await reader.readexactly(size_bytes + 1)
    return pamqp.frame.unmarshal(data)[2]


async def test_deliveries_reach_the_receiver_and_the_rest_the_library() -> None:
    source = asyncio.StreamReader()
    reader = FrameReader(source)
    seen: list[DeliveredContent] = []
    reader.add(1, ContentReceiver(on_delivered=seen.append))
    declared = pamqp.frame.marshal(Queue.DeclareOk("q", 1, 1), 1)
    for tag, (body, pieces) in enumerate([(BODY, 1), (BODY, 3), (b"", 1)], 1):
        source.feed_data(delivery(1, tag, body, pieces) + declared)
        while (frame := await read_frame(reader)).name == Heartbeat.name:
            pass  # signs of life for the library, while the receiver takes all frames
        assert frame.name == "Queue.DeclareOk"
        assert (seen[-1].tag, seen[-1].body) == (tag, body)
    assert (seen[0].exchange, seen[0].routing_key) == ("events", "order.placed")
    assert seen[0].is_redelivered and seen[0].properties.message_id == "m1"
    source.feed_eof()
    assert reader.at_eof()


async def test_the_library_sees_that_a_busy_connection_lives() -> None:
    source = asyncio.StreamReader()
    reader = FrameReader(source)
    reader.add(1, ContentReceiver(on_delivered=lambda _: None))
    source.feed_data(delivery(1, 1, b"x") * 100)
    assert (await read_frame(reader)).name == Heartbeat.name


async def test_content_of_another_channel_is_left_to_the_library() -> None:
    source = asyncio.StreamReader()
    reader = FrameReader(source)
    reader.add(1, ContentReceiver())
    source.feed_data(delivery(2, 1, b"x"))
    names = [(await read_frame(reader)).name for _ in range(3)]
    assert names == ["Basic.Deliver", "ContentHeader", "ContentBody"]


async def test_another_version_of_the_protocol_is_left_to_the_library() -> None:
    source = asyncio.StreamReader()
    reader = FrameReader(source)
    source.feed_data(b"AMQP\x00\x01\x00\x00")
    assert await reader.readexactly(1) + await reader.readexactly(6) == b"AMQP\x00\x01\x00"


async def test_confirms_of_one_and_of_all_before_it() -> None:
    confirms = Confirms()
    sent = [confirms.add(f"m{number}", mandatory=False) for number in range(6)]
    confirms.on_confirm(2, False, True)
    assert [each.done() for each in sent] == [False, True, False, False, False, False]
    confirms.on_confirm(4, True, True)
    assert [each.done() for each in sent] == [True] * 4 + [False, False]
    confirms.on_confirm(5, False, False)
    with pytest.raises(RefusedError):
        await sent[4]
    confirms.on_confirm(0, True, True)
    await asyncio.gather(*sent[:4], sent[5])
    confirms.on_confirm(6, True, True)  # a second time, and nobody waits


async def test_a_returned_message_is_found_by_its_id() -> None:
    confirms = Confirms()
    first = confirms.add("m", mandatory=True)
    waiting = asyncio.get_running_loop().create_task(confirms.wait_for_id("m"))
    confirms.on_returned("unknown")
    confirms.on_returned("m")
    confirms.on_confirm(1, False, True)
    with pytest.raises(ReturnedError):
        await first
    await asyncio.wait_for(waiting, 60)
    assert not confirms.add("m", mandatory=True).done()


async def test_open_publishes_fail_with_the_channel() -> None:
    confirms = Confirms()
    sent = [confirms.add(f"m{number}", mandatory=True) for number in range(3)]
    sent[1].cancel()  # its caller has given up
    reason = RuntimeError("gone")
    confirms.fail("the channel was closed", reason)
    for each in (sent[0], sent[2]):
        with pytest.raises(ChannelLostError) as caught:
            await each
        assert caught.value.fault is reason


DELIVER = Basic.Deliver("consumer", 1, False, "events", "k").marshal()
DELIVER_FRAME = (1, struct.pack(">HH", 60, 60) + DELIVER)
EMPTY = (2, struct.pack(">HHQH", 60, 0, 0, 0))


def header_frame(size_bytes: int, flags: int = 0) -> tuple[int, bytes]:
    return (2, struct.pack(">HHQH", 60, 0, size_bytes, flags))


@pytest.mark.parametrize(
    ("frames", "reason"),
    [
        ([DELIVER_FRAME, (3, b"x")], "before its header"),
        ([DELIVER_FRAME, EMPTY, DELIVER_FRAME, (3, b"x")], "before its header"),
        ([DELIVER_FRAME, header_frame(5), header_frame(1)], "two headers"),
        ([DELIVER_FRAME, header_frame(1), (3, b"xx")], "longer than its header"),
        ([DELIVER_FRAME, header_frame(5), (3, b"xx"), DELIVER_FRAME], "inside another"),
        ([(1, DELIVER_FRAME[1][:6]), EMPTY], "wrong delivery"),
        ([(1, struct.pack(">HHB", 60, 80, 0))], "wrong confirm"),
        ([DELIVER_FRAME, (2, b"")], "wrong header"),
        ([DELIVER_FRAME, header_frame(0, 0xFFFE)], "wrong header"),
        ([DELIVER_FRAME, header_frame(2**63)], "9223372036854775808 bytes"),
    ],
)
def test_frames_that_break_the_protocol_are_refused(
    frames: list[tuple[int, bytes]], reason: str
) -> None:
    seen: list[DeliveredContent] = []
    receiver = ContentReceiver(on_delivered=seen.append, on_confirm=lambda *_: None)
    for kind, payload in frames[:-1]:
        receiver.take(kind, payload)
    with pytest.raises(MalformedFrameError, match=reason):
        receiver.take(*frames[-1])
    assert {content.body for content in seen} <= {b""}


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (struct.pack(">BHI", 1, 1, 0xFFFF_FFFF), "4294967295 bytes"),
        (struct.pack(">BHI", 3, 1, 2) + b"xx\x00", "end octet"),
    ],
)
async def test_frame_with_a_wrong_size_ends_the_connection(data: bytes, reason: str) -> None:
    source = asyncio.StreamReader()
    reader = FrameReader(source)
    source.feed_data(data)
    with pytest.raises(MalformedFrameError, match=reason):
        await reader.readexactly(1)


def nested(kind: bytes, depth: int) -> bytes:
    """Return a header table with tables or lists inside each other."""
    name = b"\x01a"
    inner = b""
    for _ in range(depth):
        value = kind + struct.pack(">I", len(inner)) + inner
        inner = name + value if kind == b"F" else value
    table = inner if kind == b"F" else name + inner
    return struct.pack(">I", len(table)) + table


@pytest.mark.parametrize("depth", [200, 400, 5_000])
@pytest.mark.parametrize("kind", [b"F", b"A"])
def test_message_with_deep_tables_is_delivered_and_can_be_copied(kind: bytes, depth: int) -> None:
    """Any publisher of a broker that allows such tables could stop a consumer for ever."""
    seen: list[DeliveredContent] = []
    receiver = ContentReceiver(on_delivered=seen.append)
    receiver.take(*DELIVER_FRAME)
    receiver.take(2, header_frame(0, 1 << 13)[1] + nested(kind, depth))
    assert seen[0].properties.headers
    assert copy_properties(seen[0].properties).marshal()
