"""Redeclarations: which differences are allowed, and the error texts for the others.

Every text was recorded from RabbitMQ, except where a comment says that Leveret differs.
"""

import pytest

from leveret.engine.arguments.equivalence import (
    require_equivalent_exchange,
    require_equivalent_queue,
)
from leveret.errors import PreconditionFailedError
from leveret.wire.tables import Field, table_of

Arguments = dict[str, object]


def redeclare(
    have: Arguments,
    want: Arguments,
    have_flags: tuple[bool, bool] = (True, False),
    want_flags: tuple[bool, bool] = (True, False),
) -> str:
    """The difference that is told, or the empty string. Flags are durable and auto_delete."""
    kind = str(have.get("x-queue-type", "classic"))
    have_table, want_table = table_of(have), table_of(want)
    try:
        require_equivalent_queue("q", "/", *have_flags, have_table, *want_flags, want_table, kind)
    except PreconditionFailedError as refused:
        head = "inequivalent arg "
        assert str(refused).startswith(head)
        key, _, rest = str(refused)[len(head) :].partition(" for queue 'q' in vhost '/': ")
        return f"{key} {rest}"
    return ""


QUORUM: Arguments = {"x-queue-type": "quorum"}
CLASSIC: Arguments = {"x-queue-type": "classic"}
STREAM: Arguments = {"x-queue-type": "stream"}


@pytest.mark.parametrize(
    ("have", "want"),
    [
        ({}, {}),
        ({"x-message-ttl": 1000}, {"x-message-ttl": Field(ord("s"), 1000)}),
        ({"x-message-ttl": 1000}, {"x-message-ttl": Field(ord("T"), 1000)}),
        ({"x-dead-letter-exchange": "e"}, {"x-dead-letter-exchange": b"e"}),
        ({"x-foo": 1}, {"x-foo": 2}),
        ({}, {"x-foo": 1}),
        ({}, CLASSIC),
        (CLASSIC, {}),
        # Only arguments that the kind of queue knows are compared.
        ({}, {"x-max-age": "1D"}),
        (QUORUM, QUORUM | {"x-max-priority": 3}),
        (QUORUM, QUORUM | {"x-queue-mode": "lazy"}),
        (STREAM, STREAM | {"x-message-ttl": 3}),
    ],
)
def test_same_queue_may_be_declared_again(have: Arguments, want: Arguments) -> None:
    assert redeclare(have, want) == ""


TTL_ABSENT = "'x-message-ttl' received {} but current is none"
TTL_1000 = "'x-message-ttl' received {} but current is '1000'"

DIFFERENT: list[tuple[Arguments, Arguments, str]] = [
    (
        {"x-message-ttl": 1000},
        {},
        "'x-message-ttl' received none but current is the value '1000' of type 'signedint'",
    ),
    ({"x-message-ttl": 1000}, {"x-message-ttl": 2000}, TTL_1000.format("'2000'")),
    ({"x-message-ttl": 1000}, {"x-message-ttl": "abc"}, TTL_1000.format("'abc'")),
    ({"x-message-ttl": 1000}, {"x-message-ttl": 1000.5}, TTL_1000.format("'1000.5'")),
    ({"x-message-ttl": 1000}, {"x-message-ttl": True}, TTL_1000.format("'true'")),
    ({"x-message-ttl": 1000}, {"x-message-ttl": None}, TTL_1000.format("none")),
    (
        {"x-message-ttl": 1000},
        {"x-message-ttl": {"k": 1}},
        TTL_1000.format("'[{<<\"k\">>,signedint,1}]'"),
    ),
    (
        {"x-message-ttl": 1000},
        {"x-message-ttl": [1, "a"]},
        TTL_1000.format("'[{signedint,1},{longstr,<<\"a\">>}]'"),
    ),
    (
        {},
        {"x-message-ttl": 1000},
        TTL_ABSENT.format("the value '1000' of type 'signedint'"),
    ),
    ({}, {"x-message-ttl": -1}, TTL_ABSENT.format("the value '-1' of type 'signedint'")),
    ({}, {"x-message-ttl": None}, TTL_ABSENT.format("the value 'undefined' of type 'void'")),
    ({}, {"x-message-ttl": b"e"}, TTL_ABSENT.format("the value 'e' of type 'binary'")),
    (
        {},
        {"x-message-ttl": Field(ord("D"), (2, 314))},
        TTL_ABSENT.format("the value '{2,314}' of type 'decimal'"),
    ),
    (
        {"x-dead-letter-exchange": "e"},
        {"x-dead-letter-exchange": 5},
        "'x-dead-letter-exchange' received '5' but current is 'e'",
    ),
    (
        {"x-single-active-consumer": True},
        {"x-single-active-consumer": False},
        "'x-single-active-consumer' received 'false' but current is 'true'",
    ),
    (
        {},
        {"x-single-active-consumer": False},
        "'x-single-active-consumer' received the value 'false' of type 'bool' but current is none",
    ),
    (
        {},
        QUORUM,
        "'x-queue-type' received the value 'quorum' of type 'longstr' but current is none",
    ),
    (
        {},
        {"x-queue-type": 1},
        "'x-queue-type' received the value '1' of type 'signedint' but current is none",
    ),
    (CLASSIC, QUORUM, "'x-queue-type' received 'quorum' but current is 'classic'"),
    (QUORUM, CLASSIC, "'x-queue-type' received 'classic' but current is 'quorum'"),
    (
        QUORUM,
        {},
        "'x-queue-type' received none but current is the value 'quorum' of type 'longstr'",
    ),
    (
        QUORUM | {"x-delivery-limit": 5},
        QUORUM | {"x-delivery-limit": 6},
        "'x-delivery-limit' received '6' but current is '5'",
    ),
    (
        STREAM | {"x-max-age": "1D"},
        STREAM | {"x-max-age": "2D"},
        "'x-max-age' received '2D' but current is '1D'",
    ),
    # Of several differences, the first in RabbitMQ's order is reported.
    (
        {"x-max-length": 1, "x-expires": 5},
        {"x-max-length": 2, "x-expires": 6},
        "'x-expires' received '6' but current is '5'",
    ),
    (
        {},
        QUORUM | {"x-message-ttl": 5},
        TTL_ABSENT.format("the value '5' of type 'signedint'"),
    ),
    (
        QUORUM | {"x-delivery-limit": 4},
        CLASSIC | {"x-delivery-limit": 5},
        "'x-queue-type' received 'classic' but current is 'quorum'",
    ),
    (
        QUORUM | {"x-message-ttl": 4},
        CLASSIC | {"x-message-ttl": 5},
        "'x-queue-type' received 'classic' but current is 'quorum'",
    ),
    (
        QUORUM | {"x-expires": 5, "x-dead-letter-exchange": "a", "x-max-length": 1},
        QUORUM | {"x-expires": 6, "x-dead-letter-exchange": "b", "x-max-length": 2},
        "'x-dead-letter-exchange' received 'b' but current is 'a'",
    ),
    # RabbitMQ's classic queues do not know this argument.
    (
        {},
        {"x-delivery-limit": 3},
        "'x-delivery-limit' received the value '3' of type 'signedint' but current is none",
    ),
]


