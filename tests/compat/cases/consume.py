"""basic.consume, cancel, get: who gets what, with which tag, in which order."""

from __future__ import annotations

from tests.compat.case import Topic
from tests.compat.describe import bodies, brief, briefs, show
from tests.compat.stage import Stage

topic = Topic("consume")


@topic.case(
    "missing",
    "consume from a missing queue",
    "channel.close 404 NOT_FOUND - no queue 'nope' in vhost '/' (60.20)",
)
def _(t: Stage) -> str:
    return show(t.channel().call("basic.consume", queue=t.name("nope")))


@topic.case(
    "empty-name",
    "consume with an empty name, none declared",
    "channel.close 404 NOT_FOUND - no previously declared queue (60.20)",
)
def _(t: Stage) -> str:
    return show(t.channel().call("basic.consume"))


@topic.case("last-declared", "consume with an empty name takes the last declared queue", "t#1 m")
def _(t: Stage) -> str:
    channel = t.channel()
    t.put(channel, "", t.queue(channel), "m")
    t.consume(channel, "")
    return brief(channel.next())


@topic.case(
    "tag-in-use",
    "consume with a tag in use on the channel",
    "connection.close 530 NOT_ALLOWED - attempt to reuse consumer tag 't' (60.20)",
)
def _(t: Stage) -> str:
    channel = t.channel()
    queue = t.queue(channel)
    t.consume(channel, queue)
    return show(channel.call("basic.consume", queue=queue, consumer_tag="t"))


@topic.case(
    "tag-in-use-no-queue",
    "consume with a tag in use, from a queue that does not exist",
    "connection.close 530 NOT_ALLOWED - attempt to reuse consumer tag 't' (60.20)",
)
def _(t: Stage) -> str:
    channel = t.channel()
    t.consume(channel, t.queue(channel))
    return show(channel.call("basic.consume", queue=t.name("none"), consumer_tag="t"))


@topic.case(
    "tag-in-use-other-channel", "the same tag on two channels", "basic.consume-ok consumer_tag=t"
)
def _(t: Stage) -> str:
    channel, other = t.channel(), t.channel()
    queue = t.queue(channel)
    t.consume(channel, queue)
    return show(other.call("basic.consume", queue=queue, consumer_tag="t"))


@topic.case("tag-again", "a cancelled tag may be used again", "basic.consume-ok consumer_tag=t")
def _(t: Stage) -> str:
    channel = t.channel()
    queue = t.queue(channel)
    t.consume(channel, queue)
    channel.call("basic.cancel", consumer_tag="t")
    return show(channel.call("basic.consume", queue=queue, consumer_tag="t"))


@topic.case("tag-empty", "consume with an empty tag", "basic.consume-ok consumer_tag=amq.ctag-*")
def _(t: Stage) -> str:
    channel = t.channel()
    return show(channel.call("basic.consume", queue=t.queue(channel)))


@topic.case(
    "priority-text",
    "consume with x-priority of the wrong type",
    (
        "channel.close 406 PRECONDITION_FAILED - invalid arg 'x-priority' for queue 'q' in "
        "vhost '/': \"expected integer, got longstr\" (60.20)"
    ),
)
def _(t: Stage) -> str:
    channel = t.channel()
    return show(
        channel.call("basic.consume", queue=t.queue(channel), arguments={"x-priority": "high"})
    )


@topic.case(
    "priority-numbers",
    "x-priority takes any integer",
    [
        "basic.consume-ok consumer_tag=-2147483648",
        "basic.consume-ok consumer_tag=0",
        "basic.consume-ok consumer_tag=1099511627776",
    ],
)
def _(t: Stage) -> list[str]:
    channel = t.channel()
    queue = t.queue(channel)
    return [
        show(
            channel.call(
                "basic.consume",
                queue=queue,
                consumer_tag=str(priority),
                arguments={"x-priority": priority},
            )
        )
        for priority in (-(2**31), 0, 2**40)
    ]


@topic.case(
    "argument-unknown", "consume with an unknown argument", "basic.consume-ok consumer_tag=t"
)
def _(t: Stage) -> str:
    channel = t.channel()
    return show(
        channel.call(
            "basic.consume",
            queue=t.queue(channel),
            consumer_tag="t",
            arguments={"x-nobody-knows": 1},
        )
    )


@topic.case("cancel-unknown", "cancel of an unknown tag", "basic.cancel-ok consumer_tag=nope")
def _(t: Stage) -> str:
    return show(t.channel().call("basic.cancel", consumer_tag="nope"))


@topic.case(
    "cancel-stops",
    "nothing is delivered after cancel-ok",
    ["basic.cancel-ok consumer_tag=t", "delivered nothing", "left 1"],
)
def _(t: Stage) -> list[str]:
    channel, publisher = t.channel(), t.channel()
    queue = t.queue(channel)
    t.consume(channel, queue)
    cancelled = show(channel.call("basic.cancel", consumer_tag="t"))
    t.put(publisher, "", queue, "m")
    return [cancelled, f"delivered {bodies(channel.sync())}", f"left {t.count(queue, channel, 1)}"]


