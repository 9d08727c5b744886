"""Single active consumer: one gets all, the next takes over in order."""

from __future__ import annotations

from typing import Final

from tests.compat.case import Topic
from tests.compat.describe import bodies, brief, briefs, show
from tests.compat.stage import Stage

topic = Topic("single-active")

_SINGLE: Final = {"x-single-active-consumer": True}


@topic.case("one-active", "of two consumers the first gets all", ["a#1 0", "a#2 1", "a#3 2"])
def _(t: Stage) -> list[str]:
    channel, publisher = t.channel(), t.channel()
    queue = t.queue(channel, arguments=_SINGLE)
    t.consume(channel, queue, "a")
    t.consume(channel, queue, "b")
    t.put(publisher, "", queue, *"012")
    return briefs(channel.sync())


@topic.case(
    "takeover-cancel",
    "the active one cancels and holds messages: the next takes over when they are settled",
    ["a#1 0", "a#2 1", "", "b#3 2", "b#4 3"],
    rabbitmq=["a#1 0", "a#2 1", "b#3 2 b#4 3", "", ""],
    difference="single-active-order",
)
def _(t: Stage) -> list[str]:
    channel, publisher = t.channel(), t.channel()
    queue = t.queue(channel, arguments=_SINGLE)
    for tag in "abc":
        t.consume(channel, queue, tag)
    t.put(publisher, "", queue, *"01")
    first = briefs(channel.sync())
    channel.call("basic.cancel", consumer_tag="a")
    t.put(publisher, "", queue, *"23")
    at_once = briefs(channel.sync())
    channel.send("basic.ack", delivery_tag=2, multiple=True)
    if at_once:
        return [*first, " ".join(at_once), *briefs(channel.sync()), "", ""]
    return [*first, "", brief(channel.next()), brief(channel.next())]


@topic.case(
    "takeover-returns",
    "the active one cancels, then its channel closes: its messages come before later ones",
    ["b#1 0 redelivered", "b#2 1 redelivered", "b#3 2"],
)
def _(t: Stage) -> list[str]:
    first, second, publisher = t.channel(), t.channel(), t.channel()
    queue = t.queue(publisher, arguments=_SINGLE)
    first.call("basic.qos", prefetch_count=2)
    t.consume(first, queue, "a")
    t.consume(second, queue, "b")
    t.put(publisher, "", queue, *"012")
    first.sync()
    first.call("basic.cancel", consumer_tag="a")
    first.call("channel.close")
    return briefs(second.next() for _ in range(3))


@topic.case(
    "takeover-close",
    "the active one's channel closes: its unacked go to the next",
    ["0 1 2", "b#1 0 redelivered", "b#2 1 redelivered", "b#3 2 redelivered"],
)
def _(t: Stage) -> list[str]:
    first, second, publisher = t.channel(), t.channel(), t.channel()
    queue = t.queue(publisher, arguments=_SINGLE)
    t.consume(first, queue, "a")
    t.consume(second, queue, "b")
    t.put(publisher, "", queue, *"012")
    seen = bodies(first.sync())
    first.call("channel.close")
    return [seen, *briefs(second.next() for _ in range(3))]


@topic.case(
    "takeover-waits-in-order",
    "waiting consumers take over in the order they came",
    ["a#1 a", "b#2 b", "c#3 c"],
)
def _(t: Stage) -> list[str]:
    channel, publisher = t.channel(), t.channel()
    queue = t.queue(channel, arguments=_SINGLE)
    for tag in "abc":
        t.consume(channel, queue, tag)
    seen = []
    for tag in "abc":
        t.put(publisher, "", queue, tag)
        delivery = channel.next()
        seen.append(brief(delivery))
        channel.send("basic.ack", delivery_tag=len(seen))
        channel.call("basic.cancel", consumer_tag=tag)
    return seen


@topic.case(
    "full-active", "while the active one is at its prefetch the others get nothing", "a#1 0"
)
def _(t: Stage) -> list[str]:
    channel, publisher = t.channel(), t.channel()
    queue = t.queue(channel, arguments=_SINGLE)
    channel.call("basic.qos", prefetch_count=1)
    t.consume(channel, queue, "a")
    t.consume(channel, queue, "b")
    t.put(publisher, "", queue, *"012")
    return briefs(channel.sync())


@topic.case(
    "requeue-to-active",
    "a requeued message returns to the active one",
    ["a#1 0", "a#2 0 redelivered"],
)
def _(t: Stage) -> list[str]:
    channel, publisher = t.channel(), t.channel()
    queue = t.queue(channel, arguments=_SINGLE)
    t.consume(channel, queue, "a")
    t.consume(channel, queue, "b")
    t.put(publisher, "", queue, "0")
    first = channel.next()
    channel.send("basic.nack", delivery_tag=1, requeue=True)
    return briefs([first, channel.next()])


@topic.case(
    "exclusive",
    "an exclusive consume on such a queue",
    "channel.close 403 ACCESS_REFUSED - queue 'q' in vhost '/' in exclusive use (60.20)",
)
def _(t: Stage) -> str:
    channel = t.channel()
    queue = t.queue(channel, arguments=_SINGLE)
    return show(channel.call("basic.consume", queue=queue, exclusive=True))


@topic.case("get", "basic.get on such a queue beside a consumer", "basic.get-empty cluster_id=")
def _(t: Stage) -> str:
    channel = t.channel()
    queue = t.queue(channel, arguments=_SINGLE)
    t.consume(channel, queue)
    return show(channel.call("basic.get", queue=queue))


@topic.case(
    "consumer-count",
    "waiting consumers are counted",
    "queue.declare-ok queue=q message_count=0 consumer_count=2",
)
def _(t: Stage) -> str:
    channel = t.channel()
    queue = t.queue(channel, arguments=_SINGLE)
    t.consume(channel, queue, "a")
    t.consume(channel, queue, "b")
    return show(channel.call("queue.declare", queue=queue, passive=True))


@topic.case(
    "quorum-takeover", "a quorum queue: the next takes over after a cancel", ["a#1 0", "b#2 1"]
)
def _(t: Stage) -> list[str]:
    channel, publisher = t.channel(), t.channel()
    queue = t.quorum(channel, arguments=_SINGLE)
    t.consume(channel, queue, "a", no_ack=True)
    t.consume(channel, queue, "b", no_ack=True)
    t.put(publisher, "", queue, "0")
    first = channel.next()
    channel.call("basic.cancel", consumer_tag="a")
    t.put(publisher, "", queue, "1")
    return [brief(first), brief(channel.next())]


@topic.case(
    "quorum-get",
    "basic.get on a quorum queue with single active consumer",
    (
        "channel.close 405 RESOURCE_LOCKED - cannot obtain access to locked queue 'q' in "
        "vhost '/'. basic.get operations are not supported by quorum queues with single "
        "active consumer (60.70)"
    ),
)
def _(t: Stage) -> str:
    channel = t.channel()
    queue = t.quorum(channel, arguments=_SINGLE)
    t.put(channel, "", queue)
    return show(channel.call("basic.get", queue=queue))
