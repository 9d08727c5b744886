"""Length limits: what is dropped or refused, what is confirmed, how fan-out and unacked count."""

from __future__ import annotations

from collections.abc import Mapping

from tests.compat.case import Script, Topic
from tests.compat.describe import bodies, briefs, confirms
from tests.compat.stage import Stage

topic = Topic("limits")


def filled(arguments: Mapping[str, object], *texts: str, quorum: bool = False) -> Script:
    """Publishes texts into a limited queue; shows the confirms and what is left."""

    def script(t: Stage) -> list[str]:
        channel = t.channel()
        queue = t.quorum(channel, "q", arguments) if quorum else t.queue(channel, "q", arguments)
        answers = confirms(t.put(channel, "", queue, *texts))
        return [answers, bodies(t.drain(channel, queue))]

    return script


_REJECT: Mapping[str, object] = {"x-overflow": "reject-publish"}

topic.add(
    "drop-head",
    "x-max-length 2, four published",
    filled({"x-max-length": 2}, *"0123"),
    ["acked 1,2,3,4", "2 3"],
)
topic.add(
    "reject-publish",
    "x-max-length 2 with reject-publish, four published",
    filled({"x-max-length": 2, **_REJECT}, *"0123"),
    ["acked 1,2 nacked 3,4", "0 1"],
)
topic.add("zero", "x-max-length 0", filled({"x-max-length": 0}, *"01"), ["acked 1,2", "nothing"])
topic.add(
    "zero-reject",
    "x-max-length 0, reject-publish",
    filled({"x-max-length": 0, **_REJECT}, *"01"),
    ["nacked 1,2", "nothing"],
)
_FOUR = ("0000", "1111", "2222", "3333")
topic.add(
    "bytes",
    "x-max-length-bytes 10, four of 4 bytes",
    filled({"x-max-length-bytes": 10}, *_FOUR),
    ["acked 1,2,3,4", "2222 3333"],
)
topic.add(
    "bytes-reject",
    "x-max-length-bytes 10 with reject-publish, four of 4 bytes",
    filled({"x-max-length-bytes": 10, **_REJECT}, *_FOUR),
    ["acked 1,2 nacked 3,4", "0000 1111"],
)
topic.add(
    "bytes-one-too-large",
    "x-max-length-bytes 3 and a message of 4 bytes",
    filled({"x-max-length-bytes": 3}, "1", "2222"),
    ["acked 1,2", "nothing"],
)
topic.add(
    "bytes-one-too-large-reject",
    "x-max-length-bytes 3 with reject-publish and a message of 4 bytes",
    filled({"x-max-length-bytes": 3, **_REJECT}, "2222", "1"),
    ["acked 2 nacked 1", "1"],
)
topic.add(
    "both",
    "x-max-length and x-max-length-bytes: whichever is reached first",
    filled({"x-max-length": 3, "x-max-length-bytes": 4}, "0", "111", "22", "3", "4"),
    ["acked 1,2,3,4,5", "22 3 4"],
)
topic.add(
    "quorum-drop-head",
    "x-max-length 2 on a quorum queue",
    filled({"x-max-length": 2}, *"0123", quorum=True),
    ["acked 1,2,3,4", "2 3"],
)


topic.add(
    "quorum-reject-publish",
    "a message over x-max-length-bytes with reject-publish on a quorum queue",
    filled({"x-max-length-bytes": 3, **_REJECT}, "2222", quorum=True),
    ["nacked 1", "nothing"],
    rabbitmq=["acked 1", "2222"],
    difference="quorum-reject-exact",
)


@topic.case("bytes-count-bodies", "x-max-length-bytes counts bodies, not headers", "aa bb")
def _(t: Stage) -> str:
    channel = t.channel()
    queue = t.queue(channel, arguments={"x-max-length-bytes": 10})
    t.put(channel, "", queue, "aa", "bb", properties={"headers": {"k": "v" * 100}})
    return bodies(t.drain(channel, queue))


@topic.case("priority", "drop-head on a priority queue drops from the head: the highest", "lo1 lo3")
def _(t: Stage) -> str:
    channel = t.channel()
    queue = t.queue(channel, arguments={"x-max-length": 2, "x-max-priority": 10})
    for text, priority in (("lo1", 1), ("hi2", 5), ("lo3", 1), ("hi4", 5)):
        t.put(channel, "", queue, text, properties={"priority": priority})
    return bodies(t.drain(channel, queue))


@topic.case("unacked-not-counted", "unacked messages do not count to the limit", "ready 1")
def _(t: Stage) -> str:
    channel = t.channel()
    queue = t.queue(channel, arguments={"x-max-length": 1})
    t.put(channel, "", queue, "a")
    channel.get(queue, no_ack=False)
    t.put(channel, "", queue, "b")
    return f"ready {t.count(queue, channel, 1)}"


@topic.case("requeue-over-limit", "a requeue over the limit drops from the head", "c")
def _(t: Stage) -> str:
    channel = t.channel()
    queue = t.queue(channel, arguments={"x-max-length": 1})
    t.put(channel, "", queue, "a")
    channel.get(queue, no_ack=False)
    t.put(channel, "", queue, "b")
    t.put(channel, "", queue, "c")
    channel.send("basic.reject", delivery_tag=1, requeue=True)
    return bodies(t.drain(channel, queue))


def returned_to_consumer(t: Stage, queue: str) -> list[str]:
    """A consumer that gives back the first of its messages, with one more waiting."""
    channel, publisher = t.channel(), t.channel()
    channel.call("basic.qos", prefetch_count=1)
    t.consume(channel, queue)
    t.put(publisher, "", queue, *"ab")
    channel.sync()
    channel.send("basic.nack", delivery_tag=1, requeue=True)
    t.count(queue, publisher, 0)
    return briefs(channel.sync())


