"""Linearizable reads without writing to the log: ReadIndex (§6.4 of the Raft dissertation).

A read remembers the current commit index and waits until a majority has answered a round of
heartbeats that began after the read. Then no other leader had committed anything newer when the
read arrived. A leader that has not committed an entry of its own term does not know the commit
index yet, so its reads wait for that. A follower passes reads on to the leader. A read can stay
without answer, after a lost message or a step-down of the leader; then the host must ask again.
"""

from mypy_extensions import i64

from leveret.cluster.errors import (
    BusyError,
    NotLeaderError,
)
from leveret.cluster.raft.entry import NOBODY
from leveret.cluster.raft.messages import READ, READ_REPLY, Message
from leveret.cluster.raft.ready import ReadAnswer
from leveret.cluster.raft.replication import broadcast_heartbeat
from leveret.cluster.raft.state import LEADER, PendingRead, State


def read(state: State, number: i64) -> None:
    """Begin a read of this node."""
    if state.role == LEADER:
        if len(state.reads) >= state.config.reads_max:
            raise BusyError("too many reads are waiting")
        _add(state, state.node, number)
        return
    if state.leader == NOBODY:
        raise NotLeaderError(NOBODY)
    message = state.message(READ, state.leader)
    message.context = number
    state.send(message)


def on_read(state: State, message: Message) -> None:
    """Begin a read for a follower. Reads over the limit are dropped; the follower asks again."""
    if state.role == LEADER and len(state.reads) < state.config.reads_max:
        _add(state, message.source, message.context)


def on_read_reply(state: State, message: Message) -> None:
    state.answers.append(ReadAnswer(message.context, message.index))


def _add(state: State, source: i64, number: i64) -> None:
    state.reads.append(PendingRead(source, number))
    begin_round(state)


def begin_round(state: State) -> None:
    """Begin a round of heartbeats for waiting reads, if the last round is over."""
    if not state.has_committed_own_term():
        return
    is_begun = False
    for waiting in state.reads:
        if waiting.round != 0:
            return
        waiting.round = state.read_round + 1
        waiting.index = state.commit
        is_begun = True
    if is_begun:
        state.read_round += 1
        broadcast_heartbeat(state)
        answer_reads(state)


def answer_reads(state: State) -> None:
    """Answer the reads whose round a majority has confirmed."""
    if not state.reads:
        return
    confirmed = _confirmed_round(state)
    left: list[PendingRead] = []
    for waiting in state.reads:
        if waiting.round == 0 or waiting.round > confirmed:
            left.append(waiting)
        else:
            _answer(state, waiting)
    state.reads = left
    if left and left[0].round == 0:
        begin_round(state)


def _confirmed_round(state: State) -> i64:
    """Return the newest round that a majority of voters has confirmed, including the leader."""
    rounds: list[int] = []
    for node in state.log.members().voters:
        progress = state.progress.get(node)
        if node == state.node:
            rounds.append(int(state.read_round))
        else:
            rounds.append(0 if progress is None else int(progress.read_round))
    rounds.sort()
    return rounds[len(rounds) - state.log.members().quorum()]


def _answer(state: State, waiting: PendingRead) -> None:
    if waiting.source == state.node:
        state.answers.append(ReadAnswer(waiting.number, waiting.index))
        return
    reply = state.message(READ_REPLY, waiting.source)
    reply.index = waiting.index
    reply.context = waiting.number
    state.send(reply)
