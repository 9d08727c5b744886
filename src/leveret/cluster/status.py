"""A member of the cluster and its view of the others, for views, commands and metrics."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from leveret.cluster.handshake import Card
from leveret.cluster.raft.core import Raft
from leveret.cluster.raft.members import Member
from leveret.cluster.raft.progress import STATE_NAMES
from leveret.cluster.raft.state import LEADER, ROLE_NAMES

REFUSAL_S: Final = 30.0  # a refusal that is not repeated for so long holds no more


@dataclass(frozen=True)
class MemberStatus:
    """One member. Only the leader knows how far the others are: elsewhere that is None."""

    name: str
    number: int
    address: str
    role: str  # leader, follower, non-voter
    is_connected: bool  # the node that answers reaches it; itself included
    match: int | None  # last block that it is known to have synced
    lag_blocks: int | None  # behind the leader's log
    lag_bytes: int | None  # behind the leader's log; None also if it lacks blocks of files
    heard_s: float | None  # time since it was heard; 0 for the node that answers
    unreached_s: float | None  # time since the node that answers lost it; None: it is reached
    is_drained: bool | None  # it leads only if no other node can
    progress: str  # probe, replicate or copy; empty if unknown


@dataclass(frozen=True)
class RaftStatus:
    """The Raft member of the node that answers."""

    role: str  # follower, pre-candidate, candidate, leader
    leader: str  # name; empty: none is known, and perhaps there is no majority
    leader_s: float  # time since the node that answers learned who leads, or that none does
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
    voters: int
    voters_reached: int  # by the node that answers; itself included
    voters_needed: int  # a majority
    voters_spare: int  # so many more may be lost; negative: there is no majority
    members: list[MemberStatus]
    absent: list[str] = field(default_factory=list)  # listed nodes that are no members


class ContactTimes:
    """Times since when a node knows its leader, and since when it has not reached other nodes.

    It also keeps why there is no connection. Times are those of the event loop.
    """

    def __init__(self, now_s: float) -> None:
        self._began_s = now_s
        self._leader_since_s = now_s
        self._lost_s: dict[str, float] = {}  # by name
        self._refusals: dict[str, tuple[float, str]] = {}  # by name: when, and the sentence

    def note_leader(self, now_s: float) -> None:
        """Note that another node leads, or none."""
        self._leader_since_s = now_s

    def note_lost(self, name: str, now_s: float) -> None:
        self._lost_s[name] = now_s

    def note_refusal(self, name: str, sentence: str, now_s: float) -> None:
        self._refusals[name] = now_s, sentence

    def note_connected(self, name: str) -> None:
        self._refusals.pop(name, None)

    def refusals(self, now_s: float) -> dict[str, str]:
        """Return the refusals that still hold: they are repeated when a node is dialed again."""
        since_s = now_s - REFUSAL_S
        return {name: text for name, (at_s, text) in self._refusals.items() if at_s >= since_s}

    def leader_s(self, now_s: float) -> float:
        return now_s - self._leader_since_s

    def unreached_s(self, name: str, now_s: float) -> float:
        """Return for how long a node is lost. One that was never reached is so since the start."""
        return now_s - self._lost_s.get(name, self._began_s)


def describe_raft(raft: Raft, name_of: Callable[[int], str], leader_s: float) -> RaftStatus:
    """Return the state of a member."""
    return RaftStatus(
        role=ROLE_NAMES[raft.role],
        leader=name_of(int(raft.leader)),
        leader_s=leader_s,
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


def describe_members(
    raft: Raft, can_talk: Callable[[str], bool], contacts: ContactTimes, now_s: float, tick_s: float
) -> list[MemberStatus]:
    """Return the members of the cluster, as this node knows them."""
    found: list[MemberStatus] = []
    for member in raft.log.members().members.values():
        lost_s = None
        if not can_talk(member.name):
            lost_s = contacts.unreached_s(member.name, now_s)
        found.append(_describe_member(raft, member, lost_s, tick_s))
    return found


def _describe_member(
    raft: Raft, member: Member, lost_s: float | None, tick_s: float
) -> MemberStatus:
    """Return one member. The leader does not reach one that is connected but silent."""
    number = int(member.number)
    is_me = number == raft.node
    match: int | None = int(raft.log.synced_index) if is_me else None
    heard_s: float | None = 0.0 if is_me else None
    unreached_s = None if is_me else lost_s
    progress = raft.progress.get(number) if raft.role == LEADER else None
    if progress is not None and not is_me:
        match = int(progress.match)
        heard_s = int(raft.ticks - progress.heard_tick) * tick_s
        if unreached_s is None and not raft.is_active(progress):
            unreached_s = heard_s
    role = "follower" if raft.log.members().is_voter(number) else "non-voter"
    has_lag = progress is not None and match is not None
    last = int(raft.log.last_index)
    is_counted = has_lag and (match or 0) + 1 >= raft.log.window_first
    return MemberStatus(
        name=member.name,
        number=number,
        address=member.address.decode(errors="replace"),
        role="leader" if number == raft.leader else role,
        is_connected=unreached_s is None,
        match=match,
        lag_blocks=last - (match or 0) if has_lag else None,
        lag_bytes=int(raft.log.bytes_between(match or 0, last)) if is_counted else None,
        heard_s=heard_s,
        unreached_s=unreached_s,
        is_drained=raft.is_member_drained(number) if is_me or progress is not None else None,
        progress="" if progress is None or is_me else STATE_NAMES[progress.state],
    )


def describe_cluster(
    card: Card,
    raft: RaftStatus | None,
    members: list[MemberStatus],
    *,
    waiting_for: str,
    refusals: dict[str, str],
) -> ClusterStatus:
    """Return the cluster as a node sees it, from its parts."""
    voters = [member for member in members if member.role != "non-voter"]
    reached = sum(member.is_connected for member in voters)
    needed = len(voters) // 2 + 1 if voters else 0
    absent = set(card.peers).difference(member.name for member in members) if members else set()
    return ClusterStatus(
        name=card.name,
        number=card.number,
        cluster=card.cluster.hex(),
        waiting_for=waiting_for,
        refusals=dict(refusals),
        raft=raft,
        voters=len(voters),
        voters_reached=reached,
        voters_needed=needed,
        voters_spare=reached - needed,
        members=members,
        absent=sorted(absent),
    )


def why_led_no_more(raft: Raft, term: int) -> str:
    """Return why a member does not lead any more, after `term` in which it led."""
    if raft.is_disk_late():
        return (
            "a sync of its log has not ended within the election timeout: look for what slows its "
            "disk down, or holds up this process"
        )
    if raft.term > term:
        return "it has handed the lead over, or another node stood for election"
    if not raft.log.members().has(raft.node):
        return "it was removed from the cluster"
    return (
        "no majority of the nodes has answered within the election timeout: look at the network, "
        "at the other nodes, and for programs that keep this machine busy"
    )
