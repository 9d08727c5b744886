"""The plan of outages that a run of chaos of the jobs service carries out."""

from itertools import pairwise

import pytest

from tools.chaos_jobs.outages import CALM_S, KINDS, PAUSE_S, PREFETCHED_S, Outage, planned

LEASE_S = 8.0
LONG_S = 2_000.0


def _planned(seed: int, kinds: list[str]) -> list[Outage]:
    return planned(seed, LONG_S, kinds, shards=2, nodes=2, lease_s=LEASE_S)


def test_a_seed_repeats_the_plan() -> None:
    kinds = list(KINDS)
    assert _planned(1, kinds) == _planned(1, kinds)
    assert _planned(1, kinds) != _planned(2, kinds)


def test_outages_come_one_after_the_other_with_calm_between() -> None:
    outages = _planned(3, list(KINDS))
    assert {outage.kind for outage in outages} == set(KINDS)
    for before, after in pairwise(outages):
        assert after.begin_s >= before.end_s + 2 * CALM_S
    assert outages[-1].end_s + CALM_S <= LONG_S


def test_an_outage_that_harms_redis_only_pauses_a_node() -> None:
    for outage in _planned(4, list(KINDS)):
        if any("redis" in step.what for step in outage.steps):
            at_s = {step.what: step.at_s for step in outage.steps}
            assert "kill node" not in at_s
            paused_s = at_s.get("resume node", 0.0) - at_s.get("freeze node", 0.0)
            assert paused_s <= PAUSE_S[1] + 0.1  # times are rounded


@pytest.mark.parametrize("kind", list(KINDS))
def test_what_is_frozen_goes_on_and_what_is_killed_is_started(kind: str) -> None:
    for outage in _planned(5, [kind]):
        open_ends: list[tuple[str, int]] = []
        for step in outage.steps:
            verb, what = step.what.split(maxsplit=1)
            if verb in ("freeze", "kill"):
                open_ends.append((what, step.target))
            elif verb in ("resume", "start"):
                open_ends.remove((what, step.target))
        assert open_ends == []


def test_some_shards_are_frozen_beyond_all_leases_and_some_for_a_moment() -> None:
    lengths = [outage.end_s - outage.begin_s for outage in _planned(6, ["shard"])]
    assert min(lengths) < 1.0
    assert max(lengths) > LEASE_S + PREFETCHED_S


def test_a_run_without_kinds_has_no_outages() -> None:
    assert _planned(7, []) == []
