"""Work for the host of a member: state and blocks to write and sync, and blocks to read.

The host writes a `Ready` behind everything that it has written before, syncs it, and calls
`advance`. Only then messages leave that rely on it.
"""

from mypy_extensions import i64

from leveret.cluster.raft.block import Block
from leveret.cluster.raft.messages import Message
from leveret.cluster.raft.stored import HardState


class Ready:
    """One write of a member. There is one at a time; later changes gather for the next."""

    def __init__(self, hard: HardState, last_index: i64, last_term: i64) -> None:
        self.hard = hard
        self.is_hard_changed = False  # write `hard`, too
        self.cut_from: i64 = 0  # cut the stored log from this block on, before all else; 0: no cut
        self.blocks: list[Block] = []  # to be written behind the last block
        # When this is synced, everything up to this block is: blocks of `append` included.
        self.last_index: i64 = last_index
        self.last_term: i64 = last_term
        self.messages: list[Message] = []  # leave when this is synced; the core keeps them


class ReadRequest:
    """Blocks of the log files that a follower needs. The answer may have fewer blocks."""

    def __init__(self, node: i64, term: i64, first: i64, last: i64, bytes_max: i64) -> None:
        self.node: i64 = node
        self.term: i64 = term  # of the leader that asks
        self.first: i64 = first
        self.last: i64 = last
        self.bytes_max: i64 = bytes_max  # one block at least, whatever its size
