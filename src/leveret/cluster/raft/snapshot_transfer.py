"""Transfer of snapshots between members: sent in chunks, assembled, and installed.

The leader sends a chunk and waits for the reply, which names the offset that the follower wants
next. A lost chunk is sent again with the next heartbeat. A complete snapshot is acknowledged like
entries, by the index up to which the logs agree, and only after it was synced.
"""

from mypy_extensions import i64

from leveret.cluster.raft.messages import APPEND_REPLY, SNAPSHOT, SNAPSHOT_REPLY, Message
from leveret.cluster.raft.progress import SNAPSHOT as SENDING
from leveret.cluster.raft.progress import Progress
from leveret.cluster.raft.snapshot import IncomingSnapshot, Snapshot, decode_snapshot
from leveret.cluster.raft.state import State
from leveret.errors import FieldSyntaxError


def begin_snapshot(state: State, node: i64, progress: Progress) -> None:
    """Begin to send a snapshot to a follower that needs removed entries."""
    snapshot = state.log.snapshot
    assert snapshot is not None, "entries are gone without a snapshot"
    progress.to_snapshot(snapshot)
    send_chunk(state, node, progress)


def send_chunk(state: State, node: i64, progress: Progress) -> None:
    snapshot = progress.snapshot
    assert snapshot is not None
    blob = snapshot.blob()
    message = state.message(SNAPSHOT, node)
    message.index = snapshot.index
    message.log_term = snapshot.term
    message.commit = len(blob)
    message.hint = progress.offset
    message.data = blob[progress.offset : progress.offset + state.config.chunk_bytes]
    state.send(message)


def on_snapshot_reply(state: State, message: Message) -> None:
    """Send the chunk that the follower asks for."""
    progress = state.progress.get(message.source)
    if progress is None or progress.state != SENDING:
        return
    snapshot = progress.snapshot
    assert snapshot is not None
    progress.is_active = True
    if snapshot.index != message.index or snapshot.term != message.log_term:
        return
    if message.hint == progress.offset or message.hint >= len(snapshot.blob()):
        return
    progress.offset = message.hint
    send_chunk(state, message.source, progress)


def on_snapshot(state: State, message: Message) -> None:
    """Handle a chunk of the leader's snapshot."""
    if message.index <= state.commit:
        _acknowledge(state, message.source, state.commit)
        return
    incoming = state.incoming
    if incoming is None or not incoming.is_of(message.index, message.log_term, message.commit):
        if message.commit > state.config.snapshot_bytes_max:
            return
        incoming = IncomingSnapshot(message.index, message.log_term, message.commit)
        state.incoming = incoming
    incoming.add(message.hint, message.data)
    if not incoming.is_complete():
        reply = state.message(SNAPSHOT_REPLY, message.source)
        reply.index = message.index
        reply.log_term = message.log_term
        reply.hint = len(incoming.data)
        state.send(reply)
        return
    state.incoming = None
    snapshot = decode_snapshot(bytes(incoming.data))
    if snapshot.index != message.index or snapshot.term != message.log_term:
        raise FieldSyntaxError(f"a snapshot at {snapshot.index}, announced for {message.index}")
    _install(state, snapshot)
    _acknowledge(state, message.source, state.commit)


def _install(state: State, snapshot: Snapshot) -> None:
    if state.log.matches(snapshot.index, snapshot.term):
        # The log already has all of it. Later entries may be acknowledged and must stay.
        state.commit_to(snapshot.index)
        return
    state.log.restore(snapshot)
    state.commit = snapshot.index
    state.applying = snapshot.index


def _acknowledge(state: State, leader: i64, index: i64) -> None:
    reply = state.message(APPEND_REPLY, leader)
    reply.index = index
    state.send(reply)
