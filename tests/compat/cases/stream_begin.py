"""Streams: where consumers begin, and which consumers are refused."""

from __future__ import annotations

from tests.compat.case import Script, Topic
from tests.compat.client import Method
from tests.compat.describe import briefs, show
from tests.compat.stage import Stage
from tests.compat.streams import (
    CRASH,
    bad,
    consumed,
    follow,
    foreign,
    rest,
    seen,
    stream,
    taken,
    unsupported,
)

topic = Topic("stream.begin")


def begins(texts: str, count: int, offset: object | None) -> Script:
    """Reads a stream of one-letter messages from an offset, then appends and reads one more."""

    def script(t: Stage) -> str:
        channel = t.channel()
        queue = stream(t, channel, *texts)
        given = {} if offset is None else {"x_stream_offset": offset}
        reader = follow(t, queue, 100, "t", **given)
        found = [seen(reader.next()) for _ in range(count)]
        quiet = reader.quiet(80)
        t.put(channel, "", queue, "new")
        return " ".join([*found, "|" if quiet else "more |", seen(reader.next())])

    return script


_BEGINNINGS = (
    ("next-default", "without x-stream-offset only what comes next", "abc", 0, None, "| 3=new"),
    ("next", "x-stream-offset next", "abc", 0, "next", "| 3=new"),
    ("first", "x-stream-offset first", "abc", 3, "first", "0=a 1=b 2=c | 3=new"),
    ("first-empty", "x-stream-offset first of an empty stream", "", 0, "first", "| 0=new"),
    ("last", "x-stream-offset last: the last chunk", "abc", 1, "last", "2=c | 3=new"),
    ("last-empty", "x-stream-offset last of an empty stream", "", 0, "last", "| 0=new"),
    ("number", "an offset", "abc", 2, 1, "1=b 2=c | 3=new"),
    ("number-zero", "offset 0", "abc", 3, 0, "0=a 1=b 2=c | 3=new"),
    ("number-long", "an offset of 64 bits", "abc", 1, ("l", 2), "2=c | 3=new"),
    ("number-octet", "an offset of 8 bits", "abc", 1, ("b", 2), "2=c | 3=new"),
    ("number-end", "the offset of the next message", "abc", 0, 3, "| 3=new"),
    ("timestamp-past", "a time in the past", "abc", 3, ("T", 1_000_000_000), "0=a 1=b 2=c | 3=new"),
    ("timestamp-zero", "the time 0", "abc", 3, ("T", 0), "0=a 1=b 2=c | 3=new"),
    ("interval", "an interval that holds everything", "abc", 3, "1h", "0=a 1=b 2=c | 3=new"),
    ("interval-years", "an interval of years", "abc", 3, "2Y", "0=a 1=b 2=c | 3=new"),
    ("interval-empty", "an interval of an empty stream", "", 0, "1D", "| 0=new"),
)
for _name, _title, _texts, _count, _offset, _expected in _BEGINNINGS:
    topic.add(_name, _title, begins(_texts, _count, _offset), _expected)


def began(offset: object) -> Script:
    """Consumes from an offset where three messages are, and shows what happens in a while."""

    def script(t: Stage) -> list[str]:
        channel = t.channel()
        queue = stream(t, channel, *"abc")
        reader = t.channel()
        reader.call("basic.qos", prefetch_count=10)
        answer = reader.call(
            "basic.consume", queue=queue, consumer_tag="t", arguments={"x-stream-offset": offset}
        )
        if not isinstance(answer, Method) or answer.name != "basic.consume-ok":
            return [show(answer)]
        t.put(channel, "", queue, *"defgh")
        return [rest(reader)]

    return script


