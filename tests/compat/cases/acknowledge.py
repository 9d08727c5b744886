"""basic.ack, reject, nack and recover: bad tags, requeue order, redelivered marks."""

from __future__ import annotations

from tests.compat.case import Script, Topic
from tests.compat.client import Channel
from tests.compat.describe import bodies, brief, briefs, show
from tests.compat.stage import Stage

topic = Topic("acknowledge")


def taken(t: Stage, texts: str, count: int) -> tuple[Channel, str]:
    """A channel that has taken `count` of the one-letter messages of a queue, unacked."""
    channel = t.channel()
    queue = t.queue(channel)
    if texts:
        t.put(channel, "", queue, *texts)
    for _ in range(count):
        channel.get(queue, no_ack=False)
    return channel, queue


def settled(method: str, count: int = 0, **fields: object) -> Script:
    """Takes messages, settles by one method and shows the close, or `accepted`."""

    def script(t: Stage) -> list[str]:
        channel, _ = taken(t, "abc"[:count], count)
        channel.send(method, **fields)
        return briefs(channel.sync()) or ["accepted"]

    return script


topic.add(
    "ack-unknown",
    "ack of tag 1, none delivered",
    settled("basic.ack", delivery_tag=1),
    "channel.close 406 PRECONDITION_FAILED - unknown delivery tag 1 (60.80)",
)
topic.add(
    "ack-0-multiple",
    "ack of tag 0 with multiple, nothing unacked",
    settled("basic.ack", multiple=True),
    "accepted",
)
topic.add(
    "ack-0",
    "ack of tag 0 without multiple",
    settled("basic.ack"),
    "channel.close 406 PRECONDITION_FAILED - unknown delivery tag 0 (60.80)",
)
topic.add(
    "ack-5-multiple",
    "ack of tag 5 with multiple, none delivered",
    settled("basic.ack", delivery_tag=5, multiple=True),
    "channel.close 406 PRECONDITION_FAILED - unknown delivery tag 5 (60.80)",
)
topic.add(
    "ack-beyond-multiple",
    "ack of tag 5 with multiple, 3 unacked",
    settled("basic.ack", 3, delivery_tag=5, multiple=True),
    "channel.close 406 PRECONDITION_FAILED - unknown delivery tag 5 (60.80)",
)
topic.add(
    "reject-unknown",
    "reject of tag 1",
    settled("basic.reject", delivery_tag=1),
    "channel.close 406 PRECONDITION_FAILED - unknown delivery tag 1 (60.90)",
)
topic.add(
    "nack-unknown",
    "nack of tag 1",
    settled("basic.nack", delivery_tag=1),
    "channel.close 406 PRECONDITION_FAILED - unknown delivery tag 1 (60.120)",
)
topic.add(
    "nack-0-multiple",
    "nack of tag 0 with multiple",
    settled("basic.nack", multiple=True),
    "accepted",
)
topic.add("ack", "ack of a delivered tag", settled("basic.ack", 1, delivery_tag=1), "accepted")


@topic.case(
    "ack-twice",
    "ack of a tag already acked",
    "channel.close 406 PRECONDITION_FAILED - unknown delivery tag 1 (60.80)",
)
def _(t: Stage) -> list[str]:
    channel, _ = taken(t, "a", 1)
    channel.send("basic.ack", delivery_tag=1)
    channel.send("basic.ack", delivery_tag=1)
    return briefs(channel.sync())


@topic.case(
    "ack-of-no-ack",
    "ack of a message delivered without acknowledgement",
    "channel.close 406 PRECONDITION_FAILED - unknown delivery tag 1 (60.80)",
)
def _(t: Stage) -> list[str]:
    channel, queue = taken(t, "a", 0)
    channel.get(queue, no_ack=True)
    channel.send("basic.ack", delivery_tag=1)
    return briefs(channel.sync())


@topic.case(
    "ack-multiple-again",
    "ack with multiple up to a tag already acked",
    "channel.close 406 PRECONDITION_FAILED - unknown delivery tag 1 (60.80)",
)
def _(t: Stage) -> list[str]:
    channel, _ = taken(t, "abc", 3)
    channel.send("basic.ack", delivery_tag=2, multiple=True)
    channel.send("basic.ack", delivery_tag=1, multiple=True)
    return briefs(channel.sync()) or ["accepted"]


@topic.case(
    "ack-0-multiple-all",
    "ack of tag 0 with multiple acks all that is unacked",
    "channel.close 406 PRECONDITION_FAILED - unknown delivery tag 3 (60.80)",
)
def _(t: Stage) -> list[str]:
    channel, _ = taken(t, "abc", 3)
    channel.send("basic.ack", delivery_tag=0, multiple=True)
    channel.send("basic.ack", delivery_tag=3)
    return briefs(channel.sync())


