"""Faults that nodes report about themselves: one sentence each, with what to do."""

from dataclasses import replace
from typing import Any

import pytest

from leveret.cluster.faults import (
    CLOCK_MS_MAX,
    DEGRADED,
    NOTE,
    OK,
    STOPPED,
    Fault,
    NodeCondition,
    count_spare,
    find_faults,
    find_own_faults,
    find_reasons,
    find_state,
)
from leveret.cluster.status import ClusterStatus, MemberStatus, RaftStatus

LEADER = NodeCondition("a", "2.0")
STATUS = ClusterStatus("a", 1, "c0ffee", "", {}, None, 0, 0, 0, 0, [])
HOUR_MS = 3_600_000


def only(node: NodeCondition) -> Fault:
    (fault,) = find_own_faults(node, LEADER)
    assert fault.node == "b"
    return fault


def test_healthy_node_has_no_fault() -> None:
    within = NodeCondition("b", "2.0", clock_ahead_ms=CLOCK_MS_MAX)
    assert find_faults(STATUS, [LEADER, within]) == []
    assert list(find_own_faults(LEADER, LEADER)) == []


def test_full_disk_says_why_nothing_is_confirmed() -> None:
    fault = only(NodeCondition("b", "2.0", disk_fault="No space left on device"))
    assert fault.severity == DEGRADED
    assert fault.fault == (
        "node b cannot write its log (No space left on device), so it confirms nothing"
    )
    assert "free space on its disk" in fault.advice


def test_node_that_does_not_reach_the_leader_for_clients_says_why() -> None:
    reason = "node a at 10.0.0.1:1 cannot be reached: Connection refused"
    fault = only(NodeCondition("b", "2.0", relay_fault=reason))
    assert fault.severity == DEGRADED
    assert fault.fault == f"clients of node b are not served ({reason})"
    assert "--cluster-peers of node b" in fault.advice


def test_short_disk_says_that_publishers_wait_if_the_node_leads() -> None:
    fault = only(NodeCondition("b", "2.0", is_disk_short=True))
    assert fault.severity == DEGRADED
    assert fault.fault == "the disk of node b has less free space than disk_free_min"
    fault = only(NodeCondition("b", "2.0", leads=True, is_disk_short=True))
    assert fault.fault.endswith("disk_free_min, and it leads, so publishers wait")


def test_full_disk_is_told_once() -> None:
    only(NodeCondition("b", "2.0", disk_fault="No space left on device", is_disk_short=True))


def test_voter_that_cannot_write_is_not_to_spare() -> None:
    full = "No space left on device"
    members = [member("a", "leader"), member("b"), member("c"), member("d", "non-voter")]
    status = replace(STATUS, members=members, voters=3, voters_reached=3, voters_spare=1)
    assert count_spare(status, [LEADER, NodeCondition("b", "2.0")]) == 1
    assert count_spare(status, [LEADER, NodeCondition("b", "2.0", disk_fault=full)]) == 0
    assert count_spare(status, [LEADER, NodeCondition("d", "2.0", disk_fault=full)]) == 1
    lost = replace(status, members=[*members[:2], member("c", is_connected=False)], voters_spare=0)
    assert count_spare(lost, [LEADER, NodeCondition("c", "2.0", disk_fault=full)]) == 0


def test_a_cluster_without_a_majority_that_can_write_is_stopped() -> None:
    full = "No space left on device"
    raft = RaftStatus("leader", "a", 1.0, 1, 0, 9, 9, 9, True, False, 0, "")
    members = [member("a", "leader"), member("b"), member("c")]
    status = replace(STATUS, raft=raft, members=members, voters=3, voters_reached=3, voters_spare=1)
    conditions = [LEADER, NodeCondition("b", "2.0", disk_fault=full)]
    assert find_state(find_faults(status, conditions)) == DEGRADED
    conditions.append(NodeCondition("c", "2.0", disk_fault=full))
    faults = find_faults(status, conditions)
    assert find_state(faults) == STOPPED
    assert faults[0].fault.startswith("no majority of the nodes can write its log, because of the")
    assert faults[0].advice.startswith("free space on the disk of the nodes b, c;")
    alone = replace(status, raft=replace(raft, role="follower", leader=""))
    assert len(find_faults(alone, conditions)) == len(faults), "no node leads, and that is told"


def test_short_memory_says_that_publishers_wait() -> None:
    fault = only(NodeCondition("b", "2.0", leads=True, is_memory_short=True))
    assert fault.severity == DEGRADED
    assert fault.fault.endswith("so publishers wait")