@topic.case(
    "cancel-keeps-unacked",
    "after cancel the unacked stay with the channel",
    ["t#1 m", "ready 0", "acked"],
)
def _(t: Stage) -> list[str]:
    channel = t.channel()
    queue = t.queue(channel)
    t.put(channel, "", queue, "m")
    t.consume(channel, queue)
    delivered = channel.next()
    channel.call("basic.cancel", consumer_tag="t")
    ready = t.count(queue, channel, 0)
    channel.send("basic.ack", delivery_tag=1)
    return [brief(delivered), f"ready {ready}", *briefs(channel.sync()), "acked"]


@topic.case(
    "get-missing",
    "get from a missing queue",
    "channel.close 404 NOT_FOUND - no queue 'nope' in vhost '/' (60.70)",
)
def _(t: Stage) -> str:
    return show(t.channel().call("basic.get", queue=t.name("nope")))


@topic.case(
    "get-empty-name",
    "get with an empty name, none declared",
    "channel.close 404 NOT_FOUND - no previously declared queue (60.70)",
)
def _(t: Stage) -> str:
    return show(t.channel().call("basic.get"))


@topic.case("get-empty", "get from an empty queue", "basic.get-empty cluster_id=")
def _(t: Stage) -> str:
    channel = t.channel()
    return show(channel.call("basic.get", queue=t.queue(channel)))


@topic.case(
    "get-last-declared",
    "get with an empty name takes the last declared queue",
    "basic.get-empty cluster_id=",
)
def _(t: Stage) -> str:
    channel = t.channel()
    t.queue(channel)
    return show(channel.call("basic.get"))


@topic.case(
    "get-counts",
    "the message_count of get-ok is what is left ready",
    [
        (
            "basic.get-ok delivery_tag=1 redelivered=false exchange= routing_key=q "
            "message_count=2 body=a"
        ),
        (
            "basic.get-ok delivery_tag=2 redelivered=false exchange= routing_key=q "
            "message_count=1 body=b"
        ),
        (
            "basic.get-ok delivery_tag=3 redelivered=false exchange= routing_key=q "
            "message_count=0 body=c"
        ),
        "basic.get-empty cluster_id=",
    ],
)
def _(t: Stage) -> list[str]:
    channel = t.channel()
    queue = t.queue(channel)
    t.put(channel, "", queue, "a", "b", "c")
    return [show(channel.call("basic.get", queue=queue, no_ack=True)) for _ in range(4)]


@topic.case(
    "get-tags-shared",
    "get and deliver share one row of delivery tags",
    ["get#1 a", "t#2 c", "get#3 b"],
)
def _(t: Stage) -> list[str]:
    channel = t.channel()
    queue, other = t.queue(channel), t.queue(channel, "other")
    t.put(channel, "", queue, "a", "b")
    t.put(channel, "", other, "c")
    first = channel.call("basic.get", queue=queue)
    t.consume(channel, other)
    second = channel.next()
    return briefs([first, second, channel.call("basic.get", queue=queue)])


@topic.case(
    "tags-per-channel", "each channel counts its delivery tags from 1", ["get#1 a", "get#1 b"]
)
def _(t: Stage) -> list[str]:
    channel, other = t.channel(), t.channel()
    queue = t.queue(channel)
    t.put(channel, "", queue, "a", "b")
    return briefs(each.call("basic.get", queue=queue) for each in (channel, other))


@topic.case("order", "ten messages are delivered in order", "0 1 2 3 4 5 6 7 8 9")
def _(t: Stage) -> str:
    channel = t.channel()
    queue = t.queue(channel)
    t.consume(channel, queue, no_ack=True)
    for number in range(10):
        channel.publish("", queue, str(number).encode())
    return bodies([channel.next() for _ in range(10)])


@topic.case(
    "order-backlog", "a backlog is delivered in order, then what comes later", "0 1 2 3 4 5 6 7"
)
def _(t: Stage) -> str:
    channel = t.channel()
    queue = t.queue(channel)
    t.put(channel, "", queue, *"0123")
    t.consume(channel, queue, no_ack=True)
    t.put(channel, "", queue, *"4567")
    while len(channel.events) < 8:
        channel.events.append(channel.connection.receive(channel.number))
    return bodies(channel.take())


@topic.case(
    "consume-ok-first",
    "consume-ok comes before the first delivery of a backlog",
    ["basic.consume-ok consumer_tag=t", "t#1 m"],
)
def _(t: Stage) -> list[str]:
    channel, consumer = t.channel(), t.channel()
    queue = t.queue(channel)
    t.put(channel, "", queue, "m")
    consumer.send("basic.consume", queue=queue, consumer_tag="t")
    return briefs([consumer.next(), consumer.next()])


