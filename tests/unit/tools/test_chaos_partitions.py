"""The shapes of cuts, the table of scenarios, and the account of a shared queue."""

from random import Random

import pytest

from tools.chaos.accounts import Sender
from tools.chaos.bodies import Label
from tools.chaos_cluster.accounts import SharedAccount
from tools.chaos_cluster.partitions import Times, queues_of
from tools.chaos_cluster.scenarios import (
    SCENARIOS,
    Cut,
    halves,
    majorities_ring,
    random_halves,
    random_node,
)

NODES = list("abcde")


def heard_by(cut: Cut) -> dict[str, set[str]]:
    """Return the nodes that each node hears, itself included."""
    return {node: {other for other in NODES if (other, node) not in cut} for node in NODES}


@pytest.mark.parametrize("seed", range(10))
def test_majorities_ring_gives_every_node_another_majority(seed: int) -> None:
    cut = majorities_ring(NODES, Random(seed))
    heard = heard_by(cut)
    assert all(len(nodes) == 3 and node in nodes for node, nodes in heard.items())
    assert len({frozenset(nodes) for nodes in heard.values()}) == len(NODES)
    assert {(target, source) for source, target in cut} == cut  # both directions


def test_halves_are_the_first_two_and_the_last_three_nodes() -> None:
    heard = heard_by(halves(NODES, Random(1)))
    assert heard["a"] == heard["b"] == {"a", "b"}
    assert heard["c"] == heard["d"] == heard["e"] == {"c", "d", "e"}


def test_random_halves_differ_from_cut_to_cut() -> None:
    rng = Random(1)
    cuts = {frozenset(random_halves(NODES, rng)) for _ in range(20)}
    assert len(cuts) > 1
    assert {len(cut) for cut in cuts} == {12}  # two nodes from three, in both directions


def test_random_node_is_cut_off_from_all_others() -> None:
    heard = heard_by(random_node(NODES, Random(1)))
    assert sorted(len(nodes) for nodes in heard.values()) == [1, 4, 4, 4, 4]


def test_table_has_the_fourteen_scenarios_of_rabbitmq() -> None:
    table = list(SCENARIOS.values())
    assert len(table) == 14
    assert sum(scenario.cut_s == 30 for scenario in table) == 6
    assert sum(scenario.nodes == 3 for scenario in table) == 2
    assert sum(scenario.is_dead_lettering for scenario in table) == 2


def test_times_replace_those_of_rabbitmq() -> None:
    times = Times(short_s=1.0, long_s=2.0)
    assert times.cut_s(SCENARIOS["halves-30"]) == 2.0
    assert times.cut_s(SCENARIOS["halves-10"]) == 1.0


def test_dead_letters_are_judged_where_they_arrive() -> None:
    dead, source = queues_of(SCENARIOS["halves-30-dead-letters"], [Sender(1)])
    assert source.arguments["x-dead-letter-routing-key"] == dead.account.name
    assert source.may_expire and source.is_bound
    assert not dead.may_expire and not dead.is_bound


def test_shared_account_allows_one_delivery_without_the_flag() -> None:
    account = SharedAccount("shared", [Sender(1, sent={(1, 1)})])
    account.on_delivery(Label(1, 1), redelivered=True, now_ms=0)
    account.on_delivery(Label(1, 1), redelivered=False, now_ms=0)  # seen late by its consumer
    assert account.noted == []
    account.on_delivery(Label(1, 1), redelivered=False, now_ms=0)
    assert account.noted == ["shared: delivered (1, 1) again without saying so"]


def test_shared_account_allows_one_safe_ack_of_a_message() -> None:
    account = SharedAccount("shared", [Sender(1, sent={(1, 1), (1, 2)})])
    account.settle([(1, 1)])
    account.settle([(1, 2)])
    assert account.noted == []
    account.settle([(1, 1)])
    assert account.noted == ["shared: delivered (1, 1) again, whose ack was on disk"]
