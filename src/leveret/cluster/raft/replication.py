"""Replication: blocks from the leader to its followers, and the commit index.

The leader sends ahead of the replies, as far as the limits of a follower allow. A follower appends
blocks that fit its log, cuts off only blocks that conflict, and replies how far the logs agree. A
block is committed when a majority of voters has synced it and it is of the leader's own term
(§5.4.2): a block of an older term may be on a majority and still be overwritten.
"""

from mypy_extensions import i64

from leveret.cluster.errors import FalseMessageError
from leveret.cluster.raft.block import Block
from leveret.cluster.raft.catch_up import ask_read, begin_copy, check_read
from leveret.cluster.raft.members import NOBODY
from leveret.cluster.raft.messages import (
    APPEND,
    APPEND_REFUSAL,
    APPEND_REPLY,
    COMMIT,
    DRAINED,
    HEARTBEAT,
    HEARTBEAT_REPLY,
    NEEDS_COPY,
    RECEIVING,
    TIMEOUT_NOW,
    Message,
)
from leveret.cluster.raft.progress import COPY, PROBE, REPLICATE, Progress
from leveret.cluster.raft.ready import ReadRequest
from leveret.cluster.raft.state import LEADER, State
from leveret.cluster.raft.stored import UNKNOWN_PROMISE


def broadcast_append(state: State) -> None:
    """Send every follower the blocks that it lacks, within its limits."""
    state.has_held = False
    for node, progress in state.progress.items():
        if node != state.node:
            send_appends(state, node, progress)


def send_held(state: State) -> None:
    """Send the blocks that were held back."""
    for node, progress in state.progress.items():
        if node != state.node:
            _send_all(state, node, progress)


def send_appends(state: State, node: i64, progress: Progress) -> None:
    """Send a follower the blocks that it lacks, or hold them back."""
    if _may_hold(state, node, progress):
        state.has_held = True
    else:
        _send_all(state, node, progress)


def _send_all(state: State, node: i64, progress: Progress) -> None:
    while _send_append(state, node, progress, may_be_empty=False):
        pass


def _may_hold(state: State, node: i64, progress: Progress) -> bool:
    """Return True if a follower may get its next blocks a little later, with more behind them.

    It writes and syncs them at once then, which saves most of its work. A majority commits
    without it while enough other voters are ahead of it. If they fall silent, it gets ahead of
    them when the held blocks are sent, and nothing is held back from it any more.
    """
    log = state.log
    config = state.config
    unsent = log.last_index + 1 - progress.next
    if unsent <= 0 or unsent >= config.held_count_max or progress.state != REPLICATE:
        return False
    if progress.next < log.window_first or state.transfer_target != NOBODY:
        return False  # the next leader would have to send again what was held back
    if log.bytes_between(progress.next - 1, log.last_index) >= config.held_bytes_max:
        return False
    count: i64 = 0
    for voter in log.members().voters:
        if voter == state.node or _is_ahead(state, voter, node, progress.match):
            count += 1
    return state.has_quorum(count)


def _is_ahead(state: State, voter: i64, node: i64, match: i64) -> bool:
    """Return True if blocks go to a voter before they go to a follower with this `match`."""
    other = state.progress.get(int(voter))
    if voter == node or other is None or other.state != REPLICATE:
        return False
    return other.match > match or (other.match == match and voter < node)


def _send_append(state: State, node: i64, progress: Progress, may_be_empty: bool) -> bool:
    """Send one message of blocks; return True if there may be more to send."""
    log = state.log
    config = state.config
    if progress.state == COPY:
        return False
    if progress.next <= log.base_index:
        begin_copy(state, node, progress)
        return False
    is_waiting = progress.is_paused or progress.is_full(
        config.inflight_count_max, config.inflight_bytes_max
    )
    if is_waiting and not may_be_empty:
        return False
    blocks: list[Block] = []
    if not is_waiting and progress.next >= log.window_first:
        blocks = log.slice(progress.next, config.append_count_max, config.append_bytes_max)
    elif not is_waiting and progress.state == REPLICATE:
        ask_read(state, node, progress)
    if not blocks and not may_be_empty and progress.state == REPLICATE:
        return False
    _send_blocks(state, node, progress, blocks)
    return progress.state == REPLICATE and len(blocks) > 0


