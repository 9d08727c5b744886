"""The keys of policies: what is refused and in which words, and how two values become one."""

import pytest

from leveret.engine.arguments.policy_keys import (
    POLICY_KEYS,
    definition_fault,
    effective_arguments,
    erlang_term,
    merged,
)
from leveret.wire.tables import field_of, plain_table, table_of


def fault(definition: dict[str, object], *, is_operator: bool = False) -> str:
    table = table_of({key.replace("_", "-"): value for key, value in definition.items()})
    return definition_fault(table, is_operator)


def both(user: dict[str, object], operator: dict[str, object]) -> dict[str, object]:
    return plain_table(merged(table_of(user), table_of(operator)))


def effective(
    kind: str, arguments: dict[str, object], policy: dict[str, object]
) -> dict[str, object]:
    return plain_table(effective_arguments(kind, table_of(arguments), table_of(policy)))


@pytest.mark.parametrize(
    ("definition", "reason"),
    [
        ({}, "no policy provided"),
        ({"nope": 1}, '[{<<"nope">>,1}] are not recognised policy settings'),
        ({"max_length": -1}, "-1 is not a valid maximum length"),
        ({"max_length": "x"}, '<<"x">> is not a valid maximum length'),
        ({"max_length": 1.5}, "1.5 is not a valid maximum length"),
        ({"max_length": True}, "true is not a valid maximum length"),
        ({"max_length_bytes": -1}, "-1 is not a valid maximum length in bytes"),
        ({"message_ttl": -1}, "-1 is not a valid message TTL"),
        ({"expires": 0}, "0 is not a valid queue expiry"),
        ({"overflow": "x"}, '<<"x">> is not a valid overflow value'),
        ({"dead_letter_exchange": 5}, "5 is not a valid dead letter exchange name"),
        (
            {"dead_letter_exchange": {"a": 1}},
            '#{<<"a">> => 1} is not a valid dead letter exchange name',
        ),
        ({"dead_letter_strategy": "x"}, '<<"x">> is not a valid dead letter strategy'),
        ({"delivery_limit": "x"}, '<<"x">> is not a valid delivery limit'),
        ({"max_age": "7"}, '<<"7">> is not a valid max age'),
        ({"queue_version": 3}, "3 is not a valid queue-version value"),
        ({"queue_mode": "x"}, '<<"x">> is not a valid queue-mode value'),
        ({"stream_filter_size_bytes": 9}, "9 is not a valid filter size. Valid range is 16-255"),
        (
            {"delayed_retry_type": "all"},
            "delayed-retry-min is required when delayed-retry-type is all",
        ),
        (
            {"delayed_retry_min": 5, "delayed_retry_max": 4},
            "delayed-retry-max (4) must not be smaller than delayed-retry-min (5)",
        ),
        ({"remember": ""}, '<<"">> is not a valid name of a stream'),
        (
            {"deduplication": {"x": 1}},
            '#{<<"x">> => 1} is not a valid table of header, window_ms and size',
        ),
    ],
)
def test_a_definition_is_refused_in_rabbitmqs_words(
    definition: dict[str, object], reason: str
) -> None:
    assert fault(definition) == reason


@pytest.mark.parametrize(
    "definition",
    [
        {"delivery_limit": -1},
        {"message_ttl": 0},
        {"max_age": "7D"},
        {"remember": "history"},
        {"deduplication": {}},
        {"deduplication": {"header": "message_id", "window_ms": 5, "size": 3}},
        {"ha_mode": "all", "ha_sync_mode": "automatic"},
        {"federation_upstream_set": "all"},
        {"delayed_retry_type": "disabled"},
    ],
)
def test_definition_of_known_keys_is_accepted(definition: dict[str, object]) -> None:
    assert fault(definition) == ""


def test_operators_have_fewer_keys() -> None:
    assert fault({"max_length": 5}, is_operator=True) == ""
    reason = '[{<<"dead-letter-exchange">>,<<"x">>}] are not recognised policy settings'
    assert fault({"dead_letter_exchange": "x"}, is_operator=True) == reason


