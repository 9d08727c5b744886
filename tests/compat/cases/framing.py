"""Frames and contents that break the rules of the wire, and those that strain them.

A framing error is compared by its code: RabbitMQ's text quotes the received bytes as an Erlang
term.
"""

from __future__ import annotations

import struct
import time
from typing import Final

from tests.compat import wire
from tests.compat.case import Script, Topic
from tests.compat.client import Channel
from tests.compat.describe import bodies, code, show
from tests.compat.stage import Stage

topic = Topic("framing")

_PUBLISH: Final = wire.method("basic.publish", {"routing_key": "nowhere"})


def broken(*frames: tuple[int, int, bytes]) -> Script:
    """Sends frames (type, channel, payload) on a connection with channel 1 open."""

    def script(t: Stage) -> str:
        channel = t.channel()
        for kind, number, payload in frames:
            channel.connection.send_frame(kind, number, payload)
        return show(channel.next())

    return script


def broken_code(*frames: tuple[int, int, bytes]) -> Script:
    """As `broken`, but shows only the code."""

    def script(t: Stage) -> str:
        channel = t.channel()
        for kind, number, payload in frames:
            channel.connection.send_frame(kind, number, payload)
        return code(channel.next())

    return script


@topic.case("end-octet", "a bad frame end octet", "connection.close 501 FRAME_ERROR")
def _(t: Stage) -> str:
    channel = t.channel()
    frame = wire.frame(wire.METHOD, 1, wire.method("queue.declare", {"queue": "q"}))
    channel.connection.send_bytes(frame[:-1] + b"\x00")
    return code(channel.next())


topic.add(
    "type-unknown", "frame type 9", broken_code((9, 1, b"")), "connection.close 501 FRAME_ERROR"
)
topic.add("type-0", "frame type 0", broken_code((0, 1, b"")), "connection.close 501 FRAME_ERROR")


@topic.case("too-large", "a frame larger than frame_max", "connection.close 501 FRAME_ERROR")
def _(t: Stage) -> str:
    channel = t.channel()
    channel.connection.send_frame(wire.BODY, 1, bytes(channel.connection.frame_max + 1))
    return code(channel.next())


@topic.case(
    "too-large-announced", "a frame header that announces 4 GiB", "connection.close 501 FRAME_ERROR"
)
def _(t: Stage) -> str:
    channel = t.channel()
    channel.connection.send_bytes(struct.pack("!BHI", wire.METHOD, 1, 2**32 - 1))
    return code(channel.next())


@topic.case("largest", "a body frame of exactly frame_max is accepted", "131064 bytes")
def _(t: Stage) -> str:
    channel = t.channel()
    queue = t.queue(channel)
    body = bytes(channel.connection.frame_max - wire.FRAME_OVERHEAD_BYTES)
    channel.publish("", queue, body)
    return f"{len(channel.get_soon(queue).body)} bytes"


topic.add(
    "body-alone",
    "a body frame without a method",
    broken((wire.BODY, 1, b"x")),
    (
        "connection.close 505 UNEXPECTED_FRAME - expected method frame, got non method frame "
        "instead (0.0)"
    ),
)
topic.add(
    "header-alone",
    "a header frame without a method",
    broken((wire.HEADER, 1, wire.header(0, {}))),
    (
        "connection.close 505 UNEXPECTED_FRAME - expected method frame, got non method frame "
        "instead (0.0)"
    ),
)
topic.add(
    "no-header",
    "a publish, then a method instead of its header",
    broken((wire.METHOD, 1, _PUBLISH), (wire.METHOD, 1, wire.method("tx.select", {}))),
    (
        "connection.close 505 UNEXPECTED_FRAME - expected content header for class 60, got "
        "non content header frame instead (60.40)"
    ),
)
topic.add(
    "body-before-header",
    "a publish, then a body instead of its header",
    broken((wire.METHOD, 1, _PUBLISH), (wire.BODY, 1, b"x")),
    (
        "connection.close 505 UNEXPECTED_FRAME - expected content header for class 60, got "
        "non content header frame instead (60.40)"
    ),
)
topic.add(
    "no-body",
    "a publish of 3 bytes, then a method instead of its body",
    broken(
        (wire.METHOD, 1, _PUBLISH),
        (wire.HEADER, 1, wire.header(3, {})),
        (wire.METHOD, 1, wire.method("tx.select", {})),
    ),
    (
        "connection.close 505 UNEXPECTED_FRAME - expected content body, got non content body "
        "frame instead (60.40)"
    ),
)
topic.add(
    "header-twice",
    "a publish of 3 bytes, then a second header",
    broken(
        (wire.METHOD, 1, _PUBLISH),
        (wire.HEADER, 1, wire.header(3, {})),
        (wire.HEADER, 1, wire.header(3, {})),
    ),
    (
        "connection.close 505 UNEXPECTED_FRAME - expected content body, got non content body "
        "frame instead (60.40)"
    ),
)


