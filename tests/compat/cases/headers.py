"""The headers exchange: what matches which binding arguments."""

from __future__ import annotations

from typing import Final

from tests.compat.case import Topic
from tests.compat.stage import Stage

topic = Topic("headers")

Given = dict[str, object]

# (name, binding arguments, headers published or None for no headers table, whether it matches)
_ROWS: Final[tuple[tuple[str, Given, Given | None, bool], ...]] = (
    ("all", {"x-match": "all", "a": 1, "b": 2}, {"a": 1, "b": 2, "c": 3}, True),
    ("all-one-missing", {"x-match": "all", "a": 1, "b": 2}, {"a": 1}, False),
    ("all-one-differs", {"x-match": "all", "a": 1, "b": 2}, {"a": 1, "b": 3}, False),
    ("any", {"x-match": "any", "a": 1, "b": 2}, {"a": 1}, True),
    ("any-none", {"x-match": "any", "a": 1, "b": 2}, {"a": 2, "b": 1}, False),
    ("any-empty", {"x-match": "any"}, {"a": 1}, False),
    ("all-empty", {"x-match": "all"}, {"a": 1}, True),
    ("all-empty-no-headers", {"x-match": "all"}, None, True),
    ("no-arguments", {}, {"a": 1}, True),
    ("no-arguments-no-headers", {}, None, True),
    ("all-skips-x", {"x-match": "all", "x-h": 1}, {}, True),
    ("any-skips-x", {"x-match": "any", "x-h": 1}, {"x-h": 1}, False),
    ("all-with-x-missing", {"x-match": "all-with-x", "x-h": 1}, {}, False),
    ("all-with-x", {"x-match": "all-with-x", "x-h": 1}, {"x-h": 1}, True),
    ("any-with-x", {"x-match": "any-with-x", "x-h": 1, "a": 1}, {"x-h": 1}, True),
    ("any-with-x-none", {"x-match": "any-with-x", "x-h": 1, "a": 1}, {"x-h": 2}, False),
    ("void-is-presence", {"x-match": "all", "a": None}, {"a": 5}, True),
    ("void-missing", {"x-match": "all", "a": None}, {"b": 5}, False),
    ("number-is-no-text", {"x-match": "all", "a": 1}, {"a": "1"}, False),
    ("default-all", {"a": 1}, {"a": 1}, True),
    ("default-all-missing", {"a": 1, "b": 2}, {"a": 1}, False),
    ("width-ignored", {"x-match": "all", "a": ("I", 1)}, {"a": ("l", 1)}, True),
    ("unsigned-ignored", {"x-match": "all", "a": ("B", 200)}, {"a": ("s", 200)}, True),
    ("bool", {"x-match": "all", "a": True}, {"a": True}, True),
    ("bool-is-no-number", {"x-match": "all", "a": True}, {"a": 1}, False),
    ("text-case", {"x-match": "all", "a": "Text"}, {"a": "text"}, False),
    ("name-case", {"x-match": "all", "A": 1}, {"a": 1}, False),
    ("text-is-bytes", {"x-match": "all", "a": "t"}, {"a": b"t"}, True),
    ("table", {"x-match": "all", "a": {"k": 1}}, {"a": {"k": 1}}, True),
    ("table-differs", {"x-match": "all", "a": {"k": 1}}, {"a": {"k": 2}}, False),
    ("array", {"x-match": "all", "a": [1, "b"]}, {"a": [1, "b"]}, True),
    ("array-order", {"x-match": "all", "a": [1, 2]}, {"a": [2, 1]}, False),
    ("timestamp", {"x-match": "all", "a": ("T", 5)}, {"a": 5}, True),
    ("double", {"x-match": "all", "a": 1.5}, {"a": 1.5}, True),
    ("float-is-double", {"x-match": "all", "a": 1.5}, {"a": ("f", 1.5)}, True),
    ("decimal", {"x-match": "all", "a": ("D", (2, 150))}, {"a": ("D", (2, 150))}, True),
)


def _routed(t: Stage, arguments: Given, headers: Given | None) -> str:
    channel = t.channel()
    queue, exchange = t.queue(channel), t.exchange(channel, "headers")
    t.bind(channel, queue, exchange, "", arguments)
    t.put(channel, exchange, "", properties={} if headers is None else {"headers": headers})
    return "matches" if channel.get(queue) else "does not match"


for _name, _arguments, _headers, _matches in _ROWS:

    def _script(t: Stage, arguments: Given = _arguments, headers: Given | None = _headers) -> str:
        return _routed(t, arguments, headers)

    topic.add(
        _name,
        f"{_arguments} with {_headers}",
        _script,
        "matches" if _matches else "does not match",
    )


@topic.case(
    "double-is-no-integer",
    "the double 1.0 in a binding and the integer 1 in a message",
    "does not match",
    rabbitmq="matches",
    difference="headers-number-kinds",
)
def _(t: Stage) -> str:
    return _routed(t, {"x-match": "all", "a": 1.0}, {"a": 1})


@topic.case("key-ignored", "the routing key does not matter", "matches")
def _(t: Stage) -> str:
    channel = t.channel()
    queue, exchange = t.queue(channel), t.exchange(channel, "headers")
    t.bind(channel, queue, exchange, "key", {"a": 1})
    t.put(channel, exchange, "other", properties={"headers": {"a": 1}})
    return "matches" if channel.get(queue) else "does not match"


@topic.case("two-bindings", "two matching bindings of one queue: one copy", "messages 1")
def _(t: Stage) -> str:
    channel = t.channel()
    queue, exchange = t.queue(channel), t.exchange(channel, "headers")
    t.bind(channel, queue, exchange, "", {"a": 1})
    t.bind(channel, queue, exchange, "", {"b": 1})
    t.put(channel, exchange, "", properties={"headers": {"a": 1, "b": 1}})
    return f"messages {t.count(queue, channel, 1)}"
