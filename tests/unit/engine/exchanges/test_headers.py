"""Headers exchanges."""

import random
import re

import pytest

from leveret.engine.exchanges.exchange import PATTERN_STEPS
from leveret.engine.exchanges.headers import HeadersExchange
from leveret.engine.target import Target
from leveret.errors import PreconditionFailedError
from leveret.wire.tables import Field, Table, equal_values, table_of
from tests.unit.engine.exchanges.stage import Arguments, bind, matched, queues

NAN = float("nan")

# Value in the binding, value in the message, whether RabbitMQ delivered. Recorded with 3.10.8.
RECORDED_VALUES: list[tuple[object, object, bool]] = [
    (1, 1, True),
    (1, 2**40, False),
    (2**40, 2**40, True),
    (1, 1.0, False),  # RabbitMQ 4; 3.10.8 delivered
    (1.0, 1, False),
    (1, True, False),
    (True, 1, False),
    (True, True, True),
    (True, "true", False),
    (1, "1", False),
    ("1", b"1", True),
    (b"1", "1", True),
    ("", "", True),
    ("", None, False),
    ([1, 2], [1, 2], True),
    ([1], [1.0], False),
    ({"a": 1}, {"a": 1}, True),
    (None, None, True),
    (None, 5, True),
    (5, None, False),
    (1.5, 1.5, True),
    (Field(ord("T"), 5), 5, True),
    (Field(ord("D"), (1, 15)), 1.5, False),
    (Field(ord("D"), (1, 15)), Field(ord("D"), (1, 15)), True),
]

# Arguments of the binding, headers of the message, whether RabbitMQ delivered.
RECORDED_MATCHES: list[tuple[Arguments, Arguments, bool]] = [
    ({"x-match": "all", "a": 1, "b": 2}, {"a": 1, "b": 2, "c": 3}, True),
    ({"x-match": "all", "a": 1, "b": 2}, {"a": 1}, False),
    ({"x-match": "any", "a": 1, "b": 2}, {"a": 1}, True),
    ({"x-match": "any", "a": 1, "b": 2}, {"a": 9, "b": 2}, True),
    ({"x-match": "any", "a": 1, "b": 2}, {"a": 9}, False),
    ({"x-match": "any", "a": None}, {"a": 3}, True),
    ({"a": 1}, {"a": 1}, True),
    ({"a": 1}, {"a": 2}, False),
    ({"x-match": "any"}, {"a": 1}, False),
    ({"x-match": "all"}, {"a": 1}, True),
    ({"x-match": "all"}, {}, True),
    ({}, {}, True),
    ({"x-match": "all", "x-h": 1}, {}, True),
    ({"x-match": "any", "x-h": 1}, {"x-h": 1}, False),
    ({"x-match": "all-with-x", "x-h": 1}, {}, False),
    ({"x-match": "all-with-x", "x-h": 1}, {"x-h": 1}, True),
    ({"x-match": "any-with-x", "x-h": 1}, {"x-h": 1}, True),
    ({"x-match": "any-with-x"}, {"x-match": "any-with-x"}, False),
    ({"x-match": "any-with-x", "x-match2": None}, {"x-match2": 1}, True),
    ({"x-": 1}, {}, True),
    ({"x": 1}, {}, False),
    ({"X-a": 1}, {}, False),
]


@pytest.mark.parametrize(("wanted", "sent", "delivered"), RECORDED_VALUES)
def test_values_are_equal_as_recorded(wanted: object, sent: object, delivered: bool) -> None:
    exchange = HeadersExchange("x")
    bind(exchange, Target("q"), "", {"a": wanted})
    assert matched(exchange, "", {"a": sent}) == ["q"] * delivered


@pytest.mark.parametrize(("arguments", "headers", "delivered"), RECORDED_MATCHES)
def test_match_is_as_recorded(arguments: Arguments, headers: Arguments, delivered: bool) -> None:
    exchange = HeadersExchange("x")
    bind(exchange, Target("q"), "key", arguments)
    assert matched(exchange, "other", headers) == ["q"] * delivered


