"""Streams: counts, deletion, publishing, transactions, following."""

from __future__ import annotations

from typing import cast

from tests.compat.case import Script, Topic
from tests.compat.client import Event, Method
from tests.compat.describe import brief, confirms, deaths, show
from tests.compat.stage import Stage
from tests.compat.streams import (
    OK,
    Given,
    counted,
    follow,
    foreign,
    left,
    rest,
    stream,
    taken,
    window,
)

topic = Topic("stream")


@topic.case(
    "count",
    "message_count after three messages",
    "queue.declare-ok queue=q message_count=3 consumer_count=0",
)
def _(t: Stage) -> str:
    return counted(t, stream(t, t.channel(), *"abc"), 3)


@topic.case(
    "count-acked",
    "message_count after acks",
    "queue.declare-ok queue=q message_count=8 consumer_count=1",
    rabbitmq="queue.declare-ok queue=q message_count=8 consumer_count=0",
    difference="stream-counts",
)
def _(t: Stage) -> str:
    reader, _ = window(t, 8)
    reader.send("basic.ack", delivery_tag=8, multiple=True)
    reader.sync()
    return counted(t, t.name(), 8)


@topic.case(
    "count-in-flight",
    "message_count with unacked deliveries",
    "queue.declare-ok queue=q message_count=8 consumer_count=1",
    rabbitmq="queue.declare-ok queue=q message_count=8 consumer_count=0",
    difference="stream-counts",
)
def _(t: Stage) -> str:
    window(t, 3)
    return counted(t, t.name(), 8)


@topic.case(
    "count-consumers",
    "consumer_count",
    "queue.declare-ok queue=q message_count=0 consumer_count=2",
    rabbitmq=OK,
    difference="stream-counts",
)
def _(t: Stage) -> str:
    queue = stream(t, t.channel())
    follow(t, queue)
    follow(t, queue)
    return counted(t, queue, 0)


@topic.case(
    "redeclare-count",
    "message_count in the answer to a redeclare",
    "queue.declare-ok queue=q message_count=3 consumer_count=0",
)
def _(t: Stage) -> str:
    channel = t.channel()
    queue = stream(t, channel, *"abc")
    counted(t, queue, 3)
    given = {"x-queue-type": "stream"}
    return show(channel.call("queue.declare", queue=queue, durable=True, arguments=given))


def deleted(*texts: str, consumes: bool = False, **flags: object) -> Script:
    def script(t: Stage) -> list[str]:
        channel = t.channel()
        queue = stream(t, channel, *texts)
        if consumes:
            follow(t, queue)
        counted(t, queue, len(texts))
        answer = show(channel.call("queue.delete", queue=queue, **flags))
        return [answer, f"exists {t.exists(queue)}"]

    return script


_DELETES = (
    (
        "delete",
        "queue.delete",
        deleted(*"ab"),
        ["queue.delete-ok message_count=2", "exists False"],
        ["queue.delete-ok message_count=0", "exists False"],
    ),
    (
        "delete-empty",
        "queue.delete of an empty stream",
        deleted(),
        ["queue.delete-ok message_count=0", "exists False"],
        None,
    ),
    (
        "delete-if-empty",
        "if-empty of an empty stream",
        deleted(if_empty=True),
        ["queue.delete-ok message_count=0", "exists False"],
        None,
    ),
    (
        "delete-if-empty-not",
        "if-empty of a stream with messages",
        deleted("a", if_empty=True),
        [
            "channel.close 406 PRECONDITION_FAILED - queue 'q' in vhost '/' not empty (50.40)",
            "exists True",
        ],
        ["queue.delete-ok message_count=0", "exists False"],
    ),
    (
        "delete-if-unused",
        "if-unused without consumers",
        deleted("a", if_unused=True),
        ["queue.delete-ok message_count=1", "exists False"],
        ["queue.delete-ok message_count=0", "exists False"],
    ),
    (
        "delete-if-unused-not",
        "if-unused with one",
        deleted(consumes=True, if_unused=True),
        [
            "channel.close 406 PRECONDITION_FAILED - queue 'q' in vhost '/' in use (50.40)",
            "exists True",
        ],
        ["queue.delete-ok message_count=0", "exists False"],
    ),
    (
        "delete-if-both",
        "if-empty and if-unused",
        deleted("a", consumes=True, if_unused=True, if_empty=True),
        [
            "channel.close 406 PRECONDITION_FAILED - queue 'q' in vhost '/' in use (50.40)",
            "exists True",
        ],
        ["queue.delete-ok message_count=0", "exists False"],
    ),
)
for _name, _title, _script, _expected, _rabbitmq in _DELETES:
    topic.add(
        _name,
        _title,
        _script,
        _expected,
        rabbitmq=_rabbitmq,
        difference="stream-delete" if _rabbitmq else None,
    )


