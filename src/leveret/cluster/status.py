"""A member of the cluster and its view of the others, for views, commands and metrics."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from leveret.cluster.raft.core import Raft
from leveret.cluster.raft.members import Member
from leveret.cluster.raft.progress import STATE_NAMES
from leveret.cluster.raft.state import LEADER, ROLE_NAMES

LAG_BLOCKS_MAX: Final = 100  # a member that is further behind is reported


@dataclass(frozen=True)
class MemberStatus:
    """One member. Only the leader knows how far the others are: elsewhere that is None."""

    name: str
    number: int
    address: str
    role: str  # leader, follower, non-voter
    is_connected: bool  # with the node that answers; itself included
    match: int | None  # last block that it is known to have synced
    lag_blocks: int | None  # behind the leader's log
    heard_s: float | None  # time since it was heard; 0 for the node that answers
    progress: str  # probe, replicate or copy; empty if unknown
    lost_s: float | None  # time since the node that answers has lost it; None if it is connected


@dataclass(frozen=True)
class RaftStatus:
    """The Raft member of the node that answers."""

    role: str  # follower, pre-candidate, candidate, leader
    leader: str  # name; empty: none is known, and perhaps there is no majority
    term: int
    base: int  # blocks up to this one are in no log file
    commit: int
    last: int
    synced: int
    may_vote: bool  # False: it has lost blocks and is catching up
    is_disk_late: bool
    uncommitted_bytes: int  # of the leader
    handing_over_to: str  # name; empty: nobody


@dataclass(frozen=True)
class ClusterStatus:
    """The cluster as one node sees it."""

    name: str  # of the node that answers
    number: int  # 0: it is new
    cluster: str  # id, as hexadecimal digits; empty: it is new
    waiting_for: str  # what a new node waits for, as a sentence; empty: nothing
    refusals: dict[str, str]  # nodes that refused this one, with their sentences
    raft: RaftStatus | None  # None: the node is new
    members: list[MemberStatus]


def describe(raft: Raft, name_of: Callable[[int], str]) -> RaftStatus:
    """Return the state of a member."""
    return RaftStatus(
        role=ROLE_NAMES[raft.role],
        leader=name_of(int(raft.leader)),
        term=int(raft.term),
        base=int(raft.log.base_index),
        commit=int(raft.commit),
        last=int(raft.log.last_index),
        synced=int(raft.log.synced_index),
        may_vote=raft.hard.may_vote,
        is_disk_late=raft.is_disk_late(),
        uncommitted_bytes=int(raft.uncommitted_bytes) if raft.role == LEADER else 0,
        handing_over_to=name_of(int(raft.transfer_target)),
    )


def describe_member(
    raft: Raft, member: Member, lost_s: float | None, tick_s: float
) -> MemberStatus:
    """Return one member of the cluster, as this node knows it."""
    number = int(member.number)
    is_me = number == raft.node
    match: int | None = int(raft.log.synced_index) if is_me else None
    heard_s: float | None = 0.0 if is_me else None
    progress = raft.progress.get(number) if raft.role == LEADER else None
    if progress is not None and not is_me:
        match = int(progress.match)
        heard_s = int(raft.ticks - progress.heard_tick) * tick_s
    role = "follower" if raft.log.members().is_voter(number) else "non-voter"
    has_lag = progress is not None and match is not None
    return MemberStatus(
        name=member.name,
        number=number,
        address=member.address.decode(errors="replace"),
        role="leader" if number == raft.leader else role,
        is_connected=is_me or lost_s is None,
        match=match,
        lag_blocks=int(raft.log.last_index) - (match or 0) if has_lag else None,
        heard_s=heard_s,
        progress="" if progress is None or is_me else STATE_NAMES[progress.state],
        lost_s=None if is_me else lost_s,
    )


def waiting_reasons(status: ClusterStatus) -> list[str]:
    """Return why the cluster waits, or what it lacks, as sentences; none if all is well."""
    raft = status.raft
    if raft is None:
        return [f"This node is in no cluster yet: {status.waiting_for}."]
    reasons: list[str] = []
    voters = [member for member in status.members if member.role != "non-voter"]
    reached = sum(member.is_connected for member in voters)
    if reached <= len(voters) // 2:
        reasons.append(
            f"This node waits for a majority: it reaches {reached} of {len(voters)} nodes that"
            " vote, itself included."
        )
    elif not raft.leader:
        reasons.append("No node leads the cluster: an election is under way.")
    elif raft.role == "leader" and raft.is_disk_late:
        reasons.append("The disk of the leader is slow: a sync has taken too long.")
    for member in status.members:
        if member.lost_s is not None:
            reasons.append(f"Node {member.name} has not been reached for {member.lost_s:.0f} s.")
        elif member.progress == "copy":
            reasons.append(f"Node {member.name} gets a copy of the data directory.")
        elif (member.lag_blocks or 0) > LAG_BLOCKS_MAX:
            reasons.append(f"Node {member.name} is {member.lag_blocks} blocks behind the leader.")
    return reasons
