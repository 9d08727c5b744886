"""Entries from the leader to its followers, and what is committed by that.

The leader sends ahead of the answers, as far as the window of a follower allows; a follower takes
what fits its log, cuts off only what conflicts, and answers how far the logs agree. An entry is
committed when a majority of voters has it synced and it is of the leader's own term (§5.4.2): one
of an older term may sit on a majority and still be overwritten.
"""

from mypy_extensions import i64

from leveret.cluster.raft.entry import NOBODY, Entry
from leveret.cluster.raft.messages import (
    APPEND,
    APPEND_REFUSAL,
    APPEND_REPLY,
    BEAT,
    BEAT_REPLY,
    COMMIT,
    TIMEOUT_NOW,
    Message,
)
from leveret.cluster.raft.progress import PROBE, REPLICATE, SNAPSHOT, Progress
from leveret.cluster.raft.snapshots import begin_snapshot, send_chunk
from leveret.cluster.raft.state import State

# The leader's side


def append_own(state: State, entries: list[Entry]) -> None:
    """New entries of the leader; it counts them for itself when they are synced."""
    state.log.append(entries)
    for entry in entries:
        state.uncommitted_bytes += entry.size_bytes()


def broadcast_append(state: State) -> None:
    """Send every follower what it lacks, as far as may be."""
    for node, progress in state.progress.items():
        if node != state.node:
            send_appends(state, node, progress)


def send_appends(state: State, node: i64, progress: Progress) -> None:
    while _send_append(state, node, progress, may_be_empty=False):
        pass


def _send_append(state: State, node: i64, progress: Progress, may_be_empty: bool) -> bool:
    """One message of entries; whether there may be more to send."""
    log = state.log
    if progress.state == SNAPSHOT:
        return False
    if progress.next <= log.base_index:
        begin_snapshot(state, node, progress)
        return False
    config = state.config
    is_waiting = progress.is_paused or progress.is_full(
        config.inflight_count_max, config.inflight_bytes_max
    )
    if is_waiting and not may_be_empty:
        return False
    entries: list[Entry] = []
    if not is_waiting:
        entries = log.slice(progress.next, config.append_count_max, config.append_bytes_max)
    if not entries and not may_be_empty and progress.state == REPLICATE:
        return False
    _send_entries(state, node, progress, entries)
    return progress.state == REPLICATE and len(entries) > 0


def _send_entries(state: State, node: i64, progress: Progress, entries: list[Entry]) -> None:
    message = state.message(APPEND, node)
    message.index = progress.next - 1
    message.log_term = state.log.term(message.index)
    message.commit = state.commit
    progress.told = state.commit
    message.entries = entries
    state.send(message)
    if progress.state == PROBE:
        progress.is_paused = True
    elif entries:
        size: i64 = 0
        for entry in entries:
            size += entry.size_bytes()
        progress.note_sent(entries[-1].index, size)


def on_append_reply(state: State, message: Message) -> bool:
    """A follower has synced all up to an index; whether more is committed by that."""
    progress = state.progress.get(message.source)
    if progress is None:
        return False
    progress.is_active = True
    assert message.index <= state.log.last_index(), "a follower has more than its leader"
    is_news = progress.on_match(message.index)
    if progress.state == PROBE:
        progress.to_replicate()
    elif progress.state == SNAPSHOT:
        snapshot = progress.snapshot
        assert snapshot is not None
        if message.index >= snapshot.index:
            progress.to_replicate()
    is_committed = is_news and maybe_commit(state)
    send_appends(state, message.source, progress)
    if not is_committed:
        _maybe_tell(state, message.source, progress)
    if state.transfer_target == message.source:
        maybe_hand_over(state)
    return is_committed


def on_append_refusal(state: State, message: Message) -> None:
    """The follower's log differs before what was sent."""
    progress = state.progress.get(message.source)
    if progress is None:
        return
    progress.is_active = True
    guess = state.log.guess(min(message.hint, state.log.last_index()), message.log_term)
    if progress.on_refusal(message.index, guess):
        send_appends(state, message.source, progress)