def _send_blocks(state: State, node: i64, progress: Progress, blocks: list[Block]) -> None:
    message = state.message(APPEND, node)
    message.index = progress.next - 1
    message.log_term = state.log.term(message.index)
    message.commit = state.commit
    message.blocks = blocks
    progress.commit_sent = state.commit
    state.send(message)
    size: i64 = 0
    for block in blocks:
        size += block.size_bytes()
    if progress.state == PROBE:
        progress.is_paused = True
    elif blocks:
        progress.note_sent(blocks[-1].index, size)


def on_read(state: State, request: ReadRequest, blocks: list[Block]) -> None:
    """Send blocks that the host has read for a follower; none: they are not in its files."""
    progress = state.progress.get(int(request.node))
    if state.role != LEADER or progress is None or progress.read is not request:
        return
    progress.read = None
    is_wanted = progress.state == REPLICATE and progress.next == request.first
    if is_wanted and not blocks:
        begin_copy(state, request.node, progress)
    elif is_wanted and progress.next > state.log.base_index:
        check_read(state, request, blocks)
        _send_blocks(state, request.node, progress, blocks)
    send_appends(state, request.node, progress)


def _hear(state: State, message: Message) -> Progress | None:
    """Return the progress of the sender of a reply; None if the reply is void.

    A member that has lost blocks counts its losses. Replies from before are void, and so is
    everything that it had acknowledged.
    """
    progress = state.progress.get(int(message.source))
    if progress is None or message.context < progress.losses:
        return None
    progress.heard_tick = progress.contact_tick = state.ticks
    progress.has_lost_link = False
    if message.context > progress.losses:
        progress.note_losses(message.context, state.log.last_index, state.ticks)
    return progress


def on_append_reply(state: State, message: Message) -> bool:
    """Note the blocks that a follower has synced; return True if the commit index rises."""
    progress = _hear(state, message)
    if progress is None:
        return False
    if message.index > state.log.last_index:
        raise FalseMessageError(
            f"it has block {message.index}, and the log of its leader ends with block "
            f"{state.log.last_index}"
        )
    is_news = progress.on_match(message.index)
    if progress.state == PROBE:
        progress.to_replicate(state.ticks)
    is_committed = is_news and maybe_commit(state)
    if is_news:
        trim_window(state)
    send_appends(state, message.source, progress)
    if state.transfer_target != NOBODY:
        maybe_send_timeout_now(state)
    return is_committed


def on_append_refusal(state: State, message: Message) -> None:
    """Handle a follower whose log differs before the blocks that were sent."""
    progress = _hear(state, message)
    if progress is None:
        return
    if message.commit == NEEDS_COPY:
        begin_copy(state, message.source, progress)
        return
    guess = state.log.find_match_hint(min(message.hint, state.log.last_index), message.log_term)
    if progress.on_refusal(message.index, guess, state.ticks):
        send_appends(state, message.source, progress)


def maybe_commit(state: State) -> bool:
    """Commit blocks of this term that a majority of voters has synced."""
    index = majority_match(state)
    if index <= state.commit or state.log.term(index) != state.term:
        return False
    state.uncommitted_bytes -= state.log.bytes_between(state.commit, index)
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


def trim_window(state: State) -> None:
    """Drop blocks from memory: those that all active followers have, and those over the limit."""
    log = state.log
    safe = min(state.commit, log.synced_index)
    needed = safe
    for progress in state.progress.values():
        if state.is_active(progress) and progress.state != COPY:
            needed = min(needed, progress.match)
    log.drop_to(needed)
    log.shrink_to(state.config.window_bytes_max, safe)


def broadcast_commit(state: State) -> None:
    """Send the commit index to followers that have not got it with blocks.

    The leader calls this once in a tick. A message for each commit would wake every follower once
    more for each block. Nobody waits for it: followers serve no client with what is committed. No
    reply is needed: the next heartbeat repeats a lost message.
    """
    for node, progress in state.progress.items():
        has_all = progress.state == REPLICATE and progress.match == state.log.last_index
        if node != state.node and has_all and progress.commit_sent < state.commit:
            message = state.message(COMMIT, node)
            message.commit = state.commit
            progress.commit_sent = state.commit
            state.send(message)


def maybe_send_timeout_now(state: State) -> None:
    """Tell the chosen successor to start an election at once, if all is committed and there."""
    assert state.transfer_target != NOBODY
    progress = state.progress.get(int(state.transfer_target))
    last = state.log.last_index
    if progress is not None and progress.match == last and state.commit == last:
        state.send(state.message(TIMEOUT_NOW, state.transfer_target))


