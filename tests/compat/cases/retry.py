"""What RabbitMQ 4.3 and Leveret do with messages that are not acked: delays, timeouts, parking.

RabbitMQ 3.10 knows none of it: it accepts the arguments of later versions and ignores them.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from typing import Final

from tests.compat.case import Lines, Script, Topic
from tests.compat.client import CAPABILITIES, Channel, Handshake, Method, is_method
from tests.compat.describe import bodies, briefs, show, table
from tests.compat.stage import Stage

topic = Topic("retry")

_DELAY_MS: Final = 200
_NEVER_MS: Final = 600_000  # longer than any case waits for a message
# All parked messages of a broker are in one queue. A play that looks for its own takes the others,
# and marks them as redelivered when it puts them back. So one play at a time parks a message.
_PARKING: Final = threading.Lock()


def given_back(channel: Channel, queue: str, method: str) -> float:
    """Takes a message, gives it back by a method, and returns the ms until it was back."""
    message = channel.get_soon(queue, no_ack=False)
    given_back_s = time.monotonic()
    channel.send(method, delivery_tag=message.tag, requeue=True)
    again = channel.get_soon(queue, no_ack=False)
    away_ms = (time.monotonic() - given_back_s) * 1000
    channel.send("basic.nack", delivery_tag=again.tag, requeue=False)
    return away_ms


def delayed(kind: str, method: str, delay_ms: int) -> Script:
    """A script that tells whether a message given back by a method is delayed."""

    def script(t: Stage) -> str:
        channel = t.channel()
        arguments = {"x-delayed-retry-type": kind, "x-delayed-retry-min": delay_ms}
        queue = t.quorum(channel, arguments=arguments)
        t.put(channel, "", queue)
        away_ms = given_back(channel, queue, method)
        return "delayed" if away_ms >= delay_ms * 0.95 else "at once"

    return script


for _kind, _method in (
    ("all", "basic.reject"),
    ("all", "basic.nack"),
    ("failed", "basic.reject"),
    ("returned", "basic.nack"),
):
    topic.add(
        f"delay-{_kind}-{_method.partition('.')[2]}",
        f"x-delayed-retry-type {_kind}, {_method} with requeue",
        delayed(_kind, _method, _DELAY_MS),
        "delayed",
        rabbitmq="at once",
        difference="delayed-retry",
        wait_s=0.3,
    )
for _kind, _method in (
    ("disabled", "basic.reject"),
    ("failed", "basic.nack"),
    ("returned", "basic.reject"),
):
    topic.add(
        f"no-delay-{_kind}-{_method.partition('.')[2]}",
        f"x-delayed-retry-type {_kind}, {_method} with requeue",
        delayed(_kind, _method, _NEVER_MS),
        "at once",
    )


@topic.case(
    "delay-grows",
    "the delay grows with each failure",
    "at least 1 2 3 times the minimum",
    rabbitmq="shorter",
    difference="delayed-retry",
    wait_s=1.2,
)
def _(t: Stage) -> str:
    channel = t.channel()
    arguments = {
        "x-delayed-retry-type": "all",
        "x-delayed-retry-min": _DELAY_MS,
        "x-delayed-retry-max": 3 * _DELAY_MS,
    }
    queue = t.quorum(channel, arguments=arguments)
    t.put(channel, "", queue)
    message = channel.get_soon(queue, no_ack=False)
    for step in (1, 2, 3):
        given_back_s = time.monotonic()
        channel.send("basic.reject", delivery_tag=message.tag, requeue=True)
        message = channel.get_soon(queue, no_ack=False)
        if (time.monotonic() - given_back_s) * 1000 < step * _DELAY_MS * 0.95:
            return "shorter"
    return "at least 1 2 3 times the minimum"


def timed_out(
    arguments: Mapping[str, object], consumer: Mapping[str, object], *, quorum: bool
) -> Script:
    """Lets a delivery time out; shows what the consumer is told and what becomes ready."""

    def script(t: Stage) -> list[str]:
        channel, other = t.channel(), t.channel()
        queue = t.quorum(channel, "q", arguments) if quorum else t.queue(channel, "q", arguments)
        t.put(other, "", queue, "m")
        t.consume(channel, queue, arguments=consumer)
        delivered = channel.next()
        told = [] if channel.idle(600) else channel.take()
        return [*briefs([delivered, *told]), bodies(t.drain(other, queue))]

    return script


_CANCELLED: Final = ["t#1 m", "basic.cancel consumer_tag=t nowait=true", "m!"]
_IGNORED: Final = ["t#1 m", "nothing"]
_TIMEOUT: Final = {"x-consumer-timeout": 150}
_LONG_TIMEOUT_S: Final = 3.0

for _name, _queue, _consumer, _quorum in (
    ("quorum", _TIMEOUT, {}, True),
    ("quorum-consumer", {}, _TIMEOUT, True),
    ("classic", _TIMEOUT, {}, False),
    ("classic-consumer", {}, _TIMEOUT, False),
):
    topic.add(
        f"timeout-{_name}",
        f"a delivery not acked in time goes back and its consumer is cancelled ({_name})",
        timed_out(_queue, _consumer, quorum=_quorum),
        _CANCELLED,
        rabbitmq=_IGNORED,
        difference="consumer-timeout",
        wait_s=0.6,
    )


@topic.case(
    "timeout-close",
    "a client without consumer_cancel_notify gets its channel closed",
    "channel.close 406 PRECONDITION_FAILED - delivery acknowledgement on channel 1 timed out. "
    "Timeout value used: 150 ms. This timeout value can be configured, see consumers doc guide "
    "to learn more (0.0)",
    rabbitmq="nothing",
    difference="consumer-timeout",
    wait_s=0.6,
)
def _(t: Stage) -> str:
    options = Handshake(capabilities={**CAPABILITIES, "consumer_cancel_notify": False})
    channel = t.connect(options).channel()
    queue = t.quorum(channel, arguments=_TIMEOUT)
    t.put(t.channel(), "", queue)
    t.consume(channel, queue)
    channel.next()
    return "nothing" if channel.idle(600) else show(channel.next())


@topic.case(
    "timeout-counts",
    "a timeout counts as a failed delivery",
    "{x-acquired-count=l:1, x-delivery-count=l:1}",
    rabbitmq="nothing",
    difference="consumer-timeout",
    wait_s=0.6,
)
def _(t: Stage) -> str:
    channel, other = t.channel(), t.channel()
    queue = t.quorum(channel, arguments=_TIMEOUT)
    t.put(other, "", queue)
    t.consume(channel, queue)
    channel.next()
    channel.idle(600)
    message = other.get(queue)
    return (
        "nothing" if message is None or message.content is None else table(message.content.headers)
    )


@topic.case(
    "timeout-not-reached",
    "a delivery acked in time is not touched",
    ["1 delivered", "nothing"],
    wait_s=3.5,
    premise_s=_LONG_TIMEOUT_S,
)
def _(t: Stage) -> list[str]:
    channel, other = t.channel(), t.channel()
    queue = t.queue(channel, arguments={"x-consumer-timeout": int(_LONG_TIMEOUT_S * 1000)})
    t.put(other, "", queue)
    t.consume(channel, queue)
    channel.next()
    channel.send("basic.ack", delivery_tag=1)
    return ["1 delivered", "nothing" if channel.idle(3_400) else show(channel.next())]


def park_alone(script: Script) -> Script:
    """A script that no other one of these runs beside."""

    def alone(t: Stage) -> Lines:
        with _PARKING:
            return script(t)

    return alone


def find_parked(t: Stage, message_id: str) -> str:
    """Looks for a message in leveret.parked and takes it out; others are put back."""
    channel = t.channel()
    answer = channel.call("queue.declare", queue="leveret.parked", passive=True)
    if not is_method(answer, "queue.declare-ok"):
        return show(answer)
    others: list[Method] = []
    while True:
        message = channel.get("leveret.parked", no_ack=False)
        if message is None:
            return "not parked"
        assert message.content is not None
        if message.content.properties.get("message_id") == message_id:
            channel.send("basic.ack", delivery_tag=message.tag)
            channel.call("basic.recover", requeue=True)
            return f"parked {bodies([message])}"
        others.append(message)


@topic.case(
    "parked",
    "past the delivery limit and without a dead-letter exchange: leveret.parked",
    "parked m",
    rabbitmq="channel.close 404 NOT_FOUND - no queue 'leveret.parked' in vhost '/' (50.10)",
    difference="parked",
)
@park_alone
def _(t: Stage) -> str:
    channel = t.channel()
    queue = t.quorum(channel, arguments={"x-delivery-limit": 1})
    t.put(channel, "", queue, "m", properties={"message_id": t.name("id")})
    for _ in range(2):
        message = channel.get_soon(queue, no_ack=False)
        channel.send("basic.reject", delivery_tag=message.tag, requeue=True)
    t.count(queue, channel, 0)
    return find_parked(t, t.name("id"))


@topic.case(
    "parked-cycle",
    "past the delivery limit, a retry queue leads back: leveret.parked",
    "parked m",
    rabbitmq="channel.close 404 NOT_FOUND - no queue 'leveret.parked' in vhost '/' (50.10)",
    difference="parked-cycle",
)
@park_alone
def _(t: Stage) -> str:
    channel = t.channel()
    work, wait = t.name("work"), t.name("wait")
    back = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": work, "x-message-ttl": 1}
    t.queue(channel, "wait", back)
    retry = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": wait}
    t.quorum(channel, "work", arguments={**retry, "x-delivery-limit": 1})
    t.put(channel, "", work, "m", properties={"message_id": t.name("id")})
    for _ in range(2):
        message = channel.get_soon(work, no_ack=False)
        channel.send("basic.reject", delivery_tag=message.tag, requeue=True)
    t.count(work, channel, 0)
    t.count(wait, channel, 0)
    return find_parked(t, t.name("id"))


_NO_LIMIT: Final = (
    "channel.close 406 PRECONDITION_FAILED - invalid arg 'x-delivery-limit' for queue 'q' in "
    "vhost '/' of queue type rabbit_classic_queue (50.10)"
)


@topic.case(
    "classic-limit",
    "x-delivery-limit 1 on a classic queue: the second reject dead-letters",
    ["0", "0!", "q delivery_limit"],
    rabbitmq=_NO_LIMIT,
    difference="delivery-limit-classic",
)
def _(t: Stage) -> list[str]:
    channel = t.channel()
    dead = t.queue(channel, "dlq")
    arguments = {
        "x-delivery-limit": 1,
        "x-dead-letter-exchange": "",
        "x-dead-letter-routing-key": dead,
    }
    answer = channel.call("queue.declare", queue=t.name(), arguments=arguments)
    if not is_method(answer, "queue.declare-ok"):
        return [show(answer)]
    t.put(channel, "", t.name(), "0")
    seen = []
    for _ in range(2):
        message = channel.get_soon(t.name(), no_ack=False)
        seen.append(bodies([message]))
        channel.send("basic.reject", delivery_tag=message.tag, requeue=True)
    headers = channel.get_soon(dead).content
    assert headers is not None
    first = headers.headers
    return [*seen, f"{first['x-first-death-queue'].value} {first['x-first-death-reason'].value}"]


@topic.case(
    "classic-no-limit", "a classic queue has no delivery limit by default", "25 times", wait_s=0.2
)
def _(t: Stage) -> str:
    channel = t.channel()
    queue = t.queue(channel)
    t.put(channel, "", queue)
    for _ in range(25):
        message = channel.get_soon(queue, no_ack=False)
        channel.send("basic.reject", delivery_tag=message.tag, requeue=True)
    return "25 times" if t.count(queue, channel, 1) == 1 else "gone"
