"""Streams: what a delivery looks like, and what settling it does."""

from __future__ import annotations

from typing import cast

from tests.compat.case import Script, Topic
from tests.compat.client import Method
from tests.compat.describe import brief, briefs, properties, show, table
from tests.compat.stage import Stage
from tests.compat.streams import (
    CRASH,
    Given,
    follow,
    left,
    rest,
    stream,
    taken,
    unsupported,
    window,
)

topic = Topic("stream.deliver")


@topic.case(
    "deliver",
    "a delivery with all its fields",
    [
        (
            "basic.deliver consumer_tag=t delivery_tag=1 redelivered=false exchange= "
            "routing_key=q body=a"
        ),
        "{x-stream-offset=l:0}",
    ],
)
def _(t: Stage) -> list[str]:
    channel = t.channel()
    queue = stream(t, channel, "a")
    message = cast(Method, follow(t, queue, x_stream_offset="first").next())
    assert message.content is not None
    return [show(message), table(message.content.headers)]


def headers_of(given: Given) -> Script:
    """The properties of a message that was published with some."""

    def script(t: Stage) -> str:
        channel = t.channel()
        queue = stream(t, channel)
        t.put(channel, "", queue, "a", properties=given)
        message = cast(Method, follow(t, queue, x_stream_offset="first").next())
        assert message.content is not None
        return properties(message.content)

    return script


_ALL = {
    "content_type": "text/plain",
    "content_encoding": "gzip",
    "headers": {"k": "v", "n": 7},
    "delivery_mode": 1,
    "priority": 5,
    "correlation_id": "c",
    "reply_to": "r",
    "expiration": "10000",
    "message_id": "m",
    "timestamp": 1_700_000_000,
    "type": "t",
    "user_id": "guest",
    "app_id": "app",
}
_PROPERTIES: tuple[tuple[str, str, Given, str, str | None], ...] = (
    ("none", "no properties", {}, "headers={x-stream-offset=l:0}", None),
    (
        "all",
        "all properties",
        _ALL,
        (
            "content_type=text/plain content_encoding=gzip headers={k=S:v, n=I:7, "
            "x-stream-offset=l:0} delivery_mode=1 priority=5 correlation_id=c reply_to=r "
            "expiration=10000 message_id=m timestamp=1700000000 type=t user_id=guest "
            "app_id=app"
        ),
        None,
    ),
    (
        "headers-empty",
        "an empty table of headers",
        {"headers": {}},
        "headers={x-stream-offset=l:0}",
        None,
    ),
    (
        "headers",
        "some headers",
        {"headers": {"a": 1, "z": "x"}},
        "headers={a=I:1, x-stream-offset=l:0, z=S:x}",
        None,
    ),
    (
        "offset-header",
        "x-stream-offset sent by the publisher",
        {"headers": {"x-stream-offset": 7}},
        "headers={x-stream-offset=l:0}",
        None,
    ),
    (
        "offset-header-among",
        "x-stream-offset sent among other headers",
        {"headers": {"a": 1, "x-stream-offset": "first", "z": 2}},
        "headers={a=I:1, x-stream-offset=l:0, z=I:2}",
        None,
    ),
    (
        "filter-header",
        "x-stream-filter-value",
        {"headers": {"x-stream-filter-value": "red"}},
        "headers={x-stream-filter-value=S:red, x-stream-offset=l:0}",
        None,
    ),
    (
        "cc",
        "CC in the headers",
        {"headers": {"CC": ["other"]}},
        "headers={CC=[S:other], x-stream-offset=l:0}",
        "headers={x-stream-offset=l:0}",
    ),
    (
        "kinds",
        "headers that are arrays and tables",
        {"headers": {"a": [1], "t": {"k": 1}}},
        "headers={a=[I:1], t={k=I:1}, x-stream-offset=l:0}",
        "headers={x-stream-offset=l:0}",
    ),
    (
        "bcc",
        "BCC in the headers",
        {"headers": {"BCC": ["other"]}},
        "headers={x-stream-offset=l:0}",
        None,
    ),
    (
        "transient",
        "a transient message",
        {"delivery_mode": 1},
        "headers={x-stream-offset=l:0} delivery_mode=1",
        None,
    ),
    (
        "expiration-zero",
        "a message that expires at once",
        {"expiration": "0"},
        "headers={x-stream-offset=l:0} expiration=0",
        None,
    ),
)
for _name, _title, _properties, _expected, _rabbitmq in _PROPERTIES:
    topic.add(
        f"properties-{_name}",
        f"published with {_title}",
        headers_of(_properties),
        _expected,
        rabbitmq=_rabbitmq,
        difference="stream-headers" if _rabbitmq else None,
    )


