"""channel.open, close, flow: numbers, states, reuse, many channels on one connection."""

from __future__ import annotations

from tests.compat.case import Topic
from tests.compat.client import Channel, Handshake
from tests.compat.describe import briefs, show
from tests.compat.stage import Stage

topic = Topic("channel")


@topic.case(
    "reopen",
    "after an error nothing is answered until close-ok, then reopen",
    [
        "channel.close 404 NOT_FOUND - no queue 'nope' in vhost '/' (50.10)",
        "channel.open-ok channel_id=",
        "queue.declare-ok queue=amq.gen-* message_count=0 consumer_count=0",
        "ignored exists False",
    ],
)
def _(t: Stage) -> list[str]:
    channel = t.channel()
    channel.connection.answers_close = False
    seen = [show(channel.call("queue.declare", queue=t.name("nope"), passive=True))]
    channel.send("queue.declare", queue=t.name("ignored"))
    channel.send("channel.close-ok")
    seen.append(show(channel.call("channel.open")))
    seen.append(show(channel.call("queue.declare", exclusive=True)))
    return [*seen, f"ignored exists {t.exists(t.name('ignored'))}"]


@topic.case(
    "others-unharmed",
    "an error on one channel leaves the others alone",
    ["channel.close 404 NOT_FOUND - no queue 'nope' in vhost '/' (60.70)", "t#1 m"],
)
def _(t: Stage) -> list[str]:
    channel, other = t.channel(), t.channel()
    queue = t.queue(other)
    t.consume(other, queue)
    closed = show(channel.call("basic.get", queue=t.name("nope")))
    t.put(t.channel(), "", queue, "m")
    return [closed, *briefs(other.sync())]


@topic.case(
    "never-opened",
    "a method on a channel never opened",
    "connection.close 504 CHANNEL_ERROR - expected 'channel.open' (50.10)",
)
def _(t: Stage) -> str:
    return show(Channel(t.connect(), 7).call("queue.declare", queue=t.name()))


@topic.case(
    "publish-never-opened",
    "a publish on a channel never opened",
    "connection.close 504 CHANNEL_ERROR - expected 'channel.open' (60.40)",
)
def _(t: Stage) -> str:
    channel = Channel(t.connect(), 7)
    channel.publish("", t.name(), b"x")
    return show(channel.next())


@topic.case(
    "closed-by-client",
    "a method on a channel closed by the client",
    ["channel.close-ok", "connection.close 504 CHANNEL_ERROR - expected 'channel.open' (50.10)"],
)
def _(t: Stage) -> list[str]:
    channel = t.channel()
    return [
        show(channel.call("channel.close")),
        show(channel.call("queue.declare", queue=t.name())),
    ]


@topic.case(
    "open-twice",
    "channel.open of an open channel",
    "connection.close 504 CHANNEL_ERROR - second 'channel.open' seen (20.10)",
)
def _(t: Stage) -> str:
    return show(t.channel().call("channel.open"))


@topic.case(
    "reuse-number",
    "a closed channel's number may be opened again and starts anew",
    ["get#1 a", "get#1 b", "basic.ack 1"],
)
def _(t: Stage) -> list[str]:
    connection = t.connect()
    channel = connection.channel(3)
    queue = t.queue(channel)
    t.put(channel, "", queue, "a", "b")
    seen = [channel.call("basic.get", queue=queue, no_ack=True)]
    channel.call("channel.close")
    channel = connection.channel(3)
    seen.append(channel.call("basic.get", queue=queue, no_ack=True))
    return briefs([*seen, *t.put(channel, "", queue)])


@topic.case(
    "reuse-forgets-queue",
    "a reopened channel has no last declared queue",
    "channel.close 404 NOT_FOUND - no previously declared queue (60.70)",
)
def _(t: Stage) -> str:
    connection = t.connect()
    channel = connection.channel(3)
    t.queue(channel)
    channel.call("channel.close")
    return show(connection.channel(3).call("basic.get"))


@topic.case(
    "number-over-maximum",
    "a channel number above the negotiated channel_max",
    "channel.open-ok channel_id=",
)
def _(t: Stage) -> str:
    connection = t.connect(Handshake(channel_max=10))
    return show(Channel(connection, 200).call("channel.open"))


@topic.case(
    "number-2048", "channel number 2048 with channel_max 2047", "channel.open-ok channel_id="
)
def _(t: Stage) -> str:
    return show(Channel(t.connect(), 2048).call("channel.open"))


@topic.case("number-65535", "channel number 65535", "channel.open-ok channel_id=")
def _(t: Stage) -> str:
    return show(Channel(t.connect(), 65535).call("channel.open"))