_ODD = (
    ("number-after", "an offset behind the end", 6, "6=g 7=h", None),
    ("number-far", "an offset far behind the end", 10_000, "nothing", None),
    ("number-negative", "a negative offset", -1, "0=a 1=b 2=c 3=d 4=e 5=f 6=g 7=h", None),
    ("timestamp-future", "a time in the future", ("T", 4_000_000_000), "3=d 4=e 5=f 6=g 7=h", None),
    (
        "bad-word",
        "a word that is none",
        "banana",
        bad("x-stream-offset", '{invalid_stream_offset_arg,{longstr,<<"banana">>}}', "60.20"),
        CRASH,
    ),
    (
        "bad-empty",
        "an empty text",
        "",
        bad("x-stream-offset", '{invalid_stream_offset_arg,{longstr,<<"">>}}', "60.20"),
        CRASH,
    ),
    (
        "bad-unit",
        "an interval of an unknown unit",
        "5x",
        bad("x-stream-offset", '{invalid_stream_offset_arg,{longstr,<<"5x">>}}', "60.20"),
        None,
    ),
    (
        "bad-interval-zero",
        "an interval of nothing",
        "0s",
        bad("x-stream-offset", '{invalid_stream_offset_arg,{longstr,<<"0s">>}}', "60.20"),
        None,
    ),
    (
        "bad-interval-negative",
        "a negative interval",
        "-1h",
        bad("x-stream-offset", '{invalid_stream_offset_arg,{longstr,<<"-1h">>}}', "60.20"),
        CRASH,
    ),
    (
        "bad-digits",
        "a number as text",
        "1",
        bad("x-stream-offset", '{invalid_stream_offset_arg,{longstr,<<"1">>}}', "60.20"),
        None,
    ),
    (
        "bad-case",
        "FIRST",
        "FIRST",
        bad("x-stream-offset", '{invalid_stream_offset_arg,{longstr,<<"FIRST">>}}', "60.20"),
        CRASH,
    ),
    (
        "bad-bool",
        "a bool",
        True,
        bad("x-stream-offset", "{unacceptable_type,bool}", "60.20"),
        CRASH,
    ),
    (
        "bad-double",
        "a double",
        1.0,
        bad("x-stream-offset", "{unacceptable_type,double}", "60.20"),
        CRASH,
    ),
    (
        "bad-table",
        "a table",
        {"a": 1},
        bad("x-stream-offset", "{unacceptable_type,table}", "60.20"),
        CRASH,
    ),
    (
        "bad-array",
        "an array",
        ["first"],
        bad("x-stream-offset", "{unacceptable_type,array}", "60.20"),
        CRASH,
    ),
    (
        "bad-void",
        "nothing at all",
        None,
        bad("x-stream-offset", "{unacceptable_type,void}", "60.20"),
        CRASH,
    ),
    (
        "bad-binary",
        "octets",
        ("x", b"first"),
        bad("x-stream-offset", "{unacceptable_type,binary}", "60.20"),
        "0=a 1=b 2=c 3=d 4=e 5=f 6=g 7=h",
    ),
)
for _name, _title, _given, _expected, _rabbitmq in _ODD:
    topic.add(
        _name,
        f"x-stream-offset: {_title}",
        began(_given),
        _expected,
        rabbitmq=_rabbitmq,
        difference="stream-bad-values" if _rabbitmq else None,
    )


@topic.case(
    "twice",
    "two consumers of one channel, each from where it asked",
    ["one#1 a", "one#2 b", "one#3 c", "two#4 b", "two#5 c"],
)
def _(t: Stage) -> list[str]:
    channel = t.channel()
    queue = stream(t, channel, *"abc")
    reader = follow(t, queue, tag="one", x_stream_offset="first")
    first = briefs(reader.next() for _ in range(3))
    t.consume(reader, queue, "two", arguments={"x-stream-offset": 1})
    return [*first, *briefs(reader.next() for _ in range(2))]


@topic.case("again", "a second consumer gets everything again", ["0=a 1=b 2=c", "0=a 1=b 2=c"])
def _(t: Stage) -> list[str]:
    channel = t.channel()
    queue = stream(t, channel, *"abc")
    found = []
    for _ in range(2):
        reader = follow(t, queue, x_stream_offset="first")
        found.append(taken(reader, 3))
        reader.send("basic.ack", delivery_tag=3, multiple=True)
        reader.call("basic.cancel", consumer_tag="t")
    return found


