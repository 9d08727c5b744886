"""tx and confirm: modes that exclude each other, what commit and rollback do, confirms."""

from __future__ import annotations

from tests.compat.case import Topic
from tests.compat.client import Event
from tests.compat.describe import bodies, brief, briefs, confirms, show
from tests.compat.stage import Stage

topic = Topic("transactions")


@topic.case(
    "tx-after-confirm",
    "tx.select after confirm.select",
    ("channel.close 406 PRECONDITION_FAILED - cannot switch from confirm to tx mode (90.10)"),
)
def _(t: Stage) -> str:
    channel = t.channel()
    channel.call("confirm.select")
    return show(channel.call("tx.select"))


@topic.case(
    "confirm-after-tx",
    "confirm.select after tx.select",
    ("channel.close 406 PRECONDITION_FAILED - cannot switch from tx to confirm mode (85.10)"),
)
def _(t: Stage) -> str:
    channel = t.channel()
    channel.call("tx.select")
    return show(channel.call("confirm.select"))


@topic.case(
    "commit-without-select",
    "tx.commit without tx.select",
    "channel.close 406 PRECONDITION_FAILED - channel is not transactional (90.20)",
)
def _(t: Stage) -> str:
    return show(t.channel().call("tx.commit"))


@topic.case(
    "rollback-without-select",
    "tx.rollback without tx.select",
    "channel.close 406 PRECONDITION_FAILED - channel is not transactional (90.30)",
)
def _(t: Stage) -> str:
    return show(t.channel().call("tx.rollback"))


@topic.case("confirm-twice", "confirm.select twice", ["confirm.select-ok", "confirm.select-ok"])
def _(t: Stage) -> list[str]:
    channel = t.channel()
    return [show(channel.call("confirm.select")), show(channel.call("confirm.select"))]


@topic.case(
    "confirm-twice-numbers", "a second confirm.select does not restart the numbers", "basic.ack 3"
)
def _(t: Stage) -> str:
    channel = t.channel()
    queue = t.queue(channel)
    t.put(channel, "", queue, "a", "b")
    channel.call("confirm.select")
    return show(t.put(channel, "", queue)[0])


@topic.case("tx-twice", "tx.select twice", ["tx.select-ok", "tx.select-ok"])
def _(t: Stage) -> list[str]:
    channel = t.channel()
    return [show(channel.call("tx.select")), show(channel.call("tx.select"))]


@topic.case(
    "commit", "a publish is seen after commit, not before", ["before 0", "tx.commit-ok", "after 1"]
)
def _(t: Stage) -> list[str]:
    channel, other = t.channel(), t.channel()
    queue = t.queue(channel)
    channel.call("tx.select")
    channel.publish("", queue, b"x")
    channel.sync()
    before = t.count(queue, other, 0)
    committed = show(channel.call("tx.commit"))
    return [f"before {before}", committed, f"after {t.count(queue, other, 1)}"]


@topic.case(
    "rollback", "a publish is gone after rollback", ["tx.rollback-ok", "tx.commit-ok", "kept"]
)
def _(t: Stage) -> list[str]:
    channel, other = t.channel(), t.channel()
    queue = t.queue(channel)
    channel.call("tx.select")
    channel.publish("", queue, b"lost")
    answers = [show(channel.call("tx.rollback"))]
    channel.publish("", queue, b"kept")
    answers.append(show(channel.call("tx.commit")))
    t.count(queue, other, 1)
    return [*answers, bodies(t.drain(other, queue))]


@topic.case("commit-order", "commit publishes in the order of the publishes", "0 1 2 3 4 5")
def _(t: Stage) -> str:
    channel, other = t.channel(), t.channel()
    queue = t.queue(channel)
    channel.call("tx.select")
    for text in b"012345":
        channel.publish("", queue, bytes([text]))
    channel.call("tx.commit")
    t.count(queue, other, 6)
    return bodies(t.drain(other, queue))


@topic.case("ack-commit", "an ack counts after commit", ["tx.commit-ok", "left 0"])
def _(t: Stage) -> list[str]:
    channel = t.channel()
    queue = t.queue(channel)
    t.put(t.channel(), "", queue)
    channel.call("tx.select")
    channel.get(queue, no_ack=False)
    channel.send("basic.ack", delivery_tag=1)
    committed = show(channel.call("tx.commit"))
    channel.call("channel.close")
    return [committed, f"left {t.count(queue, t.channel(), 0)}"]


@topic.case("ack-lost", "an ack that was never committed is undone with its channel", "left 1")
def _(t: Stage) -> str:
    channel = t.channel()
    queue = t.queue(channel)
    t.put(t.channel(), "", queue)
    channel.call("tx.select")
    channel.get(queue, no_ack=False)
    channel.send("basic.ack", delivery_tag=1)
    channel.call("channel.close")
    return f"left {t.count(queue, t.channel(), 1)}"


@topic.case(
    "ack-rollback",
    "after rollback the message may be acked again",
    ["tx.rollback-ok", "tx.commit-ok", "ready after rollback 0"],
)
def _(t: Stage) -> list[str]:
    channel = t.channel()
    queue = t.queue(channel)
    t.put(t.channel(), "", queue)
    channel.call("tx.select")
    channel.get(queue, no_ack=False)
    channel.send("basic.ack", delivery_tag=1)
    answers = [show(channel.call("tx.rollback"))]
    ready = t.count(queue, t.channel(), 0)
    channel.send("basic.ack", delivery_tag=1)
    answers.append(show(channel.call("tx.commit")))
    return [*answers, f"ready after rollback {ready}"]


