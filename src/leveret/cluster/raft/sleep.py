"""Sleep: an idle group sends no heartbeats, as long as its nodes are known to be alive.

A leader asks its followers to sleep when all of them have and have committed everything. A follower
agrees if its log, term and commit index are exactly the leader's, and if its host hears the
leader's node (`may_sleep`). When all have agreed, the leader sleeps, too. Until then it repeats the
request instead of sending heartbeats, and gives up after an election timeout. A sleeping member
gets no ticks.

The host decides when to wake a member (`leveret.cluster.host`). Sleep changes no term, vote, entry
or commit index. At worst a group sleeps when it should not, which costs time but never safety.

A sleeping leader has heard every member of its group in its own term. So no member sleeps under an
older leader while a newer one sleeps: a member that was not reached keeps the newer leader awake.
"""

from mypy_extensions import i64

from leveret.cluster.raft.entry import NOBODY
from leveret.cluster.raft.messages import GRANTED, REFUSED, SLEEP, SLEEP_REPLY, WAKE, Message
from leveret.cluster.raft.replication import broadcast_heartbeat
from leveret.cluster.raft.state import LEADER, State


def begin_sleep(state: State) -> None:
    """Ask all followers to sleep."""
    assert state.role == LEADER
    state.is_drowsy = True
    state.sleep_round += 1
    state.elapsed = 0
    send_sleeps(state)
    _maybe_sleep(state)


def send_sleeps(state: State) -> None:
    """Ask the followers that have not agreed yet."""
    state.heartbeat_elapsed = 0
    for node, progress in state.progress.items():
        if node != state.node and not progress.is_asleep:
            message = state.message(SLEEP, node)
            message.index = state.log.last_index()
            message.log_term = state.log.last_term()
            message.hint = state.sleep_round
            message.context = state.incarnation
            state.send(message)


def on_sleep_reply(state: State, message: Message) -> None:
    progress = state.progress.get(message.source)
    if progress is None:
        return
    progress.is_active = True
    if not state.is_drowsy or message.hint != state.sleep_round:
        return  # the reply belongs to an earlier request
    if message.context == GRANTED:
        progress.is_asleep = True
        _maybe_sleep(state)
    else:
        wake(state, 0)


def _maybe_sleep(state: State) -> None:
    for node, progress in state.progress.items():
        if node != state.node and not progress.is_asleep:
            return
    state.is_asleep = True


def on_sleep(state: State, message: Message) -> None:
    """Agree to sleep if nothing has happened since the leader sent this request."""
    log = state.log
    is_same = message.index == log.last_index() and message.log_term == log.last_term()
    has_all = is_same and state.commit == message.index
    state.is_asleep = has_all and state.may_sleep
    reply = state.message(SLEEP_REPLY, message.source)
    reply.hint = message.hint
    reply.context = GRANTED if state.is_asleep else REFUSED
    state.send(reply)


def wake(state: State, silent_ticks: i64) -> None:
    """Wake up. A leader sends heartbeats; a follower gets the time since it heard its leader."""
    state.is_asleep = False
    if state.role == LEADER:
        state.is_drowsy = False
        state.elapsed = 0
        for progress in state.progress.values():
            progress.is_asleep = False
            progress.is_active = False  # replies from before the sleep do not count
        broadcast_heartbeat(state)
    else:
        state.elapsed = silent_ticks
        state.draw_timeout()


def call_leader(state: State) -> None:
    """Wake the leader, because something has woken this follower."""
    if state.leader != NOBODY and state.leader != state.node:
        state.send(state.message(WAKE, state.leader))