@pytest.mark.parametrize(
    ("ahead_ms", "text"),
    [
        (HOUR_MS, "60 min ahead of"),
        (-HOUR_MS, "60 min behind"),
        (26 * HOUR_MS, "26 h ahead of"),
        (3 * HOUR_MS - 5, "3 h ahead of"),
        (-CLOCK_MS_MAX - 1000, "31 s behind"),
    ],
)
def test_clock_that_differs_says_by_how_much(ahead_ms: int, text: str) -> None:
    (fault,) = find_faults(STATUS, [LEADER, NodeCondition("b", "2.0", clock_ahead_ms=ahead_ms)])
    assert (fault.severity, fault.node) == (DEGRADED, "b")
    assert fault.fault == f"the clock of node b is {text} the clock of node a"


@pytest.mark.parametrize(
    ("others_ms", "wrong"),
    [
        ([HOUR_MS], {"b": "ahead of the clock of node a"}),
        ([HOUR_MS, HOUR_MS + 900], {"a": "behind the clocks of most nodes"}),
        ([-HOUR_MS, -HOUR_MS], {"a": "ahead of the clocks of most nodes"}),
        ([0, HOUR_MS], {"c": "ahead of the clock of node a"}),
        (
            [HOUR_MS, -HOUR_MS],
            {"b": "ahead of the clock of node a", "c": "behind the clock of node a"},
        ),
        (
            [HOUR_MS, HOUR_MS, 0],
            {"b": "ahead of the clock of node a", "c": "ahead of the clock of node a"},
        ),
        ([HOUR_MS, HOUR_MS, HOUR_MS], {"a": "behind the clocks of most nodes"}),
        (
            [HOUR_MS, HOUR_MS, HOUR_MS, -HOUR_MS],
            {"a": "behind the clocks of most nodes", "e": "behind the clocks of most nodes"},
        ),
    ],
)
def test_the_clock_that_differs_from_most_is_the_wrong_one(
    others_ms: list[int], wrong: dict[str, str]
) -> None:
    """Also if it is that of the leader, with which all clocks are compared."""
    others = zip("bcde", others_ms, strict=False)
    found = [NodeCondition(name, "2.0", clock_ahead_ms=ahead_ms) for name, ahead_ms in others]
    faults = find_faults(STATUS, [LEADER, *found])
    assert [fault.node for fault in faults] == sorted(wrong)
    for fault in faults:
        assert fault.fault.startswith(f"the clock of node {fault.node} is ")
        assert fault.fault.endswith(wrong[fault.node])


def test_broker_whose_time_is_ahead_says_that_it_runs_at_half_speed() -> None:
    assert find_faults(STATUS, [replace(LEADER, time_ahead_ms=CLOCK_MS_MAX)]) == []
    (fault,) = find_faults(STATUS, [replace(LEADER, time_ahead_ms=HOUR_MS)])
    assert (fault.severity, fault.node) == (DEGRADED, "a")
    assert fault.fault.startswith("the time of the broker is 60 min ahead of the clock of node a,")
    assert "at half speed" in fault.advice
    assert "tokens expire" in fault.advice


def test_a_leader_whose_clock_is_behind_is_told_to_correct_it_and_not_to_wait() -> None:
    """The time of its broker is right: it is the one of the leader before."""
    leader = replace(LEADER, time_ahead_ms=HOUR_MS, leads=True)
    others = [NodeCondition(name, "2.0", clock_ahead_ms=HOUR_MS) for name in "bc"]
    (fault,) = find_faults(STATUS, [leader, *others])
    assert fault.fault == "the clock of node a is 60 min behind the clocks of most nodes"
    assert fault.advice.startswith("correct it, or let another node lead")


def test_a_node_with_a_wrong_clock_is_to_be_drained() -> None:
    (fault,) = find_faults(STATUS, [LEADER, NodeCondition("b", "2.0", clock_ahead_ms=HOUR_MS)])
    assert "`leveret ctl cluster drain b`" in fault.advice


def test_expired_certificate_is_named_and_no_cluster_is_rescued_because_of_it() -> None:
    fault = only(NodeCondition("b", "2.0", expired_certificate="/etc/b.pem"))
    assert fault.severity == DEGRADED
    assert fault.fault == (
        "the certificate /etc/b.pem of node b has expired, so clients and other nodes refuse it"
    )
    raft = RaftStatus("follower", "", 1.0, 1, 0, 9, 9, 9, True, False, 0, "")
    away = [member(name, is_connected=False) for name in "bc"]
    status = ClusterStatus("a", 1, "c", "", {}, raft, 3, 1, 2, -1, [member("a"), *away])
    stopped, *_ = find_faults(status, [LEADER])
    assert "leveret ctl cluster rescue" in stopped.advice
    own = replace(LEADER, expired_certificate="/etc/a.pem")
    stopped, *_ = find_faults(status, [own])
    assert stopped.severity == STOPPED
    assert stopped.advice == "renew the certificate of node a, which has expired"
    assert "/etc/a.pem" not in str(find_reasons(status, [own]))


