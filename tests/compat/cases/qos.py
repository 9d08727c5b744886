"""basic.qos: per consumer and per channel, by count and by bytes."""

from __future__ import annotations

from typing import Final

from tests.compat.case import Topic
from tests.compat.describe import bodies, briefs, show
from tests.compat.stage import Stage

topic = Topic("qos")

_QUIET_MS: Final = 300
_REFUSED: Final = "connection.close 540 NOT_IMPLEMENTED - prefetch_size!=0 ({}) (60.10)"


@topic.case("zero", "qos with prefetch_count 0", "basic.qos-ok")
def _(t: Stage) -> str:
    return show(t.channel().call("basic.qos"))


@topic.case(
    "prefetch",
    "prefetch 2: two are delivered, a third after an ack",
    ["t#1 0", "t#2 1", "ack 1", "t#3 2"],
)
def _(t: Stage) -> list[str]:
    channel, publisher = t.channel(), t.channel()
    queue = t.queue(channel)
    channel.call("basic.qos", prefetch_count=2)
    t.consume(channel, queue)
    t.put(publisher, "", queue, *"0123")
    first = briefs(channel.sync())
    channel.send("basic.ack", delivery_tag=1)
    return [*first, "ack 1", *briefs([channel.next()])]


@topic.case("reject-frees", "a reject without requeue frees the prefetch too", ["t#1 0", "t#2 1"])
def _(t: Stage) -> list[str]:
    channel, publisher = t.channel(), t.channel()
    queue = t.queue(channel)
    channel.call("basic.qos", prefetch_count=1)
    t.consume(channel, queue)
    t.put(publisher, "", queue, *"01")
    first = briefs(channel.sync())
    channel.send("basic.reject", delivery_tag=1)
    return [*first, *briefs([channel.next()])]


@topic.case(
    "per-consumer", "global=false counts for each later consumer on its own", ["a#1 0", "b#2 1"]
)
def _(t: Stage) -> list[str]:
    channel, publisher = t.channel(), t.channel()
    queue = t.queue(channel)
    channel.call("basic.qos", prefetch_count=1)
    t.consume(channel, queue, "a")
    t.consume(channel, queue, "b")
    t.put(publisher, "", queue, *"0123")
    return briefs(channel.sync())


@topic.case("global", "global=true is shared by the channel", "a#1 0")
def _(t: Stage) -> list[str]:
    channel, publisher = t.channel(), t.channel()
    queue = t.queue(channel)
    channel.call("basic.qos", **{"prefetch_count": 1, "global": True})
    t.consume(channel, queue, "a")
    t.consume(channel, queue, "b")
    t.put(publisher, "", queue, *"0123")
    return briefs(channel.sync())


@topic.case(
    "global-raised", "raising a global limit delivers more at once", ["0", "1 2", "nothing"]
)
def _(t: Stage) -> list[str]:
    channel, publisher = t.channel(), t.channel()
    queue = t.queue(channel)
    channel.call("basic.qos", **{"prefetch_count": 1, "global": True})
    t.consume(channel, queue)
    t.put(publisher, "", queue, *"0123")
    first = bodies(channel.sync())
    channel.call("basic.qos", **{"prefetch_count": 3, "global": True})
    more = [*channel.take()]
    while len(more) < 2:
        more.append(channel.next())
    return [first, bodies(more), bodies(channel.sync())]


@topic.case("both", "a channel limit and a consumer limit both hold", "3")
def _(t: Stage) -> list[str]:
    channel, publisher = t.channel(), t.channel()
    queue = t.queue(channel)
    channel.call("basic.qos", prefetch_count=2)
    channel.call("basic.qos", **{"prefetch_count": 3, "global": True})
    t.consume(channel, queue, "a")
    t.consume(channel, queue, "b")
    t.put(publisher, "", queue, *"012345")
    return [str(len(channel.sync()))]


@topic.case(
    "raised-later",
    "a raised limit does not change a consumer already there",
    ["t#1 0", "basic.qos-ok"],
)
def _(t: Stage) -> list[str]:
    channel, publisher = t.channel(), t.channel()
    queue = t.queue(channel)
    channel.call("basic.qos", prefetch_count=1)
    t.consume(channel, queue)
    t.put(publisher, "", queue, *"0123")
    first = briefs(channel.sync())
    raised = show(channel.call("basic.qos", prefetch_count=3))
    t.put(publisher, "", queue, "4")
    return [*first, raised, *briefs(channel.sync())]


@topic.case("get", "basic.get ignores the prefetch", ["get#1 0", "get#2 1", "get#3 2"])
def _(t: Stage) -> list[str]:
    channel = t.channel()
    queue = t.queue(channel)
    channel.call("basic.qos", prefetch_count=1)
    t.put(channel, "", queue, *"012")
    return briefs(channel.get_soon(queue, no_ack=False) for _ in range(3))