@topic.case(
    "body-too-long",
    "a publish of 3 bytes with a body of 5, then queue.declare",
    (
        "connection.close 505 UNEXPECTED_FRAME - expected content body, got non content body "
        "frame instead (60.40)"
    ),
)
def _(t: Stage) -> str:
    channel = t.channel()
    connection = channel.connection
    connection.send_frame(wire.METHOD, 1, _PUBLISH)
    connection.send_frame(wire.HEADER, 1, wire.header(3, {}))
    connection.send_frame(wire.BODY, 1, b"12345")
    return show(channel.call("queue.declare", queue=t.name(), exclusive=True))


@topic.case(
    "body-for-none",
    "a publish of 0 bytes, then an empty body frame",
    (
        "connection.close 505 UNEXPECTED_FRAME - expected method frame, got non method frame "
        "instead (0.0)"
    ),
)
def _(t: Stage) -> str:
    channel = t.channel()
    connection = channel.connection
    connection.send_frame(wire.METHOD, 1, _PUBLISH)
    connection.send_frame(wire.HEADER, 1, wire.header(0, {}))
    connection.send_frame(wire.BODY, 1, b"")
    return show(channel.call("queue.declare", queue=t.name(), exclusive=True))


topic.add(
    "header-class",
    "a publish with a header of class 50",
    broken((wire.METHOD, 1, _PUBLISH), (wire.HEADER, 1, wire.header(0, {}, class_id=50))),
    (
        "connection.close 505 UNEXPECTED_FRAME - expected content header for class 60, got "
        "one for class 50 instead (60.40)"
    ),
)


@topic.case(
    "header-weight",
    "a content header with a weight",
    (
        "connection.close 505 UNEXPECTED_FRAME - expected content header for class 60, got "
        "non content header frame instead (60.40)"
    ),
)
def _(t: Stage) -> str:
    channel = t.channel()
    channel.connection.send_frame(wire.METHOD, 1, _PUBLISH)
    channel.connection.send_frame(wire.HEADER, 1, wire.header(0, {}, weight=5))
    return "".join(show(event) for event in channel.sync()) or "accepted"


@topic.case("empty-body-frames", "empty body frames between the others are accepted", "ab")
def _(t: Stage) -> str:
    channel = t.channel()
    queue = t.queue(channel)
    publish = wire.method("basic.publish", {"routing_key": queue})
    channel.connection.send_frame(wire.METHOD, 1, publish)
    channel.connection.send_frame(wire.HEADER, 1, wire.header(2, {}))
    for part in (b"a", b"", b"b"):
        channel.connection.send_frame(wire.BODY, 1, part)
    return bodies([channel.get_soon(queue)])


