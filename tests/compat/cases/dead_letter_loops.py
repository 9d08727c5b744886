"""Messages that die more than once: counts, order, cycles, headers a publisher sent."""

from __future__ import annotations

import time
from typing import cast

from tests.compat.case import Topic
from tests.compat.client import Channel, Method
from tests.compat.describe import death_counts, deaths
from tests.compat.stage import Stage
from tests.compat.wire import Typed

topic = Topic("dead-letter-loops")


def retry_loop(t: Stage, channel: Channel, ttl_ms: int = 1) -> str:
    """Queue `work` dead-letters into `wait`, which sends back after its TTL."""
    work, wait = t.name("work"), t.name("wait")
    t.queue(channel, "work", _to(wait))
    t.queue(channel, "wait", {**_to(work), "x-message-ttl": ttl_ms})
    return work


def _to(queue: str) -> dict[str, object]:
    return {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": queue}


def _reject(channel: Channel, queue: str) -> Method:
    """Takes the next message of a queue and rejects it."""
    message = channel.get_soon(queue, no_ack=False)
    channel.send("basic.reject", delivery_tag=message.tag)
    return message


@topic.case(
    "two-deaths",
    "rejected in one queue, expired in the next: newest first",
    [
        (
            "{count=l:1, exchange=S:, queue=S:wait, reason=S:expired, routing-keys=[S:wait], "
            "time=T:*}"
        ),
        (
            "{count=l:1, exchange=S:, queue=S:work, reason=S:rejected, routing-keys=[S:work], "
            "time=T:*}"
        ),
    ],
)
def _(t: Stage) -> list[str]:
    channel = t.channel()
    work = retry_loop(t, channel)
    t.put(channel, "", work)
    _reject(channel, work)
    return deaths(channel.get_soon(work))


@topic.case(
    "four-deaths",
    "a second round raises the counts and keeps one entry each",
    [
        (
            "{count=l:2, exchange=S:, queue=S:wait, reason=S:expired, routing-keys=[S:wait], "
            "time=T:*}"
        ),
        (
            "{count=l:2, exchange=S:, queue=S:work, reason=S:rejected, routing-keys=[S:work], "
            "time=T:*}"
        ),
    ],
)
def _(t: Stage) -> list[str]:
    channel = t.channel()
    work = retry_loop(t, channel)
    t.put(channel, "", work)
    _reject(channel, work)
    _reject(channel, work)
    return deaths(channel.get_soon(work))


@topic.case(
    "odd-deaths", "the entry of the latest death comes first", "work rejected 2, wait rejected 1"
)
def _(t: Stage) -> str:
    channel = t.channel()
    work = retry_loop(t, channel, 600_000)
    t.put(channel, "", work)
    _reject(channel, work)
    _reject(channel, t.name("wait"))
    _reject(channel, work)
    return death_counts(channel.get_soon(t.name("wait")))


@topic.case(
    "hundred-rounds",
    "a hundred rounds of reject and wait",
    "wait expired 100, work rejected 100",
    wait_s=0.5,
)
def _(t: Stage) -> str:
    channel = t.channel()
    work = retry_loop(t, channel)
    t.put(channel, "", work)
    for _ in range(100):
        _reject(channel, work)
    return death_counts(channel.get_soon(work))


@topic.case("time-stays", "the time of an entry is that of its first death", "same", wait_s=1.2)
def _(t: Stage) -> str:
    channel = t.channel()
    work = retry_loop(t, channel)
    t.put(channel, "", work)
    _reject(channel, work)
    first = _times(channel.get_soon(work, no_ack=False))
    time.sleep(1.1)
    channel.send("basic.nack", delivery_tag=2)
    second = _times(channel.get_soon(work))
    return "same" if first == second else "changed"


def _times(message: Method) -> list[object]:
    assert message.content is not None
    entries = cast("list[Typed]", message.content.headers["x-death"].value)
    return [cast("dict[str, Typed]", entry.value)["time"].value for entry in entries]


@topic.case("expiry-cycle", "a cycle of expiries only is cut", ["0 left", "0 left"], wait_s=0.2)
def _(t: Stage) -> list[str]:
    channel = t.channel()
    first, second = t.name("q1"), t.name("q2")
    t.queue(channel, "q1", {**_to(second), "x-message-ttl": 20})
    t.queue(channel, "q2", {**_to(first), "x-message-ttl": 20})
    t.put(channel, "", first)
    time.sleep(0.2)
    return [f"{t.count(queue, channel, 0)} left" for queue in (first, second)]


@topic.case(
    "expiry-to-self",
    "a queue that dead-letters expiries to itself drops them",
    "0 left",
    wait_s=0.1,
)
def _(t: Stage) -> str:
    channel = t.channel()
    queue = t.name()
    t.queue(channel, "q", {**_to(queue), "x-message-ttl": 20})
    t.put(channel, "", queue)
    time.sleep(0.1)
    return f"{t.count(queue, channel, 0)} left"


@topic.case(
    "reject-to-self", "a queue that dead-letters rejects to itself gets them again", "q rejected 3"
)
def _(t: Stage) -> str:
    channel = t.channel()
    queue = t.name()
    t.queue(channel, "q", _to(queue))
    t.put(channel, "", queue)
    for _ in range(3):
        _reject(channel, queue)
    return death_counts(channel.get_soon(queue))


@topic.case(
    "maxlen-to-self",
    "a queue that dead-letters its overflow to itself drops it",
    "1 left",
    wait_s=0.1,
)
def _(t: Stage) -> str:
    channel = t.channel()
    queue = t.name()
    t.queue(channel, "q", {**_to(queue), "x-max-length": 1})
    t.put(channel, "", queue, "1", "2")
    time.sleep(0.05)
    return f"{t.count(queue, channel, 1)} left"


@topic.case(
    "reject-breaks-cycle",
    "a reject on the way lets an expiry come back",
    "q1 expired 2, q2 rejected 1",
    wait_s=0.1,
)
def _(t: Stage) -> str:
    channel = t.channel()
    first, second = t.name("q1"), t.name("q2")
    t.queue(channel, "q1", {**_to(second), "x-message-ttl": 50})
    t.queue(channel, "q2", _to(first))
    t.put(channel, "", first)
    _reject(channel, second)
    return death_counts(channel.get_soon(second))


def _publisher_death(t: Stage) -> list[object]:
    entry = {
        "count": ("l", 7),
        "reason": "rejected",
        "queue": t.name("src"),
        "time": ("T", 1_000_000_000),
        "exchange": "",
        "routing-keys": [t.name("src")],
    }
    return [entry]


@topic.case(
    "from-publisher",
    "an x-death header that a publisher sent is kept and continued",
    "src rejected 8",
)
def _(t: Stage) -> str:
    channel = t.channel()
    dead = t.queue(channel, "dlq")
    queue = t.queue(channel, "src", _to(dead))
    t.put(channel, "", queue, properties={"headers": {"x-death": _publisher_death(t)}})
    _reject(channel, queue)
    return death_counts(channel.get_soon(dead))


@topic.case(
    "from-publisher-other",
    "an x-death of another queue comes after the new entry",
    "q rejected 1, src rejected 7",
)
def _(t: Stage) -> str:
    channel = t.channel()
    dead = t.queue(channel, "dlq")
    queue = t.queue(channel, "q", _to(dead))
    t.put(channel, "", queue, properties={"headers": {"x-death": _publisher_death(t)}})
    _reject(channel, queue)
    return death_counts(channel.get_soon(dead))


@topic.case(
    "from-publisher-delivered",
    "such a header is delivered as it was sent",
    ("{count=l:7, exchange=S:, queue=S:src, reason=S:rejected, routing-keys=[S:src], time=T:*}"),
)
def _(t: Stage) -> list[str]:
    channel = t.channel()
    queue = t.queue(channel, "src")
    t.put(channel, "", queue, properties={"headers": {"x-death": _publisher_death(t)}})
    return deaths(channel.get_soon(queue))


@topic.case(
    "republished", "a dead message republished by a client goes on counting", "src rejected 3"
)
def _(t: Stage) -> str:
    channel = t.channel()
    dead = t.queue(channel, "dlq")
    queue = t.queue(channel, "src", _to(dead))
    t.put(channel, "", queue)
    for _ in range(3):
        _reject(channel, queue)
        message = channel.get_soon(dead)
        assert message.content is not None
        t.put(channel, "", queue, properties=message.content.properties)
    return death_counts(channel.get_soon(queue))


@topic.case(
    "chain",
    "four queues in a row leave four entries, newest first",
    "q3 rejected 1, q2 rejected 1, q1 rejected 1, q0 rejected 1",
    rabbitmq="q3 rejected 1, q1 rejected 1, q0 rejected 1, q2 rejected 1",
    difference="x-death-order",
)
def _(t: Stage) -> str:
    channel = t.channel()
    names = [t.name(f"q{number}") for number in range(5)]
    t.queue(channel, "q4")
    for number in range(4):
        t.queue(channel, f"q{number}", _to(names[number + 1]))
    t.put(channel, "", names[0])
    for name in names[:4]:
        _reject(channel, name)
    return death_counts(channel.get_soon(names[4]))


@topic.case(
    "two-reasons",
    "two reasons in one queue are two entries",
    "src expired 1, dlq rejected 1, src rejected 1",
    rabbitmq="src expired 1, src rejected 1, dlq rejected 1",
    difference="x-death-order",
    wait_s=0.4,
)
def _(t: Stage) -> str:
    channel = t.channel()
    dead = t.name("dlq")
    t.queue(channel, "dlq", _to(t.name("src")))
    queue = t.queue(channel, "src", {**_to(dead), "x-message-ttl": 300})
    message = t.put_and_get(channel, queue)
    channel.send("basic.reject", delivery_tag=message.tag)
    _reject(channel, dead)
    return death_counts(channel.get_soon(dead))
