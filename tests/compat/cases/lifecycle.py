"""What comes and goes by itself: auto-delete queues and exchanges, consumers told of a cancel."""

from __future__ import annotations

from tests.compat.case import Topic
from tests.compat.client import CAPABILITIES, Handshake
from tests.compat.describe import briefs, show
from tests.compat.stage import Stage

topic = Topic("lifecycle")


@topic.case(
    "cancel-notify",
    "a queue deleted under a consumer: basic.cancel",
    "basic.cancel consumer_tag=t nowait=true",
)
def _(t: Stage) -> list[str]:
    channel, other = t.channel(), t.channel()
    queue = t.queue(channel)
    t.consume(channel, queue)
    other.call("queue.delete", queue=queue)
    return briefs([channel.next(), *channel.sync()])


@topic.case(
    "cancel-notify-off", "the same without the consumer_cancel_notify capability", "nothing"
)
def _(t: Stage) -> list[str]:
    options = Handshake(capabilities={**CAPABILITIES, "consumer_cancel_notify": False})
    channel, other = t.connect(options).channel(), t.channel()
    queue = t.queue(other)
    t.consume(channel, queue)
    other.call("queue.delete", queue=queue)
    return ["nothing"] if channel.idle(50) else briefs(channel.take())


@topic.case(
    "cancel-notify-tag-free",
    "after the server's cancel the tag may be used again",
    "basic.consume-ok consumer_tag=t",
)
def _(t: Stage) -> str:
    channel, other = t.channel(), t.channel()
    t.consume(channel, t.queue(channel))
    other.call("queue.delete", queue=t.name())
    channel.next()
    return show(channel.call("basic.consume", queue=t.queue(channel), consumer_tag="t"))


@topic.case(
    "cancel-ok-accepted",
    "the client's cancel-ok to the server's cancel is accepted",
    "accepted",
    rabbitmq="connection.close 503 COMMAND_INVALID - unimplemented method (60.31)",
    difference="cancel-ok-from-client",
)
def _(t: Stage) -> list[str]:
    channel, other = t.channel(), t.channel()
    t.consume(channel, t.queue(channel))
    other.call("queue.delete", queue=t.name())
    channel.next()
    channel.send("basic.cancel-ok", consumer_tag="t")
    return briefs(channel.sync()) or ["accepted"]


@topic.case(
    "cancel-notify-two",
    "two consumers on two channels are both told",
    ["basic.cancel consumer_tag=a nowait=true", "basic.cancel consumer_tag=b nowait=true"],
)
def _(t: Stage) -> list[str]:
    first, second, other = t.channel(), t.channel(), t.channel()
    queue = t.queue(other)
    t.consume(first, queue, "a")
    t.consume(second, queue, "b")
    other.call("queue.delete", queue=queue)
    return briefs([first.next(), second.next()])


@topic.case(
    "cancel-notify-exclusive",
    "an exclusive queue goes with its owner: no consumer left",
    ["connection.close-ok", "exists False"],
)
def _(t: Stage) -> list[str]:
    owner = t.connect()
    channel = owner.channel()
    queue = t.queue(channel, exclusive=True)
    t.consume(channel, queue)
    answer = show(owner.close())
    return [answer, f"exists {t.exists(queue)}"]


@topic.case(
    "cancel-notify-expired",
    "a queue never expires under its consumer",
    ["quiet True", "exists True"],
    wait_s=0.6,
)
def _(t: Stage) -> list[str]:
    channel = t.channel()
    queue = t.consumed_queue(channel, 300)
    quiet = channel.idle(600)
    return [f"quiet {quiet}", f"exists {t.exists(queue)}"]


@topic.case(
    "queue-last-cancel",
    "an auto-delete queue goes when its last consumer cancels",
    ["before any consumer True", "after False"],
)
def _(t: Stage) -> list[str]:
    channel = t.channel()
    queue = t.queue(channel, auto_delete=True)
    before = t.exists(queue)
    t.consume(channel, queue)
    channel.call("basic.cancel", consumer_tag="t")
    return [f"before any consumer {before}", f"after {t.exists(queue)}"]


@topic.case(
    "queue-two-consumers",
    "an auto-delete queue stays while a consumer is left",
    ["one left True", "none left False"],
)
def _(t: Stage) -> list[str]:
    channel = t.channel()
    queue = t.queue(channel, auto_delete=True)
    t.consume(channel, queue, "a")
    t.consume(channel, queue, "b")
    channel.call("basic.cancel", consumer_tag="a")
    kept = t.exists(queue)
    channel.call("basic.cancel", consumer_tag="b")
    return [f"one left {kept}", f"none left {t.exists(queue)}"]


