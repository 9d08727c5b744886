"""The nowait form of every method that has one: no answer, the same effect, the same errors."""

from __future__ import annotations

from tests.compat.case import Topic
from tests.compat.describe import brief, briefs, show
from tests.compat.stage import Stage

topic = Topic("nowait")


@topic.case("queue-declare", "queue.declare", "exists True")
def _(t: Stage) -> list[str]:
    channel = t.channel()
    channel.send("queue.declare", queue=t.name(), nowait=True)
    return [*briefs(channel.sync()), f"exists {t.exists(t.name())}"]


@topic.case("queue-declare-use", "queue.declare, then publish and get at once", "get#1 m")
def _(t: Stage) -> str:
    channel = t.channel()
    channel.send("queue.declare", queue=t.name(), nowait=True)
    channel.publish("", t.name(), b"m")
    return brief(channel.get_soon(t.name()))


@topic.case(
    "queue-declare-server-named",
    "queue.declare without a name: used as the last",
    "basic.get-empty cluster_id=",
)
def _(t: Stage) -> list[str]:
    channel = t.channel()
    channel.send("queue.declare", exclusive=True, nowait=True)
    return [*briefs(channel.sync()), show(channel.call("basic.get"))]


@topic.case(
    "queue-declare-error",
    "queue.declare that fails still closes the channel",
    "channel.close 404 NOT_FOUND - no queue 'nope' in vhost '/' (50.10)",
)
def _(t: Stage) -> list[str]:
    channel = t.channel()
    channel.send("queue.declare", queue=t.name("nope"), passive=True, nowait=True)
    return briefs(channel.sync())


@topic.case("queue-bind", "queue.bind", "messages 1")
def _(t: Stage) -> list[str]:
    channel = t.channel()
    queue, exchange = t.queue(channel), t.exchange(channel)
    channel.send("queue.bind", queue=queue, exchange=exchange, nowait=True)
    seen = briefs(channel.sync())
    t.put(channel, exchange, "")
    return [*seen, f"messages {t.count(queue, channel, 1)}"]


@topic.case(
    "queue-bind-error",
    "queue.bind to a missing exchange",
    "channel.close 404 NOT_FOUND - no exchange 'nope' in vhost '/' (50.20)",
)
def _(t: Stage) -> list[str]:
    channel = t.channel()
    channel.send("queue.bind", queue=t.queue(channel), exchange=t.name("nope"), nowait=True)
    return briefs(channel.sync())


@topic.case("queue-purge", "queue.purge", "messages 0")
def _(t: Stage) -> list[str]:
    channel = t.channel()
    queue = t.queue(channel)
    t.put(channel, "", queue)
    channel.send("queue.purge", queue=queue, nowait=True)
    return [*briefs(channel.sync()), f"messages {t.count(queue, channel, 0)}"]


@topic.case("queue-delete", "queue.delete", "exists False")
def _(t: Stage) -> list[str]:
    channel = t.channel()
    queue = t.queue(channel)
    channel.send("queue.delete", queue=queue, nowait=True)
    return [*briefs(channel.sync()), f"exists {t.exists(queue)}"]


@topic.case("exchange-declare", "exchange.declare", "exchange.declare-ok")
def _(t: Stage) -> list[str]:
    channel = t.channel()
    channel.send("exchange.declare", exchange=t.name("x"), type="direct", nowait=True)
    seen = briefs(channel.sync())
    return [*seen, show(channel.call("exchange.declare", exchange=t.name("x"), passive=True))]


@topic.case(
    "exchange-delete",
    "exchange.delete",
    "channel.close 404 NOT_FOUND - no exchange 'x' in vhost '/' (40.10)",
)
def _(t: Stage) -> list[str]:
    channel = t.channel()
    name = t.exchange(channel)
    channel.send("exchange.delete", exchange=name, nowait=True)
    seen = briefs(channel.sync())
    return [*seen, show(channel.call("exchange.declare", exchange=name, passive=True))]


@topic.case("exchange-bind", "exchange.bind", "messages 1")
def _(t: Stage) -> list[str]:
    channel = t.channel()
    source, destination, queue = (
        t.exchange(channel),
        t.exchange(channel, suffix="y"),
        t.queue(channel),
    )
    t.bind(channel, queue, destination)
    channel.send("exchange.bind", source=source, destination=destination, nowait=True)
    seen = briefs(channel.sync())
    t.put(channel, source, "")
    return [*seen, f"messages {t.count(queue, channel, 1)}"]


@topic.case("exchange-unbind", "exchange.unbind", "messages 0")
def _(t: Stage) -> list[str]:
    channel = t.channel()
    source, destination, queue = (
        t.exchange(channel),
        t.exchange(channel, suffix="y"),
        t.queue(channel),
    )
    t.bind(channel, queue, destination)
    channel.call("exchange.bind", source=source, destination=destination)
    channel.send("exchange.unbind", source=source, destination=destination, nowait=True)
    seen = briefs(channel.sync())
    t.put(channel, source, "")
    return [*seen, f"messages {t.count(queue, channel, 0)}"]


@topic.case("basic-consume", "basic.consume", "t#1 m")
def _(t: Stage) -> list[str]:
    channel, publisher = t.channel(), t.channel()
    queue = t.queue(channel)
    channel.send("basic.consume", queue=queue, consumer_tag="t", nowait=True)
    seen = briefs(channel.sync())
    t.put(publisher, "", queue, "m")
    return [*seen, *briefs(channel.sync())]


@topic.case(
    "basic-consume-error",
    "basic.consume of a missing queue",
    "channel.close 404 NOT_FOUND - no queue 'nope' in vhost '/' (60.20)",
)
def _(t: Stage) -> list[str]:
    channel = t.channel()
    channel.send("basic.consume", queue=t.name("nope"), nowait=True)
    return briefs(channel.sync())


@topic.case("basic-cancel", "basic.cancel", "messages 1")
def _(t: Stage) -> list[str]:
    channel, publisher = t.channel(), t.channel()
    queue = t.queue(channel)
    t.consume(channel, queue)
    channel.send("basic.cancel", consumer_tag="t", nowait=True)
    seen = briefs(channel.sync())
    t.put(publisher, "", queue, "m")
    return [*seen, *briefs(channel.sync()), f"messages {t.count(queue, channel, 1)}"]


@topic.case("basic-cancel-unknown", "basic.cancel of an unknown tag", "nothing")
def _(t: Stage) -> list[str]:
    channel = t.channel()
    channel.send("basic.cancel", consumer_tag="nope", nowait=True)
    return briefs(channel.sync()) or ["nothing"]


@topic.case("confirm-select", "confirm.select", "basic.ack 1")
def _(t: Stage) -> list[str]:
    channel = t.channel()
    queue = t.queue(channel)
    channel.send("confirm.select", nowait=True)
    seen = briefs(channel.sync())
    channel.publish("", queue, b"m")
    return [*seen, brief(channel.next())]