_CONSUMES = (
    (
        "no-qos",
        "without a prefetch",
        consumed(None, {}),
        (
            "channel.close 406 PRECONDITION_FAILED - consumer prefetch count is not set "
            "for 'queue 'q' in vhost '/'' (60.20)"
        ),
    ),
    (
        "qos-zero",
        "with a prefetch of 0",
        consumed(0, {}),
        (
            "channel.close 406 PRECONDITION_FAILED - consumer prefetch count is not set "
            "for 'queue 'q' in vhost '/'' (60.20)"
        ),
    ),
    (
        "no-ack",
        "without acknowledgement",
        consumed(10, {"no_ack": True}),
        unsupported("automatic acknowledgement", "60.20"),
    ),
    (
        "no-ack-no-qos",
        "without acknowledgement or prefetch",
        consumed(None, {"no_ack": True}),
        (
            "channel.close 406 PRECONDITION_FAILED - consumer prefetch count is not set "
            "for 'queue 'q' in vhost '/'' (60.20)"
        ),
    ),
    (
        "global-qos",
        "with a global prefetch",
        consumed(10, {}, shared=True),
        (
            "channel.close 406 PRECONDITION_FAILED - consumer prefetch count is not set "
            "for 'queue 'q' in vhost '/'' (60.20)"
        ),
    ),
    (
        "global-qos-no-ack",
        "global, unacked",
        consumed(10, {"no_ack": True}, shared=True),
        (
            "channel.close 406 PRECONDITION_FAILED - consumer prefetch count is not set "
            "for 'queue 'q' in vhost '/'' (60.20)"
        ),
    ),
    (
        "exclusive",
        "as the only consumer",
        consumed(10, {"exclusive": True}),
        "basic.consume-ok consumer_tag=t",
    ),
    (
        "no-local",
        "with no_local",
        consumed(10, {"no_local": True}),
        "basic.consume-ok consumer_tag=t",
    ),
    (
        "priority",
        "with x-priority",
        consumed(10, {"arguments": {"x-priority": 1}}),
        foreign("x-priority", "stream", "60.20"),
    ),
    (
        "priority-text",
        "x-priority text",
        consumed(10, {"arguments": {"x-priority": "1"}}),
        foreign("x-priority", "stream", "60.20"),
    ),
    (
        "unknown",
        "with an unknown argument",
        consumed(10, {"arguments": {"x-banana": 1}}),
        "basic.consume-ok consumer_tag=t",
    ),
    (
        "failover",
        "with x-cancel-on-ha-failover",
        consumed(10, {"arguments": {"x-cancel-on-ha-failover": True}}),
        foreign("x-cancel-on-ha-failover", "stream", "60.20"),
    ),
)
for _name, _title, _script, _expected in _CONSUMES:
    topic.add(f"consume-{_name}", f"consume {_title}", _script, _expected)


@topic.case(
    "consume-exclusive-twice",
    "two consumers that want to be the only one",
    ["basic.consume-ok consumer_tag=a", "basic.consume-ok consumer_tag=b"],
)
def _(t: Stage) -> list[str]:
    channel = t.channel()
    queue = stream(t, channel)
    channel.call("basic.qos", prefetch_count=1)
    return [
        show(channel.call("basic.consume", queue=queue, consumer_tag=tag, exclusive=True))
        for tag in "ab"
    ]


@topic.case(
    "consume-offset-classic",
    "x-stream-offset on a classic queue",
    foreign("x-stream-offset", "classic", "60.20"),
)
def _(t: Stage) -> str:
    channel = t.channel()
    queue = t.queue(channel)
    given = {"x-stream-offset": "first"}
    return show(channel.call("basic.consume", queue=queue, consumer_tag="t", arguments=given))


@topic.case(
    "consume-offset-quorum",
    "x-stream-offset on a quorum queue",
    foreign("x-stream-offset", "quorum", "60.20"),
)
def _(t: Stage) -> str:
    channel = t.channel()
    queue = t.quorum(channel)
    given = {"x-stream-offset": "first"}
    return show(channel.call("basic.consume", queue=queue, consumer_tag="t", arguments=given))


@topic.case(
    "consume-qos-both",
    "a prefetch of its own and a global one",
    (
        "connection.close 540 NOT_IMPLEMENTED - queue 'q' in vhost '/' does not "
        "support global qos (60.20)"
    ),
)
def _(t: Stage) -> str:
    channel = t.channel()
    queue = stream(t, channel)
    channel.call("basic.qos", prefetch_count=10)
    channel.call("basic.qos", **{"prefetch_count": 5, "global": True})
    return show(channel.call("basic.consume", queue=queue, consumer_tag="t"))


@topic.case("get", "basic.get", unsupported("basic.get", "60.70"))
def _(t: Stage) -> str:
    channel = t.channel()
    return show(channel.call("basic.get", queue=stream(t, channel, "a")))


@topic.case("purge", "queue.purge", unsupported("queue.purge", "50.30"))
def _(t: Stage) -> str:
    channel = t.channel()
    return show(channel.call("queue.purge", queue=stream(t, channel, "a")))