@topic.case(
    "size-over-maximum",
    "a message one byte over the maximum of 128 MiB",
    (
        "channel.close 406 PRECONDITION_FAILED - message size 134217729 is larger than "
        "configured max size 134217728 (60.40)"
    ),
    wait_s=2.0,
)
def _(t: Stage) -> str:
    channel = t.channel()
    connection = channel.connection
    size_bytes = 2**27 + 1
    part = bytes(connection.frame_max - wire.FRAME_OVERHEAD_BYTES)
    connection.send_frame(wire.METHOD, 1, _PUBLISH)
    connection.send_frame(wire.HEADER, 1, wire.header(size_bytes, {}))
    frame = wire.frame(wire.BODY, 1, part)
    for _ in range(size_bytes // len(part)):
        connection.send_bytes(frame)
    connection.send_frame(wire.BODY, 1, part[: size_bytes % len(part)])
    return show(channel.next())


@topic.case(
    "size-announced",
    "a content header that announces more than 512 MiB, and no body yet",
    "channel.close 406 PRECONDITION_FAILED - message size 536870913 is larger than configured "
    "max size 134217728 (60.40)",
    rabbitmq="nothing",
    difference="oversize-at-header",
)
def _(t: Stage) -> str:
    channel, other = t.channel(), t.channel()
    channel.connection.send_frame(wire.METHOD, 1, _PUBLISH)
    channel.connection.send_frame(wire.HEADER, 1, wire.header(2**29 + 1, {}))
    other.sync()
    return "nothing" if channel.quiet(50) else show(channel.next())


for _name, _payload in (("class", (77, 1)), ("method", (50, 99))):
    topic.add(
        f"unknown-{_name}",
        f"method {_payload[0]}.{_payload[1]}, which does not exist",
        broken_code((wire.METHOD, 1, struct.pack("!HH", *_payload))),
        "connection.close 503 COMMAND_INVALID",
        rabbitmq="socket closed",
        difference="malformed-input",
    )

topic.add(
    "arguments-cut",
    "queue.declare with its arguments cut short",
    broken_code((wire.METHOD, 1, b"\x00\x32\x00\x0a\x00\x00\x05")),
    "connection.close 501 FRAME_ERROR",
)
topic.add(
    "method-id-cut",
    "a method frame of three bytes",
    broken_code((wire.METHOD, 1, b"\x00\x32\x00")),
    "connection.close 501 FRAME_ERROR",
)
topic.add(
    "arguments-too-long",
    "channel.flow with a byte too many",
    broken_code((wire.METHOD, 1, wire.method("channel.flow", {"active": True}) + b"\x00")),
    "connection.close 501 FRAME_ERROR",
)
topic.add(
    "server-method",
    "basic.get-empty, which only a server sends",
    broken((wire.METHOD, 1, wire.method("basic.get-empty", {}))),
    "connection.close 503 COMMAND_INVALID - unimplemented method (60.72)",
)
topic.add(
    "properties-cut",
    "a content header whose properties are cut short",
    broken_code(
        (wire.METHOD, 1, _PUBLISH), (wire.HEADER, 1, wire.header(0, {})[:-2] + b"\xff\xfe")
    ),
    "connection.close 502 SYNTAX_ERROR",
    rabbitmq="connection.close 541 INTERNAL_ERROR",
    difference="malformed-input",
)
topic.add(
    "properties-table-broken",
    "a content header whose headers table is broken",
    broken_code(
        (wire.METHOD, 1, _PUBLISH),
        (wire.HEADER, 1, wire.header(0, {"headers": b"\x00\x00\x00\x04\x01kz\x00"})),
    ),
    "connection.close 502 SYNTAX_ERROR",
    rabbitmq="connection.close 541 INTERNAL_ERROR",
    difference="malformed-input",
)
topic.add(
    "heartbeat-on-channel",
    "a heartbeat frame on channel 1",
    broken_code((wire.HEARTBEAT, 1, b"")),
    "connection.close 505 UNEXPECTED_FRAME",
)
topic.add(
    "heartbeat-payload",
    "a heartbeat frame with a payload",
    broken_code((wire.HEARTBEAT, 0, b"x")),
    "connection.close 501 FRAME_ERROR",
)


@topic.case(
    "closed-after-error",
    "after connection.close and close-ok the socket is closed",
    "socket closed",
)
def _(t: Stage) -> str:
    channel = t.channel()
    channel.connection.send_frame(9, 1, b"")
    channel.next()
    channel.connection.await_closed()
    return "socket closed"


@topic.case("interleaved", "contents of three channels in turns, frame by frame", "ax by cz")
def _(t: Stage) -> str:
    channels = [t.channel(), t.channel(), t.channel()]
    queue = t.queue(channels[0])
    send = channels[0].connection.send_frame
    publish = wire.method("basic.publish", {"routing_key": queue})
    for channel in channels:
        send(wire.METHOD, channel.number, publish)
    for channel in channels:
        send(wire.HEADER, channel.number, wire.header(2, {}))
    for letters in ("abc", "xyz"):
        for channel, letter in zip(channels, letters, strict=True):
            send(wire.BODY, channel.number, letter.encode())
    t.count(queue, channels[0], 3)
    messages = {message.body: message for message in t.drain(channels[0], queue)}
    return bodies(messages[body] for body in sorted(messages))


@topic.case(
    "method-between-channels",
    "a method on one channel amid a content of another",
    ["queue.declare-ok queue=q message_count=0 consumer_count=0", "ab"],
)
def _(t: Stage) -> list[str]:
    channel, other = t.channel(), t.channel()
    queue = t.queue(channel)
    publish = wire.method("basic.publish", {"routing_key": queue})
    channel.connection.send_frame(wire.METHOD, channel.number, publish)
    channel.connection.send_frame(wire.HEADER, channel.number, wire.header(2, {}))
    between = show(other.call("queue.declare", queue=queue, passive=True))
    channel.connection.send_frame(wire.BODY, channel.number, b"ab")
    return [between, bodies([channel.get_soon(queue)])]


def _publish_bytes(channel: Channel, queue: str) -> bytes:
    method = wire.method("basic.publish", {"routing_key": queue})
    properties = {"headers": {"k": 1}, "message_id": "m"}
    return wire.frame(wire.METHOD, channel.number, method) + channel.content_frames(
        b"body", properties
    )


@topic.case("split-everywhere", "a publish cut in two at every byte", "80 of 80, body")
def _(t: Stage) -> str:
    channel = t.channel()
    queue = t.queue(channel)
    data = _publish_bytes(channel, queue)
    for cut in range(1, len(data)):
        channel.connection.send_bytes(data[:cut])
        time.sleep(0.0005)
        channel.connection.send_bytes(data[cut:])
    t.count(queue, channel, len(data) - 1)
    messages = t.drain(channel, queue)
    return f"{len(messages)} of {len(data) - 1}, {bodies(messages[-1:])}"


@topic.case("byte-by-byte", "a publish sent one byte at a time", "body")
def _(t: Stage) -> str:
    channel = t.channel()
    queue = t.queue(channel)
    for byte in _publish_bytes(channel, queue):
        channel.connection.send_bytes(bytes([byte]))
        time.sleep(0.0005)
    return bodies([channel.get_soon(queue)])


@topic.case("glued", "200 publishes in one write", "messages 200")
def _(t: Stage) -> str:
    channel = t.channel()
    queue = t.queue(channel)
    channel.connection.send_bytes(_publish_bytes(channel, queue) * 200)
    return f"messages {t.count(queue, channel, 200)}"
