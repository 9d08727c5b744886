"""Arguments of queues, consumers and exchanges: the settings they become, and the error texts.

Every text was recorded from RabbitMQ, except where a comment says that Leveret differs.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.engine.arguments.queue_arguments import (
    DROP_HEAD,
    REJECT_PUBLISH,
    REJECT_PUBLISH_DLX,
    ConsumerSettings,
    QueueSettings,
    consumer_settings,
    exchange_alternate,
    queue_settings,
)
from leveret.engine.arguments.rules import QUEUE_RULES, TIME_MS_MAX
from leveret.errors import PreconditionFailedError
from leveret.wire.tables import Field, Table, table_of


def settings(arguments: dict[str, object], **flags: bool) -> QueueSettings:
    return queue_settings(
        "q",
        "/",
        flags.get("durable", True),
        flags.get("exclusive", False),
        flags.get("auto_delete", False),
        table_of(arguments),
    )


def quorum(arguments: dict[str, object], **flags: bool) -> QueueSettings:
    return settings({"x-queue-type": "quorum"} | arguments, **flags)


def stream(arguments: dict[str, object], **flags: bool) -> QueueSettings:
    return settings({"x-queue-type": "stream"} | arguments, **flags)


def refusal(arguments: dict[str, object], **flags: bool) -> str:
    with pytest.raises(PreconditionFailedError) as refused:
        settings(arguments, **flags)
    return str(refused.value)


def test_queue_without_arguments_is_classic_and_unlimited() -> None:
    made = settings({})
    assert made.kind == "classic"
    assert (made.ttl_ms, made.expires_ms, made.max_length, made.max_bytes) == (-1, -1, -1, -1)
    assert (made.overflow, made.priority_max, made.delivery_limit) == (DROP_HEAD, -1, -1)
    assert (made.dead_letter_exchange, made.dead_letter_key) == (None, None)
    assert (made.single_active, made.lazy, made.delayed) == (False, False, False)
    assert (made.consumer_timeout_ms, made.retry_type) == (-1, "disabled")


def test_quorum_queue_has_its_own_defaults() -> None:
    made = quorum({})
    assert (made.kind, made.priority_max, made.delivery_limit) == ("quorum", 31, 20)


def test_stream_has_its_own_defaults() -> None:
    made = stream({})
    assert (made.kind, made.max_age_ms, made.max_bytes) == ("stream", -1, -1)
    assert (made.segment_bytes, made.filter_bytes) == (64 << 20, 16)


@pytest.mark.parametrize(
    ("limit", "segment"),
    [(0, 1 << 20), (1 << 20, 1 << 20), (80 << 20, 10 << 20), (1 << 40, 64 << 20)],
)
def test_stream_with_a_small_limit_has_small_segments(limit: int, segment: int) -> None:
    assert stream({"x-max-length-bytes": limit}).segment_bytes == segment
    given: dict[str, object] = {"x-max-length-bytes": limit, "x-stream-max-segment-size-bytes": 7}
    assert stream(given).segment_bytes == 7


def test_arguments_become_fields() -> None:
    made = settings(
        {
            "x-message-ttl": 1000,
            "x-expires": 2000,
            "x-max-length": 0,
            "x-max-length-bytes": 2**63 - 1,
            "x-overflow": "reject-publish-dlx",
            "x-dead-letter-exchange": "",
            "x-dead-letter-routing-key": "dead",
            "x-single-active-consumer": True,
            "x-max-priority": 255,
            "x-queue-mode": "lazy",
            "x-delivery-limit": 5,
            "x-consumer-timeout": 0,
            "x-delayed": True,
            "x-unknown": 5,
        }
    )
    assert (made.ttl_ms, made.expires_ms) == (1000, 2000)
    assert (made.max_length, made.max_bytes) == (0, 2**63 - 1)
    assert made.overflow == REJECT_PUBLISH_DLX
    assert (made.dead_letter_exchange, made.dead_letter_key) == ("", "dead")
    assert (made.single_active, made.priority_max, made.lazy) == (True, 255, True)
    assert (made.delivery_limit, made.consumer_timeout_ms, made.delayed) == (5, 0, True)


def test_false_and_default_words_mean_the_default() -> None:
    made = settings({"x-single-active-consumer": False, "x-queue-mode": "default"})
    assert (made.single_active, made.lazy) == (False, False)


@pytest.mark.parametrize("kind", list("bBsuIil"))
def test_every_integer_type_is_accepted(kind: str) -> None:
    arguments: Table = {"x-message-ttl": Field(ord(kind), 100)}
    assert queue_settings("q", "/", True, False, False, arguments).ttl_ms == 100


@pytest.mark.parametrize(
    ("value", "limit"), [(0, 0), (3, 3), (-1, -1), (-7, -1), ("no number", 20), (1.5, 20)]
)
def test_delivery_limit_of_a_quorum_queue_is_not_checked(value: object, limit: int) -> None:
    assert quorum({"x-delivery-limit": value}).delivery_limit == limit


def test_dead_lettering_at_least_once_needs_exchange_and_reject_publish() -> None:
    strategy: dict[str, object] = {"x-dead-letter-strategy": "at-least-once"}
    exchange: dict[str, object] = {"x-dead-letter-exchange": "x"}
    reject: dict[str, object] = {"x-overflow": "reject-publish"}
    assert quorum(reject).overflow == REJECT_PUBLISH
    assert quorum(strategy | exchange | reject).dead_letter_at_least_once
    assert not quorum(strategy | exchange).dead_letter_at_least_once
    assert not quorum(strategy | reject).dead_letter_at_least_once
    assert not quorum(exchange | reject).dead_letter_at_least_once


def test_delayed_retry_takes_its_maximum_from_its_minimum() -> None:
    made = settings({"x-delayed-retry-type": "failed", "x-delayed-retry-min": 100})
    assert (made.retry_type, made.retry_min_ms, made.retry_max_ms) == ("failed", 100, 100)
    made = quorum(
        {
            "x-delayed-retry-type": "all",
            "x-delayed-retry-min": 100,
            "x-delayed-retry-max": 900,
        }
    )
    assert (made.retry_type, made.retry_min_ms, made.retry_max_ms) == ("all", 100, 900)


def test_times_without_a_limit_in_rabbitmq_are_limited_to_ten_years() -> None:
    endless = 2**63 - 1
    made = quorum(
        {
            "x-consumer-timeout": endless,
            "x-delayed-retry-min": endless,
            "x-delayed-retry-max": endless,
            "x-consumer-disconnected-timeout": endless,
        }
    )
    assert made.consumer_timeout_ms == TIME_MS_MAX
    assert (made.retry_min_ms, made.retry_max_ms) == (TIME_MS_MAX, TIME_MS_MAX)


@pytest.mark.parametrize(
    "word", ["client-local", "balanced", "random", "least-leaders", "min-masters"]
)
def test_every_leader_locator_is_accepted(word: str) -> None:
    quorum({"x-queue-leader-locator": word})


@pytest.mark.parametrize(
    ("age", "milliseconds"),
    [
        ("1Y", 31_536_000_000),
        ("1M", 2_592_000_000),
        ("01D", 86_400_000),
        ("5h", 18_000_000),
        ("10m", 600_000),
        ("7s", 7_000),
        ("9" * 30 + "Y", TIME_MS_MAX),
    ],
)
def test_age_of_a_stream_is_read(age: str, milliseconds: int) -> None:
    assert stream({"x-max-age": age}).max_age_ms == milliseconds


NOT_AN_INTEGER = '"expected integer, got longstr"'

# Argument of a classic queue, value, RabbitMQ's reason
REFUSED: list[tuple[str, object, str]] = [
    ("x-expires", "1000", NOT_AN_INTEGER),
    ("x-expires", 0, "{value_zero,0}"),
    ("x-expires", -1, "{value_negative,-1}"),
    ("x-expires", 315360000001, "{value_too_large,315360000001}"),
    ("x-message-ttl", "abc", NOT_AN_INTEGER),
    ("x-message-ttl", -1, "{value_negative,-1}"),
    ("x-message-ttl", 2**63 - 1, "{value_too_large,9223372036854775807}"),
    ("x-message-ttl", 100.5, '"expected integer, got double"'),
    ("x-message-ttl", None, '"expected integer, got void"'),
    ("x-message-ttl", True, '"expected integer, got bool"'),
    ("x-message-ttl", {"k": 1}, '"expected integer, got table"'),
    ("x-message-ttl", [1], '"expected integer, got array"'),
    ("x-message-ttl", b"1", '"expected integer, got binary"'),
    ("x-message-ttl", Field(ord("T"), 1), '"expected integer, got timestamp"'),
    ("x-message-ttl", Field(ord("D"), (0, 1)), '"expected integer, got decimal"'),
    ("x-message-ttl", Field(ord("f"), 5.0), '"expected integer, got float"'),
    ("x-max-length", "5", NOT_AN_INTEGER),
    ("x-max-length", -(2**63), "{value_negative,-9223372036854775808}"),
    ("x-max-length-bytes", -1, "{value_negative,-1}"),
    ("x-max-priority", "5", NOT_AN_INTEGER),
    ("x-max-priority", -1, "{value_negative,-1}"),
    ("x-max-priority", 256, "{max_value_exceeded,256}"),
    ("x-overflow", "nope", "invalid_overflow"),
    ("x-overflow", 1, "{unacceptable_type,signedint}"),
    ("x-dead-letter-routing-key", "k", "routing_key_but_no_dlx_defined"),
    ("x-dead-letter-routing-key", 5, "{unacceptable_type,signedint}"),
    ("x-single-active-consumer", "yes", "{unacceptable_type,longstr}"),
    ("x-single-active-consumer", 1, "{unacceptable_type,signedint}"),
    ("x-queue-mode", "nope", "\"unsupported queue mode 'nope'\""),
    ("x-queue-mode", b"lazy", "{unacceptable_type,binary}"),
    ("x-queue-version", 3, "\"unsupported queue version '3'\""),
    ("x-queue-version", 0, "\"unsupported queue version '0'\""),
    ("x-queue-version", -1, "{value_negative,-1}"),
    ("x-queue-version", "2", NOT_AN_INTEGER),
    ("x-queue-type", "nope", "\"unsupported queue type 'nope'\""),
    ("x-queue-type", "", "\"unsupported queue type ''\""),
    ("x-queue-type", "Quorum", "\"unsupported queue type 'Quorum'\""),
    ("x-queue-type", "a\"b'c", "\"unsupported queue type 'a\\\"b'c'\""),
    ("x-queue-type", "é", "\"unsupported queue type 'é'\""),
    ("x-queue-type", 1, "{unacceptable_type,signedint}"),
    # Arguments of later versions, checked in the same words.
    ("x-queue-leader-locator", "nope", "invalid_queue_locator_arg"),
    ("x-consumer-timeout", -1, "{value_negative,-1}"),
    ("x-consumer-timeout", "a", NOT_AN_INTEGER),
    # RabbitMQ accepts these.
    ("x-delayed-retry-type", "nope", "invalid_delayed_retry_type"),
    ("x-delayed-retry-type", "all", "no_delayed_retry_min_defined"),
    ("x-delayed-retry-min", 0, "{value_zero,0}"),
    ("x-delayed-retry-max", "a", NOT_AN_INTEGER),
    # Leveret's own.
    ("x-delayed", 1, "{unacceptable_type,signedint}"),
    ("x-deduplication", True, "{unacceptable_type,bool}"),
    ("x-deduplication", {"windows": 1}, '{unknown_entry,"windows"}'),
    ("x-deduplication", {"header": 1}, "{header,{unacceptable_type,signedint}}"),
    ("x-deduplication", {"header": ""}, "{header,invalid_name}"),
    ("x-deduplication", {"header": "h" * 256}, "{header,invalid_name}"),
    ("x-deduplication", {"window_ms": 0}, "{window_ms,{value_zero,0}}"),
    ("x-deduplication", {"window_ms": "a"}, f"{{window_ms,{NOT_AN_INTEGER}}}"),
    (
        "x-deduplication",
        {"window_ms": TIME_MS_MAX + 1},
        "{window_ms,{value_too_large,315360000001}}",
    ),
    ("x-deduplication", {"size": -1}, "{size,{value_negative,-1}}"),
    ("x-deduplication", {"size": 10_000_001}, "{size,{value_too_large,10000001}}"),
]


@pytest.mark.parametrize(("name", "value", "reason"), REFUSED)
def test_bad_value_is_refused_in_rabbitmqs_words(name: str, value: object, reason: str) -> None:
    assert refusal({name: value}) == f"invalid arg '{name}' for queue 'q' in vhost '/': {reason}"


def test_deduplication_has_defaults() -> None:
    assert settings({}).deduplication is None
    made = settings({"x-deduplication": {}}).deduplication
    assert made is not None
    assert (made.header, made.window_ms, made.size) == ("x-deduplication-id", 600_000, 100_000)
    made = settings({"x-deduplication": {"header": "h", "window_ms": 1, "size": 2}}).deduplication
    assert made is not None
    assert (made.header, made.window_ms, made.size) == ("h", 1, 2)


def test_text_that_erlang_cannot_print_is_shown_by_its_octets() -> None:
    octets = "117,110,115,117,112,112,111,114,116,101,100,32,113,117,101,117,101,32"
    assert refusal({"x-queue-type": "€"}) == (
        "invalid arg 'x-queue-type' for queue 'q' in vhost '/': "
        f"[{octets},116,121,112,101,32,39,226,130,172,39]"
    )


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("x-dead-letter-strategy", "nope", "invalid_dlx_strategy"),
        ("x-dead-letter-strategy", 1, "{unacceptable_type,signedint}"),
        ("x-quorum-initial-group-size", 0, "{value_zero,0}"),
        ("x-quorum-initial-group-size", -1, "{value_negative,-1}"),
        ("x-quorum-initial-group-size", "a", NOT_AN_INTEGER),
        ("x-max-in-memory-length", -1, "{value_negative,-1}"),
        ("x-queue-leader-locator", "nope", "invalid_queue_locator_arg"),
        ("x-queue-leader-locator", 1, "{unacceptable_type,signedint}"),
        ("x-overflow", "nope", "invalid_overflow"),
    ],
)
def test_bad_value_of_a_quorum_queue_is_refused(name: str, value: object, reason: str) -> None:
    expected = f"invalid arg '{name}' for queue 'q' in vhost '/': {reason}"
    assert refusal({"x-queue-type": "quorum", name: value}) == expected


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("x-max-age", 5, "{unacceptable_type,signedint}"),
        ("x-max-age", "0D", "invalid_max_age"),
        ("x-max-age", "1d", "invalid_max_age"),
        ("x-max-age", "1", "invalid_max_age"),
        ("x-max-age", "1.5D", "invalid_max_age"),
        ("x-max-age", "", "invalid_max_age"),
        ("x-max-age", "D", "invalid_max_age"),  # RabbitMQ: 541, as for every age without digits
        ("x-stream-max-segment-size-bytes", -1, "{value_negative,-1}"),
        ("x-stream-max-segment-size-bytes", "a", NOT_AN_INTEGER),
        ("x-initial-cluster-size", 0, "{value_zero,0}"),
        ("x-max-length-bytes", "a", NOT_AN_INTEGER),
    ],
)
def test_bad_value_of_a_stream_is_refused(name: str, value: object, reason: str) -> None:
    expected = f"invalid arg '{name}' for queue 'q' in vhost '/': {reason}"
    assert refusal({"x-queue-type": "stream", name: value}) == expected


def test_sizes_of_a_stream_are_bounded() -> None:
    assert stream({"x-stream-max-segment-size-bytes": 3_000_000_000}).segment_bytes == 3 * 10**9
    assert refusal(
        {"x-queue-type": "stream", "x-stream-max-segment-size-bytes": 3 * 10**9 + 1}
    ) == ("Exceeded max value for x-stream-max-segment-size-bytes")
    assert stream({"x-stream-filter-size-bytes": 255}).filter_bytes == 255
    for size in (15, 256):
        assert refusal({"x-queue-type": "stream", "x-stream-filter-size-bytes": size}) == (
            "Invalid value for x-stream-filter-size-bytes"
        )


@pytest.mark.parametrize("name", ["x-dead-letter-exchange"])
@pytest.mark.parametrize(("value", "kind"), [(5, "signedint"), (b"x", "binary"), (None, "void")])
def test_dead_letter_exchange_must_be_text(name: str, value: object, kind: str) -> None:
    text = f"invalid type '{kind}' for arg 'x-dead-letter-exchange' in queue 'q' in vhost '/'"
    assert refusal({name: value}) == text


def test_unknown_master_locator_is_refused() -> None:
    text = "invalid arg 'x-queue-master-locator' for queue 'q' in vhost '/': "
    assert refusal({"x-queue-master-locator": "nope"}) == text + "invalid_queue_locator_arg"
    assert settings({"x-queue-master-locator": "min-masters"}).kind == "classic"


GOOD: dict[str, object] = {
    "x-expires": 5000,
    "x-message-ttl": 1000,
    "x-dead-letter-exchange": "dlx",
    "x-dead-letter-strategy": "at-least-once",
    "x-max-length": 5,
    "x-max-length-bytes": 5,
    "x-max-in-memory-length": 5,
    "x-max-in-memory-bytes": 5,
    "x-max-priority": 5,
    "x-overflow": "reject-publish",
    "x-queue-mode": "lazy",
    "x-queue-version": 2,
    "x-single-active-consumer": True,
    "x-quorum-initial-group-size": 1,
    "x-max-age": "1D",
    "x-stream-max-segment-size-bytes": 100_000,
    "x-stream-filter-size-bytes": 16,
    "x-initial-cluster-size": 1,
    "x-queue-leader-locator": "client-local",
    "x-queue-master-locator": "min-masters",
    "x-delivery-limit": 5,
    "x-consumer-timeout": 5,
    "x-consumer-disconnected-timeout": 5,
    "x-delayed-retry-type": "disabled",
    "x-delayed-retry-min": 5,
    "x-delayed-retry-max": 5,
    "x-delayed": True,
    "x-remember": "history",
    "x-deduplication": {},
}
# Arguments that each kind refuses and another kind accepts. RabbitMQ's classic queues also refuse
# x-delivery-limit, x-consumer-timeout and x-delayed-retry-*, and 3.x's x-queue-leader-locator.
REFUSED_BY_KIND: dict[str, set[str]] = {
    "classic": {
        "x-dead-letter-strategy",
        "x-max-in-memory-length",
        "x-max-in-memory-bytes",
        "x-quorum-initial-group-size",
        "x-max-age",
        "x-stream-max-segment-size-bytes",
        "x-stream-filter-size-bytes",
        "x-initial-cluster-size",
        "x-consumer-disconnected-timeout",
    },
    "quorum": {
        "x-max-priority",
        "x-queue-mode",
        "x-queue-version",
        "x-max-age",
        "x-stream-max-segment-size-bytes",
        "x-stream-filter-size-bytes",
        "x-initial-cluster-size",
        "x-queue-master-locator",
    },
    "stream": set(GOOD)
    - {
        "x-max-length-bytes",
        "x-max-age",
        "x-stream-max-segment-size-bytes",
        "x-stream-filter-size-bytes",
        "x-initial-cluster-size",
        "x-queue-leader-locator",
        "x-deduplication",
    },
}


@pytest.mark.parametrize("kind", ["classic", "quorum", "stream"])
def test_each_kind_refuses_arguments_of_other_kinds(kind: str) -> None:
    others = {"x-queue-type", "x-dead-letter-routing-key"}
    assert set(GOOD) | others == {rule.name for rule in QUEUE_RULES}
    for name, value in GOOD.items():
        arguments = {"x-queue-type": kind, name: value}
        if name in REFUSED_BY_KIND[kind]:
            assert refusal(arguments) == (
                f"invalid arg '{name}' for queue 'q' in vhost '/' of queue type rabbit_{kind}_queue"
            )
        else:
            assert settings(arguments).kind == kind


def test_unknown_arguments_are_accepted_by_every_kind() -> None:
    for kind in ("classic", "quorum", "stream"):
        assert settings({"x-queue-type": kind, "x-foo": 1, "": None}).kind == kind


def test_bad_values_are_reported_first_then_refused_arguments_then_properties() -> None:
    arguments: dict[str, object] = {"x-queue-type": "quorum", "x-max-priority": 4}
    assert "x-message-ttl" in refusal(arguments | {"x-message-ttl": "a"}, durable=False)
    assert "x-max-priority" in refusal(arguments, durable=False)


def test_values_are_checked_in_rabbitmqs_order_and_refused_arguments_in_the_clients_order() -> None:
    wrong: dict[str, object] = {"x-max-length": "a", "x-message-ttl": "a", "x-expires": "a"}
    assert "x-expires" in refusal(wrong)
    refused: dict[str, object] = {"x-queue-mode": "lazy", "x-max-priority": 1}
    assert "x-queue-mode" in refusal({"x-queue-type": "quorum"} | refused)


@pytest.mark.parametrize("kind", ["quorum", "stream"])
@pytest.mark.parametrize(
    ("flags", "named"),
    [
        ({"durable": False}, "non-durable"),
        ({"exclusive": True}, "exclusive-owner"),
        ({"auto_delete": True}, "auto-delete"),
        ({"durable": False, "exclusive": True}, "exclusive-owner"),
        ({"durable": False, "exclusive": True, "auto_delete": True}, "auto-delete"),
    ],
)
def test_quorum_queues_and_streams_must_be_durable_and_shared(
    kind: str, flags: dict[str, bool], named: str
) -> None:
    text = f"invalid property '{named}' for queue 'q' in vhost '/'"
    assert refusal({"x-queue-type": kind}, **flags) == text
    assert settings({}, **flags).kind == "classic"


@pytest.mark.parametrize("name", ["", "amq.gen-abc"])
def test_only_classic_queues_can_have_server_names(name: str) -> None:
    for kind in ("quorum", "stream"):
        with pytest.raises(PreconditionFailedError) as refused:
            queue_settings(name, "/", False, False, False, table_of({"x-queue-type": kind}))
        text = f"Cannot declare a server-named queue for type rabbit_{kind}_queue"
        assert str(refused.value) == text
    assert queue_settings(name, "/", False, False, False, {}).kind == "classic"


def consumer(kind: str, arguments: dict[str, object]) -> ConsumerSettings:
    return consumer_settings("q", "/", kind, table_of(arguments))


def test_consumer_without_arguments() -> None:
    made = consumer("classic", {"x-unknown": 1})
    assert (made.priority, made.timeout_ms) == (0, -1)
    assert (made.stream_offset, made.stream_filters, made.match_unfiltered) == (None, [], False)


@pytest.mark.parametrize("kind", ["classic", "quorum"])
def test_consumer_arguments_become_fields(kind: str) -> None:
    made = consumer(
        kind, {"x-priority": -(2**63), "x-consumer-timeout": 7, "x-cancel-on-ha-failover": True}
    )
    assert (made.priority, made.timeout_ms) == (-(2**63), 7)


def test_stream_consumer_arguments_become_fields() -> None:
    made = consumer(
        "stream",
        {"x-stream-offset": "first", "x-stream-filter": "a", "x-stream-match-unfiltered": True},
    )
    assert made.stream_offset == Field(ord("S"), "first")
    assert (made.stream_filters, made.match_unfiltered) == (["a"], True)
    assert consumer("stream", {"x-stream-filter": ["a", "b"]}).stream_filters == ["a", "b"]


@pytest.mark.parametrize("offset", ["first", "last", "next", "7D", 0, -1, 5, Field(ord("T"), 1000)])
def test_offset_of_a_stream_is_a_word_an_age_a_number_or_a_time(offset: object) -> None:
    assert consumer("stream", {"x-stream-offset": offset}).stream_offset is not None


@pytest.mark.parametrize(
    ("kind", "name", "value", "end"),
    [
        ("classic", "x-priority", "high", f": {NOT_AN_INTEGER}"),
        ("quorum", "x-priority", 1.0, ': "expected integer, got double"'),
        ("classic", "x-priority", Field(ord("T"), 1), ': "expected integer, got timestamp"'),
        ("stream", "x-priority", 5, " of queue type rabbit_stream_queue"),
        ("classic", "x-cancel-on-ha-failover", "x", ": {unacceptable_type,longstr}"),
        ("classic", "x-consumer-timeout", -1, ": {value_negative,-1}"),
        ("stream", "x-consumer-timeout", 5, " of queue type rabbit_stream_queue"),
        ("classic", "x-stream-offset", "first", " of queue type rabbit_classic_queue"),
        ("quorum", "x-stream-offset", 5, " of queue type rabbit_quorum_queue"),
        # RabbitMQ 3.x answers these with an internal error.
        (
            "stream",
            "x-stream-offset",
            "nope",
            ': {invalid_stream_offset_arg,{longstr,<<"nope">>}}',
        ),
        ("stream", "x-stream-offset", True, ": {unacceptable_type,bool}"),
        ("stream", "x-stream-filter", 5, ": {unacceptable_type,signedint}"),
        ("stream", "x-stream-filter", ["a", 5], ": {unacceptable_type,signedint}"),
        ("quorum", "x-stream-filter", "a", " of queue type rabbit_quorum_queue"),
    ],
)
def test_bad_consumer_argument_is_refused(kind: str, name: str, value: object, end: str) -> None:
    with pytest.raises(PreconditionFailedError) as refused:
        consumer(kind, {name: value})
    assert str(refused.value) == f"invalid arg '{name}' for queue 'q' in vhost '/'{end}"


def test_alternate_exchange_is_text_or_absent() -> None:
    assert exchange_alternate("x", "/", {}) is None
    assert exchange_alternate("x", "/", table_of({"alternate-exchange": "other"})) == "other"
    assert exchange_alternate("x", "/", table_of({"alternate-exchange": ""})) == ""
    with pytest.raises(PreconditionFailedError) as refused:
        exchange_alternate("x", "/", table_of({"alternate-exchange": 5}))
    assert str(refused.value) == (
        "invalid type 'signedint' for arg 'alternate-exchange' in exchange 'x' in vhost '/'"
    )


VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.integers(-1, 300),
    st.floats(),
    st.text(max_size=8),
    st.binary(max_size=4),
    st.lists(st.integers(0, 5), max_size=2),
    st.sampled_from(["quorum", "stream", "lazy", "drop-head", "all", "7D", "balanced"]),
)
NAMES = st.sampled_from([rule.name for rule in QUEUE_RULES] + ["x-foo"])


@given(st.dictionaries(NAMES, VALUES, max_size=5), st.booleans(), st.booleans(), st.booleans())
def test_any_arguments_give_settings_in_range_or_a_refusal(
    arguments: dict[str, object], durable: bool, exclusive: bool, auto_delete: bool
) -> None:
    try:
        made = settings(arguments, durable=durable, exclusive=exclusive, auto_delete=auto_delete)
    except PreconditionFailedError:
        return
    assert made.kind in ("classic", "quorum", "stream")
    assert -1 <= made.ttl_ms <= TIME_MS_MAX
    assert made.expires_ms == -1 or 1 <= made.expires_ms <= TIME_MS_MAX
    assert -1 <= made.priority_max <= 255
    assert 0 <= made.retry_min_ms <= made.retry_max_ms <= TIME_MS_MAX
    assert -1 <= made.consumer_timeout_ms <= TIME_MS_MAX
    assert made.delivery_limit >= -1
    assert made.dead_letter_key is None or made.dead_letter_exchange is not None
