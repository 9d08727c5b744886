"""Elections: who leads in a term.

A member that misses its leader first asks whether it would get votes (pre-vote): nobody's term
changes by that, so a node that was cut off does not disturb the others when it comes back. Only
with a majority of such answers does it raise its term and ask in earnest. Who has heard of a leader
within the election timeout refuses both, unless the leader itself has chosen its successor.

A vote goes to one candidate in a term, and only to one whose log has at least all that one's own
has; it is synced before the answer leaves, as everything in a `Ready`.
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


def ask_before(state: State) -> None:
    """Ask the others whether an election could be won."""
    assert state.role != LEADER
    state.role = PRE_CANDIDATE
    state.leader = NOBODY
    _start(state)
    _ask(state, PRE_VOTE, state.term + 1, is_forced=False)
    if _is_won(state):
        campaign(state, is_forced=False)


def campaign(state: State, is_forced: bool) -> None:
    """Ask for votes in a new term, one's own among them."""
    assert state.role != LEADER
    assert state.may_lead()
    state.term += 1
    state.vote = state.node
    state.incoming = None  # as when following another leader: chunks of two are never mixed
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
    """Would this node vote for it? Nothing is promised."""
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
    """A candidate of the present term asks."""
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
    """An answer to a vote or a pre-vote of this node, whichever it is asking for now."""
    wanted = PRE_VOTE_REPLY if state.role == PRE_CANDIDATE else VOTE_REPLY
    if message.kind != wanted or state.role not in (PRE_CANDIDATE, CANDIDATE):
        return
    if message.kind == PRE_VOTE_REPLY and message.context == GRANTED:
        if message.term != state.term + 1:
            return  # an answer to an older question
    state.votes[message.source] = message.context == GRANTED
    if _is_won(state):
        if state.role == PRE_CANDIDATE:
            campaign(state, is_forced=False)
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
    """Lead: begin with an empty entry, the first that this term can commit."""
    assert state.role == CANDIDATE
    assert state.vote == state.node
    state.role = LEADER
    state.leader = state.node
    state.elapsed = 0
    state.beat_elapsed = 0
    state.votes.clear()
    state.uncommitted_bytes = state.log.size_bytes(state.commit, state.log.last_index())
    state.transfer_target = NOBODY
    state.reads = []
    next_index = state.log.last_index() + 1
    state.progress.clear()
    for node in state.log.members().everyone():
        state.progress[node] = Progress(next_index)
    own = state.progress.get(state.node)  # None: it leads to be removed
    if own is not None:
        own.is_active = True
        own.match = state.log.stable
    append_own(state, [Entry(next_index, state.term, EMPTY, b"")])
    broadcast_append(state)


def on_timeout_now(state: State) -> None:
    """The leader has chosen this node: no need to ask before."""
    if state.may_lead():
        campaign(state, is_forced=True)
