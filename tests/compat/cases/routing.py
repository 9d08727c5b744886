"""Routing: direct, fanout, topic patterns, exchange to exchange, alternate exchanges."""

from __future__ import annotations

from typing import Final

from tests.compat.case import Topic
from tests.compat.describe import bodies, briefs, confirms, show
from tests.compat.stage import Stage

topic = Topic("routing")


@topic.case("direct", "a direct exchange takes the exact key", "a.b")
def _(t: Stage) -> list[str]:
    channel = t.channel()
    queue, exchange = t.queue(channel), t.exchange(channel, "direct")
    t.bind(channel, queue, exchange, "a.b")
    for key in ("a.b", "a.B", "a", "a.*", "", "a.b "):
        t.put(channel, exchange, key, key)
    return [bodies(t.drain(channel, queue))]


@topic.case("direct-many", "one key to three queues", ["1", "1", "1"])
def _(t: Stage) -> list[str]:
    channel = t.channel()
    exchange = t.exchange(channel, "direct")
    queues = [t.queue(channel, f"q{number}") for number in range(3)]
    for queue in queues:
        t.bind(channel, queue, exchange, "k")
    t.put(channel, exchange, "k")
    return [f"{t.count(queue, channel, 1)}" for queue in queues]


@topic.case("fanout", "a fanout exchange ignores the key and the binding's key", ["1", "1"])
def _(t: Stage) -> list[str]:
    channel = t.channel()
    exchange = t.exchange(channel)
    queues = [t.queue(channel, f"q{number}") for number in range(2)]
    t.bind(channel, queues[0], exchange, "one")
    t.bind(channel, queues[1], exchange)
    t.put(channel, exchange, "anything")
    return [f"{t.count(queue, channel, 1)}" for queue in queues]


@topic.case("one-copy", "a queue matched by two bindings gets one copy", "messages 1")
def _(t: Stage) -> str:
    channel = t.channel()
    queue, exchange = t.queue(channel), t.exchange(channel, "topic")
    t.bind(channel, queue, exchange, "a.*")
    t.bind(channel, queue, exchange, "*.b")
    t.put(channel, exchange, "a.b")
    return f"messages {t.count(queue, channel, 1)}"


@topic.case(
    "default",
    "the default exchange routes by queue name",
    (
        "basic.get-ok delivery_tag=1 redelivered=false exchange= routing_key=q "
        "message_count=0 body=m"
    ),
)
def _(t: Stage) -> str:
    channel = t.channel()
    queue = t.queue(channel)
    t.put(channel, "", queue, "m")
    return show(channel.get_soon(queue))


@topic.case("unbound-at-once", "an unbind counts for the very next publish", "messages 1")
def _(t: Stage) -> str:
    channel = t.channel()
    queue, exchange = t.queue(channel), t.exchange(channel, "direct")
    t.bind(channel, queue, exchange, "k")
    t.put(channel, exchange, "k")
    channel.call("queue.unbind", queue=queue, exchange=exchange, routing_key="k")
    t.put(channel, exchange, "k")
    return f"messages {t.count(queue, channel, 1)}"


@topic.case(
    "rebound-at-once", "a bind counts for the very next publish of the same key", "messages 1"
)
def _(t: Stage) -> str:
    channel = t.channel()
    queue, exchange = t.queue(channel), t.exchange(channel, "direct")
    t.put(channel, exchange, "k")
    t.bind(channel, queue, exchange, "k")
    t.put(channel, exchange, "k")
    return f"messages {t.count(queue, channel, 1)}"


# (pattern, keys that it matches, keys that it does not match)
_PATTERNS: Final = (
    ("a.*", ("a.", "a.b"), ("a", "a.b.c", "b.a", "")),
    ("#", ("", "a", "a.b.c", "..."), ()),
    ("a.#", ("a", "a.", "a.b", "a.b.c"), ("b.a", "ab", "")),
    ("#.a", ("a", "a.a", "b.c.a"), ("a.b", "")),
    ("*", ("a",), ("", "a.b", ".")),
    ("a.#.b", ("a.b", "a.x.b", "a.x.y.b", "a.b.b"), ("a.x", "a", "b")),
    ("#.#", ("", "x", "x.y", "x.y.z"), ()),
    ("*.#", ("x", "x.y", "."), ("",)),
    ("#.*", ("x", "x.y"), ("",)),
    ("*.*", ("a.b", "a.", "."), ("a", "a.b.c")),
    ("a..b", ("a..b",), ("a.b", "a.x.b")),
    ("a.*.b", ("a..b", "a.x.b"), ("a.b", "a.x.y.b")),
    ("#.b.#", ("b", "a.b", "b.c", "a.b.c", "b.b.b"), ("a.c", "")),
    ("", ("",), ("a", ".")),
    ("a#", ("a#",), ("a", "ab")),
    ("*a", ("*a",), ("aa", "a")),
    (".", (".",), ("", "a.b", "a.")),
    ("#.a.#.b.#", ("a.b", "x.a.y.b.z", "a.a.b"), ("b.a", "a")),
)


