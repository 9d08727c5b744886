"""Quorum queues: redelivery order and counting, the delivery limit, priorities, refusals."""

from __future__ import annotations

from collections.abc import Mapping

from tests.compat.case import Topic
from tests.compat.client import Channel, Method
from tests.compat.describe import bodies, brief, briefs, confirms, death_counts, deaths, show, table
from tests.compat.stage import Stage

topic = Topic("quorum")


def taken(
    t: Stage, texts: str, count: int, arguments: Mapping[str, object] | None = None
) -> tuple[Channel, str]:
    """A channel that has taken `count` of the one-letter messages of a quorum queue."""
    channel = t.channel()
    queue = t.quorum(channel, arguments=arguments)
    t.put(channel, "", queue, *texts)
    for _ in range(count):
        channel.get_soon(queue, no_ack=False)
    return channel, queue


def ready(t: Stage, channel: Channel, queue: str, count: int) -> str:
    """The bodies of what is ready, once `count` messages are."""
    t.until(lambda: t.count(queue, channel, count) == count, f"{count} ready messages")
    return bodies(t.drain(channel, queue))


def counts(message: Method) -> str:
    """The redelivery mark and the counting headers of a message."""
    assert message.content is not None
    headers = {
        name: item
        for name, item in message.content.headers.items()
        if name in ("x-delivery-count", "x-acquired-count")
    }
    return f"{'redelivered ' if message.fields['redelivered'] else ''}{table(headers)}"


@topic.case(
    "requeue-first",
    "a rejected message is served before those that wait",
    "0! 1 2",
    rabbitmq="1 2 0!",
    difference="quorum-returns-first",
)
def _(t: Stage) -> str:
    channel, queue = taken(t, "012", 1)
    channel.send("basic.reject", delivery_tag=1, requeue=True)
    return ready(t, channel, queue, 3)


@topic.case(
    "requeue-multiple",
    "three of five nacked with multiple are served first, in order",
    "0! 1! 2! 3 4",
    rabbitmq="3 4 0! 1! 2!",
    difference="quorum-returns-first",
)
def _(t: Stage) -> str:
    channel, queue = taken(t, "01234", 3)
    channel.send("basic.nack", delivery_tag=3, multiple=True, requeue=True)
    return ready(t, channel, queue, 5)


@topic.case(
    "requeue-order",
    "returned messages are served in the order of their return",
    "2! 1! 3",
    rabbitmq="3 2! 1!",
    difference="quorum-returns-first",
)
def _(t: Stage) -> str:
    channel, queue = taken(t, "123", 2)
    channel.send("basic.nack", delivery_tag=2, requeue=True)
    channel.send("basic.nack", delivery_tag=1, requeue=True)
    return ready(t, channel, queue, 3)


@topic.case(
    "channel-closed",
    "unacked messages of a closed channel are served first",
    "0! 1! 2",
)
def _(t: Stage) -> str:
    channel, queue = taken(t, "012", 2)
    channel.call("channel.close")
    return ready(t, t.channel(), queue, 3)


@topic.case(
    "counts-reject",
    "the counting headers over three rejects, limit 2, then gone",
    [
        "{}",
        "redelivered {x-acquired-count=l:1, x-delivery-count=l:1}",
        "redelivered {x-acquired-count=l:2, x-delivery-count=l:2}",
        "0 ready",
    ],
    rabbitmq=[
        "{x-delivery-count=l:0}",
        "redelivered {x-delivery-count=l:1}",
        "redelivered {x-delivery-count=l:2}",
        "0 ready",
    ],
    difference="quorum-counting",
)
def _(t: Stage) -> list[str]:
    channel, queue = taken(t, "0", 0, {"x-delivery-limit": 2})
    seen = []
    for _ in range(3):
        message = channel.get_soon(queue, no_ack=False)
        seen.append(counts(message))
        channel.send("basic.reject", delivery_tag=message.tag, requeue=True)
    channel.sync()
    return [*seen, f"{t.count(queue, channel, 0)} ready"]


@topic.case(
    "counts-nack",
    "nack with requeue does not count against the limit",
    [
        "{}",
        "redelivered {x-acquired-count=l:1}",
        "redelivered {x-acquired-count=l:2}",
        "1 ready",
    ],
    rabbitmq=[
        "{x-delivery-count=l:0}",
        "redelivered {x-delivery-count=l:1}",
        "redelivered {x-delivery-count=l:2}",
        "0 ready",
    ],
    difference="quorum-counting",
)
def _(t: Stage) -> list[str]:
    channel, queue = taken(t, "0", 0, {"x-delivery-limit": 2})
    seen = []
    for _ in range(3):
        message = channel.get_soon(queue, no_ack=False)
        seen.append(counts(message))
        channel.send("basic.nack", delivery_tag=message.tag, requeue=True)
    channel.sync()
    return [*seen, f"{t.count(queue, channel, 1)} ready"]


