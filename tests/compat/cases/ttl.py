"""Message TTL by queue and by message, and queues that expire."""

from __future__ import annotations

import time
from typing import Final

from tests.compat.case import Topic
from tests.compat.client import ANSWER_S, is_method
from tests.compat.describe import bodies, brief, briefs, confirms, properties
from tests.compat.stage import Stage

topic = Topic("ttl")

_EXPIRES_MS: Final = 3_000
_EXPIRES_S: Final = _EXPIRES_MS / 1000


@topic.case(
    "queue-zero", "x-message-ttl 0 without a consumer: confirmed and gone", ["acked 1", "nothing"]
)
def _(t: Stage) -> list[str]:
    channel = t.channel()
    queue = t.queue(channel, arguments={"x-message-ttl": 0})
    return [confirms(t.put(channel, "", queue)), bodies(t.drain(channel, queue))]


@topic.case("queue-zero-consumer", "x-message-ttl 0 with a waiting consumer: delivered", "x")
def _(t: Stage) -> str:
    channel, consumer = t.channel(), t.channel()
    queue = t.queue(channel, arguments={"x-message-ttl": 0})
    t.consume(consumer, queue)
    t.put(channel, "", queue)
    return bodies(consumer.sync())


@topic.case(
    "queue-zero-full-consumer", "x-message-ttl 0 with a consumer at its prefetch", ["a", "ready 0"]
)
def _(t: Stage) -> list[str]:
    channel, consumer = t.channel(), t.channel()
    queue = t.queue(channel, arguments={"x-message-ttl": 0})
    consumer.call("basic.qos", prefetch_count=1)
    t.consume(consumer, queue)
    t.put(channel, "", queue, "a", "b")
    return [bodies(consumer.sync()), f"ready {t.count(queue, channel, 0)}"]


@topic.case("zero", "expiration 0 without a consumer", "nothing")
def _(t: Stage) -> str:
    channel = t.channel()
    queue = t.queue(channel)
    t.put(channel, "", queue, properties={"expiration": "0"})
    return bodies(t.drain(channel, queue))


@topic.case("zero-consumer", "expiration 0 with a waiting consumer", "x")
def _(t: Stage) -> str:
    channel, consumer = t.channel(), t.channel()
    queue = t.queue(channel)
    t.consume(consumer, queue)
    t.put(channel, "", queue, properties={"expiration": "0"})
    return bodies(consumer.sync())


@topic.case("zero-mandatory", "expiration 0, mandatory, no consumer: not returned", "basic.ack 1")
def _(t: Stage) -> list[str]:
    channel = t.channel()
    queue = t.queue(channel)
    answers = t.put(channel, "", queue, properties={"expiration": "0"}, mandatory=True)
    return briefs([*channel.take(), *answers])


@topic.case(
    "expires",
    "a queue's TTL removes what waited too long",
    ["a and 1 before", "0 after"],
    wait_s=0.4,
)
def _(t: Stage) -> list[str]:
    channel = t.channel()
    queue = t.queue(channel, arguments={"x-message-ttl": 300})
    with channel.connection.one_write():
        for text in (b"a", b"b"):
            channel.publish("", queue, text)
        channel.send("basic.get", queue=queue, no_ack=True)
    first = t.require(channel.reply("basic.get"))
    left = first.fields["message_count"]
    return [f"{bodies([first])} and {left} before", f"{t.count(queue, channel, 0)} after"]


@topic.case(
    "behind-head",
    "an expired message behind a head without expiry stays counted",
    ["2 before", "head", "0 left", "nothing"],
    wait_s=0.4,
)
def _(t: Stage) -> list[str]:
    channel = t.channel()
    queue = t.queue(channel)
    t.put(channel, "", queue, "head")
    t.put(channel, "", queue, "tail", properties={"expiration": "50"})
    time.sleep(0.15)
    before = t.count(queue, channel, 2)
    head = channel.get_soon(queue)
    left = head.fields["message_count"]
    return [f"{before} before", bodies([head]), f"{left} left", bodies(t.drain(channel, queue))]


@topic.case("head", "an expired head before one without expiry is removed", "1 tail", wait_s=0.4)
def _(t: Stage) -> str:
    channel = t.channel()
    queue = t.queue(channel)
    t.put(channel, "", queue, "head", properties={"expiration": "50"})
    t.put(channel, "", queue, "tail")
    time.sleep(0.15)
    return f"{t.count(queue, channel, 1)} {bodies(t.drain(channel, queue))}"


@topic.case(
    "lower-counts",
    "of queue TTL and expiration the lower counts",
    ["nothing", "nothing"],
    wait_s=0.4,
)
def _(t: Stage) -> list[str]:
    channel = t.channel()
    slow = t.queue(channel, "slow", {"x-message-ttl": 60000})
    fast = t.queue(channel, "fast", {"x-message-ttl": 50})
    t.put(channel, "", slow, properties={"expiration": "50"})
    t.put(channel, "", fast, properties={"expiration": "60000"})
    time.sleep(0.15)
    return [bodies(t.drain(channel, queue)) for queue in (slow, fast)]


