"""Streams: filters of consumers, and cursors that the broker keeps."""

from __future__ import annotations

from typing import Final

from tests.compat.case import Script, Topic
from tests.compat.client import is_method
from tests.compat.describe import show
from tests.compat.stage import Stage
from tests.compat.streams import (
    Given,
    bad,
    consumed,
    follow,
    rest,
    stream,
    taken,
)

topic = Topic("stream.filter")

_COLOURS: Final = (("red", "r0"), ("blue", "b1"), ("", "n2"), ("red", "r3"), ("green", "g4"))


def filtered(arguments: Given) -> Script:
    """Consumes with a filter what was published in several colours, one message without."""

    def script(t: Stage) -> str:
        channel = t.channel()
        queue = stream(t, channel)
        for colour, body in _COLOURS:
            given = {"headers": {"x-stream-filter-value": colour}} if colour else {}
            t.put(channel, "", queue, body, properties=given)
        reader = t.channel()
        reader.call("basic.qos", prefetch_count=10)
        asked = {"x-stream-offset": "first", **arguments}
        answer = reader.call("basic.consume", queue=queue, consumer_tag="t", arguments=asked)
        return rest(reader) if is_method(answer, "basic.consume-ok") else show(answer)

    return script


_FILTERS = (
    ("one", "one value", {"x-stream-filter": "red"}, "0=r0 3=r3", "0=r0 1=b1 2=n2 3=r3 4=g4"),
    (
        "two",
        "two values",
        {"x-stream-filter": ["red", "green"]},
        "0=r0 3=r3 4=g4",
        "0=r0 1=b1 2=n2 3=r3 4=g4",
    ),
    (
        "none",
        "a value that nobody has",
        {"x-stream-filter": "black"},
        "nothing",
        "0=r0 1=b1 2=n2 3=r3 4=g4",
    ),
    (
        "unfiltered",
        "a value, and messages without any",
        {"x-stream-filter": "blue", "x-stream-match-unfiltered": True},
        "1=b1 2=n2",
        "0=r0 1=b1 2=n2 3=r3 4=g4",
    ),
    (
        "unfiltered-alone",
        "no value",
        {"x-stream-match-unfiltered": True},
        "0=r0 1=b1 2=n2 3=r3 4=g4",
        None,
    ),
    (
        "number",
        "a number",
        {"x-stream-filter": 7},
        bad("x-stream-filter", "{unacceptable_type,signedint}", "60.20"),
        "0=r0 1=b1 2=n2 3=r3 4=g4",
    ),
    (
        "array-number",
        "a number among values",
        {"x-stream-filter": ["red", 7]},
        bad("x-stream-filter", "{unacceptable_type,signedint}", "60.20"),
        "0=r0 1=b1 2=n2 3=r3 4=g4",
    ),
    (
        "unfiltered-text",
        "a text for the flag",
        {"x-stream-match-unfiltered": "yes"},
        bad("x-stream-match-unfiltered", "{unacceptable_type,longstr}", "60.20"),
        "0=r0 1=b1 2=n2 3=r3 4=g4",
    ),
)
for _name, _title, _given, _expected, _rabbitmq in _FILTERS:
    topic.add(
        f"filter-{_name}",
        f"a filter of {_title}",
        filtered(_given),
        _expected,
        rabbitmq=_rabbitmq,
        difference="stream-filters" if _rabbitmq else None,
    )


def cursor(first: int, *acks: tuple[int, bool]) -> Script:
    """Reads under a name, settles some, and reads again under that name."""

    def script(t: Stage) -> list[str]:
        channel = t.channel()
        queue = stream(t, channel, *"abcdef")
        given = {"x_stream_offset": "first", "x_stream_cursor": "worker"}
        reader = follow(t, queue, first, "t", **given)
        seen_first = taken(reader, first)
        for tag, multiple in acks:
            reader.send("basic.ack", delivery_tag=tag, multiple=multiple)
        reader.call("channel.close")
        return [seen_first, rest(follow(t, queue, 100, "t", **given))]

    return script


_CURSORS = (
    (
        "multiple",
        "the first two settled",
        cursor(4, (2, True)),
        ["0=a 1=b 2=c 3=d", "2=c 3=d 4=e 5=f"],
        ["0=a 1=b 2=c 3=d", "0=a 1=b 2=c 3=d 4=e 5=f"],
    ),
    (
        "gap",
        "the first and the third settled",
        cursor(4, (1, False), (3, False)),
        ["0=a 1=b 2=c 3=d", "1=b 2=c 3=d 4=e 5=f"],
        ["0=a 1=b 2=c 3=d", "0=a 1=b 2=c 3=d 4=e 5=f"],
    ),
    ("none", "nothing settled", cursor(4), ["0=a 1=b 2=c 3=d", "0=a 1=b 2=c 3=d 4=e 5=f"], None),
    (
        "all",
        "everything settled",
        cursor(6, (6, True)),
        ["0=a 1=b 2=c 3=d 4=e 5=f", "nothing"],
        ["0=a 1=b 2=c 3=d 4=e 5=f", "0=a 1=b 2=c 3=d 4=e 5=f"],
    ),
)
for _name, _title, _script, _lines, _other in _CURSORS:
    topic.add(
        f"cursor-{_name}",
        f"reading on under a name, {_title}",
        _script,
        _lines,
        rabbitmq=_other,
        difference="stream-cursor" if _other else None,
    )

_CURSOR_NAMES = (
    (
        "empty",
        "",
        bad("x-stream-cursor", "invalid_name", "60.20"),
        "basic.consume-ok consumer_tag=t",
    ),
    (
        "long",
        "x" * 256,
        bad("x-stream-cursor", "invalid_name", "60.20"),
        "basic.consume-ok consumer_tag=t",
    ),
    (
        "number",
        7,
        bad("x-stream-cursor", "{unacceptable_type,signedint}", "60.20"),
        "basic.consume-ok consumer_tag=t",
    ),
    ("longest", "x" * 255, "basic.consume-ok consumer_tag=t", None),
)
for _name, _value, _expected, _rabbitmq in _CURSOR_NAMES:
    topic.add(
        f"cursor-name-{_name}",
        f"a name that is {_name}",
        consumed(10, {"arguments": {"x-stream-cursor": _value}}),
        _expected,
        rabbitmq=_rabbitmq,
        difference="stream-cursor" if _rabbitmq else None,
    )
