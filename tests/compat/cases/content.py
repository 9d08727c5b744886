"""Contents: bodies of all sizes, properties and field types that come back as they were sent."""

from __future__ import annotations

from typing import Final

from tests.compat import wire
from tests.compat.case import Script, Topic
from tests.compat.client import Handshake, Method
from tests.compat.describe import properties, show, value
from tests.compat.stage import Stage

topic = Topic("content")


def _body(size_bytes: int) -> bytes:
    """A body whose every part is different."""
    return b"".join(b"%08d" % number for number in range(size_bytes // 8 + 1))[:size_bytes]


def sized(size_bytes: int, frame_max: int = 131072) -> Script:
    """Sends a body through a queue; shows its size, its body frames and whether it is the same."""

    def script(t: Stage) -> str:
        channel = t.connect(Handshake(frame_max=frame_max)).channel()
        queue = t.queue(channel)
        body = _body(size_bytes)
        t.consume(channel, queue, no_ack=True)
        channel.publish("", queue, body)
        message = channel.next()
        assert isinstance(message, Method) and message.content is not None
        frames = list(message.content.frame_sizes)
        same = "same" if message.body == body else "changed"
        shown = frames if len(frames) < 6 else f"{len(frames)} frames"
        return f"{message.content.size_bytes} in {shown} {same}"

    return script


topic.add("body-empty", "an empty body: no body frame", sized(0), "0 in [] same")
topic.add("body-1", "a body of one byte", sized(1), "1 in [1] same")
topic.add("body-frame", "a body that fills one frame", sized(131064), "131064 in [131064] same")
topic.add(
    "body-frame-and-1", "a body one byte over a frame", sized(131065), "131065 in [131064, 1] same"
)
topic.add(
    "body-300000",
    "a body of 300000 bytes",
    sized(300_000),
    "300000 in [131064, 131064, 37872] same",
)
topic.add(
    "body-4096",
    "a body of 10000 bytes with frame_max 4096",
    sized(10_000, 4096),
    "10000 in [4088, 4088, 1824] same",
)
topic.add(
    "body-1-mib",
    "a body of 1 MiB with frame_max 4096",
    sized(2**20, 4096),
    "1048576 in 257 frames same",
)
topic.add("body-8-mib", "a body of 8 MiB", sized(2**23), "8388608 in 65 frames same")


@topic.case("body-binary", "a body of all 256 bytes", "True")
def _(t: Stage) -> str:
    channel = t.channel()
    queue = t.queue(channel)
    channel.publish("", queue, bytes(range(256)))
    return str(channel.get_soon(queue).body == bytes(range(256)))


@topic.case(
    "body-small-to-large-frames", "sent in frames of 4096, delivered in larger ones", "[10000]"
)
def _(t: Stage) -> str:
    small, large = t.connect(Handshake(frame_max=4096)).channel(), t.channel()
    queue = t.queue(small)
    small.publish("", queue, _body(10_000))
    message = large.get_soon(queue)
    assert message.content is not None
    return f"{list(message.content.frame_sizes)}"


@topic.case(
    "body-large-to-small-frames",
    "sent in one frame, delivered in frames of 4096",
    "[4088, 4088, 1824]",
)
def _(t: Stage) -> str:
    small, large = t.connect(Handshake(frame_max=4096)).channel(), t.channel()
    queue = t.queue(large)
    large.publish("", queue, _body(10_000))
    message = small.get_soon(queue)
    assert message.content is not None
    return f"{list(message.content.frame_sizes)}"


@topic.case(
    "get-empty-body",
    "an empty body by basic.get",
    ("basic.get-ok delivery_tag=1 redelivered=false exchange= routing_key=q message_count=0 body="),
)
def _(t: Stage) -> str:
    channel = t.channel()
    queue = t.queue(channel)
    channel.publish("", queue, b"")
    return show(channel.get_soon(queue))


_ALL: Final[dict[str, object]] = {
    "content_type": "application/json",
    "content_encoding": "gzip",
    "headers": {"k": "v"},
    "delivery_mode": 2,
    "priority": 255,
    "correlation_id": "corr",
    "reply_to": "somewhere",
    "expiration": "60000",
    "message_id": "id",
    "timestamp": 1_700_000_000,
    "type": "kind",
    "user_id": "guest",
    "app_id": "app",
    "cluster_id": "cluster",
}


def returned(given: dict[str, object]) -> Script:
    """Sends properties through a queue and shows those that come back."""

    def script(t: Stage) -> str:
        channel = t.channel()
        queue = t.queue(channel)
        channel.publish("", queue, b"x", given)
        content = channel.get_soon(queue).content
        assert content is not None
        return properties(content)

    return script


topic.add(
    "properties-all",
    "all fourteen properties",
    returned(_ALL),
    (
        "content_type=application/json content_encoding=gzip headers={k=S:v} delivery_mode=2 "
        "priority=255 correlation_id=corr reply_to=somewhere expiration=60000 message_id=id "
        "timestamp=1700000000 type=kind user_id=guest app_id=app cluster_id=cluster"
    ),
)
topic.add("properties-none", "no properties", returned({}), "none")
topic.add(
    "properties-empty-strings",
    "empty strings are kept",
    returned({"message_id": "", "type": ""}),
    "message_id= type=",
)
topic.add(
    "properties-empty-headers",
    "an empty headers table is kept",
    returned({"headers": {}}),
    "headers={}",
)
topic.add(
    "properties-long",
    "a string of 255 bytes",
    returned({"correlation_id": "c" * 255}),
    f"correlation_id={'c' * 255}",
)
topic.add("properties-utf8", "text beyond ASCII", returned({"app_id": "hÄse ✓"}), "app_id=hÄse ✓")
topic.add(
    "properties-timestamp-max",
    "the largest timestamp",
    returned({"timestamp": 2**64 - 1}),
    "timestamp=18446744073709551615",
)
topic.add(
    "properties-delivery-mode-1",
    "delivery_mode 1",
    returned({"delivery_mode": 1}),
    "delivery_mode=1",
)

for _name in _ALL:
    topic.add(
        f"property-{_name.replace('_', '-')}",
        f"{_name} alone",
        returned({_name: _ALL[_name]}),
        f"{_name}={'{k=S:v}' if _name == 'headers' else _ALL[_name]}",
    )

_FIELDS: Final[tuple[tuple[str, object, str], ...]] = (
    ("bool-true", ("t", True), "t:true"),
    ("bool-false", ("t", False), "t:false"),
    ("byte", ("b", -128), "b:-128"),
    ("unsigned-byte", ("B", 255), "B:255"),
    ("short", ("s", -32768), "s:-32768"),
    ("unsigned-short", ("u", 65535), "u:65535"),
    ("int", ("I", -(2**31)), "I:-2147483648"),
    ("unsigned-int", ("i", 2**32 - 1), "i:4294967295"),
    ("long", ("l", -(2**63)), "l:-9223372036854775808"),
    ("long-max", ("l", 2**63 - 1), "l:9223372036854775807"),
    ("float", ("f", 1.5), "f:1.5"),
    ("double", ("d", -2.25), "d:-2.25"),
    ("decimal", ("D", (2, 12345)), "D:(2, 12345)"),
    ("string", ("S", "text"), "S:text"),
    ("string-empty", ("S", ""), "S:"),
    ("string-bytes", ("S", b"\xff\x00\xfe"), "S:\\\\xff\\x00\\\\xfe"),
    ("bytes", ("x", b"\x00\x01\xff"), "x:\\x00\\x01\\\\xff"),
    (
        "array",
        ("A", [1, "two", ("l", 3), [4], {"five": 5}, None]),
        "[I:1, S:two, l:3, [I:4], {five=I:5}, V:None]",
    ),
    ("array-empty", ("A", []), "[]"),
    ("table", ("F", {"a": 1, "b": {"c": ["d", True]}}), "{a=I:1, b={c=[S:d, t:true]}}"),
    ("table-empty", ("F", {}), "{}"),
    ("timestamp", ("T", 1_700_000_000), "T:1700000000"),
    ("void", ("V", None), "V:None"),
)


def _field_round_trip(item: object) -> Script:
    def script(t: Stage) -> str:
        channel = t.channel()
        queue = t.queue(channel)
        channel.publish("", queue, b"x", {"headers": {"k": item}})
        content = channel.get_soon(queue).content
        assert content is not None
        return value(content.headers["k"])

    return script


for _name, _item, _shown in _FIELDS:
    topic.add(f"field-{_name}", f"a header of type {_name}", _field_round_trip(_item), _shown)


@topic.case(
    "headers-bytes-kept", "the headers table comes back byte for byte", "['z', 'a', 'm', 'b'] same"
)
def _(t: Stage) -> str:
    channel = t.channel()
    queue = t.queue(channel)
    sent = {"z": 1, "a": ("s", 2), "m": [("B", 3), {"q": None}], "b": "x" * 300}
    channel.publish("", queue, b"x", {"headers": sent})
    content = channel.get_soon(queue).content
    assert content is not None
    same = wire.table(content.headers) == wire.table(sent)
    return f"{list(content.headers)} {'same' if same else 'changed'}"


@topic.case("headers-deep", "tables nested 30 deep", "same")
def _(t: Stage) -> str:
    channel = t.channel()
    queue = t.queue(channel)
    nested: dict[str, object] = {"end": True}
    for _ in range(30):
        nested = {"n": nested}
    channel.publish("", queue, b"x", {"headers": nested})
    content = channel.get_soon(queue).content
    assert content is not None
    return "same" if wire.plain(content.headers) == nested else "changed"


@topic.case("headers-large", "a headers table of 100 KB", "100000 bytes")
def _(t: Stage) -> str:
    channel = t.channel()
    queue = t.queue(channel)
    channel.publish("", queue, b"x", {"headers": {"k": "v" * 100_000}})
    content = channel.get_soon(queue).content
    assert content is not None
    return f"{len(str(content.headers['k'].value))} bytes"


@topic.case(
    "headers-binding-arguments",
    "every field type is accepted in binding arguments",
    "queue.bind-ok",
)
def _(t: Stage) -> str:
    channel = t.channel()
    arguments = {name: item for name, item, _ in _FIELDS}
    answer = channel.call(
        "queue.bind", queue=t.queue(channel), exchange="amq.direct", arguments=arguments
    )
    return show(answer)


@topic.case(
    "headers-declare-arguments",
    "every field type is accepted in queue arguments",
    "queue.declare-ok queue=q message_count=0 consumer_count=0",
)
def _(t: Stage) -> str:
    channel = t.channel()
    answer = channel.call(
        "queue.declare",
        queue=t.name(),
        exclusive=True,
        arguments={name: item for name, item, _ in _FIELDS},
    )
    return show(answer)