@topic.case("expired", "a message whose expiration has passed stays", "0=a", wait_s=0.1)
def _(t: Stage) -> str:
    channel = t.channel()
    queue = stream(t, channel)
    t.put(channel, "", queue, "a", properties={"expiration": "1"})
    channel.quiet(50)
    return taken(follow(t, queue, x_stream_offset="first"), 1)


@topic.case("priority-order", "priorities do not change the order", "0=p1 1=p9 2=p5")
def _(t: Stage) -> str:
    channel = t.channel()
    queue = stream(t, channel)
    for priority in (1, 9, 5):
        t.put(channel, "", queue, f"p{priority}", properties={"priority": priority})
    return taken(follow(t, queue, x_stream_offset="first"), 3)


@topic.case("big", "a body of several frames", "300000 5 0")
def _(t: Stage) -> str:
    channel = t.channel()
    queue = stream(t, channel, "x" * 300_000, "small", "")
    reader = follow(t, queue, x_stream_offset="first")
    messages = [cast(Method, reader.next()) for _ in range(3)]
    return " ".join(str(len(message.body)) for message in messages)


@topic.case(
    "prefetch",
    "a prefetch of 2: two, then one for each ack",
    ["0=a 1=b", "then nothing", "2=c", "3=d", "then nothing"],
)
def _(t: Stage) -> list[str]:
    reader, first = window(t, 2)
    quiet = left(reader)
    reader.send("basic.ack", delivery_tag=1)
    second = taken(reader, 1)
    reader.send("basic.ack", delivery_tag=2)
    return [first, quiet, second, taken(reader, 1), left(reader)]


@topic.case("ack-multiple", "an ack with multiple", ["0=a 1=b 2=c", "3=d 4=e 5=f", "then nothing"])
def _(t: Stage) -> list[str]:
    reader, first = window(t, 3)
    reader.send("basic.ack", delivery_tag=3, multiple=True)
    return [first, taken(reader, 3), left(reader)]


@topic.case(
    "ack-all", "an ack of tag 0 with multiple", ["0=a 1=b 2=c", "3=d 4=e 5=f", "then nothing"]
)
def _(t: Stage) -> list[str]:
    reader, first = window(t, 3)
    reader.send("basic.ack", delivery_tag=0, multiple=True)
    return [first, taken(reader, 3), left(reader)]


@topic.case(
    "ack-out-of-order", "acks in another order", ["0=a 1=b 2=c", "3=d 4=e 5=f", "then nothing"]
)
def _(t: Stage) -> list[str]:
    reader, first = window(t, 3)
    for tag in (3, 1, 2):
        reader.send("basic.ack", delivery_tag=tag)
    return [first, taken(reader, 3), left(reader)]


@topic.case(
    "ack-twice",
    "the same ack again",
    ["0=a", "1=b", "channel.close 406 PRECONDITION_FAILED - unknown delivery tag 1 (60.80)"],
)
def _(t: Stage) -> list[str]:
    reader, first = window(t, 1)
    reader.send("basic.ack", delivery_tag=1)
    second = taken(reader, 1)
    reader.send("basic.ack", delivery_tag=1)
    return [first, second, show(reader.next())]


@topic.case(
    "ack-unknown",
    "an ack of a tag that was never given",
    "channel.close 406 PRECONDITION_FAILED - unknown delivery tag 99 (60.80)",
)
def _(t: Stage) -> str:
    reader, _ = window(t, 1)
    reader.send("basic.ack", delivery_tag=99)
    return show(reader.next())


_SETTLES = (
    (
        "reject",
        "basic.reject",
        {"requeue": False},
        ["0=a 1=b 2=c", "3=d"],
        ["0=a 1=b 2=c", unsupported("basic.nack and basic.reject", "60.90")],
    ),
    (
        "reject-requeue",
        "basic.reject",
        {"requeue": True},
        ["0=a 1=b 2=c", "3=d"],
        ["0=a 1=b 2=c", unsupported("basic.nack and basic.reject", "60.90")],
    ),
    (
        "nack",
        "basic.nack",
        {"requeue": False},
        ["0=a 1=b 2=c", "3=d"],
        ["0=a 1=b 2=c", unsupported("basic.nack and basic.reject", "60.120")],
    ),
    (
        "nack-requeue",
        "basic.nack",
        {"requeue": True},
        ["0=a 1=b 2=c", "3=d"],
        ["0=a 1=b 2=c", unsupported("basic.nack and basic.reject", "60.120")],
    ),
    (
        "nack-multiple",
        "basic.nack",
        {"requeue": False, "multiple": True},
        ["0=a 1=b 2=c", "3=d 4=e"],
        ["0=a 1=b 2=c", unsupported("basic.nack and basic.reject", "60.120")],
    ),
    (
        "nack-multiple-requeue",
        "basic.nack",
        {"requeue": True, "multiple": True},
        ["0=a 1=b 2=c", "3=d 4=e"],
        ["0=a 1=b 2=c", unsupported("basic.nack and basic.reject", "60.120")],
    ),
)