def maybe_commit(state: State) -> bool:
    """Commit what a majority of voters has synced, if it is of this term."""
    index = majority_match(state)
    if index <= state.commit or state.log.term(index) != state.term:
        return False
    state.uncommitted_bytes -= state.log.size_bytes(state.commit, index)
    assert state.uncommitted_bytes >= 0
    state.commit_to(index)
    return True


def majority_match(state: State) -> i64:
    """The highest index that a majority of voters has."""
    matches: list[int] = []
    for node in state.log.members().voters:
        progress = state.progress.get(node)
        matches.append(0 if progress is None else int(progress.match))
    matches.sort()
    return matches[len(matches) - state.log.members().quorum()]


def tell_commit(state: State) -> None:
    """Tell followers what is committed, where no entries will soon carry it."""
    for node, progress in state.progress.items():
        if node != state.node:
            _maybe_tell(state, node, progress)


def _maybe_tell(state: State, node: i64, progress: Progress) -> None:
    """Nobody answers such a message: should it be lost, the next beat says the same."""
    has_all = progress.state == REPLICATE and progress.match == state.log.last_index()
    if has_all and progress.told < state.commit:
        message = state.message(COMMIT, node)
        message.commit = state.commit
        progress.told = state.commit
        state.send(message)


def maybe_hand_over(state: State) -> None:
    """Let the chosen successor ask for votes at once, when it has all entries."""
    progress = state.progress.get(state.transfer_target)
    assert state.transfer_target != NOBODY
    if progress is not None and progress.match == state.log.last_index():
        state.send(state.message(TIMEOUT_NOW, state.transfer_target))


def broadcast_beat(state: State) -> None:
    """Say that this node leads, and begin a round that confirms reads."""
    state.beat_elapsed = 0
    for node, progress in state.progress.items():
        if node == state.node:
            continue
        message = state.message(BEAT, node)
        message.commit = min(progress.match, state.commit)
        message.context = state.read_round
        state.send(message)


def on_beat_reply(state: State, message: Message) -> None:
    """A follower lives. What was lost on its way is sent again, or asked for."""
    progress = state.progress.get(message.source)
    if progress is None:
        return
    progress.is_active = True
    progress.read_round = max(progress.read_round, message.context)
    progress.is_paused = False
    if progress.state == SNAPSHOT:
        send_chunk(state, message.source, progress)
    elif progress.match < state.log.last_index():
        # In REPLICATE all may be under way, or lost: an empty message makes the follower say.
        _send_append(state, message.source, progress, may_be_empty=True)


# The follower's side


def on_append(state: State, message: Message) -> None:
    """Entries of the leader."""
    log = state.log
    if message.index < state.commit:
        # Old, and all that this node has committed matches the leader's log anyway.
        _reply(state, message.source, state.commit)
        return
    if not log.matches(message.index, message.log_term):
        _refuse(state, message)
        return
    log.merge(message.entries, state.commit)
    last = message.index + len(message.entries)
    state.commit_to(min(message.commit, last))
    _reply(state, message.source, last)


def _reply(state: State, leader: i64, index: i64) -> None:
    reply = state.message(APPEND_REPLY, leader)
    reply.index = index
    state.send(reply)


def _refuse(state: State, message: Message) -> None:
    """Say where the logs might agree, so that the leader need not go back one by one."""
    log = state.log
    guess = log.guess(message.index, message.log_term)
    reply = state.message(APPEND_REFUSAL, message.source)
    reply.index = message.index
    reply.hint = guess
    reply.log_term = log.term(guess)
    state.send(reply)


def on_beat(state: State, message: Message) -> None:
    state.commit_to(message.commit)
    reply = state.message(BEAT_REPLY, message.source)
    reply.context = message.context
    state.send(reply)
