"""The log of a member against a plain list of all its blocks, under random work."""

import random

import pytest

from leveret.cluster.errors import FalseMessageError
from leveret.cluster.raft.block import NORMAL, Block
from leveret.cluster.raft.log import RaftLog
from leveret.cluster.raft.stored import HardState, Stored
from leveret.cluster.raft.terms import TermTable


class Model:
    """All blocks, and the log files that a host would have."""

    def __init__(self) -> None:
        self.blocks: list[Block] = []  # from index 1 on
        self.files: list[Block] = []
        self.log = RaftLog(Stored(HardState()))

    @property
    def last_term(self) -> int:
        return self.blocks[-1].term if self.blocks else 0

    def merge(self, rng: random.Random) -> None:
        """Blocks of a leader, which overlap the log, and may conflict from somewhere on."""
        log = self.log
        before = rng.randint(log.synced_index // 2 + log.base_index // 2, len(self.blocks))
        before = max(before, log.base_index)
        same = self.blocks[before : before + rng.randint(0, 3)]
        term = self.last_term + rng.choice((0, 1))
        first = before + len(same) + 1
        new = [Block(first + at, term, NORMAL, bytes(rng.randint(0, 30))) for at in range(3)]
        is_conflict = first <= len(self.blocks) and term > self.blocks[first - 1].term
        if first <= len(self.blocks) and not is_conflict:
            new = []
        assert log.merge([*same, *new], log.base_index) == is_conflict
        if new:
            self.blocks[first - 1 :] = new

    def write(self) -> None:
        log = self.log
        if log.cut_from:
            del self.files[log.cut_from - 1 :]
        self.files += log.unwritten()
        log.note_written()

    def work(self, rng: random.Random) -> None:
        log = self.log
        kind = rng.randrange(6)
        if kind < 2:
            self.merge(rng)
        elif kind == 2:
            self.write()
        elif kind == 3 and log.written_index and not log.cut_from:
            log.synced_to(log.written_index, log.term(log.written_index))
        elif kind == 4:
            log.drop_to(rng.randint(0, log.synced_index))
        elif rng.random() < 0.3 and log.synced_index:
            log.forget(rng.randint(log.base_index, log.synced_index))

    def check(self, rng: random.Random) -> None:
        log = self.log
        assert log.last_index == len(self.blocks)
        assert log.last_term() == self.last_term
        for index in range(max(log.base_index, 1), log.last_index + 1):
            assert log.term(index) == self.blocks[index - 1].term
        window = self.blocks[log.window_first - 1 :]
        assert log.window_bytes == sum(block.size_bytes() for block in window)
        for block in window:
            assert log.block(block.index) is block
        assert log.window_first <= log.synced_index + 1
        assert self.files[: log.written_index] == self.blocks[: log.written_index]
        term = rng.randint(0, self.last_term)
        found = [block.index for block in self.blocks if block.term <= term]
        hint = log.find_match_hint(log.last_index, term)
        assert hint == max(found[-1] if found else 0, log.base_index)


def test_log_is_what_a_list_of_all_blocks_says(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(20):
        model = Model()
        for _ in range(300):
            model.work(rng)
            model.check(rng)


def test_blocks_that_are_committed_are_never_cut_off() -> None:
    log = RaftLog(Stored(HardState()))
    log.merge([Block(1, 1, NORMAL, b"a"), Block(2, 1, NORMAL, b"b")], 0)
    with pytest.raises(FalseMessageError, match="block 2 of its log is not the one"):
        log.merge([Block(2, 2, NORMAL, b"c")], 2)
    assert (log.last_index, log.last_term()) == (2, 1)


def test_terms_that_do_not_grow_are_no_table() -> None:
    with pytest.raises(AssertionError):
        TermTable([(2, 1), (1, 5)])
    with pytest.raises(AssertionError):
        TermTable([(1, 5), (2, 5)])
