"""The log of one member as the core knows it. The blocks themselves are in the host's log files.

    base │ base+1 … │ window … synced │ … written │ … last │
    gone │ in files │ in files and in memory      │ to be written
                    └ `window_first`

A table gives the term of every block from the base on. The newest blocks are also in memory (the
window): on a follower those that are not synced, on a leader also those that are not committed, and
those that followers still need. The host writes blocks in the order in which it gets them.
`written_index` is the last block that the host has, `synced_index` the last one that is safe.

The members in force are those of the newest MEMBERS block, committed or not, as in the Raft paper.
So the log keeps every membership that could become valid again when blocks are cut off.

Invariants: base <= synced <= written <= last; terms never fall; blocks are cut off only where they
conflict; blocks after `synced_index` are in the window.
"""

from typing import Final

from mypy_extensions import i64

from leveret.cluster.errors import FalseMessageError
from leveret.cluster.raft.block import NORMAL, Block
from leveret.cluster.raft.members import Members
from leveret.cluster.raft.stored import Stored
from leveret.cluster.raft.terms import TermTable

_DROPPED: Final = Block(0, 0, NORMAL, b"")  # fills the place of a block that was dropped


class RaftLog:
    """Ends, terms and members of the log, and a window of its newest blocks."""

    def __init__(self, stored: Stored) -> None:
        assert stored.base_index <= stored.last_index
        self.base_index: i64 = stored.base_index
        self.last_index: i64 = stored.last_index
        self.written_index: i64 = stored.last_index
        self.synced_index: i64 = stored.last_index
        self.terms = TermTable(stored.terms)
        # The host must cut its log from here on before it writes more; 0: no cut.
        self.cut_from: i64 = 0
        rows = stored.members or [(0, Members([], []))]
        # Members and the index from which on they are in force, ascending.
        self._members_from: list[int] = [index for index, _ in rows]
        self._members: list[Members] = [members for _, members in rows]
        self.window_first: i64 = stored.last_index + 1
        self.window_bytes: i64 = 0
        # The window is `_blocks` from `_start` on. Dropped blocks before it are removed in bulk.
        self._blocks: list[Block] = []
        self._start: i64 = 0

    def last_term(self) -> i64:
        return self.terms.last()

    def term(self, index: i64) -> i64:
        """Return the term of a block, from the base on."""
        assert self.base_index <= index <= self.last_index
        return self.terms.of(index)

    def matches(self, index: i64, term: i64) -> bool:
        """Return True if this index has a block of this term, or is the base with this term."""
        if index < self.base_index or index > self.last_index:
            return False
        return self.terms.of(index) == term

    def is_up_to_date(self, index: i64, term: i64) -> bool:
        """Return True if a log that ends with this block is at least as up to date (§5.4.1)."""
        last_term = self.terms.last()
        return term > last_term or (term == last_term and index >= self.last_index)

    def find_match_hint(self, index: i64, term: i64) -> i64:
        """Return the last index, at most `index`, with a term of at most `term`; else the base."""
        at = min(index, self.last_index)
        return max(self.terms.find_match_hint(at, term), self.base_index)

    def block(self, index: i64) -> Block:
        """Return a block of the window."""
        assert self.window_first <= index <= self.last_index
        return self._blocks[self._start + index - self.window_first]

    def slice(self, first: i64, count_max: i64, bytes_max: i64) -> list[Block]:
        """Return blocks of the window from `first` on, within both limits; at least one block."""
        assert first >= self.window_first
        at = self._start + first - self.window_first
        end = min(at + count_max, i64(len(self._blocks)))
        total: i64 = 0
        here = at
        while here < end:
            total += self._blocks[here].size_bytes()
            if total > bytes_max and here > at:
                break
            here += 1
        return self._blocks[at:here]

    def bytes_between(self, after: i64, last: i64) -> i64:
        """Return the size of all blocks in the window after one index, up to another."""
        total: i64 = 0
        at = max(after + 1, self.window_first)
        while at <= last:
            total += self._blocks[self._start + at - self.window_first].size_bytes()
            at += 1
        return total

    def largest_between(self, after: i64, last: i64) -> i64:
        """Return the size of the largest block in the window after one index, up to another."""
        largest: i64 = 0
        at = max(after + 1, self.window_first)
        while at <= last:
            largest = max(largest, self._blocks[self._start + at - self.window_first].size_bytes())
            at += 1
        return largest

    def members(self) -> Members:
        """Return the members in force."""
        return self._members[-1]

    def members_index(self) -> i64:
        """Return the index since which the members are in force."""
        return self._members_from[-1]

    def members_at(self, index: i64) -> Members:
        """Return the members as of a block, from the last committed change on."""
        at = len(self._members) - 1
        while at > 0 and self._members_from[at] > index:
            at -= 1
        return self._members[at]

    def append(self, block: Block) -> None:
        """Append a block of this node, as leader. The host has it already."""
        assert self.written_index == self.last_index
        assert self.cut_from == 0
        self._append_block(block)
        self.written_index = block.index

    def _append_block(self, block: Block) -> None:
        assert block.index == self.last_index + 1, "a gap in the log"
        self.terms.add(block.index, block.term)
        self._blocks.append(block)
        self.window_bytes += block.size_bytes()
        self.last_index = block.index
        if block.members is not None:
            self._members_from.append(int(block.index))
            self._members.append(block.members)

    def merge(self, blocks: list[Block], matched: i64) -> bool:
        """Merge blocks of the leader; return True if the log was cut.

        The block before the first one matches (§5.3), and so do all blocks up to `matched`.

        Raise `FalseMessageError` if a block that matches would be cut off. Matching blocks stay,
        with all blocks after them: the message may be old, and the blocks
        after it may have been acknowledged since. Only a block of another term cuts the log.
        """
        at = 0
        while at < len(blocks) and self.matches(blocks[at].index, blocks[at].term):
            at += 1
        if at == len(blocks):
            return False
        first = blocks[at].index
        is_cut = first <= self.last_index
        if is_cut:
            if first <= matched:
                raise FalseMessageError(
                    f"block {first} of its log is not the one that it had before, or that was "
                    "committed: has its data directory been replaced by an older one?"
                )
            self._cut(first)
        while at < len(blocks):
            self._append_block(blocks[at])
            at += 1
        return is_cut

    def _cut(self, first: i64) -> None:
        """Remove the blocks from `first` on, and let the host do the same."""
        assert first > self.base_index
        while self.last_index >= max(first, self.window_first):
            self.window_bytes -= self._blocks.pop().size_bytes()
            self.last_index -= 1
        self.last_index = first - 1
        self.window_first = min(self.window_first, first)
        self.terms.cut(first)
        while len(self._members) > 1 and self._members_from[-1] >= first:
            self._members.pop()
            self._members_from.pop()
        if self.written_index >= first:
            self.written_index = first - 1
            self.cut_from = first if self.cut_from == 0 else min(self.cut_from, first)
        self.synced_index = min(self.synced_index, first - 1)

    def unwritten(self) -> list[Block]:
        """Return the blocks that the host must write."""
        if self.written_index == self.last_index:
            return []
        return self._blocks[self._start + self.written_index + 1 - self.window_first :]

    def note_written(self) -> None:
        """Note that the host has taken the cut and the unwritten blocks."""
        self.cut_from = 0
        self.written_index = self.last_index

    def synced_to(self, index: i64, term: i64) -> None:
        """Note that blocks up to this one are synced, unless it was cut off meanwhile.

        A cut that the host does not know yet limits it: the host will remove the blocks from there
        on, even if blocks of the same terms have come again.
        """
        if self.cut_from and index >= self.cut_from:
            return
        if index > self.synced_index and self.matches(index, term):
            self.synced_index = index

    def drop_to(self, index: i64) -> None:
        """Drop blocks up to this one from the window."""
        assert index <= self.synced_index
        while self.window_first <= index:
            self._drop_one()
        self._tidy()

    def shrink_to(self, bytes_max: i64, last: i64) -> None:
        """Drop the oldest blocks, up to `last`, until the window has at most `bytes_max` bytes."""
        assert last <= self.synced_index
        while self.window_bytes > bytes_max and self.window_first <= last:
            self._drop_one()
        self._tidy()

    def _drop_one(self) -> None:
        self.window_bytes -= self._blocks[self._start].size_bytes()
        self._blocks[self._start] = _DROPPED
        self._start += 1
        self.window_first += 1

    def _tidy(self) -> None:
        """Remove the places of dropped blocks, once they are as many as the others."""
        if self._start * 2 >= len(self._blocks):
            del self._blocks[: self._start]
            self._start = 0

    def forget_members(self, commit: i64) -> None:
        """Forget members that a committed change has replaced."""
        while len(self._members) > 1 and self._members_from[1] <= commit:
            self._members.pop(0)
            self._members_from.pop(0)

    def forget(self, base: i64) -> None:
        """Note that blocks up to `base` are not in log files any more."""
        assert self.base_index <= base <= self.synced_index
        self.base_index = base
        self.drop_to(base)
        self.terms.forget(base)