@topic.case(
    "too-many",
    "more open channels than the negotiated channel_max of 3",
    [
        "channel.open-ok channel_id=",
        "channel.open-ok channel_id=",
        "channel.open-ok channel_id=",
        (
            "connection.close 530 NOT_ALLOWED - number of channels opened (3) has reached the "
            "negotiated channel_max (3) (0.0)"
        ),
    ],
)
def _(t: Stage) -> list[str]:
    connection = t.connect(Handshake(channel_max=3))
    return [show(Channel(connection, number).call("channel.open")) for number in (1, 2, 3, 4)]


@topic.case("too-many-closed", "closed channels do not count", "channel.open-ok channel_id=")
def _(t: Stage) -> str:
    connection = t.connect(Handshake(channel_max=2))
    connection.channel(1)
    connection.channel(2).call("channel.close")
    return show(Channel(connection, 3).call("channel.open"))


@topic.case(
    "flow-false",
    "channel.flow active=false from the client",
    "connection.close 540 NOT_IMPLEMENTED - active=false (20.20)",
)
def _(t: Stage) -> str:
    return show(t.channel().call("channel.flow", active=False))


@topic.case("flow-true", "channel.flow active=true from the client", "channel.flow-ok active=true")
def _(t: Stage) -> str:
    return show(t.channel().call("channel.flow", active=True))


@topic.case("close", "channel.close from the client", "channel.close-ok")
def _(t: Stage) -> str:
    return show(t.channel().call("channel.close", reply_code=200, reply_text="bye"))


@topic.case(
    "close-removes-consumers",
    "a closed channel's consumers are gone",
    "queue.declare-ok queue=q message_count=0 consumer_count=0",
)
def _(t: Stage) -> str:
    channel = t.channel()
    queue = t.queue(channel)
    t.consume(channel, queue)
    channel.call("channel.close")
    return show(t.channel().call("queue.declare", queue=queue, passive=True))


@topic.case(
    "close-ok-unasked",
    "channel.close-ok that nobody asked for",
    "connection.close 503 COMMAND_INVALID - unimplemented method (20.41)",
)
def _(t: Stage) -> list[str]:
    channel = t.channel()
    channel.send("channel.close-ok")
    return briefs(channel.sync()) or ["accepted"]


@topic.case(
    "channel-0",
    "queue.declare on channel 0",
    ("connection.close 504 CHANNEL_ERROR - unexpected method in connection state running (50.10)"),
)
def _(t: Stage) -> str:
    return show(Channel(t.connect(), 0).call("queue.declare", queue=t.name()))


@topic.case(
    "open-channel-0",
    "channel.open on channel 0",
    ("connection.close 504 CHANNEL_ERROR - unexpected method in connection state running (20.10)"),
)
def _(t: Stage) -> str:
    return show(Channel(t.connect(), 0).call("channel.open"))


@topic.case(
    "connection-method",
    "connection.tune-ok on channel 1",
    "connection.close 503 COMMAND_INVALID - unimplemented method (10.31)",
)
def _(t: Stage) -> str:
    channel = t.channel()
    channel.send("connection.tune-ok")
    return show(channel.next())


@topic.case(
    "connection-close-method",
    "connection.close on channel 1",
    "connection.close 503 COMMAND_INVALID - unimplemented method (10.50)",
)
def _(t: Stage) -> str:
    channel = t.channel()
    channel.send("connection.close", reply_code=200)
    return show(channel.next())


@topic.case("access-request", "access.request answers ticket 1", "access.request-ok ticket=1")
def _(t: Stage) -> str:
    return show(t.channel().call("access.request", realm="/data"))


@topic.case(
    "ticket-ignored",
    "the ticket fields are ignored",
    "queue.declare-ok queue=q message_count=0 consumer_count=0",
)
def _(t: Stage) -> str:
    return show(t.channel().call("queue.declare", queue=t.name(), ticket=4711, exclusive=True))


@topic.case("connection-close", "connection.close with open channels", "connection.close-ok")
def _(t: Stage) -> str:
    connection = t.connect()
    for number in (1, 2, 3):
        connection.channel(number)
    return show(connection.close())


@topic.case(
    "after-connection-close",
    "what is sent after connection.close is ignored",
    "connection.close-ok, queue exists False",
)
def _(t: Stage) -> str:
    connection = t.connect()
    channel = connection.channel()
    connection.send(0, "connection.close", reply_code=200)
    channel.send("queue.declare", queue=t.name())
    seen = show(connection.receive(0))
    return f"{seen}, queue exists {t.exists(t.name())}"


@topic.case(
    "many", "100 channels on one connection, each with its own queue", "['queue.declare-ok queue']"
)
def _(t: Stage) -> str:
    connection = t.connect()
    channels = [connection.channel(number) for number in range(1, 101)]
    for channel in channels:
        channel.send("queue.declare", exclusive=True)
    answers = {show(channel.reply("queue.declare")).split("=")[0] for channel in channels}
    return f"{sorted(answers)}"
