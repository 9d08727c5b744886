"""The log of a node of a cluster, in both roles, as the Raft member of the node uses it.

- `FollowingLog`  while another node leads: writes the blocks of the leader
- `LeadingLog`    while this node leads: its broker's own log, which writes by itself

It is compiled, because every block passes it.
"""

import asyncio
import logging
from collections.abc import Callable
from functools import partial

from leveret.cluster.raft.block import MEMBERS, Block
from leveret.cluster.raft.members import decode_members
from leveret.cluster.raft.stored import HardState, Stored
from leveret.errors import ConfigError
from leveret.journal.cluster_records import maybe_stamp
from leveret.journal.records import RECORD_HEAD_BYTES, STAMP_BYTES
from leveret.storage.block_reader import BlockReader, FoundBlock
from leveret.storage.block_scan import BlockScan
from leveret.storage.blocks import BLOCK_HEAD_BYTES
from leveret.storage.disk import Disk
from leveret.storage.follower_log import block_fault, open_follower
from leveret.storage.raft_state import RaftState
from leveret.storage.replicated_log import ReplicatedLog

log = logging.getLogger(__name__)

Blocks = Callable[[list[Block]], None]
Done = Callable[[], None]


class FollowingLog:
    """The log of a node that follows."""

    def __init__(
        self,
        disk: Disk,
        loop: asyncio.AbstractEventLoop,
        state: RaftState,
        now_ms: Callable[[], int],
    ) -> None:
        """Open the directory. `state` has the identity of the node, and its hard state."""
        self.state = state
        self.log, self.scan = open_follower(disk, loop, state)
        self.log.now_ms = now_ms
        if self.scan.lost:
            log.warning(
                "this node has lost blocks of its log that were on disk: %s: it gets them from the "
                "leader, and does not vote until then; if nobody changed its files, look for "
                "faults of this disk",
                self.scan.lost,
            )

    def stored(self) -> Stored:
        """Return the state with which the Raft member begins."""
        return _stored(self.state, self.scan)

    def require_node(self, name: str) -> None:
        """Close the log and raise ConfigError if the directory belongs to another node."""
        number = self.state.number
        named = [m.members[number].name for _, m in self.stored().members if m.has(number)]
        if named and named[-1] != name:
            self.close()
            raise ConfigError(
                f"the data directory belongs to node {named[-1]}, not to node {name}: "
                "correct --node or --data"
            )

    def make_block(self, index: int, term: int, kind: int, payload: bytes) -> bytes:
        """Encode a block that the log itself makes. Its time is not before the newest block's."""
        return self.log.make_block(index, term, kind, payload)

    def write(self, hard: HardState | None, cut_from: int, blocks: list[Block], done: Done) -> None:
        """Write and sync a hard state, cut the log from a block on, and write blocks."""
        if hard is not None:
            put_hard(self.state, hard)
        self.log.write(
            None if hard is None else self.state,
            cut_from,
            [(int(b.index), int(b.term), int(b.kind), b.data) for b in blocks],
            done,
        )

    def block_fault(self, block: Block) -> str:
        """Return why a block that has arrived must not be written; empty if it is sound."""
        return block_fault(int(block.index), int(block.term), int(block.kind), block.data)

    def write_identity(self, cluster: bytes, number: int, members: bytes, done: Done) -> None:
        """Write and sync which cluster this node belongs to, its number, and the first members."""
        self.state.cluster_id = cluster.hex()
        self.state.number = number
        self.state.members = members
        self.log.write(self.state, 0, [], done)

    def commit_to(self, index: int) -> None:
        self.log.commit_to(index)

    def read_blocks(self, first: int, last: int, bytes_max: int, done: Blocks) -> None:
        self.log.read_blocks(first, last, bytes_max, partial(_on_read, first, done))

    def close(self) -> None:
        """Finish all writes. Blocks until that is done."""
        self.log.close()


class LeadingLog:
    """The log of a node that leads."""

    def __init__(self, log: ReplicatedLog, disk: Disk, loop: asyncio.AbstractEventLoop) -> None:
        self._log = log
        self._reader = BlockReader(disk, loop)

    def commit_to(self, index: int) -> None:
        self._log.commit_to(index)

    def read_blocks(self, first: int, last: int, bytes_max: int, done: Blocks) -> None:
        self._reader.read_blocks(first, last, bytes_max, partial(_on_read, first, done))

    def append_members(self, members: bytes) -> None:
        """Make a block of members behind all blocks so far."""
        self._log.write_members(members)

    def resume(self) -> None:
        """Write the blocks that waited while this node was handing the lead over."""
        self._log.start_writing()

    def close(self) -> None:
        """Stop reading. The log itself belongs to the broker."""
        self._reader.close()


def _on_read(first: int, done: Blocks, found: list[FoundBlock]) -> None:
    done(_blocks(first, found))


def _blocks(first: int, found: list[FoundBlock]) -> list[Block]:
    """Return blocks that were read, in the form of Raft."""
    made: list[Block] = []
    for at, (term, kind, data) in enumerate(found):
        members = decode_members(_members_of(data)) if kind == MEMBERS else None
        made.append(Block(first + at, term, kind, data, members))
    return made


def _members_of(data: bytes) -> bytes:
    """Return the payload of the MEMBERS record of a block, which follows its STAMP."""
    assert maybe_stamp(data, BLOCK_HEAD_BYTES, len(data)) is not None
    return data[BLOCK_HEAD_BYTES + STAMP_BYTES + RECORD_HEAD_BYTES :]


def put_hard(state: RaftState, hard: HardState) -> None:
    """Put the hard state of the Raft member into the state that is written."""
    state.term = int(hard.term)
    state.vote = int(hard.vote)
    state.losses = int(hard.losses)
    state.may_vote = hard.may_vote
    state.promised_index = int(hard.promised_index)


def _stored(state: RaftState, scan: BlockScan) -> Stored:
    hard = HardState(state.term, state.vote)
    hard.losses = state.losses
    hard.may_vote = state.may_vote
    hard.promised_index = state.promised_index
    stored = Stored(hard)
    stored.base_index = scan.base_index
    stored.last_index = scan.last_index
    stored.commit = scan.committed
    stored.terms = list(scan.terms)
    rows = scan.members or ([(0, state.members)] if state.members else [])
    stored.members = [(index, decode_members(data)) for index, data in rows if data]
    stored.needs_copy = scan.needs_copy
    return stored
