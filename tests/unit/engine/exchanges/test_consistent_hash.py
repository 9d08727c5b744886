"""Consistent-hash exchanges: fair shares, few moves, the same choice after a restart."""

import random
import re
from collections import Counter

import pytest

from leveret.engine.exchanges.consistent_hash import ConsistentHashExchange
from leveret.engine.exchanges.exchange import Exchange, Headers
from leveret.engine.target import Target
from leveret.errors import PreconditionFailedError
from leveret.wire.properties import Properties
from leveret.wire.tables import table_of
from tests.unit.engine.exchanges.stage import (
    Arguments,
    bind,
    exchange,
    matched,
    message,
    queues,
    unbind,
)

KEYS = [f"key-{number}" for number in range(10_000)]
NONE = Headers(b"", 0, 0)


def make(arguments: Arguments | None = None) -> ConsistentHashExchange:
    return ConsistentHashExchange("x", table_of(arguments or {}))


def choice(source: Exchange, key: str, headers: Headers = NONE) -> str:
    found: list[Target] = []
    source.match(key, headers, found)
    assert len(found) == 1
    return found[0].name


def choices(source: Exchange) -> list[str]:
    return [choice(source, key) for key in KEYS]


def moved(before: list[str], after: list[str]) -> int:
    return sum(old != new for old, new in zip(before, after, strict=True))


def bound(weights: dict[str, int]) -> ConsistentHashExchange:
    source = make()
    for name, weight in weights.items():
        bind(source, Target(name), str(weight))
    return source


def test_message_goes_to_exactly_one_queue() -> None:
    source = bound({"a": 1, "b": 1, "c": 1})
    assert {len(matched(source, key)) for key in KEYS[:100]} == {1}


def test_nothing_bound_matches_nothing() -> None:
    assert matched(make(), "k") == []


def test_choice_never_changes() -> None:
    """Fixed results: every process and every version must make the same choice."""
    source = bound({"a": 1, "b": 2, "c": 3})
    assert [choice(source, key) for key in KEYS[:12]] == list("bccacbbcbcac")


def test_choice_does_not_depend_on_order_or_history(seed: int) -> None:
    weights = {f"q{number}": number % 3 + 1 for number in range(12)}
    before = choices(bound(weights))
    shuffled = list(weights.items())
    random.Random(seed).shuffle(shuffled)
    source = bound({"gone": 5})
    for name, weight in shuffled:
        bind(source, Target(name), str(weight))
    source.remove_target(next(iter(source.bindings.values())).target)
    assert choices(source) == before, f"seed {seed}"


def test_shares_follow_the_weights() -> None:
    counts = Counter(choices(bound({"a": 1, "b": 2, "c": 3, "d": 4})))
    for name, weight in (("a", 1), ("b", 2), ("c", 3), ("d", 4)):
        expected = len(KEYS) * weight / 10
        assert abs(counts[name] - expected) < 0.1 * expected, counts


def test_equal_weights_give_equal_shares_whatever_the_weight() -> None:
    for weight in (1, 10_000):
        counts = Counter(choices(bound({f"q{number}": weight for number in range(10)})))
        assert min(counts.values()) > 880, counts
        assert max(counts.values()) < 1120, counts


def test_new_binding_takes_a_fair_share_and_moves_nothing_else() -> None:
    source = bound({f"q{number}": 1 for number in range(9)})
    before = choices(source)
    bind(source, Target("new"), "1")
    after = choices(source)
    assert 0.9 * len(KEYS) / 10 < moved(before, after) < 1.1 * len(KEYS) / 10
    taken = {new for old, new in zip(before, after, strict=True) if old != new}
    assert taken == {"new"}


def test_removed_binding_leaves_its_share_to_all_others() -> None:
    source = bound({f"q{number}": 1 for number in range(10)})
    before = choices(source)
    going = next(b.target for b in source.bindings.values() if b.target.name == "q4")
    unbind(source, going, "1")
    after = choices(source)
    assert moved(before, after) == Counter(before)["q4"]
    heirs = Counter(new for old, new in zip(before, after, strict=True) if old != new)
    assert len(heirs) == 9
    assert max(heirs.values()) < 2 * min(heirs.values())


