"""Streams: declaring them, with good and bad arguments, and declaring them again."""

from __future__ import annotations

from typing import Final

from tests.compat.case import Script, Topic
from tests.compat.describe import show
from tests.compat.stage import Stage
from tests.compat.streams import CRASH, OK, Given, bad, foreign, unequal

topic = Topic("stream.declare")


def declared(given: Given, **flags: object) -> Script:
    """Declares a stream with arguments and shows the answer."""

    def script(t: Stage) -> str:
        fields = {"durable": True, "queue": t.name(), **flags}
        arguments = {"x-queue-type": "stream", **given}
        return show(t.channel().call("queue.declare", arguments=arguments, **fields))

    return script


_VALUES: Final[tuple[tuple[str, Given, str, str | None], ...]] = (
    ("plain", {}, OK, None),
    ("max-bytes", {"x-max-length-bytes": 1_000_000}, OK, None),
    ("max-bytes-zero", {"x-max-length-bytes": 0}, OK, None),
    (
        "max-bytes-negative",
        {"x-max-length-bytes": -1},
        bad("x-max-length-bytes", "{value_negative,-1}"),
        None,
    ),
    (
        "max-bytes-text",
        {"x-max-length-bytes": "1000"},
        bad("x-max-length-bytes", '"expected integer, got longstr"'),
        None,
    ),
    ("max-bytes-huge", {"x-max-length-bytes": 2**62}, OK, None),
    ("max-age", {"x-max-age": "7D"}, OK, None),
    ("max-age-years", {"x-max-age": "100Y"}, OK, None),
    ("max-age-second", {"x-max-age": "1s"}, OK, None),
    ("max-age-zero", {"x-max-age": "0s"}, bad("x-max-age", "invalid_max_age"), None),
    ("max-age-negative", {"x-max-age": "-1D"}, bad("x-max-age", "invalid_max_age"), CRASH),
    ("max-age-unit", {"x-max-age": "7d"}, bad("x-max-age", "invalid_max_age"), None),
    ("max-age-no-unit", {"x-max-age": "7"}, bad("x-max-age", "invalid_max_age"), None),
    ("max-age-no-number", {"x-max-age": "D"}, bad("x-max-age", "invalid_max_age"), CRASH),
    ("max-age-empty", {"x-max-age": ""}, bad("x-max-age", "invalid_max_age"), CRASH),
    ("max-age-space", {"x-max-age": "7 D"}, bad("x-max-age", "invalid_max_age"), None),
    ("max-age-fraction", {"x-max-age": "1.5D"}, bad("x-max-age", "invalid_max_age"), None),
    ("max-age-number", {"x-max-age": 7}, bad("x-max-age", "{unacceptable_type,signedint}"), None),
    ("segment", {"x-stream-max-segment-size-bytes": 1_000_000}, OK, None),
    ("segment-zero", {"x-stream-max-segment-size-bytes": 0}, OK, None),
    (
        "segment-negative",
        {"x-stream-max-segment-size-bytes": -1},
        bad("x-stream-max-segment-size-bytes", "{value_negative,-1}"),
        None,
    ),
    (
        "segment-text",
        {"x-stream-max-segment-size-bytes": "1000"},
        bad("x-stream-max-segment-size-bytes", '"expected integer, got longstr"'),
        None,
    ),
    ("segment-most", {"x-stream-max-segment-size-bytes": 3_000_000_000}, OK, None),
    (
        "segment-over",
        {"x-stream-max-segment-size-bytes": 3_000_000_001},
        (
            "channel.close 406 PRECONDITION_FAILED - Exceeded max value for "
            "x-stream-max-segment-size-bytes (50.10)"
        ),
        None,
    ),
    (
        "segment-double",
        {"x-stream-max-segment-size-bytes": 1000.0},
        bad("x-stream-max-segment-size-bytes", '"expected integer, got double"'),
        None,
    ),
    ("cluster", {"x-initial-cluster-size": 1}, OK, None),
    ("cluster-three", {"x-initial-cluster-size": 3}, OK, None),
    (
        "cluster-zero",
        {"x-initial-cluster-size": 0},
        bad("x-initial-cluster-size", "{value_zero,0}"),
        None,
    ),
    (
        "cluster-text",
        {"x-initial-cluster-size": "1"},
        bad("x-initial-cluster-size", '"expected integer, got longstr"'),
        None,
    ),
    ("locator", {"x-queue-leader-locator": "client-local"}, OK, None),
    ("locator-least", {"x-queue-leader-locator": "least-leaders"}, OK, None),
    (
        "locator-bad",
        {"x-queue-leader-locator": "banana"},
        bad("x-queue-leader-locator", "invalid_queue_locator_arg"),
        None,
    ),
    (
        "everything",
        {
            "x-max-length-bytes": 1_000_000,
            "x-max-age": "1h",
            "x-stream-max-segment-size-bytes": 100_000,
            "x-initial-cluster-size": 1,
        },
        OK,
        None,
    ),
    ("unknown", {"x-banana": 1}, OK, None),
    ("expires", {"x-expires": 1000}, foreign("x-expires"), None),
    ("message-ttl", {"x-message-ttl": 1000}, foreign("x-message-ttl"), None),
    ("max-length", {"x-max-length": 10}, foreign("x-max-length"), None),
    ("overflow", {"x-overflow": "drop-head"}, foreign("x-overflow"), None),
    ("dlx", {"x-dead-letter-exchange": "amq.fanout"}, foreign("x-dead-letter-exchange"), None),
    ("dlx-key", {"x-dead-letter-routing-key": "k"}, foreign("x-dead-letter-routing-key"), None),
    (
        "dlx-strategy",
        {"x-dead-letter-strategy": "at-least-once"},
        foreign("x-dead-letter-strategy"),
        None,
    ),
    ("priority", {"x-max-priority": 5}, foreign("x-max-priority"), None),
    ("mode", {"x-queue-mode": "lazy"}, foreign("x-queue-mode"), None),
    ("version", {"x-queue-version": 2}, foreign("x-queue-version"), None),
    (
        "single-active",
        {"x-single-active-consumer": True},
        foreign("x-single-active-consumer"),
        None,
    ),
    ("delivery-limit", {"x-delivery-limit": 5}, foreign("x-delivery-limit"), None),
    (
        "group-size",
        {"x-quorum-initial-group-size": 3},
        foreign("x-quorum-initial-group-size"),
        None,
    ),
    ("in-memory", {"x-max-in-memory-length": 5}, foreign("x-max-in-memory-length"), None),
    ("filter-size", {"x-stream-filter-size-bytes": 32}, OK, None),
    ("filter-size-least", {"x-stream-filter-size-bytes": 16}, OK, None),
)
for _name, _given, _expected, _rabbitmq in _VALUES:
    topic.add(
        _name,
        f"declare with {dict(_given)}",
        declared(_given),
        _expected,
        rabbitmq=_rabbitmq,
        difference="stream-bad-values" if _rabbitmq else None,
    )

