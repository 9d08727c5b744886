"""Dead-lettering: the four reasons, the headers it writes, keys and properties it changes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from tests.compat.case import Topic
from tests.compat.client import Channel, Method
from tests.compat.describe import bodies, confirms, death_counts, deaths, header_names, table, value
from tests.compat.stage import Stage
from tests.compat.wire import Typed

topic = Topic("dead-letter")


def source(
    t: Stage, channel: Channel, arguments: Mapping[str, object] | None = None, **flags: object
) -> tuple[str, str]:
    """A queue `src` that dead-letters through the fanout `dlx` into the queue `dlq`."""
    exchange = t.exchange(channel, suffix="dlx")
    dead = t.queue(channel, "dlq")
    t.bind(channel, dead, exchange)
    given = {"x-dead-letter-exchange": exchange, **(arguments or {})}
    return t.queue(channel, "src", given, **flags), dead


def rejected(t: Stage, channel: Channel, queue: str, **publish: object) -> None:
    """Publishes to a queue, takes the message and rejects it without requeue."""
    t.put(channel, "", queue, properties=cast("Mapping[str, object]", publish))
    message = channel.get_soon(queue, no_ack=False)
    channel.send("basic.reject", delivery_tag=message.tag)


def headers_of(message: Method, *names: str) -> list[str]:
    """Some headers of a message, `name none` where it lacks one."""
    assert message.content is not None
    headers = message.content.headers
    return [f"{name} {value(headers[name]) if name in headers else 'none'}" for name in names]


@topic.case(
    "rejected",
    "reject without requeue",
    [
        "dlx src",
        (
            "{count=l:1, exchange=S:, queue=S:src, reason=S:rejected, routing-keys=[S:src], "
            "time=T:*}"
        ),
    ],
)
def _(t: Stage) -> list[str]:
    channel = t.channel()
    queue, dead = source(t, channel)
    rejected(t, channel, queue)
    message = channel.get_soon(dead)
    return [f"{message.fields['exchange']} {message.fields['routing_key']}", *deaths(message)]


@topic.case("nacked", "nack without requeue", "src rejected 1")
def _(t: Stage) -> str:
    channel = t.channel()
    queue, dead = source(t, channel)
    t.put(channel, "", queue)
    channel.get_soon(queue, no_ack=False)
    channel.send("basic.nack", delivery_tag=1)
    return death_counts(channel.get_soon(dead))


@topic.case("nacked-multiple", "nack of three with multiple, without requeue: order", "a b c")
def _(t: Stage) -> str:
    channel = t.channel()
    queue, dead = source(t, channel)
    t.put(channel, "", queue, *"abc")
    for _ in "abc":
        channel.get_soon(queue, no_ack=False)
    channel.send("basic.nack", delivery_tag=3, multiple=True)
    t.count(dead, channel, 3)
    return bodies(t.drain(channel, dead))


@topic.case(
    "expired",
    "expiry by the queue's TTL",
    ("{count=l:1, exchange=S:, queue=S:src, reason=S:expired, routing-keys=[S:src], time=T:*}"),
    wait_s=0.1,
)
def _(t: Stage) -> list[str]:
    channel = t.channel()
    queue, dead = source(t, channel, {"x-message-ttl": 50})
    t.put(channel, "", queue)
    return deaths(channel.get_soon(dead))


@topic.case(
    "expired-message",
    "expiry by the message's own expiration, which is removed",
    [
        (
            "{count=l:1, exchange=S:, original-expiration=S:50, queue=S:src, reason=S:expired, "
            "routing-keys=[S:src], time=T:*}"
        ),
        "expiration None",
    ],
    wait_s=0.1,
)
def _(t: Stage) -> list[str]:
    channel = t.channel()
    queue, dead = source(t, channel)
    t.put(channel, "", queue, properties={"expiration": "50"})
    message = channel.get_soon(dead)
    assert message.content is not None
    return [*deaths(message), f"expiration {message.content.properties.get('expiration')}"]


@topic.case(
    "expired-both",
    "expiry by the queue's TTL of a message with an expiration",
    (
        "{count=l:1, exchange=S:, original-expiration=S:60000, queue=S:src, "
        "reason=S:expired, routing-keys=[S:src], time=T:*}"
    ),
    wait_s=0.1,
)
def _(t: Stage) -> list[str]:
    channel = t.channel()
    queue, dead = source(t, channel, {"x-message-ttl": 50})
    t.put(channel, "", queue, properties={"expiration": "60000"})
    return deaths(channel.get_soon(dead))


@topic.case(
    "maxlen",
    "dropped from the head of a full queue",
    [
        "1",
        ("{count=l:1, exchange=S:, queue=S:src, reason=S:maxlen, routing-keys=[S:src], time=T:*}"),
        "2",
    ],
)
def _(t: Stage) -> list[str]:
    channel = t.channel()
    queue, dead = source(t, channel, {"x-max-length": 1})
    t.put(channel, "", queue, "1", "2")
    message = channel.get_soon(dead)
    return [bodies([message]), *deaths(message), bodies(t.drain(channel, queue))]


@topic.case(
    "maxlen-reject",
    "reject-publish-dlx: the refused message is dead-lettered",
    [
        "acked 1 nacked 2",
        "2",
        ("{count=l:1, exchange=S:, queue=S:src, reason=S:maxlen, routing-keys=[S:src], time=T:*}"),
        "1",
    ],
)
def _(t: Stage) -> list[str]:
    channel = t.channel()
    arguments = {"x-max-length": 1, "x-overflow": "reject-publish-dlx"}
    queue, dead = source(t, channel, arguments)
    answers = confirms(t.put(channel, "", queue, "1", "2"))
    message = channel.get_soon(dead)
    return [answers, bodies([message]), *deaths(message), bodies(t.drain(channel, queue))]


@topic.case(
    "maxlen-reject-plain",
    "reject-publish: the refused message is not dead-lettered",
    ["acked 1 nacked 2", "dead 0"],
)
def _(t: Stage) -> list[str]:
    channel = t.channel()
    queue, dead = source(t, channel, {"x-max-length": 1, "x-overflow": "reject-publish"})
    answers = confirms(t.put(channel, "", queue, "1", "2"))
    return [answers, f"dead {t.count(dead, channel, 0)}"]


@topic.case("delivery-limit", "a quorum queue's delivery limit", "src delivery_limit 1")
def _(t: Stage) -> str:
    channel = t.channel()
    arguments = {"x-queue-type": "quorum", "x-delivery-limit": 1}
    queue, dead = source(t, channel, arguments, durable=True)
    t.put(channel, "", queue)
    for _ in range(2):
        message = channel.get_soon(queue, no_ack=False)
        channel.send("basic.reject", delivery_tag=message.tag, requeue=True)
    return death_counts(channel.get_soon(dead))


@topic.case(
    "properties",
    "a dead message keeps its properties",
    ["content_type t/p", "delivery_mode 2", "priority 3", "message_id id"],
)
def _(t: Stage) -> list[str]:
    channel = t.channel()
    queue, dead = source(t, channel)
    rejected(t, channel, queue, content_type="t/p", delivery_mode=2, priority=3, message_id="id")
    content = channel.get_soon(dead).content
    assert content is not None
    return [f"{name} {item}" for name, item in content.properties.items() if name != "headers"]


@topic.case("headers-kept", "a dead message keeps its headers", "{k=S:v, n=l:5}")
def _(t: Stage) -> list[str]:
    channel = t.channel()
    queue, dead = source(t, channel)
    rejected(t, channel, queue, headers={"k": "v", "n": ("l", 5)})
    content = channel.get_soon(dead).content
    assert content is not None
    return [table({key: content.headers[key] for key in ("k", "n")})]


@topic.case(
    "header-names",
    "the headers that the first death adds",
    "x-death x-first-death-exchange x-first-death-queue x-first-death-reason "
    "x-last-death-exchange x-last-death-queue x-last-death-reason",
    rabbitmq="x-death x-first-death-exchange x-first-death-queue x-first-death-reason",
    difference="x-last-death",
)
def _(t: Stage) -> str:
    channel = t.channel()
    queue, dead = source(t, channel)
    rejected(t, channel, queue)
    return header_names(channel.get_soon(dead))


@topic.case(
    "first-death",
    "x-first-death-*",
    ["x-first-death-queue S:src", "x-first-death-reason S:rejected", "x-first-death-exchange S:"],
)
def _(t: Stage) -> list[str]:
    channel = t.channel()
    queue, dead = source(t, channel)
    rejected(t, channel, queue)
    return headers_of(
        channel.get_soon(dead),
        "x-first-death-queue",
        "x-first-death-reason",
        "x-first-death-exchange",
    )


@topic.case(
    "last-death",
    "x-first-death-* stays and x-last-death-* follows the second death",
    [
        "x-first-death-queue S:src",
        "x-first-death-reason S:rejected",
        "x-first-death-exchange S:",
        "x-last-death-queue S:dlq",
        "x-last-death-reason S:rejected",
        "x-last-death-exchange S:dlx",
    ],
    rabbitmq=[
        "x-first-death-queue S:src",
        "x-first-death-reason S:rejected",
        "x-first-death-exchange S:",
        "x-last-death-queue none",
        "x-last-death-reason none",
        "x-last-death-exchange none",
    ],
    difference="x-last-death",
)
def _(t: Stage) -> list[str]:
    channel = t.channel()
    end = t.queue(channel, "end")
    exchange = t.exchange(channel, suffix="dlx")
    arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": end}
    dead = t.queue(channel, "dlq", arguments)
    t.bind(channel, dead, exchange)
    queue = t.queue(channel, "src", {"x-dead-letter-exchange": exchange})
    rejected(t, channel, queue)
    message = channel.get_soon(dead, no_ack=False)
    channel.send("basic.reject", delivery_tag=message.tag)
    parts = [f"x-{when}-death-{what}" for when in ("first", "last") for what in _PARTS]
    return headers_of(channel.get_soon(end), *parts)


_PARTS = ("queue", "reason", "exchange")


@topic.case("not-redelivered", "a dead message is not marked as redelivered", "x")
def _(t: Stage) -> str:
    channel = t.channel()
    queue, dead = source(t, channel)
    rejected(t, channel, queue)
    return bodies([channel.get_soon(dead)])


@topic.case(
    "routing-key",
    "x-dead-letter-routing-key takes the place of the key",
    [
        "dlx dead",
        (
            "{count=l:1, exchange=S:, queue=S:src, reason=S:rejected, routing-keys=[S:src], "
            "time=T:*}"
        ),
    ],
)
def _(t: Stage) -> list[str]:
    channel = t.channel()
    queue, dead = source(t, channel, {"x-dead-letter-routing-key": "dead"})
    rejected(t, channel, queue)
    message = channel.get_soon(dead)
    return [f"{message.fields['exchange']} {message.fields['routing_key']}", *deaths(message)]


@topic.case(
    "own-key",
    "without it the message keeps the key it was published with",
    [
        "dlx a.b.c",
        (
            "{count=l:1, exchange=S:x, queue=S:src, reason=S:rejected, routing-keys=[S:a.b.c], "
            "time=T:*}"
        ),
    ],
)
def _(t: Stage) -> list[str]:
    channel = t.channel()
    queue, dead = source(t, channel)
    exchange = t.exchange(channel, "topic")
    t.bind(channel, queue, exchange, "a.#")
    t.put(channel, exchange, "a.b.c")
    message = channel.get_soon(queue, no_ack=False)
    channel.send("basic.reject", delivery_tag=message.tag)
    message = channel.get_soon(dead)
    return [f"{message.fields['exchange']} {message.fields['routing_key']}", *deaths(message)]


@topic.case(
    "cc-with-key",
    "CC and BCC with a dead-letter key: keys noted, CC removed",
    [
        (
            "{count=l:1, exchange=S:, queue=S:src, reason=S:rejected, routing-keys=[S:src, "
            "S:zzz], time=T:*}"
        ),
        "CC none",
        "BCC none",
    ],
)
def _(t: Stage) -> list[str]:
    channel = t.channel()
    queue, dead = source(t, channel, {"x-dead-letter-routing-key": "dead"})
    rejected(t, channel, queue, headers={"CC": [t.name("zzz")], "BCC": [t.name("yyy")]})
    message = channel.get_soon(dead)
    return [*deaths(message), *headers_of(message, "CC", "BCC")]


@topic.case(
    "cc-without-key",
    "CC and BCC without a dead-letter key: CC stays",
    [
        (
            "{count=l:1, exchange=S:, queue=S:src, reason=S:rejected, routing-keys=[S:src, "
            "S:zzz], time=T:*}"
        ),
        "{CC=[S:zzz]}",
        "BCC none",
    ],
)
def _(t: Stage) -> list[str]:
    channel = t.channel()
    queue, dead = source(t, channel)
    rejected(t, channel, queue, headers={"CC": [t.name("zzz")], "BCC": [t.name("yyy")]})
    message = channel.get_soon(dead)
    assert message.content is not None
    kept = message.content.headers.get("CC", Typed("A", []))
    return [*deaths(message), table({"CC": kept}), *headers_of(message, "BCC")]


@topic.case(
    "cc-routes-dead", "CC keys route the dead message too, BCC keys not seen", ["cc 1", "bcc 1"]
)
def _(t: Stage) -> list[str]:
    channel = t.channel()
    exchange = t.exchange(channel, "direct", suffix="dlx")
    first, second, third = (t.queue(channel, name) for name in ("k1", "k2", "k3"))
    queue = t.queue(channel, "src", {"x-dead-letter-exchange": exchange})
    for name, key in ((first, queue), (second, "cc"), (third, "bcc")):
        t.bind(channel, name, exchange, key)
    rejected(t, channel, queue, headers={"CC": ["cc"], "BCC": ["bcc"]})
    channel.get_soon(first)
    return [f"cc {t.count(second, channel, 1)}", f"bcc {t.count(third, channel, 1)}"]


@topic.case("exchange-missing", "a missing dead-letter exchange drops the message", "left 0")
def _(t: Stage) -> list[str]:
    channel = t.channel()
    queue = t.queue(channel, arguments={"x-dead-letter-exchange": t.name("nope")})
    rejected(t, channel, queue)
    return [f"left {t.count(queue, channel, 0)}", *map(str, channel.sync())]


@topic.case("unroutable", "a dead message that no queue takes is dropped", "left 0")
def _(t: Stage) -> list[str]:
    channel = t.channel()
    exchange = t.exchange(channel, "direct", suffix="dlx")
    queue = t.queue(channel, arguments={"x-dead-letter-exchange": exchange})
    rejected(t, channel, queue)
    return [f"left {t.count(queue, channel, 0)}", *map(str, channel.sync())]


@topic.case("deleted-queue", "a deleted queue dead-letters nothing", "dead 0")
def _(t: Stage) -> str:
    channel = t.channel()
    queue, dead = source(t, channel)
    t.put(channel, "", queue)
    channel.call("queue.delete", queue=queue)
    return f"dead {t.count(dead, channel, 0)}"


@topic.case("purged-queue", "a purged queue dead-letters nothing", "dead 0")
def _(t: Stage) -> str:
    channel = t.channel()
    queue, dead = source(t, channel)
    t.put(channel, "", queue)
    channel.call("queue.purge", queue=queue)
    return f"dead {t.count(dead, channel, 0)}"


@topic.case(
    "expired-queue", "a queue that expires dead-letters nothing", "exists False, dead 0", wait_s=0.6
)
def _(t: Stage) -> str:
    channel = t.channel()
    queue, dead = source(t, channel, {"x-expires": 300})
    t.put(channel, "", queue)
    return f"exists {not t.expired(queue, 0.6)}, dead {t.count(dead, channel, 0)}"


@topic.case("acked", "an acked message is not dead-lettered", "dead 0")
def _(t: Stage) -> str:
    channel = t.channel()
    queue, dead = source(t, channel)
    t.put(channel, "", queue)
    channel.get_soon(queue, no_ack=False)
    channel.send("basic.ack", delivery_tag=1)
    channel.sync()
    return f"dead {t.count(dead, channel, 0)}"