def _matches(t: Stage, pattern: str, keys: tuple[str, ...]) -> str:
    channel = t.channel()
    queue, exchange = t.queue(channel), t.exchange(channel, "topic")
    t.bind(channel, queue, exchange, pattern)
    for key in keys:
        t.put(channel, exchange, key, f"<{key}>")
    return bodies(t.drain(channel, queue))


for _number, (_pattern, _hits, _misses) in enumerate(_PATTERNS, start=1):

    def _script(t: Stage, pattern: str = _pattern, keys: tuple[str, ...] = _misses + _hits) -> str:
        return _matches(t, pattern, keys)

    topic.add(
        f"topic-{_number}",
        f"topic pattern '{_pattern}' takes {_hits}, not {_misses}",
        _script,
        " ".join(f"<{key}>" for key in _hits),
    )


@topic.case(
    "e2e",
    "exchange to exchange: the message keeps its exchange and key",
    (
        "basic.get-ok delivery_tag=1 redelivered=false exchange=x routing_key=a.b "
        "message_count=0 body=x"
    ),
)
def _(t: Stage) -> str:
    channel = t.channel()
    source, queue = t.exchange(channel, "topic"), t.queue(channel)
    destination = t.exchange(channel, suffix="y")
    t.bind(channel, queue, destination)
    channel.call("exchange.bind", source=source, destination=destination, routing_key="a.*")
    t.put(channel, source, "a.b")
    t.put(channel, source, "b.b")
    return " / ".join(show(message) for message in t.drain(channel, queue))


@topic.case("e2e-types", "exchange to exchange: both patterns must match", "a.b")
def _(t: Stage) -> str:
    channel = t.channel()
    source, queue = t.exchange(channel, "topic"), t.queue(channel)
    destination = t.exchange(channel, "topic", suffix="y")
    t.bind(channel, queue, destination, "*.b")
    channel.call("exchange.bind", source=source, destination=destination, routing_key="a.*")
    for key in ("a.b", "a.c", "c.b"):
        t.put(channel, source, key, key)
    return bodies(t.drain(channel, queue))


@topic.case("e2e-cycle", "exchanges bound in a circle: one copy, no endless loop", "messages 1")
def _(t: Stage) -> str:
    channel = t.channel()
    first, second, queue = t.exchange(channel), t.exchange(channel, suffix="y"), t.queue(channel)
    channel.call("exchange.bind", source=first, destination=second)
    channel.call("exchange.bind", source=second, destination=first)
    t.bind(channel, queue, second)
    t.bind(channel, queue, first)
    t.put(channel, first, "")
    return f"messages {t.count(queue, channel, 1)}"


@topic.case("e2e-self", "an exchange bound to itself", "messages 1")
def _(t: Stage) -> str:
    channel = t.channel()
    exchange, queue = t.exchange(channel), t.queue(channel)
    channel.call("exchange.bind", source=exchange, destination=exchange)
    t.bind(channel, queue, exchange)
    t.put(channel, exchange, "")
    return f"messages {t.count(queue, channel, 1)}"


@topic.case("e2e-diamond", "two ways to one queue: one copy", "messages 1")
def _(t: Stage) -> str:
    channel = t.channel()
    top, queue = t.exchange(channel), t.queue(channel)
    for suffix in ("y", "z"):
        middle = t.exchange(channel, suffix=suffix)
        channel.call("exchange.bind", source=top, destination=middle)
        t.bind(channel, queue, middle)
    t.put(channel, top, "")
    return f"messages {t.count(queue, channel, 1)}"


@topic.case("e2e-unbind", "exchange.unbind ends it", "messages 0")
def _(t: Stage) -> str:
    channel = t.channel()
    source, destination = t.exchange(channel), t.exchange(channel, suffix="y")
    queue = t.queue(channel)
    t.bind(channel, queue, destination)
    channel.call("exchange.bind", source=source, destination=destination, routing_key="k")
    channel.call("exchange.unbind", source=source, destination=destination, routing_key="k")
    t.put(channel, source, "k")
    return f"messages {t.count(queue, channel, 0)}"