@topic.case("ack-out-of-order", "acks in another order than the deliveries", "left 0")
def _(t: Stage) -> list[str]:
    channel, queue = taken(t, "abc", 3)
    for tag in (2, 3, 1):
        channel.send("basic.ack", delivery_tag=tag)
    channel.sync()
    channel.call("channel.close")
    return [f"left {t.count(queue, t.channel(), 0)}"]


@topic.case(
    "ack-multiple-leaves-later", "ack with multiple leaves later deliveries unacked", "c! d!"
)
def _(t: Stage) -> str:
    channel, queue = taken(t, "abcd", 4)
    channel.send("basic.ack", delivery_tag=2, multiple=True)
    channel.sync()
    channel.call("channel.close")
    other = t.channel()
    t.count(queue, other, 2)
    return bodies(t.drain(other, queue))


@topic.case(
    "ack-other-channel",
    "a tag of another channel is unknown",
    "channel.close 406 PRECONDITION_FAILED - unknown delivery tag 1 (60.80)",
)
def _(t: Stage) -> list[str]:
    taken(t, "a", 1)
    other = t.channel()
    other.send("basic.ack", delivery_tag=1)
    return briefs(other.sync())


@topic.case(
    "error-requeues",
    "an unknown tag closes the channel and requeues its unacked",
    ["channel.close 406 PRECONDITION_FAILED - unknown delivery tag 9 (60.80)", "a! b!"],
)
def _(t: Stage) -> list[str]:
    channel, queue = taken(t, "ab", 2)
    channel.send("basic.ack", delivery_tag=9)
    closed = briefs(channel.sync())
    other = t.channel()
    t.count(queue, other, 2)
    return [*closed, bodies(t.drain(other, queue))]


@topic.case(
    "reject-first", "reject with requeue puts the first of three back in its place", "0! 1 2"
)
def _(t: Stage) -> str:
    channel, queue = taken(t, "012", 1)
    channel.send("basic.reject", delivery_tag=1, requeue=True)
    return bodies(t.drain(channel, queue))


@topic.case("nack-multiple", "nack with multiple and requeue of three of five", "0! 1! 2! 3 4")
def _(t: Stage) -> str:
    channel, queue = taken(t, "01234", 3)
    channel.send("basic.nack", delivery_tag=3, multiple=True, requeue=True)
    return bodies(t.drain(channel, queue))


@topic.case("nack-all", "nack of tag 0 with multiple and requeue puts all back", "0! 1! 2! 3")
def _(t: Stage) -> str:
    channel, queue = taken(t, "0123", 3)
    channel.send("basic.nack", delivery_tag=0, multiple=True, requeue=True)
    return bodies(t.drain(channel, queue))


@topic.case("nack-middle", "nack without requeue removes just that one", "0! 2!")
def _(t: Stage) -> str:
    channel, queue = taken(t, "012", 3)
    channel.send("basic.nack", delivery_tag=2)
    channel.send("basic.nack", delivery_tag=3, multiple=True, requeue=True)
    return bodies(t.drain(channel, queue))


@topic.case("second-then-first", "requeue of the second, then of the first", "0! 1! 2 3")
def _(t: Stage) -> str:
    channel, queue = taken(t, "0123", 2)
    channel.send("basic.reject", delivery_tag=2, requeue=True)
    channel.send("basic.reject", delivery_tag=1, requeue=True)
    return bodies(t.drain(channel, queue))


@topic.case("reverse", "requeue of five in reverse order", "0! 1! 2! 3! 4!")
def _(t: Stage) -> str:
    channel, queue = taken(t, "01234", 5)
    for tag in (5, 4, 3, 2, 1):
        channel.send("basic.reject", delivery_tag=tag, requeue=True)
    return bodies(t.drain(channel, queue))


@topic.case("between-later", "a requeued message comes before those published meanwhile", "0! 1! 2")
def _(t: Stage) -> str:
    channel, queue = taken(t, "01", 2)
    t.put(channel, "", queue, "2")
    channel.send("basic.reject", delivery_tag=2, requeue=True)
    channel.send("basic.reject", delivery_tag=1, requeue=True)
    return bodies(t.drain(channel, queue))


@topic.case(
    "two-channels", "two channels requeue in turn: the original order returns", "0! 1! 2! 3! 4 5"
)
def _(t: Stage) -> str:
    first, queue = taken(t, "012345", 0)
    second = t.channel()
    for channel in (first, second, first, second):
        channel.get(queue, no_ack=False)
    second.send("basic.nack", delivery_tag=2, multiple=True, requeue=True)
    t.count(queue, second, 4)
    first.send("basic.nack", delivery_tag=2, multiple=True, requeue=True)
    t.count(queue, first, 6)
    return bodies(t.drain(first, queue))


