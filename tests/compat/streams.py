"""What the cases of streams share: making one, following it, and saying what came."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tests.compat.case import Script
from tests.compat.client import Channel, Event, Method, is_end
from tests.compat.describe import show
from tests.compat.stage import Stage
from tests.compat.wire import Typed

Given = Mapping[str, object]


def stream(
    t: Stage, channel: Channel, *texts: str, suffix: str = "q", arguments: Given | None = None
) -> str:
    """Declares a stream and appends texts, each confirmed before the next."""
    given = {"x-queue-type": "stream", **(arguments or {})}
    name = t.queue(channel, suffix, given, durable=True)
    if texts:
        t.put(channel, "", name, *texts)
    return name


def follow(
    t: Stage, queue: str, prefetch: int = 100, tag: str = "t", **arguments: object
) -> Channel:
    """A channel of its own that consumes a stream; names of arguments are written with _."""
    channel = t.channel()
    t.require(channel.call("basic.qos", prefetch_count=prefetch))
    t.consume(channel, queue, tag, arguments=named(arguments))
    return channel


def named(arguments: Given) -> dict[str, object]:
    """Arguments with the names that they have on the wire: x_stream_offset is x-stream-offset."""
    return {name.replace("_", "-"): value for name, value in arguments.items()}


def seen(event: Event) -> str:
    """A delivery as `offset body`, else all of the event."""
    if not isinstance(event, Method) or event.content is None:
        return show(event)
    offset = event.content.headers.get("x-stream-offset", Typed("V", "none"))
    mark = "!" if event.fields["redelivered"] else ""
    return f"{offset.value}={event.body.decode()}{mark}"


def taken(channel: Channel, count: int) -> str:
    """The next deliveries."""
    return " ".join(seen(channel.next()) for _ in range(count))


def left(channel: Channel) -> str:
    """Whether anything more comes."""
    return "then nothing" if channel.idle(80) else f"then {seen(channel.next())}"


def rest(channel: Channel) -> str:
    """What comes until nothing does for a while, or the end."""
    found: list[Event] = []
    while not (found and is_end(found[-1])) and not channel.idle(80):
        found.append(channel.next())
    return " ".join(map(seen, found)) or "nothing"


def window(t: Stage, prefetch: int) -> tuple[Channel, str]:
    """A consumer of eight messages that has got as many as it may."""
    channel = t.channel()
    queue = stream(t, channel, *"abcdefgh")
    reader = follow(t, queue, prefetch, x_stream_offset="first")
    return reader, taken(reader, prefetch)


def consumed(
    prefetch: int | None, fields: Given, *, shared: bool = False, queue_given: Given | None = None
) -> Script:
    """Consumes a stream in some way and shows the answer."""

    def script(t: Stage) -> str:
        channel = t.channel()
        queue = stream(t, channel, arguments=queue_given)
        if prefetch is not None:
            channel.call("basic.qos", **{"prefetch_count": prefetch, "global": shared})
        return show(channel.call("basic.consume", queue=queue, consumer_tag="t", **fields))

    return script


def counted(t: Stage, queue: str, messages: int) -> str:
    """What a passive declare says, asked until it counts so many; RabbitMQ counts now and then."""
    channel = t.channel()
    t.until(lambda: t.count(queue, channel, messages) == messages, "the count")
    return show(channel.call("queue.declare", queue=queue, passive=True))


# Answers that many cases get

OK: Final = "queue.declare-ok queue=q message_count=0 consumer_count=0"
CRASH: Final = "connection.close 541 INTERNAL_ERROR (0.0)"
_REFUSED: Final = "channel.close 406 PRECONDITION_FAILED -"


def bad(argument: str, reason: str, method: str = "50.10") -> str:
    """A value is refused."""
    return f"{_REFUSED} invalid arg '{argument}' for queue 'q' in vhost '/': {reason} ({method})"


def foreign(argument: str, kind: str = "stream", method: str = "50.10") -> str:
    """An argument belongs to other kinds of queues."""
    of_kind = f"of queue type rabbit_{kind}_queue"
    return f"{_REFUSED} invalid arg '{argument}' for queue 'q' in vhost '/' {of_kind} ({method})"


def unequal(argument: str, reason: str) -> str:
    """A queue was declared otherwise before."""
    what = f"inequivalent arg '{argument}' for queue 'q' in vhost '/'"
    return f"{_REFUSED} {what}: {reason} (50.10)"


def unsupported(what: str, method: str) -> str:
    """Streams cannot do that."""
    words = f"{what} not supported by stream queues queue 'q' in vhost '/'"
    return f"connection.close 540 NOT_IMPLEMENTED - {words} ({method})"