def test_message_without_headers_matches_patterns_that_require_nothing() -> None:
    exchange = HeadersExchange("x")
    bind(exchange, Target("nothing"))
    bind(exchange, Target("something"), "", {"a": None})
    assert matched(exchange, "", None) == ["nothing"]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("nope", 'value <<"nope">>; expected all, any, all-with-x, or any-with-x'),
        ("", "value <<>>; expected all, any, all-with-x, or any-with-x"),
        (5, "type signedint (value 5); expected longstr"),
        (True, "type bool (value true); expected longstr"),
        (None, "type void (value undefined); expected longstr"),
        (b"all", 'type binary (value <<"all">>); expected longstr'),
    ],
)
def test_unusable_x_match_is_refused_in_the_words_of_rabbitmq(value: object, text: str) -> None:
    exchange = HeadersExchange("x")
    with pytest.raises(
        PreconditionFailedError, match=f"^{re.escape('Invalid x-match field ' + text)}$"
    ):
        exchange.check_binding("", table_of({"x-match": value}))


@pytest.mark.parametrize("mode", ["all", "any"])
def test_match_examines_few_of_ten_thousand_bindings(mode: str) -> None:
    exchange = HeadersExchange("x")
    for number, queue in enumerate(queues(10_000)):
        arguments: Arguments = {"type": "order"} if mode == "all" else {}
        arguments |= {"x-match": mode, "tenant": f"t{number}", "n": number}
        bind(exchange, queue, "", arguments)
    headers: Arguments = {"type": "order", "tenant": "t77", "n": 77, "other": True}
    assert set(matched(exchange, "", headers)) == {"q77"}
    assert exchange.looked_at <= 10 * PATTERN_STEPS


def test_removed_bindings_leave_nothing_in_the_index() -> None:
    exchange = HeadersExchange("x")
    values: list[object] = [1, "1", 1.0, True, None, NAN, b"1", [1], {"a": 1}, 2**40]
    targets = queues(20)
    for number in range(2000):
        mode = ("all", "any", "all-with-x", "any-with-x")[number % 4]
        arguments: Arguments = {"x-match": mode}
        for position in range(number % 4):
            arguments[f"{'x-' * (number % 2)}h{position}"] = values[(number + position) % 10]
        bind(exchange, targets[number % 20], str(number), arguments)
    for queue in targets:
        assert exchange.remove_target(queue) == 100
    assert exchange._indexes == {}
    assert exchange._always == {}
    assert exchange._patterns == {}


def accepts(arguments: Table, headers: Table) -> bool:
    """Match headers by the definition, without an index."""
    mode = arguments["x-match"].value
    assert isinstance(mode, str)
    results = [
        name in headers and (field.value is None or equal_values(field, headers[name]))
        for name, field in arguments.items()
        if name != "x-match" and ("with-x" in mode or not name.startswith("x-"))
    ]
    return any(results) if mode.startswith("any") else all(results)


def test_index_finds_what_the_definition_finds(seed: int) -> None:
    rng = random.Random(seed)
    values: list[object] = [0, 1, 2, 1.0, 0.5, "1", b"1", "", True, False, None, NAN, [1], {"a": 1}]
    names = ["a", "b", "c", "x-d", "x-e"]
    modes = ["all", "any", "all-with-x", "any-with-x"]
    exchange = HeadersExchange("x")
    targets = queues(30)
    checked = 0
    for _ in range(3000):
        if rng.random() < 0.4:
            arguments: Arguments = {"x-match": rng.choice(modes)}
            for name in rng.sample(names, rng.randrange(4)):
                arguments[name] = rng.choice(values)
            bind(exchange, rng.choice(targets), "", arguments)
        elif rng.random() < 0.15:
            exchange.remove_target(rng.choice(targets))
        else:
            headers = {name: rng.choice(values) for name in rng.sample(names, rng.randrange(5))}
            table = table_of(headers)
            wanted = {
                found.target.name
                for found in exchange.bindings.values()
                if accepts(found.arguments, table)
            }
            assert set(matched(exchange, "", headers)) == wanted, f"seed {seed}: {headers}"
            checked += len(wanted)
    assert checked > 1000, f"seed {seed}: hardly anything matched"
