"""Priority queues: order, clamping, requeues, and queues that ignore priorities."""

from __future__ import annotations

from collections.abc import Mapping

from tests.compat.case import Topic
from tests.compat.client import Channel
from tests.compat.describe import bodies, brief, properties
from tests.compat.stage import Stage

topic = Topic("priority")


def put_all(t: Stage, channel: Channel, queue: str, *priorities: int | None) -> None:
    """Publishes one message for each priority, named p<priority>."""
    for priority in priorities:
        given: Mapping[str, object] = {} if priority is None else {"priority": priority}
        t.put(channel, "", queue, f"p{priority}", properties=given)


@topic.case(
    "order", "higher first, above the maximum as the maximum, none as 0", "p10 p20 p5 p1 pNone"
)
def _(t: Stage) -> str:
    channel = t.channel()
    queue = t.queue(channel, arguments={"x-max-priority": 10})
    put_all(t, channel, queue, 1, 5, 10, None, 20)
    return bodies(t.drain(channel, queue))


@topic.case("fifo-inside", "first in, first out inside one priority", "b d e a c")
def _(t: Stage) -> str:
    channel = t.channel()
    queue = t.queue(channel, arguments={"x-max-priority": 3})
    for text, priority in (("a", 1), ("b", 3), ("c", 1), ("d", 3), ("e", 2)):
        t.put(channel, "", queue, text, properties={"priority": priority})
    return bodies(t.drain(channel, queue))


@topic.case("consumer", "a consumer gets a backlog in the order of priorities", "p9 p3 p3 p0")
def _(t: Stage) -> str:
    channel = t.channel()
    queue = t.queue(channel, arguments={"x-max-priority": 10})
    put_all(t, channel, queue, 0, 3, 9, 3)
    t.consume(channel, queue, no_ack=True)
    return bodies([channel.next() for _ in range(4)])


@topic.case(
    "above-maximum", "the property above the maximum is delivered as it was", "priority=200"
)
def _(t: Stage) -> str:
    channel = t.channel()
    queue = t.queue(channel, arguments={"x-max-priority": 10})
    put_all(t, channel, queue, 200)
    content = channel.get_soon(queue).content
    assert content is not None
    return properties(content)


@topic.case("ignored", "without x-max-priority priorities are ignored", "p1 p9 p5")
def _(t: Stage) -> str:
    channel = t.channel()
    queue = t.queue(channel)
    put_all(t, channel, queue, 1, 9, 5)
    return bodies(t.drain(channel, queue))


@topic.case("maximum-zero", "x-max-priority 0 has one level", "p1 p9 p5")
def _(t: Stage) -> str:
    channel = t.channel()
    queue = t.queue(channel, arguments={"x-max-priority": 0})
    put_all(t, channel, queue, 1, 9, 5)
    return bodies(t.drain(channel, queue))


@topic.case("maximum-255", "x-max-priority 255 tells all levels apart", "p255 p254 p253 p0")
def _(t: Stage) -> str:
    channel = t.channel()
    queue = t.queue(channel, arguments={"x-max-priority": 255})
    put_all(t, channel, queue, 253, 255, 254, 0)
    return bodies(t.drain(channel, queue))


@topic.case("requeue", "a requeued message goes before its equals, behind the higher", "c2 a1! b1")
def _(t: Stage) -> str:
    channel = t.channel()
    queue = t.queue(channel, arguments={"x-max-priority": 5})
    t.put(channel, "", queue, "a1", "b1", properties={"priority": 1})
    channel.get(queue, no_ack=False)
    t.put(channel, "", queue, "c2", properties={"priority": 2})
    channel.send("basic.reject", delivery_tag=1, requeue=True)
    return bodies(t.drain(channel, queue))


@topic.case(
    "later-higher", "a higher one published later overtakes the backlog", ["get#1 p1", "p4 p1"]
)
def _(t: Stage) -> list[str]:
    channel = t.channel()
    queue = t.queue(channel, arguments={"x-max-priority": 5})
    put_all(t, channel, queue, 1, 1)
    first = channel.get_soon(queue)
    put_all(t, channel, queue, 4)
    return [brief(first), bodies(t.drain(channel, queue))]


@topic.case(
    "strict",
    "low priorities wait while higher ones are there",
    "p9 p9 p9 p9 p9 p9 p9 p9 p9 p9 p9 p9 p9 p9 p9 p9 p9 p9 p9 p9 p0 p0 p0",
)
def _(t: Stage) -> str:
    channel = t.channel()
    queue = t.queue(channel, arguments={"x-max-priority": 9})
    put_all(t, channel, queue, *([0] * 3), *([9] * 20))
    return bodies(t.drain(channel, queue))


@topic.case("purge", "purge counts all priorities", "3")
def _(t: Stage) -> str:
    channel = t.channel()
    queue = t.queue(channel, arguments={"x-max-priority": 9})
    put_all(t, channel, queue, 0, 5, 9)
    return str(t.require(channel.call("queue.purge", queue=queue)).fields["message_count"])