@topic.case(
    "queue-channel-closed",
    "an auto-delete queue goes with its consumer's channel",
    "channel.close 404 NOT_FOUND - no queue 'q' in vhost '/' (50.10)",
)
def _(t: Stage) -> str:
    channel = t.channel()
    queue = t.queue(channel, auto_delete=True)
    t.consume(channel, queue)
    channel.call("channel.close")
    t.until(lambda: not t.exists(queue), "the end of the queue")
    return show(t.channel().call("queue.declare", queue=queue, passive=True))


@topic.case(
    "queue-connection-lost", "an auto-delete queue goes with its consumer's connection", "gone"
)
def _(t: Stage) -> str:
    connection = t.connect()
    channel = connection.channel()
    queue = t.queue(channel, auto_delete=True)
    t.consume(channel, queue)
    connection.drop()
    t.until(lambda: not t.exists(queue), "the end of the queue")
    return "gone"


@topic.case(
    "queue-get-does-not-count", "basic.get is no consumer to an auto-delete queue", "exists True"
)
def _(t: Stage) -> str:
    channel = t.channel()
    queue = t.queue(channel, auto_delete=True)
    channel.get(queue)
    return f"exists {t.exists(queue)}"


@topic.case(
    "queue-unacked-dropped", "an auto-delete queue goes with its unacked messages", "exists False"
)
def _(t: Stage) -> list[str]:
    channel = t.channel()
    queue = t.queue(channel, auto_delete=True)
    t.put(channel, "", queue, "a", "b")
    t.consume(channel, queue)
    channel.next()
    channel.call("basic.cancel", consumer_tag="t")
    channel.take()
    channel.send("basic.nack", delivery_tag=1, requeue=True)
    return [f"exists {t.exists(queue)}", *briefs(channel.sync())]


@topic.case(
    "exchange-unbound",
    "an auto-delete exchange goes with its last binding",
    "channel.close 404 NOT_FOUND - no exchange 'x' in vhost '/' (40.10)",
)
def _(t: Stage) -> str:
    channel = t.channel()
    name, queue = t.exchange(channel, auto_delete=True), t.queue(channel)
    t.bind(channel, queue, name)
    t.require(channel.call("queue.unbind", queue=queue, exchange=name))
    return show(channel.call("exchange.declare", exchange=name, type="fanout", passive=True))


@topic.case(
    "exchange-queue-gone",
    "an auto-delete exchange goes with its last queue",
    "channel.close 404 NOT_FOUND - no exchange 'x' in vhost '/' (40.10)",
)
def _(t: Stage) -> str:
    channel = t.channel()
    name, queue = t.exchange(channel, auto_delete=True), t.queue(channel)
    t.bind(channel, queue, name)
    t.require(channel.call("queue.delete", queue=queue))
    return show(channel.call("exchange.declare", exchange=name, type="fanout", passive=True))


@topic.case(
    "exchange-one-left",
    "an auto-delete exchange stays while a binding is left",
    "exchange.declare-ok",
)
def _(t: Stage) -> str:
    channel = t.channel()
    name, queue = t.exchange(channel, "direct", auto_delete=True), t.queue(channel)
    t.bind(channel, queue, name, "a")
    t.bind(channel, queue, name, "b")
    t.require(channel.call("queue.unbind", queue=queue, exchange=name, routing_key="a"))
    return show(channel.call("exchange.declare", exchange=name, type="direct", passive=True))


@topic.case(
    "exchange-destination",
    "an auto-delete exchange that is only a destination",
    "exchange.declare-ok",
)
def _(t: Stage) -> str:
    channel = t.channel()
    source, destination = t.exchange(channel), t.exchange(channel, suffix="y", auto_delete=True)
    t.require(channel.call("exchange.bind", source=source, destination=destination))
    t.require(channel.call("exchange.unbind", source=source, destination=destination))
    return show(channel.call("exchange.declare", exchange=destination, type="fanout", passive=True))


@topic.case(
    "exchange-chain",
    "auto-delete exchanges go one after the other",
    [
        "channel.close 404 NOT_FOUND - no exchange 'x' in vhost '/' (40.10)",
        "channel.close 404 NOT_FOUND - no exchange 'y' in vhost '/' (40.10)",
    ],
)
def _(t: Stage) -> list[str]:
    channel = t.channel()
    first = t.exchange(channel, auto_delete=True)
    second, queue = t.exchange(channel, suffix="y", auto_delete=True), t.queue(channel)
    t.require(channel.call("exchange.bind", source=first, destination=second))
    t.bind(channel, queue, second)
    t.require(channel.call("queue.unbind", queue=queue, exchange=second))
    return [
        show(t.channel().call("exchange.declare", exchange=name, type="fanout", passive=True))
        for name in (first, second)
    ]


@topic.case(
    "exchange-never-bound", "an auto-delete exchange never bound stays", "exchange.declare-ok"
)
def _(t: Stage) -> str:
    channel = t.channel()
    name = t.exchange(channel, auto_delete=True)
    return show(channel.call("exchange.declare", exchange=name, type="fanout", passive=True))
