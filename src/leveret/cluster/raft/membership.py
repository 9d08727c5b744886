"""Changes of the members, one node at a time (§4 of Raft's dissertation).

A change is an entry that is in force as soon as it is in the log. Two majorities of neighbouring
configurations always share a voter, so one change at a time is safe, if it begins where all know
what was before: the last change must be committed, and the leader must have committed an entry of
its own term. A node joins as a non-voter and votes when it has caught up, so that the group never
waits for one with an empty log. A leader that removes itself leads until that is committed.
"""

from mypy_extensions import i64

from leveret.cluster.errors import (
    BusyError,
    ChangeRefusedError,
    NotLeaderError,
)
from leveret.cluster.raft.entry import CONFIG, MEMBERS_MAX, NOBODY, Entry, Members, encode_members
from leveret.cluster.raft.messages import TIMEOUT_NOW
from leveret.cluster.raft.progress import Progress
from leveret.cluster.raft.replication import append_own, broadcast_append, maybe_hand_over
from leveret.cluster.raft.state import LEADER, State


def add_non_voter(state: State, node: i64) -> i64:
    """Let a node have the log; the index of the change."""
    require_change(state)
    members = state.log.members()
    if members.has(node):
        raise ChangeRefusedError(f"node {node} is a member already")
    if len(members.everyone()) >= MEMBERS_MAX:
        raise ChangeRefusedError(f"there are {MEMBERS_MAX} members, no more can be")
    return _change(state, Members(members.voters, [*members.non_voters, int(node)]))


def promote(state: State, node: i64) -> i64:
    """Let a non-voter vote, when it has nearly all of the log and lives.

    Two voters of whom one is gone would be no majority, and nobody could take the change back.
    """
    require_change(state)
    members = state.log.members()
    if int(node) not in members.non_voters:
        raise ChangeRefusedError(f"node {node} is not a non-voter")
    progress = state.progress[node]
    if progress.match + state.config.promote_lag_max < state.log.last_index():
        raise ChangeRefusedError(f"node {node} has not caught up")
    if not progress.is_active and not progress.is_asleep:
        raise ChangeRefusedError(f"node {node} was not heard of lately")
    return _change(state, Members([*members.voters, int(node)], _without(members.non_voters, node)))


def remove(state: State, node: i64) -> i64:
    """Let a node go, voter or not."""
    require_change(state)
    members = state.log.members()
    if not members.has(node):
        raise ChangeRefusedError(f"node {node} is not a member")
    if members.voters == [int(node)]:
        raise ChangeRefusedError("the last voter cannot go")
    voters = _without(members.voters, node)
    return _change(state, Members(voters, _without(members.non_voters, node)))


def require_change(state: State) -> None:
    """Whether a change may begin now."""
    if state.role != LEADER:
        raise NotLeaderError(state.leader)
    if state.transfer_target != NOBODY:
        raise BusyError("another node is about to lead")
    if not state.has_committed_own_term():
        raise BusyError("nothing of this leader's term is committed yet")
    if state.log.members_index() > state.commit:
        raise BusyError("another change is not committed yet")


def _without(nodes: list[int], gone: i64) -> list[int]:
    return [node for node in nodes if node != gone]


def _change(state: State, members: Members) -> i64:
    index = state.log.last_index() + 1
    append_own(state, [Entry(index, state.term, CONFIG, encode_members(members))])
    sync_progress(state)
    broadcast_append(state)
    return index


def sync_progress(state: State) -> None:
    """Follow exactly the members in force; a leader that removed itself needs no progress."""
    everyone = state.log.members().everyone()
    for node in list(state.progress):
        if node not in everyone:
            del state.progress[node]
    for node in everyone:
        if node not in state.progress:
            state.progress[node] = Progress(state.log.last_index())
            state.progress[node].is_active = True  # until the next check of the quorum


def transfer(state: State, target: i64) -> None:
    """Hand the lead to a voter, once it has all entries; until then nothing new is taken."""
    if state.role != LEADER:
        raise NotLeaderError(state.leader)
    if not state.log.members().is_voter(target) or target == state.node:
        raise ChangeRefusedError(f"node {target} is not another voter")
    if state.transfer_target != NOBODY:
        raise BusyError("another node is about to lead")
    state.transfer_target = target
    state.elapsed = 0
    maybe_hand_over(state)


def on_members_committed(state: State) -> None:
    """A leader that is no voter any more has done its last duty: it hands over and is gone."""
    members = state.log.members()
    if state.log.members_index() > state.commit or members.is_voter(state.node):
        return
    for node in members.voters:
        if state.progress[node].match == state.log.last_index():
            state.send(state.message(TIMEOUT_NOW, node))
            break
    state.become_follower(state.term, NOBODY)