def test_secret_that_others_may_read_names_the_file() -> None:
    fault = only(NodeCondition("b", "2.0", open_secret_file="/etc/secret"))
    assert fault.severity == DEGRADED
    assert "may read the file /etc/secret with the secret" in fault.fault
    assert "chmod 600" in fault.advice


@pytest.mark.parametrize(("version", "text"), [("1.9", "version 1.9"), ("", "an older version")])
def test_other_version_is_a_note(version: str, text: str) -> None:
    fault = only(NodeCondition("b", version))
    assert fault.severity == NOTE
    assert fault.fault == f"node b runs {text}, and node a version 2.0"


def test_faults_of_all_nodes_are_in_the_status_and_notes_delay_nothing() -> None:
    conditions = [LEADER, NodeCondition("b", "1.9"), NodeCondition("c", "2.0", disk_fault="full")]
    assert [fault.node for fault in find_faults(STATUS, conditions)] == ["c", "b"]
    (reason,) = find_reasons(STATUS, conditions)
    assert reason.startswith("Node c cannot write its log (full)")
    assert find_state(find_faults(STATUS, conditions)) == DEGRADED


def test_the_state_of_a_cluster_is_the_worst_of_its_faults() -> None:
    note, degraded, stopped = (Fault(each, "b", "x", "y") for each in (NOTE, DEGRADED, STOPPED))
    assert find_state([]) == find_state([note]) == OK
    assert find_state([note, degraded]) == DEGRADED
    assert find_state([degraded, stopped, note]) == STOPPED


def test_a_cluster_of_three_with_a_dead_node_is_degraded_and_not_stopped() -> None:
    raft = RaftStatus("leader", "a", 1.0, 1, 0, 9, 9, 9, True, False, 0, "")
    members = [member("a", "leader"), member("b"), member("c", is_connected=False)]
    status = ClusterStatus("a", 1, "c0ffee", "", {}, raft, 3, 2, 2, 0, members)
    assert find_state(find_faults(status, [LEADER])) == DEGRADED
    without_majority = replace(status, voters_reached=1, voters_spare=-1)
    assert find_state(find_faults(without_majority, [LEADER])) == STOPPED


def test_reasons_which_anybody_may_read_name_no_directory_and_no_file() -> None:
    own = replace(LEADER, slow_sync_s=0.2, data="/var/a", open_secret_file="/etc/secret")
    reasons = find_reasons(STATUS, [own])
    assert len(reasons) == 2
    assert "/" not in "".join(reasons)
    assert any("the file of --cluster-secret-file" in reason for reason in reasons)
    assert any("is slow: a sync takes 200 ms" in reason for reason in reasons)


def member(name: str, role: str = "follower", **fields: Any) -> MemberStatus:
    made = MemberStatus(name, 1, name, role, True, 9, 0, 0, 0.0, None, False, "replicate")
    return replace(made, **fields)


def slow_disk_faults(members: list[MemberStatus], *conditions: NodeCondition) -> list[Fault]:
    status = ClusterStatus("a", 1, "c0ffee", "", {}, None, 3, 3, 2, 1, members)
    return [fault for fault in find_faults(status, conditions) if "is slow" in fault.fault]


def test_slow_disk_of_a_follower_is_told_with_its_directory_and_time() -> None:
    slow = NodeCondition("b", "2.0", slow_sync_s=0.34, data="/var/b")
    (fault,) = slow_disk_faults([member("a", "leader"), member("b")], LEADER, slow)
    assert (fault.severity, fault.node) == (DEGRADED, "b")
    assert fault.fault == "the disk of node b is slow: a sync of /var/b takes 340 ms"
    assert "only if its node leads, or if another node is away" in fault.advice


def test_slow_disk_of_a_leader_names_a_node_that_can_lead_instead() -> None:
    slow = replace(LEADER, slow_sync_s=0.2, data="/var/a", leads=True)
    members = [
        member("a", "leader"),
        member("b", is_drained=True),
        member("c", is_connected=False),
        member("d", "non-voter"),
        member("e"),
        member("f"),
    ]
    also_slow = NodeCondition("e", "2.0", slow_sync_s=0.2, data="/var/e")
    found = {fault.node: fault for fault in slow_disk_faults(members, slow, also_slow)}
    assert set(found) == {"a", "e"}
    assert found["a"].fault.endswith("takes 200 ms, and it leads, so all confirms wait for it")
    assert found["a"].advice.startswith("let node f lead with `leveret ctl cluster lead f`, then ")
    (alone,) = slow_disk_faults(members[:4], slow)
    assert alone.advice == "look for other programs that use this disk, and for faults of it"
