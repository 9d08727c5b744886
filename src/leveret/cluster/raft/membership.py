"""Membership changes, one node at a time (§4 of the Raft dissertation).

A change is an entry that is in force as soon as it is in the log. Two majorities of neighbouring
memberships always share a voter, so one change at a time is safe under two conditions: the last
change is committed, and the leader has committed an entry of its own term. A node joins as a
non-voter, and becomes a voter when it has caught up, so that the group never waits for a node with
an empty log. A leader that removes itself leads until that change is committed.
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
from leveret.cluster.raft.replication import append_own, broadcast_append, maybe_send_timeout_now
from leveret.cluster.raft.state import LEADER, State


def add_non_voter(state: State, node: i64) -> i64:
    """Add a node as non-voter; return the index of the change."""
    require_change(state)
    members = state.log.members()
    if members.has(node):
        raise ChangeRefusedError(f"node {node} is a member already")
    if len(members.everyone()) >= MEMBERS_MAX:
        raise ChangeRefusedError(f"there are {MEMBERS_MAX} members, the maximum")
    return _change(state, Members(members.voters, [*members.non_voters, int(node)]))


def promote(state: State, node: i64) -> i64:
    """Make a non-voter a voter, if it is alive and has nearly the whole log.

    With two voters, of which one is dead, there would be no majority, and the change could not be
    undone.
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
    """Remove a voter or non-voter."""
    require_change(state)
    members = state.log.members()
    if not members.has(node):
        raise ChangeRefusedError(f"node {node} is not a member")
    if members.voters == [int(node)]:
        raise ChangeRefusedError("the last voter cannot go")
    voters = _without(members.voters, node)
    return _change(state, Members(voters, _without(members.non_voters, node)))


def require_change(state: State) -> None:
    """Raise if a change may not begin now."""
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
    """Keep a progress for each member in force; a leader that removed itself has none."""
    everyone = state.log.members().everyone()
    for node in list(state.progress):
        if node not in everyone:
            del state.progress[node]
    for node in everyone:
        if node not in state.progress:
            state.progress[node] = Progress(state.log.last_index())
            state.progress[node].is_active = True  # until the next check of the quorum


def transfer(state: State, target: i64) -> None:
    """Transfer the lead to a voter, once it has all entries. Until then proposals are refused."""
    if state.role != LEADER:
        raise NotLeaderError(state.leader)
    if not state.log.members().is_voter(target) or target == state.node:
        raise ChangeRefusedError(f"node {target} is not another voter")
    if state.transfer_target != NOBODY:
        raise BusyError("another node is about to lead")
    state.transfer_target = target
    state.elapsed = 0
    maybe_send_timeout_now(state)


def on_members_committed(state: State) -> None:
    """Step down if this leader is no longer a voter, and let another voter start an election."""
    members = state.log.members()
    if state.log.members_index() > state.commit or members.is_voter(state.node):
        return
    for node in members.voters:
        if state.progress[node].match == state.log.last_index():
            state.send(state.message(TIMEOUT_NOW, node))
            break
    state.become_follower(state.term, NOBODY)