@topic.case(
    "counts-closed",
    "a lost channel counts",
    "redelivered {x-acquired-count=l:1, x-delivery-count=l:1}",
    rabbitmq="redelivered {x-delivery-count=l:1}",
    difference="quorum-counting",
)
def _(t: Stage) -> str:
    channel, queue = taken(t, "0", 1)
    channel.call("channel.close")
    return counts(t.channel().get_soon(queue))


@topic.case(
    "counts-recover",
    "basic.recover does not count",
    "redelivered {x-acquired-count=l:1}",
    rabbitmq="redelivered {x-delivery-count=l:1}",
    difference="quorum-counting",
)
def _(t: Stage) -> str:
    channel, queue = taken(t, "0", 1)
    channel.call("basic.recover", requeue=True)
    return counts(channel.get_soon(queue))


def is_dead(t: Stage, channel: Channel, queue: str, dead: str) -> bool:
    """Whether a message that is on its way to one of two queues has come to the second one."""
    places: dict[str, object] = {}

    def look() -> bool:
        for name in (queue, dead):
            answer = t.require(channel.call("queue.declare", queue=name, passive=True))
            places[name] = answer.fields["message_count"]
        return any(places.values())

    t.until(look, "the message")
    return bool(places[dead])


def rejects(t: Stage, channel: Channel, queue: str, dead: str, most: int) -> int:
    """Rejects with requeue until the message is dead or `most` is reached; how many it took."""
    for number in range(most):
        if is_dead(t, channel, queue, dead):
            return number
        message = channel.get_soon(queue, no_ack=False)
        channel.send("basic.reject", delivery_tag=message.tag, requeue=True)
    return most


@topic.case(
    "limit-default",
    "without x-delivery-limit the 21st reject dead-letters",
    ["21 rejects", "q delivery_limit 1"],
    rabbitmq=["22 rejects", "still there"],
    difference="delivery-limit-default",
    wait_s=1.0,
)
def _(t: Stage) -> list[str]:
    channel = t.channel()
    dead = t.queue(channel, "dlq")
    arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead}
    queue = t.quorum(channel, arguments=arguments)
    t.put(channel, "", queue)
    number = rejects(t, channel, queue, dead, 22)
    if not is_dead(t, channel, queue, dead):
        return [f"{number} rejects", "still there"]
    return [f"{number} rejects", death_counts(channel.get_soon(dead))]


@topic.case(
    "limit-zero",
    "x-delivery-limit 0: the first reject dead-letters",
    ("{count=l:1, exchange=S:, queue=S:q, reason=S:delivery_limit, routing-keys=[S:q], time=T:*}"),
)
def _(t: Stage) -> list[str]:
    channel = t.channel()
    dead = t.queue(channel, "dlq")
    arguments = {
        "x-dead-letter-exchange": "",
        "x-dead-letter-routing-key": dead,
        "x-delivery-limit": 0,
    }
    queue = t.quorum(channel, arguments=arguments)
    t.put(channel, "", queue)
    message = channel.get_soon(queue, no_ack=False)
    channel.send("basic.reject", delivery_tag=message.tag, requeue=True)
    return deaths(channel.get_soon(dead))


@topic.case(
    "priority",
    "priorities 0 to 31 without an argument, none as 4, above as 31",
    "p31 p40 p9 p5 pNone p4 p0",
    rabbitmq="pNone p0 p9 p31 p4 p40 p5",
    difference="quorum-priority",
)
def _(t: Stage) -> str:
    channel = t.channel()
    queue = t.quorum(channel)
    for priority in (None, 0, 9, 31, 4, 40, 5):
        given = {} if priority is None else {"priority": priority}
        t.put(channel, "", queue, f"p{priority}", properties=given)
    return bodies(t.drain(channel, queue))


@topic.case(
    "priority-returned",
    "a returned message is served before higher priorities",
    "low! high",
    rabbitmq="high low!",
    difference="quorum-returns-first",
)
def _(t: Stage) -> str:
    channel = t.channel()
    queue = t.quorum(channel)
    t.put(channel, "", queue, "low", properties={"priority": 1})
    channel.get_soon(queue, no_ack=False)
    t.put(channel, "", queue, "high", properties={"priority": 9})
    channel.send("basic.nack", delivery_tag=1, requeue=True)
    return ready(t, channel, queue, 2)


@topic.case("order", "publish and get in order", "0 1 2 3 4")
def _(t: Stage) -> str:
    channel, queue = taken(t, "01234", 0)
    return bodies(t.drain(channel, queue))


@topic.case(
    "get",
    "basic.get with what is left",
    (
        "basic.get-ok delivery_tag=1 redelivered=false exchange= routing_key=q "
        "message_count=1 body=0"
    ),
)
def _(t: Stage) -> str:
    channel, queue = taken(t, "01", 0)
    return show(channel.call("basic.get", queue=queue, no_ack=True))