@topic.case(
    "requeue-over-limit-consumer",
    "a requeue over the limit drops from the head, though a consumer could take it",
    "t#2 b",
)
def _(t: Stage) -> list[str]:
    return returned_to_consumer(t, t.queue(t.channel(), arguments={"x-max-length": 1}))


@topic.case(
    "requeue-over-limit-zero",
    "a requeue to a queue of length 0 with a consumer drops it",
    "ready 0",
)
def _(t: Stage) -> list[str]:
    channel = t.channel()
    queue = t.queue(channel, arguments={"x-max-length": 0})
    t.consume(channel, queue)
    t.put(t.channel(), "", queue, "a")
    channel.sync()
    channel.send("basic.nack", delivery_tag=1, requeue=True)
    return [*briefs(channel.sync()), f"ready {t.count(queue, channel, 0)}"]


@topic.case(
    "requeue-after-publish",
    "what a consumer takes before a requeue does not count to the limit",
    ["t#1 a", "t#2 b", "t#3 a redelivered"],
)
def _(t: Stage) -> list[str]:
    channel = t.channel()
    queue = t.queue(channel, arguments={"x-max-length": 1})
    t.consume(channel, queue)
    t.put(channel, "", queue, "a")
    channel.publish("", queue, b"b")
    channel.send("basic.nack", delivery_tag=1, requeue=True)
    t.confirm(channel)
    t.count(queue, channel, 0)
    return briefs(channel.sync())


@topic.case("requeue-over-limit-reject", "a requeue over the limit with reject-publish", "a! b")
def _(t: Stage) -> str:
    channel = t.channel()
    queue = t.queue(channel, arguments={"x-max-length": 1, "x-overflow": "reject-publish"})
    t.put(channel, "", queue, "a")
    channel.get(queue, no_ack=False)
    t.put(channel, "", queue, "b")
    channel.send("basic.reject", delivery_tag=1, requeue=True)
    return bodies(t.drain(channel, queue))


@topic.case(
    "reject-room-again",
    "reject-publish accepts again when there is room",
    ["acked 1,3 nacked 2", "2"],
)
def _(t: Stage) -> list[str]:
    channel = t.channel()
    queue = t.queue(channel, arguments={"x-max-length": 1, "x-overflow": "reject-publish"})
    events = t.put(channel, "", queue, "0", "1")
    channel.get(queue)
    events += t.put(channel, "", queue, "2")
    return [confirms(events), bodies(t.drain(channel, queue))]


@topic.case(
    "reject-with-consumer",
    "reject-publish with a consumer that takes all",
    ["acked 1,2,3", "0 1 2"],
)
def _(t: Stage) -> list[str]:
    channel, consumer = t.channel(), t.channel()
    queue = t.queue(channel, arguments={"x-max-length": 1, "x-overflow": "reject-publish"})
    t.consume(consumer, queue)
    answers = confirms(t.put(channel, "", queue, *"012"))
    return [answers, bodies(consumer.sync())]


@topic.case(
    "zero-with-consumer", "x-max-length 0 with a waiting consumer delivers", ["acked 1", "0"]
)
def _(t: Stage) -> list[str]:
    channel, consumer = t.channel(), t.channel()
    queue = t.queue(channel, arguments={"x-max-length": 0})
    t.consume(consumer, queue)
    answers = confirms(t.put(channel, "", queue, "0"))
    return [answers, bodies(consumer.sync())]


@topic.case(
    "fanout-reject",
    "reject-publish nacks even where another queue took its copy",
    ["acked 1 nacked 2", "0", "0 1"],
)
def _(t: Stage) -> list[str]:
    channel = t.channel()
    exchange = t.exchange(channel)
    full = t.queue(channel, "full", {"x-max-length": 1, "x-overflow": "reject-publish"})
    open_queue = t.queue(channel, "open")
    for queue in (full, open_queue):
        t.bind(channel, queue, exchange)
    answers = confirms(t.put(channel, exchange, "", "0", "1"))
    return [answers, bodies(t.drain(channel, full)), bodies(t.drain(channel, open_queue))]


@topic.case(
    "fanout-drop-head",
    "drop-head in one queue of a fanout leaves the other alone",
    ["acked 1,2,3", "2", "0 1 2"],
)
def _(t: Stage) -> list[str]:
    channel = t.channel()
    exchange = t.exchange(channel)
    small = t.queue(channel, "small", {"x-max-length": 1})
    large = t.queue(channel, "large")
    for queue in (small, large):
        t.bind(channel, queue, exchange)
    answers = confirms(t.put(channel, exchange, "", *"012"))
    return [answers, bodies(t.drain(channel, small)), bodies(t.drain(channel, large))]


@topic.case("no-confirm", "reject-publish without confirm mode drops silently", "0")
def _(t: Stage) -> list[str]:
    channel = t.channel()
    queue = t.queue(channel, arguments={"x-max-length": 1, "x-overflow": "reject-publish"})
    for text in (b"0", b"1"):
        channel.publish("", queue, text)
    events = [str(event) for event in channel.sync()]
    return [bodies(t.drain(channel, queue)), *events]


@topic.case(
    "mandatory-rejected",
    "a mandatory publish that a full queue refuses: no return",
    ["nacked 1", "returned nothing"],
)
def _(t: Stage) -> list[str]:
    channel = t.channel()
    queue = t.queue(channel, arguments={"x-max-length": 0, "x-overflow": "reject-publish"})
    answers = confirms(t.put(channel, "", queue, mandatory=True))
    return [answers, f"returned {bodies(channel.take())}"]
