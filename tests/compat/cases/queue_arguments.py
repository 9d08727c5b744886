"""queue.declare: the check of every x-argument, one declare each.

A row gives the arguments of one declare and its answer. A queue that is made is exclusive, or
durable where its type asks for that.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tests.compat.case import Script, Topic
from tests.compat.describe import code, show
from tests.compat.stage import Stage

topic = Topic("queue.arguments")

Given = dict[str, object]

_OK: Final = "queue.declare-ok queue=q message_count=0 consumer_count=0"
_QUORUM: Final = {"x-queue-type": "quorum"}


def refused(argument: str, reason: str) -> str:
    """The close for a bad value."""
    return (
        f"channel.close 406 PRECONDITION_FAILED - invalid arg '{argument}' for queue 'q' "
        f"in vhost '/': {reason} (50.10)"
    )


def foreign(argument: str, kind: str) -> str:
    """The close for an argument that belongs to other queue types."""
    return (
        f"channel.close 406 PRECONDITION_FAILED - invalid arg '{argument}' for queue 'q' "
        f"in vhost '/' of queue type rabbit_{kind}_queue (50.10)"
    )


def declared(arguments: Mapping[str, object] | bytes, **flags: object) -> Script:
    """A script that declares a queue with arguments and shows the answer."""

    def script(t: Stage) -> str:
        given = flags or {"exclusive": True}
        return show(t.channel().call("queue.declare", queue=t.name(), arguments=arguments, **given))

    return script


_NUMBERS: Final[tuple[tuple[str, Given, str], ...]] = (
    ("message-ttl-text", {"x-message-ttl": "abc"}, '"expected integer, got longstr"'),
    ("message-ttl-negative", {"x-message-ttl": -1}, "{value_negative,-1}"),
    ("message-ttl-huge", {"x-message-ttl": 2**63 - 1}, f"{{value_too_large,{2**63 - 1}}}"),
    ("message-ttl-double", {"x-message-ttl": 100.5}, '"expected integer, got double"'),
    ("expires-zero", {"x-expires": 0}, "{value_zero,0}"),
    ("expires-negative", {"x-expires": -1}, "{value_negative,-1}"),
    ("expires-text", {"x-expires": "1000"}, '"expected integer, got longstr"'),
    ("expires-huge", {"x-expires": 2**63 - 1}, f"{{value_too_large,{2**63 - 1}}}"),
    ("max-length-negative", {"x-max-length": -1}, "{value_negative,-1}"),
    ("max-length-text", {"x-max-length": "5"}, '"expected integer, got longstr"'),
    ("max-length-bytes-negative", {"x-max-length-bytes": -1}, "{value_negative,-1}"),
    ("max-length-bytes-flag", {"x-max-length-bytes": True}, '"expected integer, got bool"'),
    ("max-priority-300", {"x-max-priority": 300}, "{max_value_exceeded,300}"),
    ("max-priority-256", {"x-max-priority": 256}, "{max_value_exceeded,256}"),
    ("max-priority-negative", {"x-max-priority": -1}, "{value_negative,-1}"),
    ("max-priority-text", {"x-max-priority": "5"}, '"expected integer, got longstr"'),
)
for _name, _words, _reason in _NUMBERS:
    (_argument,) = _words
    topic.add(_name, f"{_words}", declared(_words), refused(_argument, _reason))

_WORDS: Final[tuple[tuple[str, Given, str], ...]] = (
    ("overflow-unknown", {"x-overflow": "nope"}, "invalid_overflow"),
    ("overflow-number", {"x-overflow": 1}, "{unacceptable_type,signedint}"),
    (
        "dead-letter-key-alone",
        {"x-dead-letter-routing-key": "k"},
        "routing_key_but_no_dlx_defined",
    ),
    (
        "dead-letter-key-number",
        {"x-dead-letter-routing-key": 5},
        "{unacceptable_type,signedint}",
    ),
    (
        "single-active-text",
        {"x-single-active-consumer": "yes"},
        "{unacceptable_type,longstr}",
    ),
    ("queue-mode-unknown", {"x-queue-mode": "nope"}, "\"unsupported queue mode 'nope'\""),
    ("queue-mode-number", {"x-queue-mode": 1}, "{unacceptable_type,signedint}"),
    ("queue-version-3", {"x-queue-version": 3}, "\"unsupported queue version '3'\""),
    ("queue-type-unknown", {"x-queue-type": "nope"}, "\"unsupported queue type 'nope'\""),
    ("queue-type-number", {"x-queue-type": 5}, "{unacceptable_type,signedint}"),
)
for _name, _words, _reason in _WORDS:
    (_argument,) = _words
    topic.add(_name, f"{_words}", declared(_words), refused(_argument, _reason))

_ACCEPTED: Final[tuple[tuple[str, Given], ...]] = (
    ("message-ttl-zero", {"x-message-ttl": 0}),
    ("message-ttl-2-32", {"x-message-ttl": 2**32}),
    ("message-ttl-ten-years", {"x-message-ttl": 315_360_000_000}),
    ("message-ttl-short", {"x-message-ttl": ("s", 1000)}),
    ("message-ttl-byte", {"x-message-ttl": ("b", 100)}),
    ("message-ttl-unsigned-short", {"x-message-ttl": ("u", 1000)}),
    ("message-ttl-unsigned", {"x-message-ttl": ("i", 1000)}),
    ("max-priority-byte", {"x-max-priority": ("B", 10)}),
    ("max-priority-255", {"x-max-priority": 255}),
    ("max-priority-0", {"x-max-priority": 0}),
    ("max-length-zero", {"x-max-length": 0}),
    ("overflow-reject-publish-dlx", {"x-overflow": "reject-publish-dlx"}),
    ("dead-letter-exchange-missing", {"x-dead-letter-exchange": "nowhere"}),
    ("dead-letter-exchange-default", {"x-dead-letter-exchange": ""}),
    ("queue-mode-lazy", {"x-queue-mode": "lazy"}),
    ("queue-mode-default", {"x-queue-mode": "default"}),
    ("queue-version-1", {"x-queue-version": 1}),
    ("queue-version-2", {"x-queue-version": 2}),
    ("master-locator-client-local", {"x-queue-master-locator": "client-local"}),
    ("unknown", {"x-nobody-knows": 1, "other": {"a": [1, "b"]}}),
)
for _name, _words in _ACCEPTED:
    topic.add(_name, f"{_words} is accepted", declared(_words), _OK)

topic.add(
    "message-ttl-beyond-ten-years",
    "x-message-ttl of ten years and a millisecond",
    declared({"x-message-ttl": 315_360_000_001}),
    (
        "channel.close 406 PRECONDITION_FAILED - invalid arg 'x-message-ttl' for queue 'q' "
        "in vhost '/': {value_too_large,315360000001} (50.10)"
    ),
)
topic.add(
    "dead-letter-exchange-number",
    "x-dead-letter-exchange 5",
    declared({"x-dead-letter-exchange": 5}),
    (
        "channel.close 406 PRECONDITION_FAILED - invalid type 'signedint' for arg "
        "'x-dead-letter-exchange' in queue 'q' in vhost '/' (50.10)"
    ),
)
topic.add(
    "master-locator-unknown",
    "x-queue-master-locator nope",
    declared({"x-queue-master-locator": "nope"}, durable=True),
    refused("x-queue-master-locator", "invalid_queue_locator_arg"),
    rabbitmq="connection.close 541 INTERNAL_ERROR (0.0)",
    difference="master-locator",
)

topic.add(
    "classic-leader-locator",
    "x-queue-leader-locator on a classic queue",
    declared({"x-queue-leader-locator": "balanced"}),
    _OK,
    rabbitmq=foreign("x-queue-leader-locator", "classic"),
    difference="leader-locator-classic",
)
topic.add(
    "classic-delivery-limit",
    "x-delivery-limit on a classic queue",
    declared({"x-delivery-limit": 5}),
    _OK,
    rabbitmq=foreign("x-delivery-limit", "classic"),
    difference="delivery-limit-classic",
)
topic.add(
    "consumer-timeout",
    "x-consumer-timeout on a classic queue",
    declared({"x-consumer-timeout": 60000}),
    _OK,
)
topic.add(
    "consumer-timeout-negative",
    "x-consumer-timeout -1 on a quorum queue",
    declared({**_QUORUM, "x-consumer-timeout": -1}, durable=True),
    refused("x-consumer-timeout", "{value_negative,-1}"),
    rabbitmq=_OK,
    difference="consumer-timeout",
)

for _flags, _property in (
    ({"durable": False}, "non-durable"),
    ({"durable": True, "exclusive": True}, "exclusive-owner"),
    ({"durable": True, "auto_delete": True}, "auto-delete"),
):
    topic.add(
        f"quorum-{_property}",
        f"a quorum queue declared with {_flags}",
        declared(_QUORUM, **_flags),
        f"channel.close 406 PRECONDITION_FAILED - invalid property '{_property}' "
        "for queue 'q' in vhost '/' (50.10)",
    )

_QUORUM_REFUSES: Final[tuple[tuple[str, Given], ...]] = (
    ("max-priority", {"x-max-priority": 5}),
    ("queue-mode", {"x-queue-mode": "lazy"}),
    ("queue-version", {"x-queue-version": 2}),
    ("max-age", {"x-max-age": "1h"}),
    ("stream-max-segment-size-bytes", {"x-stream-max-segment-size-bytes": 1000}),
)
for _name, _words in _QUORUM_REFUSES:
    (_argument,) = _words
    topic.add(
        f"quorum-{_name}",
        f"{_words} on a quorum queue",
        declared({**_QUORUM, **_words}, durable=True),
        foreign(_argument, "quorum"),
    )

_CLASSIC_REFUSES: Final[tuple[tuple[str, Given], ...]] = (
    ("max-age", {"x-max-age": "1h"}),
    ("stream-max-segment-size-bytes", {"x-stream-max-segment-size-bytes": 1000}),
    ("quorum-initial-group-size", {"x-quorum-initial-group-size": 3}),
    ("dead-letter-strategy", {"x-dead-letter-strategy": "at-least-once"}),
    ("initial-cluster-size", {"x-initial-cluster-size": 3}),
)
for _name, _words in _CLASSIC_REFUSES:
    (_argument,) = _words
    topic.add(
        f"classic-{_name}",
        f"{_words} on a classic queue",
        declared(_words),
        foreign(_argument, "classic"),
    )

_QUORUM_CHECKS: Final[tuple[tuple[str, Given, str], ...]] = (
    ("leader-locator-unknown", {"x-queue-leader-locator": "nope"}, "invalid_queue_locator_arg"),
    ("group-size-zero", {"x-quorum-initial-group-size": 0}, "{value_zero,0}"),
    ("strategy-unknown", {"x-dead-letter-strategy": "nope"}, "invalid_dlx_strategy"),
    ("in-memory-length-negative", {"x-max-in-memory-length": -1}, "{value_negative,-1}"),
)
for _name, _words, _reason in _QUORUM_CHECKS:
    (_argument,) = _words
    topic.add(
        f"quorum-{_name}",
        f"{_words} on a quorum queue",
        declared({**_QUORUM, **_words}, durable=True),
        refused(_argument, _reason),
    )

_QUORUM_ACCEPTS: Final[tuple[tuple[str, Given], ...]] = (
    ("delivery-limit", {"x-delivery-limit": 5}),
    ("delivery-limit-text", {"x-delivery-limit": "5"}),
    ("leader-locator", {"x-queue-leader-locator": "balanced"}),
    ("group-size", {"x-quorum-initial-group-size": 1}),
    ("strategy", {"x-dead-letter-strategy": "at-least-once"}),
    ("in-memory-length", {"x-max-in-memory-length": 5}),
    ("overflow-reject-publish-dlx", {"x-overflow": "reject-publish-dlx"}),
    ("expires", {"x-expires": 100000}),
    ("message-ttl", {"x-message-ttl": 1000}),
    ("single-active", {"x-single-active-consumer": True}),
)
for _name, _words in _QUORUM_ACCEPTS:
    topic.add(
        f"quorum-accepts-{_name}",
        f"{_words} on a quorum queue is accepted",
        declared({**_QUORUM, **_words}, durable=True),
        _OK,
    )


@topic.case(
    "quorum-server-named",
    "a quorum queue with an empty name",
    (
        "channel.close 406 PRECONDITION_FAILED - Cannot declare a server-named queue for "
        "type rabbit_quorum_queue (50.10)"
    ),
)
def _(t: Stage) -> str:
    return show(t.channel().call("queue.declare", durable=True, arguments=_QUORUM))


@topic.case(
    "table-unknown-tag",
    "a field table with the unknown tag z",
    "connection.close 502 SYNTAX_ERROR",
    rabbitmq="socket closed",
    difference="malformed-input",
)
def _(t: Stage) -> str:
    arguments = {"x-a": ("z", b"\x00")}
    return code(t.channel().call("queue.declare", queue=t.name(), arguments=arguments))


@topic.case(
    "table-cut-short",
    "a field table whose last field is cut short",
    "connection.close 502 SYNTAX_ERROR",
    rabbitmq="socket closed",
    difference="malformed-input",
)
def _(t: Stage) -> str:
    broken = b"\x00\x00\x00\x06\x03x-aI\x00"
    return code(t.channel().call("queue.declare", queue=t.name(), arguments=broken))
