"""The text and the exit code of `leveret ctl cluster status`, from the facts of two nodes."""

from typing import Any

import pytest

from leveret.cli.ctl.cluster_status import (
    EXIT_CODES,
    combine,
    describe,
    format_duration,
    rows,
    summary,
    verdict,
)


def member(name: str, role: str = "follower", **fields: Any) -> dict[str, Any]:
    return {
        "name": name,
        "role": role,
        "address": f"10.0.0.1:{name}",
        "unreached_s": None,
        "match": 1000,
        "lag_blocks": 0,
        "lag_bytes": 0,
        "is_drained": False,
        "progress": "replicate",
        **fields,
    }


def facts(name: str, *members: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {
        "name": name,
        "cluster": "c0ffee",
        "raft": {"leader": "a", "leader_s": 3725.5},
        "voters": 3,
        "voters_reached": 3,
        "voters_needed": 2,
        "voters_spare": 1,
        "members": list(members),
        "faults": [],
        **fields,
    }


def fault(severity: str, node: str, text: str = "it is away") -> dict[str, Any]:
    return {"severity": severity, "node": node, "fault": text, "advice": "start it"}


def test_a_healthy_cluster_says_who_leads_since_when_and_what_may_be_lost() -> None:
    shown = combine(facts("b"), facts("a", member("a", "leader"), member("b")))
    assert list(describe(shown)) == [
        "cluster   c0ffee, asked at node b",
        "leader    a for 1 h 2 min",
        "majority  3 of 3 voters reached, 2 needed: 1 more node may be lost",
    ]
    assert [row["behind"] for row in rows(shown)] == ["", "nothing"]
    assert list(verdict(shown)) == ["the cluster is healthy"]
    assert EXIT_CODES[shown["state"]] == 0


def test_the_summary_of_a_cluster_is_one_line_and_the_advice() -> None:
    whole = [member("a", "leader"), member("b"), member("c")]
    note = fault("note", "b")
    assert list(summary(combine(facts("a", *whole, faults=[note]), None))) == [
        "ok: node a leads, all 3 nodes answer, 1 more node may be lost"
    ]
    one_dead = [*whole[:2], member("c", unreached_s=9.0)]
    faults = [fault("degraded", "c", "node c is not reached")]
    shown = facts("b", *one_dead, faults=faults, voters_reached=2, voters_spare=0)
    assert list(summary(combine(shown, None))) == [
        "degraded: node a leads, node c does not answer, losing one more node stops the cluster",
        "node c is not reached: start it",
    ]


def test_the_summary_of_a_cluster_without_a_leader_says_so() -> None:
    two_dead = [member("a"), member("b", unreached_s=9.0), member("c", unreached_s=9.0)]
    faults = [fault("stopped", "", "no node leads")]
    no_leader = {"raft": {"leader": "", "leader_s": 1.0}, "voters_spare": -1}
    assert list(summary(combine(facts("a", *two_dead, faults=faults, **no_leader), None))) == [
        "stopped: no node leads, the nodes b, c do not answer, clients are not served",
        "no node leads: start it",
    ]
    new = facts("a", faults=faults, raft=None, waiting_for="node b")
    assert next(summary(combine(new, None))) == "stopped: no node leads"


def test_lag_is_shown_in_blocks_and_bytes() -> None:
    shown = combine(
        facts(
            "a",
            member("b", lag_blocks=1, lag_bytes=1024 * 1024),
            member("c", lag_blocks=900, lag_bytes=None),
            member("d", lag_blocks=9, progress="copy"),
            member("e", lag_blocks=None, lag_bytes=None),
            member("new leader has not heard from it", match=0, lag_blocks=510),
            member("f", is_drained=True, unreached_s=61.0),
        ),
        None,
    )
    assert [row["behind"] for row in rows(shown)[:5]] == [
        "1 block, 1.0 MiB",
        "900 blocks",
        "copies the directory",
        "unknown",
        "unknown",
    ]
    assert rows(shown)[5]["role"] == "follower, drained"
    assert rows(shown)[5]["reached"] == "no, for 1 min 1 s"


def test_faults_of_the_asked_node_and_of_the_leader_are_shown_once_worst_first() -> None:
    asked = facts("b", faults=[fault("stopped", ""), fault("degraded", "c")])
    leader = facts("a", faults=[fault("degraded", "c"), fault("note", "b")])
    shown = combine(asked, leader)
    assert [(each["severity"], each["node"]) for each in shown["faults"]] == [
        ("stopped", ""),
        ("degraded", "c"),
        ("note", "b"),
    ]
    assert EXIT_CODES[shown["state"]] == 4
    assert "degraded: it is away: start it" in list(verdict(shown))


def test_a_node_that_neither_the_leader_nor_the_asked_node_reaches_is_shown_once() -> None:
    here, there = (
        {**fault("degraded", "c", "node c is not reached"), "advice": f"look at node {name}"}
        for name in "ba"
    )
    shown = combine(facts("b", faults=[here]), facts("a", faults=[there]))
    assert shown["faults"] == [there]


def test_fault_with_other_figures_at_the_asked_node_is_shown_once() -> None:
    asked, leader = fault("degraded", "b"), fault("degraded", "b")
    asked["fault"], leader["fault"] = "a sync takes 310 ms", "a sync takes 300 ms"
    shown = combine(facts("b", faults=[asked]), facts("a", faults=[leader]))
    assert [row["fault"] for row in shown["faults"]] == ["a sync takes 300 ms"]


@pytest.mark.parametrize(("severity", "code"), [("note", 0), ("degraded", 3), ("stopped", 4)])
def test_the_exit_code_follows_the_worst_fault(severity: str, code: int) -> None:
    shown = combine(facts("a", faults=[fault(severity, "b")]), None)
    assert EXIT_CODES[shown["state"]] == code


@pytest.mark.parametrize(
    ("spare", "text"),
    [(-1, "clients are not served"), (0, "losing one more node stops the cluster")],
)
def test_a_majority_at_risk_is_said(spare: int, text: str) -> None:
    shown = combine(facts("a", member("a"), voters_spare=spare), None)
    assert list(describe(shown))[-1].endswith(text)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.4, "0 s"),
        (59, "59 s"),
        (60, "1 min 0 s"),
        (7_325, "2 h 2 min"),
        (90_000, "1 d 1 h"),
        (86_400, "1 d 0 h"),
    ],
)
def test_durations_have_two_units(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text