_FILTER_SIZES: Final[tuple[tuple[str, Given, str, str], ...]] = (
    (
        "filter-size-small",
        {"x-stream-filter-size-bytes": 15},
        (
            "channel.close 406 PRECONDITION_FAILED - Invalid value for "
            "x-stream-filter-size-bytes (50.10)"
        ),
        OK,
    ),
    (
        "filter-size-large",
        {"x-stream-filter-size-bytes": 256},
        (
            "channel.close 406 PRECONDITION_FAILED - Invalid value for "
            "x-stream-filter-size-bytes (50.10)"
        ),
        OK,
    ),
)
for _name, _given, _expected, _rabbitmq in _FILTER_SIZES:
    topic.add(
        _name,
        f"declare with {dict(_given)}",
        declared(_given),
        _expected,
        rabbitmq=_rabbitmq,
        difference="stream-filters" if _rabbitmq else None,
    )

_FLAGS: Final[tuple[tuple[str, dict[str, object], str], ...]] = (
    (
        "server-named",
        {"queue": ""},
        (
            "channel.close 406 PRECONDITION_FAILED - Cannot declare a server-named queue "
            "for type rabbit_stream_queue (50.10)"
        ),
    ),
    (
        "not-durable",
        {"durable": False},
        (
            "channel.close 406 PRECONDITION_FAILED - invalid property 'non-durable' for "
            "queue 'q' in vhost '/' (50.10)"
        ),
    ),
    (
        "exclusive",
        {"exclusive": True},
        (
            "channel.close 406 PRECONDITION_FAILED - invalid property 'exclusive-owner' "
            "for queue 'q' in vhost '/' (50.10)"
        ),
    ),
    (
        "auto-delete",
        {"auto_delete": True},
        (
            "channel.close 406 PRECONDITION_FAILED - invalid property 'auto-delete' for "
            "queue 'q' in vhost '/' (50.10)"
        ),
    ),
    (
        "exclusive-auto-delete",
        {"exclusive": True, "auto_delete": True},
        (
            "channel.close 406 PRECONDITION_FAILED - invalid property 'auto-delete' for "
            "queue 'q' in vhost '/' (50.10)"
        ),
    ),
    (
        "not-durable-exclusive",
        {"durable": False, "exclusive": True},
        (
            "channel.close 406 PRECONDITION_FAILED - invalid property 'exclusive-owner' "
            "for queue 'q' in vhost '/' (50.10)"
        ),
    ),
    (
        "not-durable-auto-delete",
        {"durable": False, "auto_delete": True},
        (
            "channel.close 406 PRECONDITION_FAILED - invalid property 'auto-delete' for "
            "queue 'q' in vhost '/' (50.10)"
        ),
    ),
    (
        "server-named-exclusive",
        {"queue": "", "exclusive": True},
        (
            "channel.close 406 PRECONDITION_FAILED - Cannot declare a server-named queue "
            "for type rabbit_stream_queue (50.10)"
        ),
    ),
    (
        "reserved",
        {"queue": "amq.stream"},
        (
            "channel.close 403 ACCESS_REFUSED - queue name 'amq.stream' contains reserved "
            "prefix 'amq.*' (50.10)"
        ),
    ),
)
for _name, _fields, _expected in _FLAGS:
    topic.add(f"flags-{_name}", f"declare with {_fields}", declared({}, **_fields), _expected)