@pytest.mark.parametrize(
    ("key", "user", "operator", "result"),
    [
        ("max-length", 5, 3, 3),
        ("max-length", 3, 5, 3),
        ("max-length-bytes", 3, 5, 3),
        ("message-ttl", 9, 5, 5),
        ("expires", 9, 5, 5),
        ("max-in-memory-length", 9, 5, 5),
        ("overflow", "drop-head", "reject-publish", "reject-publish"),
        ("delivery-limit", 5, 3, 3),
        ("delivery-limit", -1, 3, 3),
        ("delivery-limit", 5, -1, 5),
        ("queue-version", 1, 2, 2),
        ("delayed-retry-type", "all", "failed", "failed"),
        ("delayed-retry-min", 5, 9, 9),
        ("delayed-retry-max", 5, 9, 5),
        ("target-group-size", 3, 5, 5),
    ],
)
def test_values_of_user_and_operator_are_merged(
    key: str, user: object, operator: object, result: object
) -> None:
    assert both({key: user}, {key: operator}) == {key: result}


def test_keys_of_only_one_definition_are_kept_and_sorted() -> None:
    user: dict[str, object] = {"max-length": 5, "dead-letter-exchange": "x"}
    assert list(both(user, {"expires": 7}).items()) == [
        ("dead-letter-exchange", "x"),
        ("expires", 7),
        ("max-length", 5),
    ]


@pytest.mark.parametrize(
    ("kind", "argument", "own", "policy", "result"),
    [
        ("classic", "max-length", 5, 3, 3),
        ("classic", "max-length", 3, 5, 3),
        ("quorum", "message-ttl", 3, 5, 3),
        ("classic", "expires", 3, 5, 3),
        ("classic", "overflow", "drop-head", "reject-publish", "drop-head"),
        ("quorum", "overflow", "drop-head", "reject-publish", "reject-publish"),
        ("classic", "dead-letter-exchange", "mine", "theirs", "mine"),
        ("quorum", "dead-letter-strategy", "at-most-once", "at-least-once", "at-most-once"),
        ("quorum", "delivery-limit", 5, -1, 5),
        ("quorum", "delivery-limit", 5, 3, 3),
        ("classic", "delivery-limit", "no number", 3, 3),
        ("quorum", "consumer-timeout", 5, 3, 3),
        ("stream", "max-length-bytes", 5, 9, 9),
        ("stream", "max-age", "1D", "7D", "7D"),
        ("classic", "remember", "mine", "theirs", "mine"),
    ],
)
def test_argument_and_policy_value_are_combined(
    kind: str, argument: str, own: object, policy: object, result: object
) -> None:
    name = f"x-{argument}"
    assert effective(kind, {name: own}, {argument: policy}) == {name: result}


def test_policy_value_is_used_if_the_argument_is_missing() -> None:
    policy: dict[str, object] = {"max-length": 5, "queue-version": 2, "alternate-exchange": "a"}
    own: dict[str, object] = {"x-max-priority": 3}
    assert effective("classic", own, policy) == {"x-max-priority": 3, "x-max-length": 5}


def test_conflicting_retry_delays_are_resolved() -> None:
    own: dict[str, object] = {"x-delayed-retry-min": 50, "x-delayed-retry-max": 90}
    found = effective("quorum", own, {"delayed-retry-max": 20})
    assert found == {"x-delayed-retry-min": 50, "x-delayed-retry-max": 50}
    assert effective("quorum", {"x-delayed-retry-type": "all"}, {"max-length": 1}) == {
        "x-max-length": 1
    }


def test_every_key_of_rabbitmq_is_known() -> None:
    wanted = """alternate-exchange dead-letter-exchange dead-letter-routing-key dead-letter-strategy
        expires message-ttl max-length max-length-bytes max-in-memory-length max-in-memory-bytes
        overflow delivery-limit queue-version queue-mode consumer-timeout
        consumer-disconnected-timeout delayed-retry-type delayed-retry-min delayed-retry-max
        target-group-size queue-leader-locator initial-cluster-size max-age
        stream-max-segment-size-bytes stream-filter-size-bytes federation-upstream
        federation-upstream-set federation-upstream-pattern shards-per-node routing-key"""
    assert set(wanted.split()) <= set(POLICY_KEYS)


def test_values_are_shown_as_erlang_prints_them() -> None:
    value: object = {"a": [1, "x", True, None, 1.5]}
    assert erlang_term(field_of(value)) == '#{<<"a">> => [1,<<"x">>,true,null,1.5]}'
