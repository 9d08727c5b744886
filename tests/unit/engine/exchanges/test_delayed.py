"""Delayed-message exchanges: they route as their inner type does, after a delay."""

import pytest

from leveret.engine.exchanges.delayed import delay_ms
from leveret.engine.target import Target
from leveret.errors import PreconditionFailedError
from leveret.wire.tables import Field, table_of
from tests.unit.engine.exchanges.stage import bind, exchange, matched, message, queues


def test_it_routes_as_the_inner_type() -> None:
    source = exchange("x-delayed-message", {"x-delayed-type": "topic"})
    bind(source, Target("q"), "a.#")
    assert matched(source, "a.b") == ["q"]
    assert matched(source, "b") == []


def test_it_shows_its_own_type_and_bindings() -> None:
    source = exchange("x-delayed-message", {"x-delayed-type": "fanout"})
    for queue in queues(3):
        bind(source, queue)
    assert source.kind == "x-delayed-message"
    assert source.is_delayed
    assert not source.key_only
    assert len(source.bindings) == 3
    target = next(iter(source.bindings.values())).target
    assert source.remove_target(target) == 1
    assert matched(source) == ["q1", "q2"]


def test_inner_type_checks_bindings_and_arguments() -> None:
    source = exchange("x-delayed-message", {"x-delayed-type": "headers"})
    with pytest.raises(PreconditionFailedError, match="Invalid x-match field value"):
        source.check_binding("", table_of({"x-match": "nope"}))
    with pytest.raises(PreconditionFailedError, match="mutually exclusive"):
        exchange(
            "x-delayed-message",
            {"x-delayed-type": "x-consistent-hash", "hash-header": "a", "hash-property": "b"},
        )


@pytest.mark.parametrize("arguments", [{}, {"x-delayed-type": 5}, {"x-delayed-type": None}])
def test_inner_type_is_required(arguments: dict[str, object]) -> None:
    text = "^Invalid argument, 'x-delayed-type' must be an existing exchange type$"
    with pytest.raises(PreconditionFailedError, match=text):
        exchange("x-delayed-message", arguments)


def test_inner_type_must_be_known() -> None:
    with pytest.raises(PreconditionFailedError, match=r"^unknown exchange type 'nope'$"):
        exchange("x-delayed-message", {"x-delayed-type": "nope"})


def test_inner_type_cannot_be_delayed_again() -> None:
    text = "^Invalid argument, 'x-delayed-message' can't be used for 'x-delayed-type'$"
    with pytest.raises(PreconditionFailedError, match=text):
        exchange("x-delayed-message", {"x-delayed-type": "x-delayed-message"})


@pytest.mark.parametrize(
    ("value", "delay"),
    [
        (5000, 5000),
        (1, 1),
        (Field(ord("i"), 2**32 - 1), 2**32 - 1),
        (Field(ord("s"), 300), 300),
        ("1500", 1500),
        (2500.9, 2500),
        (0, 0),
        (-5000, 0),
        (2**32, 0),
        (2**62, 0),
        (1e300, 0),
        (float("nan"), 0),
        (float("inf"), 0),
        (float("-inf"), 0),
        (0.5, 0),
        ("", 0),
        ("soon", 0),
        ("-3", 0),
        ("9" * 5000, 0),
        (True, 0),
        (None, 0),
        ([1], 0),
        (Field(ord("T"), 5), 0),
    ],
)
def test_delay_is_read_from_the_header(value: object, delay: int) -> None:
    assert delay_ms(message({"a": 1, "x-delay": value})) == delay


def test_message_without_the_header_asks_for_no_delay() -> None:
    assert delay_ms(message({"a": 1})) == 0
    assert delay_ms(message()) == 0