def settled(method: str, fields: Given) -> Script:
    """Refuses the second of three deliveries, and shows what comes then."""

    def script(t: Stage) -> list[str]:
        reader, first = window(t, 3)
        reader.send(method, delivery_tag=2, **fields)
        return [first, rest(reader)]

    return script


for _name, _method, _fields, _lines, _other in _SETTLES:
    topic.add(
        f"settle-{_name}",
        f"{_method} with {_fields}",
        settled(_method, _fields),
        _lines,
        rabbitmq=_other,
        difference="stream-settle" if _other else None,
    )


def recovered(requeue: bool) -> Script:
    def script(t: Stage) -> list[str]:
        reader, first = window(t, 3)
        answer = reader.call("basic.recover", requeue=requeue)
        return [first, show(answer), rest(reader)]

    return script


topic.add(
    "recover",
    "basic.recover with requeue",
    recovered(True),
    ["0=a 1=b 2=c", "basic.recover-ok", "3=d 4=e 5=f"],
    rabbitmq=["0=a 1=b 2=c", CRASH, CRASH],
    difference="stream-settle",
)
topic.add(
    "recover-same",
    "basic.recover without requeue",
    recovered(False),
    [
        "0=a 1=b 2=c",
        "connection.close 540 NOT_IMPLEMENTED - requeue=false (60.110)",
        "connection.close 540 NOT_IMPLEMENTED - requeue=false (60.110)",
    ],
)


@topic.case(
    "cancel-ack",
    "an ack after the consumer was cancelled",
    ["0=a 1=b", "basic.cancel-ok consumer_tag=t", "then nothing"],
)
def _(t: Stage) -> list[str]:
    reader, first = window(t, 2)
    answer = reader.call("basic.cancel", consumer_tag="t")
    reader.send("basic.ack", delivery_tag=2, multiple=True)
    return [first, show(answer), left(reader)]


@topic.case(
    "cancel-consume",
    "cancelled and consumed again on one channel",
    ["0=a 1=b", "u#3 f", "u#4 g", "then nothing"],
)
def _(t: Stage) -> list[str]:
    reader, first = window(t, 2)
    reader.call("basic.cancel", consumer_tag="t")
    t.consume(reader, t.name(), "u", arguments={"x-stream-offset": 5})
    return [first, *briefs(reader.next() for _ in range(2)), left(reader)]


@topic.case(
    "cancel-reject",
    "a refusal with requeue after the consumer was cancelled",
    ["0=a 1=b", "then nothing"],
    rabbitmq=[
        "0=a 1=b",
        (
            "then connection.close 540 NOT_IMPLEMENTED - basic.nack and basic.reject not "
            "supported by stream queues queue 'q' in vhost '/' (60.120)"
        ),
    ],
    difference="stream-settle",
)
def _(t: Stage) -> list[str]:
    reader, first = window(t, 2)
    reader.call("basic.cancel", consumer_tag="t")
    reader.send("basic.nack", delivery_tag=2, multiple=True, requeue=True)
    return [first, left(reader)]


@topic.case(
    "closed", "what an ended channel held comes again to who asks for it", ["0=a 1=b", "0=a 1=b"]
)
def _(t: Stage) -> list[str]:
    reader, first = window(t, 2)
    reader.call("channel.close")
    return [first, taken(follow(t, t.name(), x_stream_offset="first"), 2)]


@topic.case(
    "two-windows",
    "each consumer of a channel has a window of its own",
    ["one#1 a", "one#2 b", "two#3 a", "two#4 b", "two#5 c", "then nothing"],
)
def _(t: Stage) -> list[str]:
    channel = t.channel()
    queue = stream(t, channel, *"abcdefgh")
    reader = follow(t, queue, 2, tag="one", x_stream_offset="first")
    first = briefs(reader.next() for _ in range(2))
    t.consume(reader, queue, "two", arguments={"x-stream-offset": "first"})
    second = briefs(reader.next() for _ in range(2))
    reader.send("basic.ack", delivery_tag=4)
    return [*first, *second, brief(reader.next()), left(reader)]
