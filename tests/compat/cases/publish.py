"""basic.publish: the checks of its properties, mandatory and returns, sender-selected keys."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tests.compat.case import Script, Topic
from tests.compat.describe import briefs, confirms, properties, show
from tests.compat.stage import Stage

topic = Topic("publish")


def published(given: Mapping[str, object], **flags: object) -> Script:
    """A script that publishes one message to a queue; shows a close, or what arrived."""

    def script(t: Stage) -> list[str]:
        channel = t.channel()
        queue = t.queue(channel)
        answer = t.put(channel, "", queue, properties=given, **flags)[0]
        return [show(answer)]

    return script


_ACCEPTED: Final = "basic.ack 1"


def refused(text: str) -> str:
    return f"channel.close 406 PRECONDITION_FAILED - {text} (60.40)"


_CHECKS: Final[tuple[tuple[str, dict[str, object], str], ...]] = (
    (
        "user-id-other",
        {"user_id": "bob"},
        refused("user_id property set to 'bob' but authenticated user was 'guest'"),
    ),
    ("user-id-own", {"user_id": "guest"}, _ACCEPTED),
    (
        "expiration-text",
        {"expiration": "abc"},
        refused("invalid expiration 'abc': no_integer"),
    ),
    (
        "expiration-negative",
        {"expiration": "-1"},
        refused("invalid expiration '-1': {value_negative,-1}"),
    ),
    (
        "expiration-fraction",
        {"expiration": "1.5"},
        refused("invalid expiration '1.5': {leftover_string,\".5\"}"),
    ),
    ("expiration-empty", {"expiration": ""}, refused("invalid expiration '': no_integer")),
    (
        "expiration-space",
        {"expiration": " 5"},
        "channel.close 406 PRECONDITION_FAILED - invalid expiration ' 5': no_integer (60.40)",
    ),
    (
        "expiration-trailing",
        {"expiration": "5 "},
        (
            "channel.close 406 PRECONDITION_FAILED - invalid expiration '5 ': "
            '{leftover_string," "} (60.40)'
        ),
    ),
    ("expiration-plus", {"expiration": "+5"}, "basic.ack 1"),
    ("expiration-zeros", {"expiration": "0005000"}, "basic.ack 1"),
    ("expiration-zero", {"expiration": "0"}, _ACCEPTED),
    ("expiration-2-32", {"expiration": str(2**32)}, _ACCEPTED),
    (
        "expiration-huge",
        {"expiration": str(2**63)},
        (
            "channel.close 406 PRECONDITION_FAILED - invalid expiration '9223372036854775808': "
            "{value_too_large,9223372036854775808} (60.40)"
        ),
    ),
    (
        "cc-text",
        {"headers": {"CC": "key"}},
        refused('invalid message: {unacceptable_type_in_header,"CC",longstr}'),
    ),
    (
        "bcc-number",
        {"headers": {"BCC": 5}},
        refused('invalid message: {unacceptable_type_in_header,"BCC",signedint}'),
    ),
    ("cc-list-of-numbers", {"headers": {"CC": [5]}}, _ACCEPTED),
    (
        "delivery-mode-7",
        {"delivery_mode": 7},
        refused("invalid message: {delivery_mode_unknown,7}"),
    ),
    (
        "delivery-mode-0",
        {"delivery_mode": 0},
        (
            "channel.close 406 PRECONDITION_FAILED - invalid message: {delivery_mode_unknown,0} "
            "(60.40)"
        ),
    ),
)
for _name, _given, _answer in _CHECKS:
    topic.add(_name, f"publish with {_given}", published(_given), _answer)

topic.add(
    "immediate",
    "publish immediate",
    published({}, immediate=True),
    "connection.close 540 NOT_IMPLEMENTED - immediate=true (60.40)",
)
topic.add(
    "mandatory-routed", "a routed mandatory publish", published({}, mandatory=True), _ACCEPTED
)


@topic.case(
    "return",
    "a mandatory publish that no queue gets comes back whole",
    [
        "basic.return reply_code=312 reply_text=NO_ROUTE exchange= routing_key=nope body=body",
        "message_id=m",
    ],
)
def _(t: Stage) -> list[str]:
    channel = t.channel()
    channel.publish("", t.name("nope"), b"body", {"message_id": "m"}, mandatory=True)
    returned = t.require(channel.sync()[0])
    assert returned.content is not None
    return [show(returned), properties(returned.content)]


@topic.case(
    "return-before-ack",
    "in confirm mode the return comes before the ack",
    [
        "basic.return reply_code=312 reply_text=NO_ROUTE exchange= routing_key=nope body=x",
        "basic.ack 1",
    ],
)
def _(t: Stage) -> list[str]:
    channel = t.channel()
    channel.call("confirm.select")
    channel.publish("", t.name("nope"), b"x", mandatory=True)
    return briefs([channel.next(), channel.next()])


@topic.case(
    "return-order",
    "returns and acks of three, the second routed",
    [
        "basic.return reply_code=312 reply_text=NO_ROUTE exchange= routing_key=nope body=x",
        "basic.return reply_code=312 reply_text=NO_ROUTE exchange= routing_key=nope body=x",
        "acked 1,2,3",
    ],
)
def _(t: Stage) -> list[str]:
    channel = t.channel()
    queue = t.queue(channel)
    channel.call("confirm.select")
    events = []
    for key in (t.name("nope"), queue, t.name("nope")):
        events += [*t.put(channel, "", key, mandatory=True)]
    return [*briefs(channel.take()), confirms(events)]


@topic.case(
    "return-empty-body",
    "a returned message without a body",
    "basic.return reply_code=312 reply_text=NO_ROUTE exchange= routing_key=nope body=",
)
def _(t: Stage) -> list[str]:
    channel = t.channel()
    channel.publish("", t.name("nope"), b"", mandatory=True)
    return briefs(channel.sync())


@topic.case(
    "return-deleted-queue",
    "mandatory to the name of a deleted queue",
    "basic.return reply_code=312 reply_text=NO_ROUTE exchange= routing_key=q body=x",
)
def _(t: Stage) -> list[str]:
    channel = t.channel()
    queue = t.queue(channel)
    channel.call("queue.delete", queue=queue)
    channel.publish("", queue, b"x", mandatory=True)
    return briefs(channel.sync())


@topic.case("unroutable", "an unroutable publish without mandatory is dropped", "nothing")
def _(t: Stage) -> list[str]:
    channel = t.channel()
    channel.publish("", t.name("nope"), b"x")
    return briefs(channel.sync()) or ["nothing"]


@topic.case(
    "unroutable-confirmed",
    "an unroutable publish in confirm mode is acked",
    "basic.ack 1",
)
def _(t: Stage) -> str:
    return show(t.put(t.channel(), "", t.name("nope"))[0])


@topic.case(
    "missing-exchange-confirmed",
    "publish to a missing exchange in confirm mode",
    "channel.close 404 NOT_FOUND - no exchange 'nope' in vhost '/' (60.40)",
)
def _(t: Stage) -> str:
    return show(t.put(t.channel(), t.name("nope"), "k")[0])


@topic.case(
    "close-drops-rest",
    "publishes after the one that closed the channel are dropped",
    ["channel.close 404 NOT_FOUND - no exchange 'nope' in vhost '/' (60.40)", "messages 0"],
)
def _(t: Stage) -> list[str]:
    channel, other = t.channel(), t.channel()
    queue = t.queue(channel)
    channel.connection.answers_close = False
    channel.publish(t.name("nope"), "k", b"x")
    channel.publish("", queue, b"x")
    closed = channel.next()
    channel.send("channel.close-ok")
    return [show(closed), f"messages {t.count(queue, other, 0)}"]


@topic.case("long-key", "a routing key of 255 bytes", "messages 1")
def _(t: Stage) -> str:
    channel = t.channel()
    queue, exchange = t.queue(channel), t.exchange(channel, "direct")
    key = "k" * 255
    t.bind(channel, queue, exchange, key)
    t.put(channel, exchange, key)
    return f"messages {t.count(queue, channel, 1)}"


def _keys(header: str, values: object) -> Script:
    """Publishes to q1 with further keys; shows who got it and the headers seen there."""

    def script(t: Stage) -> list[str]:
        channel = t.channel()
        queues = [t.queue(channel, f"q{number}") for number in (1, 2, 3)]
        named = [
            t.name(item) if isinstance(item, str) else item
            for item in (values if isinstance(values, list) else [])
        ]
        t.put(channel, "", queues[0], properties={"headers": {header: named}})
        seen = []
        for queue in queues:
            message = channel.get(queue)
            if message is not None and message.content is not None:
                key = message.fields["routing_key"]
                seen.append(f"{queue} by {key}: {properties(message.content)}")
        return seen

    return script


topic.add(
    "cc",
    "CC adds keys and stays in the headers",
    _keys("CC", ["q2"]),
    ["q1 by q1: headers={CC=[S:q2]}", "q2 by q1: headers={CC=[S:q2]}"],
)
topic.add(
    "bcc",
    "BCC adds keys and is taken out",
    _keys("BCC", ["q2", "q3"]),
    ["q1 by q1: headers={}", "q2 by q1: headers={}", "q3 by q1: headers={}"],
)
topic.add(
    "cc-twice",
    "a queue named twice gets one copy",
    _keys("CC", ["q1", "q2", "q2"]),
    ["q1 by q1: headers={CC=[S:q1, S:q2, S:q2]}", "q2 by q1: headers={CC=[S:q1, S:q2, S:q2]}"],
)
topic.add(
    "cc-mixed",
    "CC skips what is not a string",
    _keys("CC", [5, "q3"]),
    ["q1 by q1: headers={CC=[I:5, S:q3]}", "q3 by q1: headers={CC=[I:5, S:q3]}"],
)


@topic.case(
    "cc-and-bcc",
    "CC and BCC together on the default exchange",
    [
        "q1: headers={CC=[S:q2], k=S:v}",
        "q1: headers={CC=[S:q2], k=S:v}",
        "q1: headers={CC=[S:q2], k=S:v}",
    ],
)
def _(t: Stage) -> list[str]:
    channel = t.channel()
    queues = [t.queue(channel, f"q{number}") for number in (1, 2, 3)]
    headers = {"CC": [queues[1]], "BCC": [queues[2]], "k": "v"}
    t.put(channel, "", queues[0], properties={"headers": headers})
    seen = []
    for queue in queues:
        message = channel.get_soon(queue)
        assert message.content is not None
        seen.append(f"{message.fields['routing_key']}: {properties(message.content)}")
    return seen


@topic.case(
    "cc-topic",
    "CC keys are matched by a topic exchange too",
    (
        "basic.get-ok delivery_tag=1 redelivered=false exchange=x routing_key=a.x "
        "message_count=0 body=x"
    ),
)
def _(t: Stage) -> str:
    channel = t.channel()
    queue, exchange = t.queue(channel), t.exchange(channel, "topic")
    t.bind(channel, queue, exchange, "b.*")
    t.put(channel, exchange, "a.x", properties={"headers": {"CC": ["b.x"]}})
    return show(channel.get_soon(queue))


@topic.case("cc-mandatory", "mandatory counts a CC key as routed", "messages 1")
def _(t: Stage) -> list[str]:
    channel = t.channel()
    queue = t.queue(channel)
    properties_given = {"headers": {"CC": [queue]}}
    t.put(channel, "", t.name("nope"), properties=properties_given, mandatory=True)
    return [*briefs(channel.take()), f"messages {t.count(queue, channel, 1)}"]


topic.add(
    "two-mistakes",
    "a user id that is not the user's, and an expiration that is none",
    published({"user_id": "bob", "expiration": "soon"}),
    refused("invalid expiration 'soon': no_integer"),
    rabbitmq=refused("user_id property set to 'bob' but authenticated user was 'guest'"),
    difference="first-mistake",
)
