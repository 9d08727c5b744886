"""Elections: which member leads in a term.

A member that misses its leader first asks whether it would get votes (pre-vote). This changes no
term, so a node that was cut off does not disturb the others when it comes back. Only with a
majority of granted pre-votes it raises its term and starts an election. A member that has heard its
leader within the election timeout refuses both, unless the leader itself has chosen its successor.

A member votes for one candidate in a term, and only if the candidate's log is at least as up to
date as its own. The vote is synced before the reply is sent, like everything in a `Ready`.
"""

from mypy_extensions import i64

from leveret.cluster.raft.entry import EMPTY, NOBODY, Entry
from leveret.cluster.raft.messages import (
    FORCED,
    GRANTED,
    PRE_VOTE,
    PRE_VOTE_REPLY,
    REFUSED,
    VOTE,
    VOTE_REPLY,
    Message,
)
from leveret.cluster.raft.progress import Progress
from leveret.cluster.raft.replication import append_own, broadcast_append
from leveret.cluster.raft.state import CANDIDATE, LEADER, PRE_CANDIDATE, State


def start_pre_vote(state: State) -> None:
    """Ask the other voters whether an election could be won."""
    assert state.role != LEADER
    state.role = PRE_CANDIDATE
    state.leader = NOBODY
    _start(state)
    _ask(state, PRE_VOTE, state.term + 1, is_forced=False)
    if _is_won(state):
        start_election(state, is_forced=False)


def start_election(state: State, is_forced: bool) -> None:
    """Start an election: raise the term, vote for this member and ask the others."""
    assert state.role != LEADER
    assert state.may_lead()
    state.term += 1
    state.vote = state.node
    state.incoming = None  # chunks of two leaders are never mixed
    state.role = CANDIDATE
    state.leader = NOBODY
    _start(state)
    _ask(state, VOTE, state.term, is_forced)
    if _is_won(state):
        become_leader(state)


def _start(state: State) -> None:
    state.is_asleep = False
    state.elapsed = 0
    state.draw_timeout()
    state.votes.clear()
    state.votes[state.node] = True


def _ask(state: State, kind: i64, term: i64, is_forced: bool) -> None:
    for node in state.log.members().voters:
        if node != state.node:
            message = state.message(kind, node)
            message.term = term
            message.index = state.log.last_index()
            message.log_term = state.log.last_term()
            message.context = FORCED if is_forced else 0
            state.send(message)


def on_pre_vote(state: State, message: Message) -> None:
    """Answer whether this member would vote for the candidate. Nothing is promised."""
    is_new = message.term > state.term
    is_fresh = state.log.is_up_to_date(message.index, message.log_term)
    reply = state.message(PRE_VOTE_REPLY, message.source)
    if is_new and is_fresh and not state.is_in_lease() and state.role != LEADER:
        reply.term = message.term
        reply.context = GRANTED
    else:
        reply.context = REFUSED
    state.send(reply)


def on_vote(state: State, message: Message) -> None:
    """Answer a candidate of the current term."""
    assert message.term == state.term
    is_free = state.vote == message.source or (state.vote == NOBODY and state.leader == NOBODY)
    is_fresh = state.log.is_up_to_date(message.index, message.log_term)
    reply = state.message(VOTE_REPLY, message.source)
    if is_free and is_fresh:
        state.vote = message.source
        state.elapsed = 0
        reply.context = GRANTED
    else:
        reply.context = REFUSED
    state.send(reply)


def on_vote_reply(state: State, message: Message) -> None:
    """Count the reply to a vote or pre-vote, if this member is still asking for it."""
    wanted = PRE_VOTE_REPLY if state.role == PRE_CANDIDATE else VOTE_REPLY
    if message.kind != wanted or state.role not in (PRE_CANDIDATE, CANDIDATE):
        return
    if message.kind == PRE_VOTE_REPLY and message.context == GRANTED:
        if message.term != state.term + 1:
            return  # the reply belongs to an earlier pre-vote
    state.votes[message.source] = message.context == GRANTED
    if _is_won(state):
        if state.role == PRE_CANDIDATE:
            start_election(state, is_forced=False)
        else:
            become_leader(state)
    elif _is_lost(state):
        state.become_follower(state.term, NOBODY)


def _count(state: State, answer: bool) -> i64:
    count: i64 = 0
    for node in state.log.members().voters:
        if node in state.votes and state.votes[node] == answer:
            count += 1
    return count


def _is_won(state: State) -> bool:
    return state.has_quorum(_count(state, True))


def _is_lost(state: State) -> bool:
    return state.has_quorum(_count(state, False))


def become_leader(state: State) -> None:
    """Become leader. Append an empty entry, the first one that this term can commit."""
    assert state.role == CANDIDATE
    assert state.vote == state.node
    state.role = LEADER
    state.leader = state.node
    state.elapsed = 0
    state.heartbeat_elapsed = 0
    state.votes.clear()
    state.uncommitted_bytes = state.log.size_bytes(state.commit, state.log.last_index())
    state.transfer_target = NOBODY
    state.reads = []
    next_index = state.log.last_index() + 1
    state.progress.clear()
    for node in state.log.members().everyone():
        state.progress[node] = Progress(next_index)
    own = state.progress.get(state.node)  # None if the leader itself is being removed
    if own is not None:
        own.is_active = True
        own.match = state.log.stable
    append_own(state, [Entry(next_index, state.term, EMPTY, b"")])
    broadcast_append(state)


def on_timeout_now(state: State) -> None:
    """Start an election without pre-vote, because the leader has chosen this member."""
    if state.may_lead():
        start_election(state, is_forced=True)