@topic.case(
    "consume",
    "a consumer with prefetch 2 gets two, then one for each ack",
    ["t#1 0", "t#2 1", "quiet True", "t#3 2", "t#4 3"],
)
def _(t: Stage) -> list[str]:
    _, queue = taken(t, "0123", 0)
    consumer = t.channel()
    consumer.call("basic.qos", prefetch_count=2)
    t.consume(consumer, queue)
    first = [consumer.next(), consumer.next()]
    quiet = consumer.quiet(30)
    consumer.send("basic.ack", delivery_tag=2, multiple=True)
    return [*briefs(first), f"quiet {quiet}", *briefs([consumer.next(), consumer.next()])]


@topic.case(
    "exclusive-consumer",
    "the exclusive flag of a consumer is ignored",
    ["basic.consume-ok consumer_tag=a", "basic.consume-ok consumer_tag=b"],
)
def _(t: Stage) -> list[str]:
    channel = t.channel()
    queue = t.quorum(channel)
    return [
        show(channel.call("basic.consume", queue=queue, consumer_tag=tag, exclusive=True))
        for tag in "ab"
    ]


@topic.case(
    "global-qos",
    "a consumer under a global prefetch",
    (
        "connection.close 540 NOT_IMPLEMENTED - queue 'q' in vhost '/' does not support "
        "global qos (60.20)"
    ),
)
def _(t: Stage) -> str:
    channel = t.channel()
    queue = t.quorum(channel)
    channel.call("basic.qos", **{"prefetch_count": 1, "global": True})
    return show(channel.call("basic.consume", queue=queue))


@topic.case(
    "cancel-notify",
    "a deleted quorum queue cancels its consumer",
    "basic.cancel consumer_tag=t nowait=true",
)
def _(t: Stage) -> str:
    channel, other = t.channel(), t.channel()
    queue = t.quorum(channel)
    t.consume(channel, queue)
    other.call("queue.delete", queue=queue)
    return brief(channel.next())


@topic.case(
    "expired",
    "expiry on a quorum queue is dead-lettered",
    "{count=l:1, exchange=S:, queue=S:q, reason=S:expired, routing-keys=[S:q], time=T:*}",
    wait_s=0.2,
)
def _(t: Stage) -> list[str]:
    channel = t.channel()
    dead = t.queue(channel, "dlq")
    arguments = {
        "x-dead-letter-exchange": "",
        "x-dead-letter-routing-key": dead,
        "x-message-ttl": 100,
    }
    t.put(channel, "", t.quorum(channel, arguments=arguments))
    return deaths(channel.get_soon(dead))


@topic.case(
    "maxlen",
    "overflow of a quorum queue is dead-lettered",
    [
        "get#1 a",
        "{count=l:1, exchange=S:, queue=S:q, reason=S:maxlen, routing-keys=[S:q], time=T:*}",
    ],
)
def _(t: Stage) -> list[str]:
    channel = t.channel()
    dead = t.queue(channel, "dlq")
    arguments = {
        "x-dead-letter-exchange": "",
        "x-dead-letter-routing-key": dead,
        "x-max-length": 1,
    }
    t.put(channel, "", t.quorum(channel, arguments=arguments), "a", "b")
    message = channel.get_soon(dead)
    return [brief(message), *deaths(message)]


@topic.case("at-least-once", "x-dead-letter-strategy at-least-once", "q rejected 1")
def _(t: Stage) -> str:
    channel = t.channel()
    dead = t.quorum(channel, "dlq")
    arguments = {
        "x-dead-letter-exchange": "",
        "x-dead-letter-routing-key": dead,
        "x-dead-letter-strategy": "at-least-once",
        "x-overflow": "reject-publish",
    }
    queue = t.quorum(channel, arguments=arguments)
    t.put(channel, "", queue)
    channel.get_soon(queue, no_ack=False)
    channel.send("basic.reject", delivery_tag=1)
    return death_counts(channel.get_soon(dead))


@topic.case(
    "reject-publish-dlx",
    "reject-publish-dlx on a quorum queue nacks and dead-letters the new message",
    ["acked 1 nacked 2", "b", "a"],
    rabbitmq=["acked 1,2", "a", "b"],
    difference="reject-publish-dlx-quorum",
)
def _(t: Stage) -> list[str]:
    channel = t.channel()
    dead = t.queue(channel, "dlq")
    arguments = {
        "x-dead-letter-exchange": "",
        "x-dead-letter-routing-key": dead,
        "x-max-length": 1,
        "x-overflow": "reject-publish-dlx",
    }
    queue = t.quorum(channel, arguments=arguments)
    answers = confirms(t.put(channel, "", queue, "a", "b"))
    return [answers, bodies([channel.get_soon(dead)]), bodies(t.drain(channel, queue))]


@topic.case(
    "get-is-no-consumer",
    "consumers of a quorum queue while a message taken by basic.get is unacked",
    "consumers 0",
    rabbitmq="consumers 1",
    difference="quorum-get-count",
)
def _(t: Stage) -> str:
    channel, queue = taken(t, "a", 1)
    answer = t.require(channel.call("queue.declare", queue=queue, passive=True))
    return f"consumers {answer.fields['consumer_count']}"
