"""Exchange types and delays that RabbitMQ has as plugins or not at all, and Leveret built in."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Final

from tests.compat.case import Lines, Script, Topic
from tests.compat.client import Channel, is_method
from tests.compat.describe import bodies, show
from tests.compat.stage import Stage

topic = Topic("extensions")

_DELAY_MS: Final = 300


def add(
    kind: str,
    name: str,
    title: str,
    expected: Lines,
    script: Script,
    arguments: Mapping[str, object] | None = None,
    wait_s: float = 0.0,
) -> None:
    """Adds a case on the exchange `x` of a kind; RabbitMQ without plugins refuses its declare."""

    def declared(t: Stage) -> Lines:
        answer = t.channel().call(
            "exchange.declare", exchange=t.name("x"), type=kind, arguments=arguments or {}
        )
        return script(t) if is_method(answer, "exchange.declare-ok") else show(answer)

    topic.add(
        f"{kind}-{name}",
        title,
        declared,
        expected,
        rabbitmq=f"connection.close 503 COMMAND_INVALID - unknown exchange type '{kind}' (40.10)",
        difference="built-in-exchange-types",
        wait_s=wait_s,
    )


def _accepted(_: Stage) -> str:
    return "accepted"


def _bound(key: str) -> Script:
    def script(t: Stage) -> str:
        channel = t.channel()
        return show(
            channel.call(
                "queue.bind", queue=t.queue(channel), exchange=t.name("x"), routing_key=key
            )
        )

    return script


def _pair(t: Stage, channel: Channel) -> tuple[str, str]:
    """Two queues bound with weight 1."""
    first, second = t.queue(channel, "q1"), t.queue(channel, "q2")
    for queue in (first, second):
        t.bind(channel, queue, t.name("x"), "1")
    return first, second


def _same_key(t: Stage) -> str:
    channel = t.channel()
    queues = _pair(t, channel)
    for number in range(30):
        t.put(channel, t.name("x"), f"key{number}", f"key{number}", f"key{number}")
    seen = [bodies(t.drain(channel, queue)).split() for queue in queues]
    whole = all(texts.count(text) == 2 for texts in seen for text in texts)
    return f"{sum(map(len, seen))} messages, keys whole {whole}, both used {all(seen)}"


def _by_header(t: Stage) -> str:
    channel = t.channel()
    queues = _pair(t, channel)
    for number in range(30):
        properties = {"headers": {"tenant": f"tenant{number % 3}"}}
        t.put(channel, t.name("x"), f"key{number}", f"{number % 3}", properties=properties)
    seen = [set(bodies(t.drain(channel, queue)).split()) - {"nothing"} for queue in queues]
    return f"tenants whole {not seen[0] & seen[1]}"


def _spread(t: Stage) -> str:
    channel = t.channel()
    queues = _pair(t, channel)
    for _ in range(40):
        t.put(channel, t.name("x"), "k")
    seen = [len(t.drain(channel, queue)) for queue in queues]
    return f"{sum(seen)} messages, both used {all(seen)}"


_HASH: Final = "x-consistent-hash"
_INVALID: Final = "channel.close 406 PRECONDITION_FAILED - The binding key must "

add(_HASH, "declare", "declare of a consistent-hash exchange", "accepted", _accepted)
add(
    _HASH,
    "weight-text",
    "a binding key that is no number",
    f'{_INVALID}be an integer: <<"abc">> (50.20)',
    _bound("abc"),
)
add(_HASH, "weight-0", "weight 0", f"{_INVALID}be greater than 0 (50.20)", _bound("0"))
add(_HASH, "weight-10001", "weight 10001", f"{_INVALID}not exceed 10000 (50.20)", _bound("10001"))
add(_HASH, "weight-10000", "weight 10000", "queue.bind-ok", _bound("10000"))
add(
    _HASH,
    "same-key",
    "all messages of a key go to one queue",
    "60 messages, keys whole True, both used True",
    _same_key,
)
add(
    _HASH,
    "by-header",
    "hash-header routes by a header",
    "tenants whole True",
    _by_header,
    {"hash-header": "tenant"},
)
add(
    _HASH,
    "two-sources",
    "hash-header and hash-property together",
    "channel.close 406 PRECONDITION_FAILED - hash-header and hash-property are mutually "
    "exclusive (40.10)",
    _accepted,
    {"hash-header": "a", "hash-property": "message_id"},
)
add(
    _HASH,
    "property-unknown",
    "hash-property of a property that cannot be hashed",
    "channel.close 406 PRECONDITION_FAILED - Unsupported property: app_id (40.10)",
    _accepted,
    {"hash-property": "app_id"},
)

add("x-random", "declare", "declare of a random exchange", "accepted", _accepted)
add("x-random", "spread", "each message to one queue", "40 messages, both used True", _spread)


_LATE: Final = "x-delayed-message"


def _at_once(
    channel: Channel,
    queue: str,
    exchange: str,
    key: str,
    delays: Sequence[tuple[str, int | None]],
) -> str:
    """Publishes texts with delays and gets them in the same write; returns the texts got."""
    with channel.connection.one_write():
        for text, delay_ms in delays:
            given = {} if delay_ms is None else {"headers": {"x-delay": delay_ms}}
            channel.publish(exchange, key, text.encode(), given)
        for _ in delays:
            channel.send("basic.get", queue=queue, no_ack=True)
    return bodies([channel.reply("basic.get") for _ in delays])


def _delays(t: Stage) -> str:
    channel = t.channel()
    queue = t.queue(channel)
    t.bind(channel, queue, t.name("x"), "k")
    delays = (("slow", 2 * _DELAY_MS), ("fast", _DELAY_MS), ("now", 0), ("plain", None))
    at_once = _at_once(channel, queue, t.name("x"), "k", delays)
    return f"{at_once}, then {bodies([channel.get_soon(queue), channel.get_soon(queue)])}"


def _delay_in_time(t: Stage) -> str:
    channel = t.channel()
    queue = t.queue(channel)
    t.bind(channel, queue, t.name("x"), "k")
    started_s = time.monotonic()
    t.put(channel, t.name("x"), "k", properties={"headers": {"x-delay": _DELAY_MS}})
    channel.get_soon(queue)
    return str(_DELAY_MS <= (time.monotonic() - started_s) * 1000)


_DIRECT: Final = {"x-delayed-type": "direct"}
_TYPE_INVALID: Final = "channel.close 406 PRECONDITION_FAILED - Invalid argument, "

add(
    _LATE,
    "no-type",
    "a delayed exchange without x-delayed-type",
    f"{_TYPE_INVALID}'x-delayed-type' must be an existing exchange type (40.10)",
    _accepted,
)
add(
    _LATE,
    "type-unknown",
    "a delayed exchange of an unknown type",
    "channel.close 406 PRECONDITION_FAILED - unknown exchange type 'nope' (40.10)",
    _accepted,
    {"x-delayed-type": "nope"},
)
add(
    _LATE,
    "type-itself",
    "a delayed exchange of its own type",
    f"{_TYPE_INVALID}'x-delayed-message' can't be used for 'x-delayed-type' (40.10)",
    _accepted,
    {"x-delayed-type": _LATE},
)
add(
    _LATE,
    "order",
    "messages come in the order of their delays",
    "now plain, then fast slow",
    _delays,
    _DIRECT,
    wait_s=0.6,
)
add(
    _LATE,
    "in-time",
    "a message does not come before its delay has passed",
    "True",
    _delay_in_time,
    _DIRECT,
    wait_s=0.3,
)


@topic.case(
    "delayed-queue",
    "a queue declared with x-delayed honours x-delay",
    "now, then late",
    rabbitmq="late now",
    difference="delayed-queue",
    wait_s=0.3,
)
def _(t: Stage) -> str:
    channel = t.channel()
    queue = t.queue(channel, arguments={"x-delayed": True})
    at_once = _at_once(channel, queue, "", queue, (("late", _DELAY_MS), ("now", None)))
    if at_once != "now":
        return at_once
    return f"now, then {bodies([channel.get_soon(queue)])}"


@topic.case(
    "deduplicating-queue",
    "a queue declared with x-deduplication takes a key once",
    "first other",
    rabbitmq="first second other",
    difference="deduplication",
)
def _(t: Stage) -> str:
    channel = t.channel()
    queue = t.queue(channel, arguments={"x-deduplication": {"header": "id"}})
    for body, key in (("first", "a"), ("second", "a"), ("other", "b")):
        t.put(channel, "", queue, body, properties={"headers": {"id": key}})
    return bodies(t.drain(channel, queue))