def broadcast_heartbeat(state: State) -> None:
    """Send heartbeats, with the end of the log for followers that have lost blocks."""
    state.heartbeat_elapsed = 0
    for node, progress in state.progress.items():
        if node == state.node:
            continue
        message = state.message(HEARTBEAT, node)
        message.commit = min(progress.match, state.commit)
        message.index = state.log.last_index
        message.context = progress.losses
        state.send(message)


def on_heartbeat_reply(state: State, message: Message) -> None:
    """Note that a follower is alive, and find out whether it has lost a message."""
    progress = _hear(state, message)
    if progress is None or message.hint == RECEIVING:
        return  # what it receives may be what it would be sent again
    progress.is_paused = False
    progress.is_drained = message.hint == DRAINED
    if progress.match < state.log.last_index:
        # In REPLICATE, blocks may be in flight or lost. An empty message makes the follower tell.
        _send_append(state, message.source, progress, may_be_empty=True)
    elif state.transfer_target == message.source:
        maybe_send_timeout_now(state)  # it may have been lost


def on_append(state: State, message: Message) -> None:
    """Append blocks of the leader."""
    log = state.log
    if state.needs_copy:
        _refuse(state, message)
        return
    if message.index < state.commit:
        # An old message. Everything that this node has committed matches the leader's log anyway.
        state.matched = max(state.matched, state.commit)
        _reply(state, message.source, state.commit)
        return
    if not log.matches(message.index, message.log_term):
        _refuse(state, message)
        return
    if message.blocks and log.window_bytes >= state.config.follower_bytes_max:
        return  # the disk is behind; the leader sends it again
    log.merge(message.blocks, max(state.matched, state.commit))
    last = message.index + len(message.blocks)
    state.matched = max(state.matched, last)
    state.commit_to(min(message.commit, last))
    _reply(state, message.source, last)


def _reply(state: State, leader: i64, index: i64) -> None:
    """Acknowledge blocks, once they are synced."""
    reply = state.message(APPEND_REPLY, leader)
    reply.index = index
    reply.context = state.hard.losses
    state.send_synced(reply, index)


def _refuse(state: State, message: Message) -> None:
    """Reply where the logs might agree, so that the leader need not go back one by one."""
    log = state.log
    guess = log.find_match_hint(message.index, message.log_term)
    reply = state.message(APPEND_REFUSAL, message.source)
    reply.index = message.index
    reply.hint = guess
    reply.log_term = log.term(guess)
    reply.commit = NEEDS_COPY if state.needs_copy else 0
    reply.context = state.hard.losses
    state.send_synced(reply, 0)


def on_heartbeat(state: State, message: Message) -> None:
    """Answer the leader, and learn the commit index and the end of the leader's log."""
    state.commit_to(min(message.commit, state.matched))
    hard = state.hard
    if message.context == hard.losses and message.commit > state.log.last_index:
        # A leader tells each member of commits up to the last block that it has acknowledged. So
        # the data directory was replaced by an older one.
        hard.note_loss(UNKNOWN_PROMISE)
    if not hard.may_vote and message.context == hard.losses:
        # The leader has heard of the loss. No block that this member had acknowledged, and that
        # was or will be committed for it, is behind the end of the leader's log.
        hard.promised_index = min(hard.promised_index, message.index)
    _tell_alive(state, message.source, DRAINED if state.is_drained else 0)


def tell_receiving(state: State) -> None:
    """Tell the leader that this member is alive, and receives a large message of it."""
    _tell_alive(state, state.leader, RECEIVING)


def _tell_alive(state: State, leader: i64, hint: i64) -> None:
    hard = state.hard
    reply = state.message(HEARTBEAT_REPLY, leader)
    reply.hint = hint
    reply.context = hard.losses
    if hard.losses == state.synced_hard.losses:
        state.send(reply)
    else:
        state.send_synced(reply, 0)


def maybe_vote_again(state: State) -> None:
    """Let a member that had lost blocks vote, once it has all of them from the leader."""
    hard = state.hard
    have = min(state.matched, state.log.synced_index)
    if not hard.may_vote and not state.needs_copy and have >= hard.promised_index:
        hard.may_vote = True
