"""Modulus-hash exchanges."""

from collections import Counter

from leveret.engine.exchanges.modulus_hash import ModulusHashExchange
from leveret.engine.target import Target
from tests.unit.engine.exchanges.stage import bind, matched, queues, unbind

KEYS = [f"k{number}" for number in range(2000)]


def choices(exchange: ModulusHashExchange) -> list[list[str]]:
    return [matched(exchange, key) for key in KEYS]


def test_nothing_bound_matches_nothing() -> None:
    assert matched(ModulusHashExchange("x"), "k") == []


def test_key_always_goes_to_the_same_one_queue() -> None:
    exchange = ModulusHashExchange("x")
    for queue in queues(4):
        bind(exchange, queue)
    first = choices(exchange)
    assert first == choices(exchange)
    counts = Counter(name for names in first for name in names)
    assert sum(counts.values()) == len(KEYS)
    assert min(counts.values()) > 400


def test_choice_does_not_depend_on_the_order_of_binding() -> None:
    one = ModulusHashExchange("x")
    other = ModulusHashExchange("x")
    for queue in queues(5):
        bind(one, queue, "some key")
    for queue in reversed(queues(5)):
        bind(other, queue, "some key")
    assert choices(one) == choices(other)


def test_removed_bindings_leave_nothing_behind() -> None:
    exchange = ModulusHashExchange("x")
    first, second = queues(2)
    bind(exchange, first)
    before = choices(exchange)
    bind(exchange, second)
    assert choices(exchange) != before
    unbind(exchange, second)
    assert choices(exchange) == before
    unbind(exchange, first)
    assert exchange._members == {}
    assert matched(exchange, "k") == []


def test_binding_keys_are_ignored() -> None:
    exchange = ModulusHashExchange("x")
    bind(exchange, Target("q"), "abc")
    assert matched(exchange, "def") == ["q"]