@pytest.mark.parametrize(("have", "want", "told"), DIFFERENT)
def test_different_argument_is_refused_in_rabbitmqs_words(
    have: Arguments, want: Arguments, told: str
) -> None:
    assert redeclare(have, want) == told


def test_float_does_not_equal_a_whole_number() -> None:
    assert redeclare({"x-message-ttl": 1000}, {"x-message-ttl": 1000.0}) != ""


def test_different_flag_is_reported_before_different_argument() -> None:
    transient, durable = (False, False), (True, False)
    ttl: Arguments = {"x-message-ttl": 1}
    assert redeclare({}, ttl, transient, (True, True)) == (
        "'durable' received 'true' but current is 'false'"
    )
    assert redeclare({}, ttl, durable, (True, True)) == (
        "'auto_delete' received 'true' but current is 'false'"
    )
    assert redeclare({}, {}, durable, transient) == (
        "'durable' received 'false' but current is 'true'"
    )


AE = "alternate-exchange"
HAVE = ("direct", True, False, False, table_of({AE: "a"}))


def test_same_exchange_may_be_declared_again() -> None:
    require_equivalent_exchange("x", "/", HAVE, HAVE)
    other = ("direct", True, False, False, table_of({AE: "a", "x-foo": 1}))
    require_equivalent_exchange("x", "/", HAVE, other)


@pytest.mark.parametrize(
    ("want", "told"),
    [
        (
            ("fanout", False, True, True, table_of({AE: "b"})),
            "'type' for exchange 'x' in vhost '/': received 'fanout' but current is 'direct'",
        ),
        (
            ("direct", False, True, True, table_of({AE: "b"})),
            "'durable' for exchange 'x' in vhost '/': received 'false' but current is 'true'",
        ),
        (
            ("direct", True, True, True, table_of({AE: "b"})),
            "'auto_delete' for exchange 'x' in vhost '/': received 'true' but current is 'false'",
        ),
        (
            ("direct", True, False, True, table_of({AE: "b"})),
            "'internal' for exchange 'x' in vhost '/': received 'true' but current is 'false'",
        ),
        (
            ("direct", True, False, False, table_of({AE: "b"})),
            f"'{AE}' for exchange 'x' in vhost '/': received 'b' but current is 'a'",
        ),
        (
            ("direct", True, False, False, table_of({AE: 5})),
            f"'{AE}' for exchange 'x' in vhost '/': received '5' but current is 'a'",
        ),
        (
            ("direct", True, False, False, {}),
            f"'{AE}' for exchange 'x' in vhost '/': received none but current is the value 'a' "
            "of type 'longstr'",
        ),
    ],
)
def test_different_exchange_is_refused_in_rabbitmqs_words(
    want: tuple[str, bool, bool, bool, dict[str, Field]], told: str
) -> None:
    with pytest.raises(PreconditionFailedError) as refused:
        require_equivalent_exchange("x", "/", HAVE, want)
    assert str(refused.value) == f"inequivalent arg {told}"
