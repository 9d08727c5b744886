"""Fanout exchanges."""

import pytest

from leveret.engine.exchanges.fanout import FanoutExchange
from tests.unit.engine.exchanges.stage import bind, matched, queues, unbind


def test_all_bindings_match_whatever_the_key() -> None:
    exchange = FanoutExchange("x")
    targets = queues(3)
    for number, queue in enumerate(targets):
        bind(exchange, queue, f"k{number}")
    assert matched(exchange, "whatever") == ["q0", "q1", "q2"]
    unbind(exchange, targets[0], "k0")
    assert matched(exchange, "k0") == ["q1", "q2"]


def test_unbind_needs_the_key_of_the_binding() -> None:
    exchange = FanoutExchange("x")
    queue = queues(1)[0]
    bind(exchange, queue, "k")
    assert not unbind(exchange, queue, "other")
    assert matched(exchange) == ["q0"]


@pytest.mark.compiled_only("so many take long on the sources, and do the same there")
def test_hundred_thousand_removed_queues_leave_nothing_behind() -> None:
    exchange = FanoutExchange("x")
    targets = queues(100_000)
    for queue in targets:
        bind(exchange, queue)
    for queue in targets:
        assert exchange.remove_target(queue) == 1
    assert exchange._row == []
