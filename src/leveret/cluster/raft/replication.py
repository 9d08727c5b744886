"""Replication: entries from the leader to its followers, and the commit index.

The leader sends ahead of the replies, as far as the window of a follower allows. A follower appends
entries that fit its log, truncates only entries that conflict, and replies how far the logs agree.
An entry is committed when a majority of voters has synced it and it is of the leader's own term
(§5.4.2): an entry of an older term may be on a majority and still be overwritten.
"""

from mypy_extensions import i64

from leveret.cluster.raft.entry import NOBODY, Entry
from leveret.cluster.raft.messages import (
    APPEND,
    APPEND_REFUSAL,
    APPEND_REPLY,
    COMMIT,
    HEARTBEAT,
    HEARTBEAT_REPLY,
    TIMEOUT_NOW,
    Message,
)
from leveret.cluster.raft.progress import PROBE, REPLICATE, SNAPSHOT, Progress
from leveret.cluster.raft.snapshot_transfer import begin_snapshot, send_chunk
from leveret.cluster.raft.state import State


def append_own(state: State, entries: list[Entry]) -> None:
    """Append new entries of the leader. They count for the leader itself once they are synced."""
    state.log.append(entries)
    for entry in entries:
        state.uncommitted_bytes += entry.size_bytes()


def broadcast_append(state: State) -> None:
    """Send every follower the entries that it lacks, within its window."""
    for node, progress in state.progress.items():
        if node != state.node:
            send_appends(state, node, progress)


def send_appends(state: State, node: i64, progress: Progress) -> None:
    while _send_append(state, node, progress, may_be_empty=False):
        pass


def _send_append(state: State, node: i64, progress: Progress, may_be_empty: bool) -> bool:
    """Send one message of entries; return True if there may be more to send."""
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
    progress.commit_sent = state.commit
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
    """Note the entries that a follower has synced; return True if the commit index rises."""
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
        _maybe_send_commit(state, message.source, progress)
    if state.transfer_target == message.source:
        maybe_send_timeout_now(state)
    return is_committed


def on_append_refusal(state: State, message: Message) -> None:
    """Handle a follower whose log differs before the entries that were sent."""
    progress = state.progress.get(message.source)
    if progress is None:
        return
    progress.is_active = True
    guess = state.log.find_match_hint(min(message.hint, state.log.last_index()), message.log_term)
    if progress.on_refusal(message.index, guess):
        send_appends(state, message.source, progress)


def maybe_commit(state: State) -> bool:
    """Commit entries of this term that a majority of voters has synced."""
    index = majority_match(state)
    if index <= state.commit or state.log.term(index) != state.term:
        return False
    state.uncommitted_bytes -= state.log.size_bytes(state.commit, index)
    assert state.uncommitted_bytes >= 0
    state.commit_to(index)
    return True


def majority_match(state: State) -> i64:
    """Return the highest index that a majority of voters has synced."""
    matches: list[int] = []
    for node in state.log.members().voters:
        progress = state.progress.get(node)
        matches.append(0 if progress is None else int(progress.match))
    matches.sort()
    return matches[len(matches) - state.log.members().quorum()]


def broadcast_commit(state: State) -> None:
    """Send the commit index to followers that will not soon get it with entries."""
    for node, progress in state.progress.items():
        if node != state.node:
            _maybe_send_commit(state, node, progress)


def _maybe_send_commit(state: State, node: i64, progress: Progress) -> None:
    """Send the commit index. No reply is needed: the next heartbeat repeats a lost message."""
    has_all = progress.state == REPLICATE and progress.match == state.log.last_index()
    if has_all and progress.commit_sent < state.commit:
        message = state.message(COMMIT, node)
        message.commit = state.commit
        progress.commit_sent = state.commit
        state.send(message)


def maybe_send_timeout_now(state: State) -> None:
    """Tell the chosen successor to start an election at once, if it has all entries."""
    progress = state.progress.get(state.transfer_target)
    assert state.transfer_target != NOBODY
    if progress is not None and progress.match == state.log.last_index():
        state.send(state.message(TIMEOUT_NOW, state.transfer_target))


def broadcast_heartbeat(state: State) -> None:
    """Send heartbeats, and begin a round that confirms reads."""
    state.heartbeat_elapsed = 0
    for node, progress in state.progress.items():
        if node == state.node:
            continue
        message = state.message(HEARTBEAT, node)
        message.commit = min(progress.match, state.commit)
        message.context = state.read_round
        state.send(message)


def on_heartbeat_reply(state: State, message: Message) -> None:
    """Note that a follower is alive, and send again what may have been lost."""
    progress = state.progress.get(message.source)
    if progress is None:
        return
    progress.is_active = True
    progress.read_round = max(progress.read_round, message.context)
    progress.is_paused = False
    if progress.state == SNAPSHOT:
        send_chunk(state, message.source, progress)
    elif progress.match < state.log.last_index():
        # In REPLICATE, entries may be in flight or lost. An empty message makes the follower tell.
        _send_append(state, message.source, progress, may_be_empty=True)


def on_append(state: State, message: Message) -> None:
    """Append entries of the leader."""
    log = state.log
    if message.index < state.commit:
        # An old message. Everything that this node has committed matches the leader's log anyway.
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
    """Reply where the logs might agree, so that the leader need not go back one by one."""
    log = state.log
    guess = log.find_match_hint(message.index, message.log_term)
    reply = state.message(APPEND_REFUSAL, message.source)
    reply.index = message.index
    reply.hint = guess
    reply.log_term = log.term(guess)
    state.send(reply)


def on_heartbeat(state: State, message: Message) -> None:
    state.commit_to(message.commit)
    reply = state.message(HEARTBEAT_REPLY, message.source)
    reply.context = message.context
    state.send(reply)
