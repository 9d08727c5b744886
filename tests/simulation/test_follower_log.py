"""The log of a follower against a model: kills and power losses at every point."""

from __future__ import annotations

from random import Random

import pytest

from leveret.storage.blocks import HEAD_BYTES
from leveret.storage.file_names import index_name, log_name, segments_by_stream
from leveret.storage.raft_state import RaftState, read_raft_state
from leveret.testing.disk import FakeDisk
from tests.simulation.follower_stage import Block, Follower, HandDisk, Leader

SEEDS = range(20)
STEPS = 60


def _require_files(follower: Follower, leader: Leader, last: int, committed: int) -> None:
    """Check that the files are the leader's, byte for byte."""
    contents = follower.disk.contents()
    logs = {name: data for name, data in contents.items() if name.endswith(".log")}
    assert logs == leader.log_files(last, committed)
    segments = {name: data for name, data in contents.items() if name.endswith(".segment")}
    if leader.defines:
        assert segments == leader.segment_files(committed)
    found: dict[int, bytes] = {}
    for stream, firsts in segments_by_stream(list(segments)).items():
        for first in firsts:
            data = segments[f"stream-{stream}-{first}.segment"]
            found[stream] = found.get(stream, b"") + data[HEAD_BYTES:]
    assert found == leader.chunks(committed)


class _Run:
    """A follower, its leader, and the blocks that the follower has acknowledged."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.leader = Leader(self.rng, defines=self.rng.random() < 0.5)
        self.follower = Follower(HandDisk())
        self.blocks: list[Block] = []  # synced by the follower
        self.state = RaftState("test", 2, "uid-2")
        self.state.term = -1  # none was written
        self.committed = 0
        self.settled = 0  # committed, and its effects are done

    def step(self) -> None:
        rng = self.rng
        if rng.random() < 0.15:
            kept = max(self.committed, 2 if self.leader.defines else 0)
            self.leader.begin_term(rng.randint(kept, self.leader.last))
        for _ in range(rng.randint(0, 3)):
            self.leader.add()
        new, state = self._write()
        is_ended = rng.random() < 0.3
        self._commit(len(new))
        before = self.follower.disk.moment
        self.follower.run()
        if is_ended:
            self._restart(rng.randint(before, self.follower.disk.moment), new, state)
        else:
            self.blocks = new
            self.state = state
            self.settled = self.committed
            self._commit(len(new))
            self.follower.run()
            self.settled = self.committed
            assert self.follower.log.synced_index == len(new)
            if new == self.leader.blocks[: len(new)]:  # no blocks of an older leader are left
                _require_files(self.follower, self.leader, len(new), self.committed)
        assert self.follower.faults == []

    def _write(self) -> tuple[list[Block], RaftState]:
        """Send the blocks that the follower lacks; return its log and state after the write."""
        same = 0
        while same < min(len(self.blocks), self.leader.last):
            if self.blocks[same].data != self.leader.blocks[same].data:
                break
            same += 1
        end = self.rng.randint(same, self.leader.last)
        cut_from = same + 1 if same < len(self.blocks) and end > same else 0
        if cut_from == 0:
            same = max(same, len(self.blocks))
            end = max(end, same)
        state: RaftState | None = None
        if self.rng.random() < 0.3:
            state = RaftState("test", 2, "uid-2")
            state.term = self.rng.randrange(1000)
        new = self.blocks[: cut_from - 1 if cut_from else None] + self.leader.blocks[same:end]
        self.follower.write(new[same:], cut_from, state)
        return new, state or self.state

    def _commit(self, last: int) -> None:
        """Commit a part of the log that the follower has synced and shares with the leader."""
        top = self.committed
        while top < min(last, self.follower.log.synced_index, self.leader.last):
            if self.blocks[top : top + 1] != self.leader.blocks[top : top + 1]:
                break
            top += 1
        self.committed = self.rng.randint(self.committed, top)
        self.follower.log.commit_to(self.committed)

    def _restart(self, moment: int, new: list[Block], state: RaftState) -> None:
        """End the process at a moment of the write, and start the follower again."""
        disk: FakeDisk = self.follower.disk.killed(moment)
        if self.rng.random() < 0.6:
            disk = disk.crash(self.rng)
        assert isinstance(disk, HandDisk)
        self.follower = Follower(disk)
        scan = self.follower.scan
        assert scan.lost == ""
        found = read_raft_state(disk)
        term = found.term if found is not None else -1
        assert term in (self.state.term, state.term) or (term == 0 and self.state.term < 0)
        kept = new if self._is_new(scan.last_index, new) else self.blocks
        self.blocks = kept[: scan.last_index]
        assert self.follower.all_blocks() == [b.data for b in self.blocks[self.follower.base :]]
        expected = [row for row in _terms_of(self.blocks) if row[1] <= scan.last_index]
        assert [r for r in scan.terms if r[1] > scan.base_index] == [
            r for r in expected if r[1] > scan.base_index
        ]
        assert _term_at(scan.terms, scan.base_index) == _term_at(expected, scan.base_index)
        self.state.term = term
        self.follower.log.commit_to(self.committed)
        self.follower.run()

    def _is_new(self, last: int, new: list[Block]) -> bool:
        """Return True if the follower's log is a part of the new log, not of the old one."""
        got = self.follower.all_blocks()
        base = self.follower.base
        same = 0
        while same < min(len(self.blocks), len(new)) and self.blocks[same] is new[same]:
            same += 1
        assert last >= same, f"{last} of {same} synced blocks"
        return got == [b.data for b in new][base:last]


def _terms_of(blocks: list[Block]) -> list[tuple[int, int]]:
    rows = [(0, 0)]
    for block in blocks:
        if block.term > rows[-1][0]:
            rows.append((block.term, block.index))
    return rows


def _term_at(rows: list[tuple[int, int]], index: int) -> int:
    return max(term for term, first in rows if first <= index)


@pytest.mark.parametrize("seed", SEEDS)
def test_follower_keeps_what_it_has_synced_and_nothing_else(seed: int) -> None:
    print("seed", seed)
    run = _Run(seed)
    for _ in range(STEPS):
        run.step()


class _KeepsFiles(Random):
    """A source of chance for a leader that removes no log file."""

    def random(self) -> float:
        return 0.9


def test_follower_makes_an_index_of_a_full_file_when_the_next_file_is_full() -> None:
    leader = Leader(_KeepsFiles(1))
    follower = Follower(HandDisk())
    for _ in range(3):
        leader.add_kind("messages")
        leader.add_kind("roll")
    follower.write(leader.blocks)
    follower.run()
    follower.log.commit_to(leader.last)
    follower.run()
    assert follower.faults == []
    names = follower.disk.contents()
    assert [number for number in (1, 2, 3, 4) if log_name(number) in names] == [1, 2, 3, 4]
    assert [number for number in (1, 2, 3, 4) if index_name(number) in names] == [1, 2]