@topic.case(
    "delete-cancels",
    "a deleted stream cancels its consumers",
    "basic.cancel consumer_tag=t nowait=true",
)
def _(t: Stage) -> str:
    channel = t.channel()
    queue = stream(t, channel)
    reader = follow(t, queue)
    channel.call("queue.delete", queue=queue)
    return show(reader.next())


@topic.case(
    "delete-ack",
    "an ack after the stream was deleted",
    ["0=a 1=b", "basic.cancel consumer_tag=t nowait=true", "then nothing"],
)
def _(t: Stage) -> list[str]:
    reader, first = window(t, 2)
    t.channel().call("queue.delete", queue=t.name())
    cancel = show(reader.next())
    reader.send("basic.ack", delivery_tag=2, multiple=True)
    return [first, cancel, left(reader)]


@topic.case("delete-make", "a stream of the same name begins at offset 0", "0=new")
def _(t: Stage) -> str:
    channel = t.channel()
    queue = stream(t, channel, *"abc")
    channel.call("queue.delete", queue=queue)
    stream(t, channel, "new")
    return taken(follow(t, queue, x_stream_offset="first"), 1)


@topic.case(
    "publish-mandatory", "a mandatory publish is not returned", ["acked 1", "0=a", "then nothing"]
)
def _(t: Stage) -> list[str]:
    channel = t.channel()
    queue = stream(t, channel)
    answers = confirms(t.put(channel, "", queue, "a", mandatory=True))
    return [answers, taken(follow(t, queue, x_stream_offset="first"), 1), left(channel)]


@topic.case("publish-transient", "a transient publish is confirmed", ["acked 1,2", "0=a 1=b"])
def _(t: Stage) -> list[str]:
    channel = t.channel()
    queue = stream(t, channel)
    given = {"delivery_mode": 1}
    return [
        confirms(t.put(channel, "", queue, *"ab", properties=given)),
        taken(follow(t, queue, x_stream_offset="first"), 2),
    ]


@topic.case(
    "publish-many",
    "many publishes without waiting are all confirmed, in order",
    [
        "acked 1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20",
        (
            "0=0 1=1 2=2 3=3 4=4 5=5 6=6 7=7 8=8 9=9 10=10 11=11 12=12 13=13 14=14 15=15 "
            "16=16 17=17 18=18 19=19"
        ),
    ],
)
def _(t: Stage) -> list[str]:
    channel = t.channel()
    queue = stream(t, channel)
    channel.call("confirm.select")
    for number in range(20):
        channel.publish("", queue, str(number).encode())
    events: list[Event] = []
    while not confirms(events).endswith(",20"):
        events.append(t.confirm(channel))
    return [confirms(events), taken(follow(t, queue, x_stream_offset="first"), 20)]


@topic.case(
    "publish-two", "one publish to a stream and a classic queue", ["acked 1", "0=a", "get#1 a"]
)
def _(t: Stage) -> list[str]:
    channel = t.channel()
    exchange = t.exchange(channel)
    queue, other = stream(t, channel), t.queue(channel, "other")
    for name in (queue, other):
        t.bind(channel, name, exchange)
    answers = confirms(t.put(channel, exchange, "k", "a"))
    reader = follow(t, queue, x_stream_offset="first")
    return [answers, taken(reader, 1), brief(channel.get_soon(other))]


def bound(
    kind: str, key: str, given: Given | None, publishes: tuple[tuple[str, Given], ...]
) -> Script:
    """A stream bound to an exchange, and which of some messages it gets."""

    def script(t: Stage) -> str:
        channel = t.channel()
        exchange = t.exchange(channel, kind)
        queue = stream(t, channel)
        t.bind(channel, queue, exchange, key, given)
        for number, (routing_key, headers) in enumerate(publishes):
            t.put(channel, exchange, routing_key, str(number), properties={"headers": headers})
        reader = follow(t, queue, x_stream_offset="first")
        return rest(reader)

    return script


_KEYS: tuple[tuple[str, Given], ...] = (("a.b", {}), ("a.c", {"x": 1}), ("b", {"x": 1, "y": 2}))
_BOUND = (
    ("direct", "direct", "b", None, "0=2"),
    ("fanout", "fanout", "", None, "0=0 1=1 2=2"),
    ("topic", "topic", "a.*", None, "0=0 1=1"),
    ("headers", "headers", "", {"x-match": "all", "x": 1}, "0=1 1=2"),
)
for _name, _kind, _key, _arguments, _bodies in _BOUND:
    topic.add(
        f"bound-{_name}", f"bound to a {_kind}", bound(_kind, _key, _arguments, _KEYS), _bodies
    )


