"""Sleep: a group in which nothing happens needs no beats, as long as the nodes are known to live.

A leader whose followers have and have committed all asks them to sleep. A follower agrees if its
log, term and commit are exactly the leader's, and if its host says that it hears the leader's node
(`may_sleep`). When all have agreed the leader sleeps too; while they have not it asks again instead
of beating, and after an election timeout gives it up. Whoever sleeps is not ticked.

What wakes a member, and when, is the host's business (`leveret.cluster.host`): this module only
says what sleeping and waking do to it. Sleep changes no term, vote, entry or commit: at worst a
group sleeps when it should not, and that is a matter of time, never of what is agreed on.

A leader that sleeps has heard every member of its group in its own term. So no member sleeps under
an older leader while a newer one sleeps: whoever was not reached keeps the newer one awake.
"""

from mypy_extensions import i64

from leveret.cluster.raft.entry import NOBODY
from leveret.cluster.raft.messages import GRANTED, REFUSED, SLEEP, SLEEP_REPLY, WAKE, Message
from leveret.cluster.raft.replication import broadcast_beat
from leveret.cluster.raft.state import LEADER, State

# The leader's side


def begin_sleep(state: State) -> None:
    """Ask all followers to sleep."""
    assert state.role == LEADER
    state.is_drowsy = True
    state.sleep_round += 1
    state.elapsed = 0
    send_sleeps(state)
    _maybe_sleep(state)


def send_sleeps(state: State) -> None:
    """Ask those that have not agreed yet."""
    state.beat_elapsed = 0
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
        return  # an answer to an older question
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


# The follower's side


def on_sleep(state: State, message: Message) -> None:
    """The leader finds that nothing happens. A message that is late finds that something did."""
    log = state.log
    is_same = message.index == log.last_index() and message.log_term == log.last_term()
    has_all = is_same and state.commit == message.index
    state.is_asleep = has_all and state.may_sleep
    reply = state.message(SLEEP_REPLY, message.source)
    reply.hint = message.hint
    reply.context = GRANTED if state.is_asleep else REFUSED
    state.send(reply)


def wake(state: State, silent_ticks: i64) -> None:
    """Go on. A leader says so at once; a follower has not heard of its leader for so long."""
    state.is_asleep = False
    if state.role == LEADER:
        state.is_drowsy = False
        state.elapsed = 0
        for progress in state.progress.values():
            progress.is_asleep = False
            progress.is_active = False  # what it said before the sleep says nothing of now
        broadcast_beat(state)
    else:
        state.elapsed = silent_ticks
        state.draw_timeout()


def call_leader(state: State) -> None:
    """Something woke this follower: its leader may sleep, and must not."""
    if state.leader != NOBODY and state.leader != state.node:
        state.send(state.message(WAKE, state.leader))
