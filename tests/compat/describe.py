"""Turns what came from a broker into short lines that two brokers can be compared by.

Everything that may differ from run to run is left out or masked here or in `stage`: the time of a
death, the way confirms are bundled. Field values keep their wire tags (`l:1` is a 64-bit integer),
tables are written in the order of their keys.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import cast

from tests.compat.client import Closed, Content, Event, Heartbeat, Method, Preamble
from tests.compat.wire import Typed


def show(event: Event) -> str:
    """An event with all its fields; of a content only the body."""
    if isinstance(event, Closed):
        return "socket closed"
    if isinstance(event, Preamble):
        return f"protocol header {' '.join(str(byte) for byte in event.data[4:])}"
    if isinstance(event, Heartbeat):
        return "heartbeat"
    if event.name in ("channel.close", "connection.close"):
        return _close(event)
    if event.name in ("basic.ack", "basic.nack"):
        return f"{event.name} {event.tag}"  # how confirms are bundled is the broker's affair
    fields = "".join(f" {key}={_field(value)}" for key, value in event.fields.items())
    body = "" if event.content is None else f" body={_text(event.body)}"
    return f"{event.name}{fields}{body}"


def _close(event: Method) -> str:
    fields = event.fields
    ids = f"{fields['class_id']}.{fields['method_id']}"
    # RabbitMQ breaks long Erlang terms into lines, at a column that depends on the names in them.
    text = re.sub(r",\n\s*", ",", str(fields["reply_text"]))
    return f"{event.name} {fields['reply_code']} {text} ({ids})"


def code(event: Event) -> str:
    """As `show`, but of a close only its code and name, for texts that quote raw bytes."""
    if isinstance(event, Method) and event.name in ("channel.close", "connection.close"):
        name = str(event.fields["reply_text"]).partition(" - ")[0]
        return f"{event.name} {event.fields['reply_code']} {name}"
    return show(event)


def _field(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, bytes):
        return _text(value)
    if isinstance(value, dict):
        return table(cast("dict[str, Typed]", value))
    return _printable(str(value))


def _text(data: bytes) -> str:
    return _printable(data.decode(errors="backslashreplace"))


def _printable(text: str) -> str:
    return text if text.isprintable() else ascii(text)[1:-1]


def brief(event: Event) -> str:
    """A delivery as `tag#1 body`, a get as `get#1 body`, marked where redelivered; else `show`."""
    if not isinstance(event, Method) or event.name not in ("basic.deliver", "basic.get-ok"):
        return show(event)
    who = event.fields.get("consumer_tag", "get")
    mark = " redelivered" if event.fields["redelivered"] else ""
    return f"{who}#{event.tag} {_text(event.body)}{mark}"


def briefs(events: Iterable[Event]) -> list[str]:
    return [brief(event) for event in events]


def bodies(messages: Iterable[Event]) -> str:
    """The bodies of messages, with ! after those marked as redelivered, or `nothing`."""
    texts = [
        _text(message.body) + ("!" if message.fields.get("redelivered") else "")
        for message in messages
        if isinstance(message, Method) and message.content is not None
    ]
    return " ".join(texts) or "nothing"


def confirms(events: Sequence[Event]) -> str:
    """The publishes that were acked and nacked, however the broker bundled its confirms."""
    settled: dict[str, list[int]] = {"basic.ack": [], "basic.nack": []}
    done: set[int] = set()
    for event in events:
        if not isinstance(event, Method) or event.name not in settled:
            continue
        first = 1 if event.fields["multiple"] else event.tag
        numbers = [number for number in range(first, event.tag + 1) if number not in done]
        done.update(numbers)
        settled[event.name] += numbers
    parts = [
        f"{verb} {','.join(map(str, sorted(settled[name])))}"
        for name, verb in (("basic.ack", "acked"), ("basic.nack", "nacked"))
        if settled[name]
    ]
    return " ".join(parts) or "unconfirmed"


def value(item: Typed) -> str:
    """A field value with its tag."""
    if isinstance(item.value, dict):
        return table(item.value)
    if isinstance(item.value, list):
        return f"[{', '.join(map(value, item.value))}]"
    return f"{item.tag}:{_field(item.value)}"


def table(fields: dict[str, Typed]) -> str:
    """A field table in the order of its keys; the time of a death is masked."""
    parts = [
        f"{key}={'T:*' if (key, item.tag) == ('time', 'T') else value(item)}"
        for key, item in sorted(fields.items())
    ]
    return f"{{{', '.join(parts)}}}"


def properties(content: Content) -> str:
    """The properties of a message, or `none`."""
    parts = [f"{key}={_field(item)}" for key, item in content.properties.items()]
    return " ".join(parts) or "none"


def deaths(message: Method) -> list[str]:
    """The entries of x-death, newest first, one line each."""
    assert message.content is not None
    entry = message.content.headers.get("x-death")
    return [value(item) for item in cast("list[Typed]", entry.value)] if entry else ["no x-death"]


def death_counts(message: Method) -> str:
    """The entries of x-death in short: `queue reason count`, newest first."""
    assert message.content is not None
    entry = message.content.headers.get("x-death")
    tables = (
        [cast("dict[str, Typed]", item.value) for item in cast("list[Typed]", entry.value)]
        if entry
        else []
    )
    return (
        ", ".join(
            f"{item['queue'].value} {item['reason'].value} {item['count'].value}" for item in tables
        )
        or "no x-death"
    )


def header_names(message: Method) -> str:
    """The names of a message's headers in order of the alphabet."""
    assert message.content is not None
    return " ".join(sorted(message.content.headers)) or "no headers"
