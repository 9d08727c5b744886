"""The sentences that say what a cluster waits for."""

from dataclasses import replace

from leveret.cluster.status import ClusterStatus, MemberStatus, RaftStatus, waiting_reasons


def member(name: str, **facts: object) -> MemberStatus:
    well = MemberStatus(
        name=name,
        number=1,
        address="",
        role="follower",
        is_connected=True,
        match=None,
        lag_blocks=None,
        heard_s=None,
        progress="",
        lost_s=None,
    )
    return replace(well, **facts)  # type: ignore[arg-type]


def status(leader: str, *members: MemberStatus) -> ClusterStatus:
    raft = RaftStatus(
        role="leader" if leader == "a" else "follower",
        leader=leader,
        term=1,
        base=0,
        commit=0,
        last=0,
        synced=0,
        may_vote=True,
        is_disk_late=False,
        uncommitted_bytes=0,
        handing_over_to="",
    )
    return ClusterStatus("a", 1, "id", "", {}, raft, list(members))


def test_cluster_that_is_well_has_no_reasons() -> None:
    assert waiting_reasons(status("a", member("a"), member("b"), member("c", lag_blocks=3))) == []


def test_members_that_are_lost_or_behind_are_named() -> None:
    lost = member("b", is_connected=False, lost_s=12.4)
    assert waiting_reasons(status("a", member("a"), lost, member("c", lag_blocks=5000))) == [
        "Node b has not been reached for 12 s.",
        "Node c is 5000 blocks behind the leader.",
    ]


def test_node_without_a_majority_says_so() -> None:
    lost = [member(name, is_connected=False, lost_s=1.0) for name in "bc"]
    first, *others = waiting_reasons(status("", member("a"), *lost))
    assert first == (
        "This node waits for a majority: it reaches 1 of 3 nodes that vote, itself included."
    )
    assert len(others) == 2


def test_non_voters_do_not_count_for_the_majority() -> None:
    joining = member("b", role="non-voter", is_connected=False, lost_s=3.0)
    assert waiting_reasons(status("a", member("a", role="leader"), joining)) == [
        "Node b has not been reached for 3 s."
    ]


def test_election_is_named() -> None:
    assert waiting_reasons(status("", member("a"), member("b"), member("c"))) == [
        "No node leads the cluster: an election is under way."
    ]