@topic.case("channel-close", "unacked messages of a closed channel return in order", "0! 1! 2 3")
def _(t: Stage) -> str:
    channel, queue = taken(t, "0123", 2)
    channel.call("channel.close")
    other = t.channel()
    t.count(queue, other, 4)
    return bodies(t.drain(other, queue))


@topic.case("connection-lost", "unacked messages of a lost connection are redelivered", "a! b!")
def _(t: Stage) -> str:
    connection = t.connect()
    channel = connection.channel()
    queue = t.queue(channel)
    t.put(channel, "", queue, "a", "b")
    t.consume(channel, queue)
    channel.next()
    connection.drop()
    other = t.channel()
    t.count(queue, other, 2)
    return bodies(t.drain(other, queue))


@topic.case("connection-close", "after a clean connection.close all unacked are ready", "a! b! c")
def _(t: Stage) -> str:
    connection = t.connect()
    channel = connection.channel()
    queue = t.queue(channel)
    t.put(channel, "", queue, "a", "b", "c")
    channel.get(queue, no_ack=False)
    channel.get(queue, no_ack=False)
    connection.close()
    other = t.channel()
    t.count(queue, other, 3)
    return bodies(t.drain(other, queue))


@topic.case(
    "requeue-to-self",
    "a requeued message comes back to its only consumer",
    ["t#1 x", "t#2 x redelivered"],
)
def _(t: Stage) -> list[str]:
    channel, queue = taken(t, "x", 0)
    t.consume(channel, queue)
    first = channel.next()
    channel.send("basic.reject", delivery_tag=1, requeue=True)
    return briefs([first, channel.next()])


@topic.case(
    "requeue-to-other",
    "a requeued message goes to the consumer whose turn it is",
    ["a#1 x", "b#2 x redelivered"],
)
def _(t: Stage) -> list[str]:
    channel, queue = taken(t, "", 0)
    t.consume(channel, queue, "a")
    t.consume(channel, queue, "b")
    t.put(t.channel(), "", queue, "x")
    first = channel.next()
    channel.send("basic.reject", delivery_tag=1, requeue=True)
    return briefs([first, channel.next()])


@topic.case(
    "redelivered-stays",
    "the redelivered mark stays over a second requeue",
    ["get#2 x redelivered", "get#3 x redelivered"],
)
def _(t: Stage) -> list[str]:
    channel, queue = taken(t, "x", 1)
    channel.send("basic.nack", delivery_tag=1, requeue=True)
    second = channel.get_soon(queue, no_ack=False)
    channel.send("basic.nack", delivery_tag=2, requeue=True)
    return briefs([second, channel.get_soon(queue)])


@topic.case("recover-none", "recover with nothing unacked", "basic.recover-ok")
def _(t: Stage) -> str:
    return show(t.channel().call("basic.recover", requeue=True))


@topic.case(
    "recover",
    "recover requeues and redelivers in order",
    ["basic.recover-ok", "t#3 0 redelivered", "t#4 1 redelivered"],
)
def _(t: Stage) -> list[str]:
    channel, queue = taken(t, "01", 0)
    t.consume(channel, queue)
    channel.next(), channel.next()
    channel.send("basic.recover", requeue=True)
    return briefs([channel.next(), channel.next(), channel.next()])


@topic.case("recover-get", "recover puts back what was taken by get", "0! 1! 2")
def _(t: Stage) -> str:
    channel, queue = taken(t, "012", 2)
    channel.call("basic.recover", requeue=True)
    return bodies(t.drain(channel, queue))


@topic.case(
    "recover-old-tag",
    "a tag from before recover is unknown",
    "channel.close 406 PRECONDITION_FAILED - unknown delivery tag 1 (60.80)",
)
def _(t: Stage) -> list[str]:
    channel, _ = taken(t, "0", 1)
    channel.call("basic.recover", requeue=True)
    channel.send("basic.ack", delivery_tag=1)
    return briefs(channel.sync())


@topic.case(
    "recover-no-requeue",
    "recover without requeue",
    "connection.close 540 NOT_IMPLEMENTED - requeue=false (60.110)",
)
def _(t: Stage) -> str:
    return show(t.channel().call("basic.recover", requeue=False))


@topic.case("recover-async", "recover-async with requeue", "get#2 0 redelivered")
def _(t: Stage) -> list[str]:
    channel, queue = taken(t, "0", 1)
    channel.send("basic.recover-async", requeue=True)
    return [*briefs(channel.sync()), brief(channel.get_soon(queue))]


@topic.case(
    "recover-async-no-requeue",
    "recover-async without requeue",
    "connection.close 540 NOT_IMPLEMENTED - requeue=false (60.100)",
)
def _(t: Stage) -> list[str]:
    channel = t.channel()
    channel.send("basic.recover-async", requeue=False)
    return briefs(channel.sync())