@topic.case(
    "round-robin",
    "two consumers take turns",
    ["a#1 0", "b#2 1", "a#3 2", "b#4 3", "a#5 4", "b#6 5"],
)
def _(t: Stage) -> list[str]:
    channel, publisher = t.channel(), t.channel()
    queue = t.queue(channel)
    t.consume(channel, queue, "a")
    t.consume(channel, queue, "b")
    t.put(publisher, "", queue, *"012345")
    return briefs(channel.sync())


@topic.case(
    "round-robin-full",
    "a consumer at its prefetch is passed over",
    ["a#1 0", "b#2 1", "b#3 2", "b#4 3"],
)
def _(t: Stage) -> list[str]:
    channel, publisher = t.channel(), t.channel()
    queue = t.queue(channel)
    t.require(channel.call("basic.qos", prefetch_count=1))
    t.consume(channel, queue, "a")
    t.require(channel.call("basic.qos", prefetch_count=0))
    t.consume(channel, queue, "b")
    t.put(publisher, "", queue, *"0123")
    return briefs(channel.sync())


@topic.case("no-local", "no_local is accepted and ignored", "t#1 m")
def _(t: Stage) -> str:
    channel = t.channel()
    queue = t.queue(channel)
    t.consume(channel, queue, no_local=True)
    channel.publish("", queue, b"m")
    return brief(channel.next())


@topic.case(
    "deliver-fields",
    "all fields of a delivery",
    (
        "basic.deliver consumer_tag=t delivery_tag=1 redelivered=false exchange=x "
        "routing_key=a.b body=m"
    ),
)
def _(t: Stage) -> str:
    channel = t.channel()
    queue, exchange = t.queue(channel), t.exchange(channel, "topic")
    t.bind(channel, queue, exchange, "a.#")
    t.consume(channel, queue)
    channel.publish(exchange, "a.b", b"m")
    return show(channel.next())


@topic.case(
    "no-ack-removes", "a message delivered without acknowledgement is gone", ["t#1 m", "left 0"]
)
def _(t: Stage) -> list[str]:
    connection = t.connect()
    channel = connection.channel()
    queue = t.queue(channel)
    t.consume(channel, queue, no_ack=True)
    channel.publish("", queue, b"m")
    delivered = brief(channel.next())
    connection.close()
    return [delivered, f"left {t.count(queue, t.channel(), 0)}"]


@topic.case("two-queues-one-channel", "one channel consumes from two queues", ["b#1 x", "a#2 y"])
def _(t: Stage) -> list[str]:
    channel, publisher = t.channel(), t.channel()
    first, second = t.queue(channel, "q1"), t.queue(channel, "q2")
    t.consume(channel, first, "a")
    t.consume(channel, second, "b")
    t.put(publisher, "", second, "x")
    t.put(publisher, "", first, "y")
    return briefs(channel.sync())


@topic.case(
    "priority",
    "consumers of higher x-priority are served first until full",
    ["high#1 0", "high#2 1", "low#3 2", "low#4 3"],
)
def _(t: Stage) -> list[str]:
    channel, publisher = t.channel(), t.channel()
    queue = t.queue(channel)
    t.require(channel.call("basic.qos", prefetch_count=2))
    t.consume(channel, queue, "low")
    t.consume(channel, queue, "high", arguments={"x-priority": 5})
    t.put(publisher, "", queue, *"012345")
    return briefs(channel.sync())


@topic.case(
    "priority-negative",
    "a consumer of negative x-priority comes after the default",
    ["zero#1 0", "minus#2 1"],
)
def _(t: Stage) -> list[str]:
    channel, publisher = t.channel(), t.channel()
    queue = t.queue(channel)
    t.require(channel.call("basic.qos", prefetch_count=1))
    t.consume(channel, queue, "minus", arguments={"x-priority": -1})
    t.consume(channel, queue, "zero")
    t.put(publisher, "", queue, *"01")
    return briefs(channel.sync())


@topic.case(
    "priority-equals-share",
    "consumers of equal x-priority take turns",
    ["a#1 0", "b#2 1", "a#3 2", "b#4 3"],
)
def _(t: Stage) -> list[str]:
    channel, publisher = t.channel(), t.channel()
    queue = t.queue(channel)
    for tag, priority in (("a", 5), ("low", 0), ("b", 5)):
        t.consume(channel, queue, tag, arguments={"x-priority": priority})
    t.put(publisher, "", queue, *"0123")
    return briefs(channel.sync())


@topic.case(
    "priority-free-again",
    "an ack gives the higher consumer its turn back",
    ["high#1 0", "low#2 1", "high#3 2"],
)
def _(t: Stage) -> list[str]:
    channel, publisher = t.channel(), t.channel()
    queue = t.queue(channel)
    t.require(channel.call("basic.qos", prefetch_count=1))
    t.consume(channel, queue, "low")
    t.consume(channel, queue, "high", arguments={"x-priority": 5})
    t.put(publisher, "", queue, *"012")
    first = channel.sync()
    channel.send("basic.ack", delivery_tag=1)
    return briefs([*first, channel.next()])