def test_of_two_bindings_to_one_queue_the_heavier_counts() -> None:
    twice = bound({"a": 3, "b": 3})
    bind(twice, next(iter(twice.bindings.values())).target, "1")
    assert choices(twice) == choices(bound({"a": 3, "b": 3}))


def test_removed_bindings_leave_nothing_behind(seed: int) -> None:
    rng = random.Random(seed)
    source = make()
    targets = queues(50)
    for _ in range(1000):
        queue = rng.choice(targets)
        weight = str(rng.randrange(1, 4))
        if rng.random() < 0.5:
            bind(source, queue, weight)
        else:
            unbind(source, queue, weight)
        present = [weighted.binding for weighted in source._row]
        assert {id(b) for b in present} == {id(b) for b in source.bindings.values()}, f"seed {seed}"
        assert [b.position for b in present] == list(range(len(present))), f"seed {seed}"


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("abc", 'The binding key must be an integer: <<"abc">>'),
        ("", "The binding key must be an integer: <<>>"),
        ("1.5", 'The binding key must be an integer: <<"1.5">>'),
        ("0", "The binding key must be greater than 0"),
        ("-3", "The binding key must be greater than 0"),
        ("10001", "The binding key must not exceed 10000"),
        ("9" * 255, "The binding key must not exceed 10000"),
    ],
)
def test_unusable_weight_is_refused(key: str, text: str) -> None:
    with pytest.raises(PreconditionFailedError, match=f"^{re.escape(text)}$"):
        make().check_binding(key, {})


@pytest.mark.parametrize("key", ["1", "+7", "0042", "10000"])
def test_usable_weight_is_accepted(key: str) -> None:
    assert bind(make(), Target("q"), key)


def test_header_and_property_exclude_each_other() -> None:
    with pytest.raises(
        PreconditionFailedError, match=r"^hash-header and hash-property are mutually exclusive$"
    ):
        exchange("x-consistent-hash", {"hash-header": "h", "hash-property": "message_id"})


def test_unknown_property_is_refused() -> None:
    with pytest.raises(PreconditionFailedError, match=r"^Unsupported property: app_id$"):
        make({"hash-property": "app_id"})


@pytest.mark.parametrize("name", ["hash-header", "hash-property"])
def test_argument_that_is_no_string_is_refused(name: str) -> None:
    with pytest.raises(
        PreconditionFailedError, match=f"^invalid type 'signedint' for arg '{name}'$"
    ):
        make({name: 5})


def test_value_of_hash_header_decides() -> None:
    source = make({"hash-header": "customer"})
    for queue in queues(8):
        bind(source, queue, "1")
    for value in ("c-1", 7, 7.5, True, b"bytes", [1, 2], {"a": 1}):
        same = {choice(source, key, message({"customer": value, "n": key})) for key in KEYS[:20]}
        assert len(same) == 1, value
    spread = {choice(source, "k", message({"customer": key})) for key in KEYS[:200]}
    assert len(spread) == 8
    without = {choice(source, key, message({"other": key})) for key in KEYS[:20]}
    assert len(without) == 1


@pytest.mark.parametrize("name", ["message_id", "correlation_id", "timestamp"])
def test_value_of_hash_property_decides(name: str) -> None:
    source = make({"hash-property": name})
    for queue in queues(8):
        bind(source, queue, "1")
    spread = set()
    for number in range(200):
        properties = Properties()
        setattr(properties, name, number if name == "timestamp" else str(number))
        headers = message(None, properties)
        assert choice(source, "one", headers) == choice(source, "other", headers)
        spread.add(choice(source, "k", headers))
    assert len(spread) == 8
    assert len({choice(source, key, message()) for key in KEYS[:20]}) == 1


def test_route_can_be_cached_only_if_the_key_decides() -> None:
    assert make().key_only
    assert not make({"hash-header": "h"}).key_only
    assert not make({"hash-property": "timestamp"}).key_only
