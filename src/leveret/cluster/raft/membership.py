"""Changes of the members, one node at a time (§4 of the Raft dissertation), and hand-over.

A change is a block that is in force as soon as it is in the log. Two majorities of neighbouring
memberships always share a voter, so one change at a time is safe under two conditions: the last
change is committed, and the leader has committed a block of its own term. A node joins as a
non-voter, and becomes a voter when it has caught up, so that the cluster never waits for a node
with an empty log. A leader that removes itself leads until that change is committed.

The functions `plan_…` check a change and return the members after it. The host makes the block.
"""

from mypy_extensions import i64

from leveret.cluster.errors import BusyError, ChangeRefusedError, NotLeaderError
from leveret.cluster.raft.members import MEMBERS_MAX, NOBODY, Member, Members
from leveret.cluster.raft.messages import TIMEOUT_NOW
from leveret.cluster.raft.progress import COPY, Progress
from leveret.cluster.raft.replication import maybe_send_timeout_now
from leveret.cluster.raft.state import LEADER, State


def plan_add(state: State, member: Member) -> Members:
    """Return the members with a new non-voter."""
    require_change(state)
    members = state.log.members()
    if members.has(member.number):
        raise ChangeRefusedError(f"node {member.number} is a member already")
    if len(members.everyone()) >= MEMBERS_MAX:
        raise ChangeRefusedError(f"there are {MEMBERS_MAX} members, the maximum")
    return members.with_non_voter(member)


def plan_promote(state: State, node: i64) -> Members:
    """Return the members with a non-voter as voter, if it is alive and has nearly the whole log.

    With two voters, of which one is dead, there would be no majority, and the change could not be
    undone.
    """
    require_change(state)
    members = state.log.members()
    if int(node) not in members.non_voters:
        raise ChangeRefusedError(f"node {node} is not a non-voter")
    progress = state.progress[int(node)]
    if progress.match + state.config.promote_lag_max < state.log.last_index:
        raise ChangeRefusedError(f"node {node} has not caught up")
    if not state.is_active(progress):
        raise ChangeRefusedError(f"node {node} was not heard lately")
    return members.with_voter(node)


def plan_remove(state: State, node: i64) -> Members:
    """Return the members without a voter or non-voter, if a majority of the rest is alive."""
    require_change(state)
    members = state.log.members()
    if not members.has(node):
        raise ChangeRefusedError(f"node {node} is not a member")
    name = members.members[int(node)].name or str(node)
    if members.voters == [int(node)]:
        raise ChangeRefusedError(f"node {name} is the last voter, so it cannot be removed")
    after = members.without(node)
    alive = _count_alive(state, after)
    if alive < after.quorum():
        raise ChangeRefusedError(
            f"without node {name}, {alive} of {len(after.voters)} voters would be reached, and "
            f"{after.quorum()} are needed: start the other nodes first"
        )
    return after


def _count_alive(state: State, members: Members) -> i64:
    count: i64 = 0
    for node in members.voters:
        if node == state.node or state.is_active(state.progress[node]):
            count += 1
    return count


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


def sync_progress(state: State) -> None:
    """Keep a progress for each member in force; a leader that removed itself has none."""
    everyone = state.log.members().everyone()
    for node in list(state.progress):
        if node not in everyone:
            del state.progress[node]
    for node in everyone:
        if node not in state.progress:
            state.progress[node] = Progress(state.log.last_index, state.ticks)


def best_successor(state: State) -> i64:
    """Return the living voter that has most of the log; NOBODY if there is no other voter.

    A drained voter is the best one only if all are drained.
    """
    best: i64 = NOBODY
    best_match: i64 = -1
    is_best_drained = True
    for node in state.log.members().voters:
        progress = state.progress.get(node)
        if node == state.node or progress is None or progress.state == COPY:
            continue
        if not state.is_active(progress) or (progress.is_drained and not is_best_drained):
            continue
        if progress.match > best_match or (is_best_drained and not progress.is_drained):
            best = node
            best_match = progress.match
            is_best_drained = progress.is_drained
    return best


def transfer(state: State, target: i64) -> None:
    """Hand the lead to a voter, once all is committed and it has all. Meanwhile append nothing."""
    if state.role != LEADER:
        raise NotLeaderError(state.leader)
    if not state.log.members().is_voter(target) or target == state.node:
        raise ChangeRefusedError(f"node {target} is not another voter")
    if state.transfer_target != NOBODY:
        raise BusyError("another node is about to lead")
    if not state.has_committed_own_term():
        raise BusyError("nothing of this leader's term is committed yet")
    state.transfer_target = target
    state.transfer_elapsed = 0
    maybe_send_timeout_now(state)


def hand_over(state: State) -> None:
    """Stop leading at once, and let the best voter start an election."""
    successor = best_successor(state)
    if successor != NOBODY:
        state.send(state.message(TIMEOUT_NOW, successor))
    state.become_follower(state.term, NOBODY)


def on_members_committed(state: State) -> None:
    """Step down if this leader is no longer a voter."""
    members = state.log.members()
    if state.log.members_index() <= state.commit and not members.is_voter(state.node):
        hand_over(state)