@topic.case("no-ack", "a consumer without acknowledgement is not limited", "0 1 2 3")
def _(t: Stage) -> str:
    channel, publisher = t.channel(), t.channel()
    queue = t.queue(channel)
    channel.call("basic.qos", prefetch_count=1)
    t.consume(channel, queue, no_ack=True)
    t.put(publisher, "", queue, *"0123")
    return bodies(channel.sync())


@topic.case("per-channel", "the prefetch of one channel does not bind another", ["0", "1 2 3"])
def _(t: Stage) -> list[str]:
    first, second, publisher = t.channel(), t.channel(), t.channel()
    queue = t.queue(first)
    first.call("basic.qos", prefetch_count=1)
    t.consume(first, queue, "a")
    t.consume(second, queue, "b")
    t.put(publisher, "", queue, *"0123")
    return [bodies(first.sync()), bodies(second.sync())]


@topic.case(
    "size",
    "prefetch_size 1 is accepted",
    "basic.qos-ok",
    rabbitmq=_REFUSED.format(1),
    difference="prefetch-size",
)
def _(t: Stage) -> str:
    return show(t.channel().call("basic.qos", prefetch_size=1))


@topic.case(
    "size-limits",
    "prefetch_size 10 with messages of 4 bytes: three reach it, the fourth follows an ack",
    ["0000 1111 2222", "3333"],
    rabbitmq=_REFUSED.format(10),
    difference="prefetch-size",
)
def _(t: Stage) -> list[str]:
    channel, publisher = t.channel(), t.channel()
    queue = t.queue(channel)
    answer = channel.call("basic.qos", prefetch_size=10)
    if show(answer) != "basic.qos-ok":
        return [show(answer)]
    t.consume(channel, queue)
    t.put(publisher, "", queue, "0000", "1111", "2222", "3333")
    first = bodies(channel.sync())
    channel.send("basic.ack", delivery_tag=1)
    return [first, bodies([channel.next(), *channel.sync()])]


@topic.case(
    "size-one-large",
    "prefetch_size 10 and one message of 20 bytes: delivered alone",
    ["x" * 20],
    rabbitmq=_REFUSED.format(10),
    difference="prefetch-size",
)
def _(t: Stage) -> list[str]:
    channel, publisher = t.channel(), t.channel()
    queue = t.queue(channel)
    answer = channel.call("basic.qos", prefetch_size=10)
    if show(answer) != "basic.qos-ok":
        return [show(answer)]
    t.consume(channel, queue)
    t.put(publisher, "", queue, "x" * 20, "y")
    return [bodies(channel.sync())]


@topic.case(
    "global-ended",
    "global=false ends a limit that global=true has set",
    ["a#1 0", "a#2 1", "a#3 2"],
)
def _(t: Stage) -> list[str]:
    channel, publisher = t.channel(), t.channel()
    queue = t.queue(channel)
    t.put(publisher, "", queue, *"012")
    channel.call("basic.qos", **{"prefetch_count": 1, "global": True})
    t.consume(channel, queue, "a")
    first = channel.next()
    channel.call("basic.qos", prefetch_count=5)
    return briefs([first, channel.next(), channel.next()])


@topic.case(
    "global-gets",
    "messages that basic.get took before global=true do not count to the limit",
    ["a#3 2", "a#4 3", "nothing more"],
    rabbitmq=["nothing more"],
    difference="global-qos-gets",
)
def _(t: Stage) -> list[str]:
    channel, publisher = t.channel(), t.channel()
    queue = t.queue(channel)
    t.put(publisher, "", queue, *"012345")
    channel.call("basic.get", queue=queue)
    channel.call("basic.get", queue=queue)
    channel.call("basic.qos", **{"prefetch_count": 2, "global": True})
    t.consume(channel, queue, "a")
    seen = [] if channel.idle(_QUIET_MS) else [channel.next(), channel.next()]
    assert channel.idle(_QUIET_MS)
    return [*briefs(seen), "nothing more"]


@topic.case(
    "global-quorum",
    "global=true also limits a consumer of a quorum queue that exists",
    ["a#1 0", "nothing more"],
    rabbitmq=["a#1 0", "a#2 1", "nothing more"],
    difference="global-qos-quorum",
)
def _(t: Stage) -> list[str]:
    channel, publisher = t.channel(), t.channel()
    queue = t.quorum(channel)
    t.consume(channel, queue, "a")
    channel.call("basic.qos", **{"prefetch_count": 1, "global": True})
    t.put(publisher, "", queue, *"01")
    seen = [channel.next()]
    if not channel.idle(_QUIET_MS):
        seen.append(channel.next())
    return [*briefs(seen), "nothing more"]