@topic.case(
    "e2e-unroutable",
    "mandatory through exchanges that lead nowhere is returned",
    "basic.return reply_code=312 reply_text=NO_ROUTE exchange=x routing_key=k body=x",
)
def _(t: Stage) -> list[str]:
    channel = t.channel()
    source, destination = t.exchange(channel), t.exchange(channel, suffix="y")
    channel.call("exchange.bind", source=source, destination=destination)
    channel.publish(source, "k", b"x", mandatory=True)
    return briefs(channel.sync())


@topic.case(
    "alternate",
    "unroutable goes to the alternate exchange: acked, not returned",
    [
        "acked 1",
        (
            "basic.get-ok delivery_tag=1 redelivered=false exchange=x routing_key=nowhere "
            "message_count=0 body=x"
        ),
    ],
)
def _(t: Stage) -> list[str]:
    channel = t.channel()
    alternate, queue = t.exchange(channel, suffix="ae"), t.queue(channel)
    t.bind(channel, queue, alternate)
    exchange = t.exchange(channel, "direct", arguments={"alternate-exchange": alternate})
    answers = confirms(t.put(channel, exchange, "nowhere", mandatory=True))
    return [answers, *briefs(channel.take()), show(channel.get_soon(queue))]


@topic.case("alternate-routed", "what is routed does not go to the alternate exchange", ["1", "0"])
def _(t: Stage) -> list[str]:
    channel = t.channel()
    alternate = t.exchange(channel, suffix="ae")
    spare, queue = t.queue(channel, "spare"), t.queue(channel)
    t.bind(channel, spare, alternate)
    exchange = t.exchange(channel, "direct", arguments={"alternate-exchange": alternate})
    t.bind(channel, queue, exchange, "k")
    t.put(channel, exchange, "k")
    return [f"{t.count(queue, channel, 1)}", f"{t.count(spare, channel, 0)}"]


@topic.case(
    "alternate-missing",
    "a missing alternate exchange: mandatory is returned",
    "basic.return reply_code=312 reply_text=NO_ROUTE exchange=x routing_key=k body=x",
)
def _(t: Stage) -> list[str]:
    channel = t.channel()
    arguments = {"alternate-exchange": t.name("nope")}
    exchange = t.exchange(channel, "direct", arguments=arguments)
    channel.publish(exchange, "k", b"x", mandatory=True)
    return briefs(channel.sync())


@topic.case(
    "alternate-chain",
    "alternate exchanges in a row",
    (
        "basic.get-ok delivery_tag=1 redelivered=false exchange=x routing_key=k "
        "message_count=0 body=x"
    ),
)
def _(t: Stage) -> str:
    channel = t.channel()
    last, queue = t.exchange(channel, suffix="last"), t.queue(channel)
    t.bind(channel, queue, last)
    middle = t.exchange(channel, "direct", suffix="middle", arguments={"alternate-exchange": last})
    exchange = t.exchange(channel, "direct", arguments={"alternate-exchange": middle})
    t.put(channel, exchange, "k")
    return show(channel.get_soon(queue))


@topic.case(
    "alternate-circle",
    "alternate exchanges in a circle: mandatory is returned",
    "basic.return reply_code=312 reply_text=NO_ROUTE exchange=x routing_key=k body=x",
)
def _(t: Stage) -> list[str]:
    channel = t.channel()
    first = t.exchange(channel, "direct", arguments={"alternate-exchange": t.name("y")})
    t.exchange(channel, "direct", suffix="y", arguments={"alternate-exchange": first})
    channel.publish(first, "k", b"x", mandatory=True)
    return briefs(channel.sync())


@topic.case(
    "alternate-e2e", "the alternate exchange of a destination exchange counts", "messages 1"
)
def _(t: Stage) -> str:
    channel = t.channel()
    alternate, queue = t.exchange(channel, suffix="ae"), t.queue(channel)
    t.bind(channel, queue, alternate)
    source = t.exchange(channel)
    middle = t.exchange(
        channel, "direct", suffix="middle", arguments={"alternate-exchange": alternate}
    )
    channel.call("exchange.bind", source=source, destination=middle)
    t.put(channel, source, "k")
    return f"messages {t.count(queue, channel, 1)}"