def redeclared(first: Given, second: Given, **flags: object) -> Script:
    """Declares a queue twice and shows the second answer."""

    def script(t: Stage) -> str:
        channel = t.channel()
        queue = t.queue(channel, arguments=first, durable=True)
        fields = {"durable": True, **flags}
        return show(channel.call("queue.declare", queue=queue, arguments=second, **fields))

    return script


_STREAM: Final[Given] = {"x-queue-type": "stream"}
_AGE: Final[Given] = {**_STREAM, "x-max-age": "7D"}
_SIZE: Final[Given] = {**_STREAM, "x-max-length-bytes": 1000}
_SEGMENT: Final[Given] = {**_STREAM, "x-stream-max-segment-size-bytes": 1000}
_AGAIN: Final[tuple[tuple[str, Given, Given, str], ...]] = (
    ("same", _STREAM, _STREAM, OK),
    ("same-age", _AGE, _AGE, OK),
    (
        "age-missing",
        _AGE,
        _STREAM,
        unequal("x-max-age", "received none but current is the value '7D' of type 'longstr'"),
    ),
    (
        "age-added",
        _STREAM,
        _AGE,
        unequal("x-max-age", "received the value '7D' of type 'longstr' but current is none"),
    ),
    (
        "age-other",
        _AGE,
        {**_STREAM, "x-max-age": "8D"},
        unequal("x-max-age", "received '8D' but current is '7D'"),
    ),
    (
        "age-spelled",
        _AGE,
        {**_STREAM, "x-max-age": "168h"},
        unequal("x-max-age", "received '168h' but current is '7D'"),
    ),
    (
        "bytes-other",
        _SIZE,
        {**_STREAM, "x-max-length-bytes": 2000},
        unequal("x-max-length-bytes", "received '2000' but current is '1000'"),
    ),
    ("bytes-width", _SIZE, {**_STREAM, "x-max-length-bytes": ("l", 1000)}, OK),
    (
        "bytes-missing",
        _SIZE,
        _STREAM,
        unequal(
            "x-max-length-bytes",
            "received none but current is the value '1000' of type 'signedint'",
        ),
    ),
    (
        "segment-other",
        _SEGMENT,
        {**_STREAM, "x-stream-max-segment-size-bytes": 2000},
        unequal("x-stream-max-segment-size-bytes", "received '2000' but current is '1000'"),
    ),
    (
        "segment-missing",
        _SEGMENT,
        _STREAM,
        unequal(
            "x-stream-max-segment-size-bytes",
            "received none but current is the value '1000' of type 'signedint'",
        ),
    ),
    (
        "cluster-other",
        _STREAM,
        {**_STREAM, "x-initial-cluster-size": 1},
        unequal(
            "x-initial-cluster-size",
            "received the value '1' of type 'signedint' but current is none",
        ),
    ),
    (
        "locator-other",
        _STREAM,
        {**_STREAM, "x-queue-leader-locator": "client-local"},
        unequal(
            "x-queue-leader-locator",
            "received the value 'client-local' of type 'longstr' but current is none",
        ),
    ),
    ("unknown-other", _STREAM, {**_STREAM, "x-banana": 1}, OK),
    (
        "as-classic",
        _STREAM,
        {},
        unequal(
            "x-queue-type", "received none but current is the value 'stream' of type 'longstr'"
        ),
    ),
    (
        "as-quorum",
        _STREAM,
        {"x-queue-type": "quorum"},
        unequal("x-queue-type", "received 'quorum' but current is 'stream'"),
    ),
    (
        "classic-as-stream",
        {},
        _STREAM,
        unequal(
            "x-queue-type", "received the value 'stream' of type 'longstr' but current is none"
        ),
    ),
    (
        "quorum-as-stream",
        {"x-queue-type": "quorum"},
        _STREAM,
        unequal("x-queue-type", "received 'stream' but current is 'quorum'"),
    ),
)
for _name, _first, _second, _expected in _AGAIN:
    topic.add(
        f"again-{_name}",
        f"declared with {dict(_first)}, then with {dict(_second)}",
        redeclared(_first, _second),
        _expected,
    )
topic.add(
    "again-not-durable",
    "declared again, not durable",
    redeclared(_STREAM, _STREAM, durable=False),
    unequal("durable", "received 'false' but current is 'true'"),
)
topic.add(
    "again-exclusive",
    "declared again, exclusive",
    redeclared(_STREAM, _STREAM, exclusive=True),
    (
        "channel.close 405 RESOURCE_LOCKED - cannot obtain exclusive access to locked "
        "queue 'q' in vhost '/'. It could be originally declared on another connection "
        "or the exclusive property value does not match that of the original "
        "declaration. (50.10)"
    ),
)
topic.add(
    "again-auto-delete",
    "declared again, auto-delete",
    redeclared(_STREAM, _STREAM, auto_delete=True),
    unequal("auto_delete", "received 'true' but current is 'false'"),
)
topic.add(
    "again-passive",
    "declared again, passively",
    redeclared(_STREAM, {}, passive=True, durable=False),
    OK,
)