@topic.case(
    "reject-commit", "a reject with requeue counts after commit", ["ready before 0", "after 1"]
)
def _(t: Stage) -> list[str]:
    channel, other = t.channel(), t.channel()
    queue = t.queue(channel)
    t.put(other, "", queue)
    channel.call("tx.select")
    channel.get(queue, no_ack=False)
    channel.send("basic.reject", delivery_tag=1, requeue=True)
    channel.sync()
    before = t.count(queue, other, 0)
    channel.call("tx.commit")
    return [f"ready before {before}", f"after {t.count(queue, other, 1)}"]


@topic.case(
    "ack-unknown",
    "ack of an unknown tag inside tx",
    "channel.close 406 PRECONDITION_FAILED - unknown delivery tag 9 (60.80)",
)
def _(t: Stage) -> list[str]:
    channel = t.channel()
    channel.call("tx.select")
    channel.send("basic.ack", delivery_tag=9)
    return briefs(channel.sync())


@topic.case(
    "mandatory",
    "a mandatory publish inside tx is returned at commit",
    [
        "nothing",
        "basic.return reply_code=312 reply_text=NO_ROUTE exchange= routing_key=nope body=x",
        "tx.commit-ok",
    ],
)
def _(t: Stage) -> list[str]:
    channel = t.channel()
    channel.call("tx.select")
    channel.publish("", t.name("nope"), b"x", mandatory=True)
    before = briefs(channel.sync()) or ["nothing"]
    channel.send("tx.commit")
    return [*before, *briefs([channel.next(), channel.next()])]


@topic.case(
    "exchange-missing",
    "publish to a missing exchange inside tx",
    "channel.close 404 NOT_FOUND - no exchange 'nope' in vhost '/' (60.40)",
)
def _(t: Stage) -> list[str]:
    channel = t.channel()
    channel.call("tx.select")
    channel.publish(t.name("nope"), "k", b"x")
    return briefs(channel.sync())


@topic.case("closed-before-commit", "publishes of a tx channel closed without commit", "messages 0")
def _(t: Stage) -> str:
    channel, other = t.channel(), t.channel()
    queue = t.queue(channel)
    channel.call("tx.select")
    channel.publish("", queue, b"x")
    channel.call("channel.close")
    return f"messages {t.count(queue, other, 0)}"


@topic.case(
    "reject-publish",
    "commit of a publish that a full queue rejects",
    "channel.close 406 PRECONDITION_FAILED - partial tx completion (90.20)",
)
def _(t: Stage) -> str:
    channel = t.channel()
    queue = t.queue(channel, arguments={"x-max-length": 0, "x-overflow": "reject-publish"})
    channel.call("tx.select")
    channel.publish("", queue, b"x")
    return show(channel.call("tx.commit"))


@topic.case("delivery-not-held", "deliveries are not held back by tx", "t#1 x")
def _(t: Stage) -> str:
    channel = t.channel()
    queue = t.queue(channel)
    channel.call("tx.select")
    t.consume(channel, queue)
    t.put(t.channel(), "", queue)
    return brief(channel.next())


@topic.case(
    "confirms-all",
    "ten publishes at once are all acked, whatever the bundling",
    "acked 1,2,3,4,5,6,7,8,9,10",
)
def _(t: Stage) -> str:
    channel = t.channel()
    queue = t.queue(channel)
    channel.call("confirm.select")
    for _ in range(10):
        channel.publish("", queue, b"x")
    events: list[Event] = []
    while confirms(events) != "acked 1,2,3,4,5,6,7,8,9,10":
        events.append(channel.next())
    return confirms(events)


@topic.case("confirms-start", "publishes before confirm.select are not counted", "basic.ack 1")
def _(t: Stage) -> str:
    channel = t.channel()
    queue = t.queue(channel)
    channel.publish("", queue, b"x")
    return show(t.put(channel, "", queue)[0])


@topic.case(
    "confirms-per-channel",
    "each channel counts its publishes from 1",
    ["basic.ack 1", "basic.ack 2", "basic.ack 1"],
)
def _(t: Stage) -> list[str]:
    first, second = t.channel(), t.channel()
    queue = t.queue(first)
    events = [*t.put(first, "", queue, "a", "b"), *t.put(second, "", queue)]
    return briefs(events)


@topic.case(
    "confirms-persistent", "persistent messages to a durable queue are acked", "basic.ack 1"
)
def _(t: Stage) -> str:
    channel = t.channel()
    queue = t.queue(channel, durable=True)
    return show(t.put(channel, "", queue, properties={"delivery_mode": 2})[0])


@topic.case("confirms-quorum", "publishes to a quorum queue are acked", "acked 1,2")
def _(t: Stage) -> str:
    channel = t.channel()
    return confirms(t.put(channel, "", t.quorum(channel), "a", "b"))


@topic.case("confirms-two-queues", "a publish to two queues gets one ack", "basic.ack 1")
def _(t: Stage) -> list[str]:
    channel = t.channel()
    exchange = t.exchange(channel)
    for suffix in ("q1", "q2"):
        t.bind(channel, t.queue(channel, suffix), exchange)
    return briefs([*t.put(channel, exchange, ""), *channel.sync()])


@topic.case(
    "confirms-consumed", "a message that is consumed at once is acked too", ["basic.ack 1", "t#1 x"]
)
def _(t: Stage) -> list[str]:
    channel, consumer = t.channel(), t.channel()
    queue = t.queue(channel)
    t.consume(consumer, queue, no_ack=True)
    return [*briefs(t.put(channel, "", queue)), *briefs(consumer.sync())]
