"""Random exchanges: one binding each time, evenly, and the same again from the same seed."""

from collections import Counter
from itertools import pairwise

import pytest

from leveret.engine.exchanges.exchange import Exchange
from leveret.engine.exchanges.registry import make_exchange
from leveret.engine.target import Target
from leveret.errors import PreconditionFailedError
from tests.unit.engine.exchanges.stage import bind, matched, queues, unbind

KINDS = ["x-random", "x-local-random"]


def make(kind: str, seed: int, count: int) -> Exchange:
    exchange = make_exchange(kind, "x", False, False, False, {}, None, seed)
    for queue in queues(count):
        bind(exchange, queue)
    return exchange


def draws(exchange: Exchange, count: int) -> list[str]:
    found = [matched(exchange, "k") for _ in range(count)]
    assert all(len(names) == 1 for names in found)
    return [names[0] for names in found]


@pytest.mark.parametrize("kind", KINDS)
def test_every_binding_is_picked_as_often_as_the_others(kind: str) -> None:
    counts = Counter(draws(make(kind, 1, 5), 5000))
    assert len(counts) == 5
    assert min(counts.values()) > 850, counts
    assert max(counts.values()) < 1150, counts


@pytest.mark.parametrize("kind", KINDS)
def test_same_seed_picks_the_same(kind: str) -> None:
    assert draws(make(kind, 7, 5), 100) == draws(make(kind, 7, 5), 100)
    assert draws(make(kind, 7, 5), 100) != draws(make(kind, 8, 5), 100)


def test_any_seed_will_do() -> None:
    for seed in (-1, 0, 2**62, -(2**62)):
        assert len(set(draws(make("x-random", seed, 3), 50))) == 3


def test_neighbours_in_a_sequence_are_independent() -> None:
    drawn = draws(make("x-random", 3, 2), 4000)
    repeats = sum(one == other for one, other in pairwise(drawn))
    assert 1800 < repeats < 2200


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_bound_matches_nothing(kind: str) -> None:
    exchange = make(kind, 1, 1)
    unbind(exchange, next(iter(exchange.bindings.values())).target)
    assert matched(exchange, "k") == []


def test_random_accepts_any_binding_key() -> None:
    exchange = make("x-random", 1, 0)
    bind(exchange, Target("q"), "some key")
    assert matched(exchange, "other") == ["q"]
    assert not exchange.classic_only


def test_local_random_refuses_binding_keys() -> None:
    exchange = make("x-local-random", 1, 0)
    with pytest.raises(PreconditionFailedError, match=r"^Non empty binding 'k' key not permitted$"):
        exchange.check_binding("k", {})
    assert exchange.classic_only


def test_random_route_cannot_be_cached() -> None:
    assert not make("x-random", 1, 1).key_only
