"""Direct reply-to: amq.rabbitmq.reply-to without a queue."""

from __future__ import annotations

from typing import Final

from tests.compat.case import Topic
from tests.compat.client import Channel, Method
from tests.compat.describe import briefs, properties, show
from tests.compat.stage import Stage

topic = Topic("reply-to")

_PSEUDO: Final = "amq.rabbitmq.reply-to"


def request(t: Stage, client: Channel, server: Channel) -> tuple[Method, str]:
    """Sends a request with a direct reply-to; returns it and the address it carries."""
    queue = t.queue(server)
    t.consume(client, _PSEUDO, no_ack=True)
    client.publish("", queue, b"ask", {"reply_to": _PSEUDO, "correlation_id": "7"})
    message = server.get_soon(queue)
    assert message.content is not None
    return message, str(message.content.properties["reply_to"])


@topic.case(
    "with-ack",
    "consume of the pseudo-queue without no_ack",
    "channel.close 406 PRECONDITION_FAILED - reply consumer cannot acknowledge (60.20)",
)
def _(t: Stage) -> str:
    return show(t.channel().call("basic.consume", queue=_PSEUDO))


@topic.case(
    "twice",
    "a second consume of it on the channel",
    "channel.close 406 PRECONDITION_FAILED - reply consumer already set (60.20)",
)
def _(t: Stage) -> str:
    channel = t.channel()
    t.consume(channel, _PSEUDO, no_ack=True)
    return show(channel.call("basic.consume", queue=_PSEUDO, no_ack=True))


@topic.case(
    "without-consumer",
    "publish with that reply_to and no consumer",
    "channel.close 406 PRECONDITION_FAILED - fast reply consumer does not exist (60.40)",
)
def _(t: Stage) -> list[str]:
    channel = t.channel()
    queue = t.queue(channel)
    channel.publish("", queue, b"x", {"reply_to": _PSEUDO})
    return briefs(channel.sync())


@topic.case(
    "round-trip",
    "request and reply",
    [
        "correlation_id=7 reply_to=amq.rabbitmq.reply-to.*",
        (
            "basic.deliver consumer_tag=t delivery_tag=1 redelivered=false exchange= "
            "routing_key=amq.rabbitmq.reply-to.* body=answer"
        ),
    ],
)
def _(t: Stage) -> list[str]:
    client, server = t.channel(), t.connect().channel()
    message, address = request(t, client, server)
    assert message.content is not None
    server.publish("", address, b"answer", {"correlation_id": "7"})
    reply = client.next()
    return [properties(message.content), show(reply)]


@topic.case(
    "several-replies",
    "one request, three replies: delivery tags count up",
    ["t#1 1", "t#2 2", "t#3 3"],
    rabbitmq=["t#1 1", "t#1 2", "t#1 3"],
    difference="reply-to-tags",
)
def _(t: Stage) -> list[str]:
    client, server = t.channel(), t.connect().channel()
    _, address = request(t, client, server)
    for text in (b"1", b"2", b"3"):
        server.publish("", address, text)
    return briefs(client.next() for _ in range(3))


@topic.case("same-connection", "client and server on one connection", "t#1 answer")
def _(t: Stage) -> list[str]:
    client, server = t.channel(), t.channel()
    _, address = request(t, client, server)
    server.publish("", address, b"answer")
    return briefs([client.next()])


@topic.case(
    "presence",
    "passive declare of a reply address tells whether the client is there",
    [
        "queue.declare-ok queue=amq.rabbitmq.reply-to.* message_count=0 consumer_count=1",
        ("channel.close 404 NOT_FOUND - no queue 'amq.rabbitmq.reply-to.*' in vhost '/' (50.10)"),
    ],
)
def _(t: Stage) -> list[str]:
    client, server = t.channel(), t.connect().channel()
    _, address = request(t, client, server)
    there = show(server.call("queue.declare", queue=address, passive=True))
    client.call("channel.close")
    return [there, show(server.call("queue.declare", queue=address, passive=True))]


@topic.case("gone", "a reply to a client that is gone is dropped", "nothing")
def _(t: Stage) -> list[str]:
    client, server = t.channel(), t.connect().channel()
    _, address = request(t, client, server)
    client.call("channel.close")
    server.publish("", address, b"late")
    return briefs(server.sync()) or ["nothing"]


@topic.case(
    "gone-mandatory",
    "a mandatory reply to a client that is gone counts as routed",
    "nothing",
    rabbitmq=(
        "basic.return reply_code=312 reply_text=NO_ROUTE exchange= "
        "routing_key=amq.rabbitmq.reply-to.* body=late"
    ),
    difference="reply-to-gone",
)
def _(t: Stage) -> list[str]:
    client, server = t.channel(), t.connect().channel()
    _, address = request(t, client, server)
    client.call("channel.close")
    server.publish("", address, b"late", mandatory=True)
    return briefs(server.sync()) or ["nothing"]


@topic.case("confirmed", "a reply in confirm mode is acked", ["basic.ack 1", "t#1 answer"])
def _(t: Stage) -> list[str]:
    client, server = t.channel(), t.connect().channel()
    _, address = request(t, client, server)
    return briefs([*t.put(server, "", address, "answer"), client.next()])


@topic.case(
    "cancelled",
    "after a cancel of the consumer a publish with reply_to fails",
    "channel.close 406 PRECONDITION_FAILED - fast reply consumer does not exist (60.40)",
)
def _(t: Stage) -> list[str]:
    channel = t.channel()
    queue = t.queue(channel)
    t.consume(channel, _PSEUDO, no_ack=True)
    channel.call("basic.cancel", consumer_tag="t")
    channel.publish("", queue, b"x", {"reply_to": _PSEUDO})
    return briefs(channel.sync())


@topic.case(
    "declare",
    "passive declare of the pseudo-queue itself",
    "queue.declare-ok queue=amq.rabbitmq.reply-to message_count=0 consumer_count=1",
)
def _(t: Stage) -> str:
    return show(t.channel().call("queue.declare", queue=_PSEUDO, passive=True))


@topic.case(
    "address-invalid",
    "a publish to a made-up reply address, mandatory",
    (
        "basic.return reply_code=312 reply_text=NO_ROUTE exchange= "
        "routing_key=amq.rabbitmq.reply-to.* body=x"
    ),
)
def _(t: Stage) -> list[str]:
    channel = t.channel()
    channel.publish("", f"{_PSEUDO}.made-up", b"x", mandatory=True)
    return briefs(channel.sync()) or ["nothing"]


@topic.case(
    "other-exchange",
    "a reply address is only known to the default exchange",
    (
        "basic.return reply_code=312 reply_text=NO_ROUTE exchange=amq.direct "
        "routing_key=amq.rabbitmq.reply-to.* body=x"
    ),
)
def _(t: Stage) -> list[str]:
    client, server = t.channel(), t.connect().channel()
    _, address = request(t, client, server)
    server.publish("amq.direct", address, b"x", mandatory=True)
    return briefs(server.sync()) or ["nothing"]


@topic.case(
    "get",
    "basic.get from the pseudo-queue",
    "channel.close 404 NOT_FOUND - no queue 'amq.rabbitmq.reply-to' in vhost '/' (60.70)",
)
def _(t: Stage) -> str:
    return show(t.channel().call("basic.get", queue=_PSEUDO))


@topic.case("delete", "delete of the pseudo-queue", "queue.delete-ok message_count=0")
def _(t: Stage) -> str:
    return show(t.channel().call("queue.delete", queue=_PSEUDO))