@topic.case(
    "bound-key",
    "a delivery names the exchange and key of its publish",
    [
        (
            "basic.deliver consumer_tag=t delivery_tag=1 redelivered=false exchange=x "
            "routing_key=one.two body=a"
        ),
        (
            "basic.deliver consumer_tag=t delivery_tag=2 redelivered=false exchange=x "
            "routing_key=three body=b"
        ),
    ],
)
def _(t: Stage) -> list[str]:
    channel = t.channel()
    exchange = t.exchange(channel, "topic")
    queue = stream(t, channel)
    t.bind(channel, queue, exchange, "#")
    t.put(channel, exchange, "one.two", "a")
    t.put(channel, exchange, "three", "b")
    reader = follow(t, queue, x_stream_offset="first")
    return [show(reader.next()), show(reader.next())]


@topic.case(
    "dead-letter-into",
    "a stream takes dead letters of a classic queue",
    [
        (
            "basic.deliver consumer_tag=t delivery_tag=1 redelivered=false exchange= "
            "routing_key=q body=a"
        ),
        (
            "{count=l:1, exchange=S:, queue=S:source, reason=S:rejected, "
            "routing-keys=[S:source], time=T:*}"
        ),
    ],
    rabbitmq="NoAnswerError: no frame came before the deadline",
    difference="stream-headers",
)
def _(t: Stage) -> list[str]:
    channel = t.channel()
    queue = stream(t, channel)
    given = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": queue}
    source = t.queue(channel, "source", given)
    t.put(channel, "", source, "a")
    message = channel.get_soon(source, no_ack=False)
    channel.send("basic.reject", delivery_tag=message.tag, requeue=False)
    found = cast(Method, follow(t, queue, x_stream_offset="first").next())
    return [show(found), *deaths(found)]


@topic.case(
    "dead-letter-from",
    "a refused delivery of a stream with a dead-letter exchange",
    foreign("x-dead-letter-exchange"),
)
def _(t: Stage) -> str:
    channel = t.channel()
    given = {"x-queue-type": "stream", "x-dead-letter-exchange": "amq.fanout"}
    return show(channel.call("queue.declare", queue=t.name(), durable=True, arguments=given))


@topic.case(
    "tx-commit",
    "publishes of a transaction are there after the commit",
    ["then nothing", "tx.commit-ok", "0=a 1=b"],
)
def _(t: Stage) -> list[str]:
    channel = t.channel()
    queue = stream(t, channel)
    reader = follow(t, queue)
    channel.call("tx.select")
    channel.publish("", queue, b"a")
    channel.publish("", queue, b"b")
    quiet = left(reader)
    answer = show(channel.call("tx.commit"))
    return [quiet, answer, taken(reader, 2)]


@topic.case(
    "tx-rollback", "publishes of a transaction that is undone", ["tx.rollback-ok", "then nothing"]
)
def _(t: Stage) -> list[str]:
    channel = t.channel()
    queue = stream(t, channel)
    reader = follow(t, queue)
    channel.call("tx.select")
    channel.publish("", queue, b"a")
    answer = show(channel.call("tx.rollback"))
    return [answer, left(reader)]


@topic.case(
    "tx-ack",
    "an ack in a transaction counts at the commit",
    ["0=a", "then nothing", "tx.commit-ok", "1=b"],
)
def _(t: Stage) -> list[str]:
    reader, first = window(t, 1)
    reader.call("tx.select")
    reader.send("basic.ack", delivery_tag=1)
    quiet = left(reader)
    answer = show(reader.call("tx.commit"))
    return [first, quiet, answer, taken(reader, 1)]


@topic.case("follow", "a consumer gets what is published while it waits", ["0=a", "1=b 2=c 3=d"])
def _(t: Stage) -> list[str]:
    channel = t.channel()
    queue = stream(t, channel, "a")
    reader = follow(t, queue, x_stream_offset="first")
    first = taken(reader, 1)
    t.put(channel, "", queue, *"bcd")
    return [first, taken(reader, 3)]


@topic.case(
    "follow-three",
    "three consumers each get everything",
    ["0=a 1=b 2=c", "0=a 1=b 2=c", "0=a 1=b 2=c"],
)
def _(t: Stage) -> list[str]:
    channel = t.channel()
    queue = stream(t, channel)
    readers = [follow(t, queue) for _ in range(3)]
    t.put(channel, "", queue, *"abc")
    return [taken(reader, 3) for reader in readers]


@topic.case("max-bytes", "x-max-length-bytes forgets nothing of what is small", "0=a 1=b 2=c")
def _(t: Stage) -> str:
    channel = t.channel()
    given = {"x-max-length-bytes": 1000, "x-stream-max-segment-size-bytes": 500}
    queue = stream(t, channel, *"abc", arguments=given)
    return taken(follow(t, queue, x_stream_offset="first"), 3)