@topic.case(
    "unacked",
    "an unacked message does not expire; requeued it is gone",
    ["get#1 x", "nothing"],
    wait_s=0.4,
)
def _(t: Stage) -> list[str]:
    channel = t.channel()
    queue = t.queue(channel, arguments={"x-message-ttl": 250})
    message = t.put_and_get(channel, queue)
    time.sleep(0.35)
    channel.send("basic.reject", delivery_tag=1, requeue=True)
    return [brief(message), bodies(t.drain(channel, queue))]


@topic.case(
    "unacked-ack", "an unacked message past its TTL may still be acked", "accepted", wait_s=0.4
)
def _(t: Stage) -> list[str]:
    channel = t.channel()
    queue = t.queue(channel, arguments={"x-message-ttl": 250})
    t.put_and_get(channel, queue)
    time.sleep(0.35)
    channel.send("basic.ack", delivery_tag=1)
    return briefs(channel.sync()) or ["accepted"]


@topic.case("header-kept", "the expiration property is delivered", "expiration=9000")
def _(t: Stage) -> str:
    channel = t.channel()
    queue = t.queue(channel)
    t.put(channel, "", queue, properties={"expiration": "9000"})
    content = channel.get_soon(queue).content
    assert content is not None
    return properties(content)


@topic.case(
    "priority-levels",
    "an expired message of lower priority waits behind the head",
    "2 high",
    wait_s=0.4,
)
def _(t: Stage) -> str:
    channel = t.channel()
    queue = t.queue(channel, arguments={"x-max-priority": 5})
    t.put(channel, "", queue, "high", properties={"priority": 5})
    t.put(channel, "", queue, "low", properties={"priority": 1, "expiration": "50"})
    time.sleep(0.15)
    return f"{t.count(queue, channel, 2)} {bodies(t.drain(channel, queue))}"


@topic.case("quorum", "a message's expiration on a quorum queue", "kept", wait_s=0.4)
def _(t: Stage) -> str:
    channel = t.channel()
    queue = t.quorum(channel)
    t.put(channel, "", queue, "gone", properties={"expiration": "50"})
    t.put(channel, "", queue, "kept")
    time.sleep(0.15)
    return bodies([channel.get_soon(queue)])


@topic.case(
    "queue-expires",
    "x-expires: gone after idling, kept by gets",
    ["after gets True", "after idling False"],
    wait_s=8.0,
    premise_s=_EXPIRES_S,
)
def _(t: Stage) -> list[str]:
    channel = t.channel()
    queue = t.queue(channel, arguments={"x-expires": _EXPIRES_MS})
    for _ in range(6):
        time.sleep(0.7)
        channel.get(queue)
    kept = t.exists(queue)
    return [f"after gets {kept}", f"after idling {not t.expired(queue, _EXPIRES_S + 0.3)}"]


@topic.case(
    "queue-expires-declared",
    "x-expires: a redeclare renews",
    "True",
    wait_s=5.0,
    premise_s=_EXPIRES_S,
)
def _(t: Stage) -> str:
    channel = t.channel()
    arguments = {"x-expires": _EXPIRES_MS}
    queue = t.queue(channel, arguments=arguments)
    for _ in range(6):
        time.sleep(0.7)
        channel.call("queue.declare", queue=queue, arguments=arguments)
    return f"{t.exists(queue)}"


@topic.case("queue-expires-published", "x-expires: publishing does not renew", "False", wait_s=1.0)
def _(t: Stage) -> str:
    channel = t.channel()
    queue = t.queue(channel, arguments={"x-expires": 600})
    deadline_s = time.monotonic() + ANSWER_S
    while time.monotonic() < deadline_s:
        t.put(channel, "", queue, mandatory=True)
        if any(is_method(event, "basic.return") for event in channel.take()):
            return "False"
        time.sleep(0.1)
    return "True"


@topic.case(
    "queue-expires-consumer", "x-expires: kept while a consumer is there", "True", wait_s=1.0
)
def _(t: Stage) -> list[str]:
    channel = t.channel()
    queue = t.consumed_queue(channel, 400)
    time.sleep(0.7)
    kept = t.exists(queue)
    return [*briefs(channel.sync()), f"{kept}"]


@topic.case(
    "queue-expires-cancelled", "x-expires: counts from the last cancel", "False", wait_s=0.8
)
def _(t: Stage) -> list[str]:
    channel = t.channel()
    queue = t.consumed_queue(channel, 300)
    time.sleep(0.4)
    channel.call("basic.cancel", consumer_tag="t")
    return [f"{not t.expired(queue, 0.6)}"]
