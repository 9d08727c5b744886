"""Direct exchanges."""

import pytest

from leveret.engine.exchanges.direct import DirectExchange
from leveret.engine.target import Target
from tests.unit.engine.exchanges.stage import bind, matched, queues, unbind


def test_key_must_be_equal() -> None:
    exchange = DirectExchange("x")
    for name, key in (("a", "k"), ("b", "K"), ("c", "k."), ("d", ""), ("e", "#")):
        bind(exchange, Target(name), key)
    assert matched(exchange, "k") == ["a"]
    assert matched(exchange, "") == ["d"]
    assert matched(exchange, "#") == ["e"]
    assert matched(exchange, "other") == []


def test_every_queue_bound_by_the_key_is_found() -> None:
    exchange = DirectExchange("x")
    for queue in queues(3):
        bind(exchange, queue, "k")
    assert matched(exchange, "k") == ["q0", "q1", "q2"]


def test_binding_that_differs_in_arguments_only_keeps_the_queue_bound() -> None:
    exchange = DirectExchange("x")
    queue = Target("q")
    bind(exchange, queue, "k", {"a": 1})
    bind(exchange, queue, "k")
    unbind(exchange, queue, "k", {"a": 1})
    assert matched(exchange, "k") == ["q"]


@pytest.mark.compiled_only("so many take long on the sources, and do the same there")
def test_hundred_thousand_removed_bindings_leave_nothing_behind() -> None:
    exchange = DirectExchange("x")
    targets = queues(1000)
    for number in range(100_000):
        bind(exchange, targets[number % 1000], f"k{number % 5000}", {"n": number})
    assert len(exchange.bindings) == 100_000
    for target in targets:
        assert exchange.remove_target(target) == 100
    assert exchange._rows == {}
    assert exchange.bindings == {}
