"""Elections: which member leads in a term.

A member that misses its leader first asks whether it would get votes (pre-vote). This changes no
term, so a node that was cut off does not disturb the others when it comes back. Only with a
majority of granted pre-votes it raises its term and starts an election. A member that has heard its
leader within the election timeout refuses both, unless the leader itself has chosen its successor.
A closed link to the leader ends that time at once: a killed leader is replaced in a few ticks.

A member votes for one candidate in a term, and only if the candidate's log is at least as up to
date as its own. Its vote is synced before it leaves, and a candidate counts its own vote only then.
A member that has lost blocks does not vote (`leveret.cluster.raft.stored`).
"""

from typing import Final

from mypy_extensions import i64

from leveret.cluster.raft.members import NOBODY
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
from leveret.cluster.raft.state import CANDIDATE, FOLLOWER, LEADER, PRE_CANDIDATE, State

WANTED_TIMEOUTS: Final = 6  # a candidate asks again sooner, even if it is drained


def start_pre_vote(state: State) -> None:
    """Ask the other voters whether an election could be won."""
    assert state.role != LEADER
    state.role = PRE_CANDIDATE
    _start(state)
    state.votes[state.node] = True
    for node in _others(state):
        message = state.message(PRE_VOTE, node)
        message.term = state.term + 1
        _describe_log(state, message)
        state.send(message)
    if _is_won(state):
        start_election(state, is_forced=False)


def start_election(state: State, is_forced: bool) -> None:
    """Start an election: raise the term, vote for this member and ask the others."""
    assert state.role != LEADER
    assert state.may_lead()
    state.set_term(state.term + 1, state.node)
    state.role = CANDIDATE
    _start(state)
    for node in _others(state):
        message = state.message(VOTE, node)
        message.context = FORCED if is_forced else 0
        _describe_log(state, message)
        state.send_synced(message, 0)


def _start(state: State) -> None:
    state.leader = NOBODY
    state.elapsed = 0
    state.draw_timeout()
    state.votes.clear()


def _others(state: State) -> list[int]:
    return [node for node in state.log.members().voters if node != state.node]


def _describe_log(state: State, message: Message) -> None:
    message.index = state.log.last_index
    message.log_term = state.log.last_term()


def on_pre_vote(state: State, message: Message) -> None:
    """Answer whether this member would vote for the candidate. Nothing is promised."""
    is_new = message.term > state.term
    is_fresh = state.log.is_up_to_date(message.index, message.log_term)
    is_free = state.hard.may_vote and not state.is_in_lease() and state.role != LEADER
    if not is_fresh:
        state.wanted_until = state.ticks + WANTED_TIMEOUTS * state.config.election_ticks
    reply = state.message(PRE_VOTE_REPLY, message.source)
    if is_new and is_fresh and is_free and not _goes_before(state, message):
        reply.term = message.term
        reply.context = GRANTED
        if state.role == PRE_CANDIDATE:
            _give_up(state)
    else:
        reply.context = REFUSED
    state.send(reply)


def _goes_before(state: State, message: Message) -> bool:
    """Return True if this member asks for pre-votes itself, and the other one must give way.

    Members that lose their links to a killed leader often ask at the same time. If both went on,
    each would vote for itself, and the next attempt would take another election timeout.
    """
    if state.role != PRE_CANDIDATE or message.source < state.node:
        return False
    log = state.log
    return message.index == log.last_index and message.log_term == log.last_term()


def on_vote(state: State, message: Message) -> None:
    """Answer a candidate of the current term."""
    assert message.term == state.term
    is_free = state.vote == message.source or (state.vote == NOBODY and state.leader == NOBODY)
    is_fresh = state.log.is_up_to_date(message.index, message.log_term)
    reply = state.message(VOTE_REPLY, message.source)
    if is_free and is_fresh and state.hard.may_vote:
        state.hard.vote = message.source
        state.elapsed = 0
        reply.context = GRANTED
    else:
        reply.context = REFUSED
    state.send_synced(reply, 0)


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
        if state.role == CANDIDATE:
            become_leader(state)
        elif state.may_lead():
            start_election(state, is_forced=False)
    elif _is_lost(state):
        _give_up(state)
    elif state.role == CANDIDATE and message.context == REFUSED:
        # Another candidate has this vote. The votes that are missing may never come.
        wait = 1 + state.rng.below(state.config.election_ticks)
        state.timeout = min(state.timeout, state.elapsed + wait)


def _give_up(state: State) -> None:
    """Follow again, and try again soon if a leader is known to be missing."""
    is_split = state.role == CANDIDATE
    has_lost_link = state.has_lost_link
    state.become_follower(state.term, NOBODY)
    state.has_lost_link = has_lost_link
    if is_split or has_lost_link:
        state.draw_retry()


def count_own_vote(state: State) -> None:
    """Count the vote of a candidate for itself, once it is synced."""
    if state.role != CANDIDATE or state.node in state.votes:
        return
    if state.synced_hard.term == state.term and state.synced_hard.vote == state.node:
        state.votes[state.node] = True
        if _is_won(state):
            become_leader(state)


def _count(state: State, answer: bool) -> i64:
    count: i64 = 0
    for node in state.log.members().voters:
        if node in state.votes and state.votes[node] == answer:
            count += 1
    return count


def _is_won(state: State) -> bool:
    return state.has_quorum(_count(state, True))


def _is_lost(state: State) -> bool:
    """Return True if the voters that have not refused are no majority."""
    return not state.has_quorum(len(state.log.members().voters) - _count(state, False))


def become_leader(state: State) -> None:
    """Become leader. The host sees the role and appends a TERM block first of all."""
    assert state.role == CANDIDATE
    assert state.vote == state.node
    assert state.synced_hard.term == state.term, "a leader whose term is not synced"
    state.role = LEADER
    state.leader = state.node
    state.elapsed = 0
    state.heartbeat_elapsed = state.config.heartbeat_ticks  # the first tick sends heartbeats
    state.has_lost_link = False
    state.votes.clear()
    state.uncommitted_bytes = state.log.bytes_between(state.commit, state.log.last_index)
    state.transfer_target = NOBODY
    state.progress.clear()
    for node in state.log.members().everyone():
        state.progress[node] = Progress(state.log.last_index + 1, state.ticks)
    own = state.progress.get(state.node)  # None if the leader itself is being removed
    if own is not None:
        own.match = state.log.synced_index


def on_timeout_now(state: State) -> None:
    """Start an election without pre-vote, because the leader has chosen this member."""
    if state.may_lead():
        start_election(state, is_forced=True)


def on_link_lost(state: State, node: i64) -> None:
    """Shorten the election timeout: the leader's link was closed, so it has probably ended."""
    if state.role != FOLLOWER or state.leader != node:
        return
    state.leader = NOBODY
    state.has_lost_link = True
    wait = 1 + state.rng.below(state.config.link_lost_ticks)
    state.timeout = min(state.timeout, state.elapsed + wait)
