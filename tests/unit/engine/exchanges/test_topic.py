"""Topic exchanges: examples with the results of RabbitMQ."""

import pytest

from leveret.engine.exchanges.topic import TopicExchange
from leveret.engine.target import Target
from tests.unit.engine.exchanges.stage import bind, matched, queues

# Pattern, key, whether RabbitMQ delivered. Recorded with RabbitMQ 3.10.8.
RECORDED = [
    ("a.*", "a.", True),
    ("a.*", "a", False),
    ("#", "", True),
    ("*", "", False),
    ("", "", True),
    ("", ".", False),
    ("", "a", False),
    ("#.", "", False),
    ("#.", ".", True),
    ("#.", "a.", True),
    (".#", "", False),
    (".#", ".", True),
    ("*.*", ".", True),
    ("..", "..", True),
    (".", ".", True),
    ("a..b", "a..b", True),
    ("a.*.b", "a..b", True),
    ("a.#.b", "a.b", True),
    ("a.#.b", "a.x.y.b", True),
    ("#.a.#", "a", True),
    ("#.#", "x", True),
    ("#.#.#", "a.b", True),
    ("#.*.#", "", False),
    ("#.*", "a", True),
    ("*.#", "", False),
    ("*.#.*", "a", False),
    ("*.#.*", "a.b", True),
    ("a.#.", "a.", True),
    ("a.#.", "a", False),
    ("a#", "a#", True),
    ("a#", "ab", False),
    ("**", "a", False),
    ("#.a", "a.a", True),
    ("a.#", "a", True),
    ("a.b.#", "a", False),
    ("a.*.#", "a.", True),
    ("*", "a.", False),
]


@pytest.mark.parametrize(("pattern", "key", "delivered"), RECORDED)
def test_match_is_as_recorded(pattern: str, key: str, delivered: bool) -> None:
    exchange = TopicExchange("x")
    bind(exchange, Target("q"), pattern)
    assert matched(exchange, key) == ["q"] * delivered


def test_wildcards_in_a_routing_key_are_plain_words() -> None:
    exchange = TopicExchange("x")
    for name, pattern in (("exact", "a.b"), ("star", "a.*"), ("hash", "#")):
        bind(exchange, Target(name), pattern)
    assert matched(exchange, "a.*") == ["hash", "star"]
    assert matched(exchange, "a.#") == ["hash", "star"]
    assert matched(exchange, "*") == ["hash"]


def test_all_matching_patterns_are_found_together() -> None:
    exchange = TopicExchange("x")
    patterns = ["a.b.c", "a.*.c", "a.#", "#", "#.c", "*.b.*", "a.b", "*.*", "b.#", "#.b.#"]
    for pattern in patterns:
        bind(exchange, Target(pattern), pattern)
    assert matched(exchange, "a.b.c") == sorted(set(patterns) - {"a.b", "*.*", "b.#"})


def test_patterns_of_one_meaning_are_different_bindings() -> None:
    exchange = TopicExchange("x")
    queue = Target("q")
    assert bind(exchange, queue, "#.*")
    assert bind(exchange, queue, "*.#")
    assert matched(exchange, "a") == ["q", "q"]
    assert exchange.remove(queue, "*.#", {})
    assert matched(exchange, "a") == ["q"]


@pytest.mark.compiled_only("so many take long on the sources, and do the same there")
def test_hundred_thousand_removed_patterns_leave_nothing_behind() -> None:
    exchange = TopicExchange("x")
    targets = queues(100)
    shapes = ["a{}.b{}", "*.b{}.c{}", "#.z{}.{}", "a{}.*.{}", "a{}.#.d{}.#"]
    for number in range(100_000):
        pattern = shapes[number % 5].format(number % 300, number)
        bind(exchange, targets[number % 100], pattern)
    assert len(exchange.bindings) == 100_000
    assert exchange.trie.count_nodes() > 100_000
    for queue in targets:
        assert exchange.remove_target(queue) == 1000
    assert exchange.trie.count_nodes() == 1
    assert exchange.trie.root.is_bare()
