"""Send followers the blocks that are not in memory: from log files, or as a copy of the directory.

The core does no I/O. It asks the host to read blocks for a follower, one read at a time for each,
and sends the answer. If the blocks are in no log file any more, or the follower says that its log
has a hole, the core asks the host to copy the directory. Meanwhile the follower gets heartbeats
only. The host tells when the follower begins again, behind the last block of the copy.
"""

from mypy_extensions import i64

from leveret.cluster.raft.block import Block
from leveret.cluster.raft.progress import COPY, Progress
from leveret.cluster.raft.ready import ReadRequest
from leveret.cluster.raft.state import State


def ask_read(state: State, node: i64, progress: Progress) -> None:
    """Ask the host for the next blocks of a follower, if it is not reading for it already."""
    if progress.read is not None:
        return
    last = state.log.window_first - 1
    bytes_max = state.config.append_bytes_max
    request = ReadRequest(node, state.term, progress.next, last, bytes_max)
    progress.read = request
    state.reads.append(request)


def check_read(state: State, request: ReadRequest, blocks: list[Block]) -> None:
    """Check that the blocks are those of the log, without a gap."""
    index = request.first
    for block in blocks:
        assert block.index == index, "a gap in blocks that were read"
        assert block.index <= request.last
        assert block.term == state.log.term(index), "another block than the log has"
        index += 1


def begin_copy(state: State, node: i64, progress: Progress) -> None:
    """Ask the host for a copy of the directory, unless one has just failed."""
    if progress.state == COPY or state.ticks < progress.copy_tick:
        return
    progress.to_copy(state.ticks)
    state.counters.copies += 1
    state.copies.append(int(node))


def end_copy(state: State, node: i64, index: i64) -> None:
    """Go on behind a copy that ends at `index`; 0: it has failed, so probe the log again."""
    progress = state.progress.get(int(node))
    if progress is None or progress.state != COPY:
        return
    if index == 0:
        progress.copy_tick = state.ticks + state.config.election_ticks
        index = state.log.last_index
    progress.to_probe(index + 1, state.ticks)
