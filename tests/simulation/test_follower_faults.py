"""Damage, full disks and other faults of a follower: lost blocks never look like a torn write."""

from __future__ import annotations

import errno
from random import Random

import pytest

from leveret.errors import CorruptionError, NewerFormatError, system_reason
from leveret.journal.records import NORMAL_BLOCK, ROLL_BLOCK
from leveret.storage.block_scan import SYNC_BYTES_MAX
from leveret.storage.blocks import HEAD_BYTES, encode_block_head, encode_head
from leveret.storage.checkpoint import write_whole
from leveret.storage.file_names import RAFT, SYNCED, log_name
from leveret.storage.raft_state import (
    UNKNOWN_PROMISE,
    RaftState,
    read_raft_state,
    write_raft_state,
)
from leveret.testing.disk import SYNC, TRUNCATE, WRITE, FakeDisk
from tests.simulation.follower_stage import Block, Follower, HandDisk, Leader


def _filled(seed: int = 1, kinds: tuple[str, ...] = ("messages",) * 6) -> tuple[Leader, Follower]:
    """Return a follower with some blocks, one sync for each, and its leader."""
    leader = Leader(Random(seed))
    for kind in kinds:
        leader.add_kind(kind)
    follower = Follower(HandDisk())
    for block in leader.blocks:
        follower.write([block])
        follower.run()
    return leader, follower


def _again(follower: Follower) -> Follower:
    """Kill a follower, and start it again."""
    return Follower(follower.disk.killed())


def _offset(leader: Leader, index: int, file: int = 1) -> int:
    """Return where a block of the last file begins."""
    first = leader.states[-1].firsts[file]
    return HEAD_BYTES + sum(len(b.data) for b in leader.blocks[first - 1 : index - 1])


def test_damage_in_the_middle_is_a_loss_and_the_log_before_it_stays() -> None:
    leader, follower = _filled()
    disk = follower.disk.killed()
    disk.flip(log_name(1), 8 * (_offset(leader, 5) + 30))
    follower = Follower(disk)
    assert "damaged" in follower.scan.lost
    assert follower.scan.last_index == 4
    state = read_raft_state(disk)
    assert state is not None
    assert (state.losses, state.may_vote, state.promised_index) == (1, False, UNKNOWN_PROMISE)
    follower.write(leader.blocks[4:])
    follower.run()
    assert _again(follower).scan.lost == ""
    assert follower.all_blocks() == [b.data for b in leader.blocks]


@pytest.mark.parametrize("cut_bytes", [0, 1, 40, 400])
def test_missing_end_of_the_log_is_a_loss(cut_bytes: int) -> None:
    leader, follower = _filled()
    disk = follower.disk.killed()
    cut_bytes = cut_bytes or len(leader.blocks[-1].data)  # 0: exactly between two blocks
    disk.put(log_name(1), disk.content(log_name(1))[:-cut_bytes])
    again = Follower(disk)
    assert again.scan.lost
    assert again.scan.last_index < leader.last
    assert again.state.losses == 1
    # The loss is noted once. The next start finds a log without its end, and nothing new.
    assert _again(again).state.losses == 1


@pytest.mark.parametrize("cut_bytes", [0, 1, 40])
def test_torn_end_that_was_never_synced_is_no_loss(cut_bytes: int) -> None:
    leader, follower = _filled()
    follower.write([leader.add_kind("messages"), leader.add_kind("messages")])
    before = follower.disk.copy()
    follower.run()
    data = follower.disk.content(log_name(1))
    end = _offset(leader, leader.last)
    # A power loss keeps the second block of a sync, and loses a part of the first one.
    torn = data[: end - 20] + bytes(20) + data[end : len(data) - cut_bytes]
    before.put(log_name(1), torn)
    again = Follower(before)
    assert again.scan.lost == ""
    assert again.scan.last_index == leader.last - 2
    assert before.content(log_name(1)) == data[: _offset(leader, leader.last - 1)]


def test_block_behind_damage_further_away_than_a_sync_shows_the_damage() -> None:
    leader, follower = _filled()
    start = leader.last
    for _ in range(5):
        leader.add_big(SYNC_BYTES_MAX // 4)
    for block in leader.blocks[start:]:
        follower.write([block])
        follower.run()
    disk = follower.disk.killed()
    disk.remove(SYNCED)
    disk.flip(log_name(1), 8 * (_offset(leader, start) + 30))
    scan = Follower(disk).scan
    assert scan.lost
    assert scan.last_index == start - 1


def test_missing_file_in_the_middle_needs_a_copy_or_cuts_the_log() -> None:
    kinds = ("messages", "roll", "messages", "roll", "messages")
    leader, follower = _filled(kinds=kinds)
    disk = follower.disk.killed()
    disk.remove(log_name(2))
    again = Follower(disk)
    assert again.scan.lost
    assert again.scan.needs_copy or again.scan.last_index < leader.last
    assert not again.state.may_vote


def test_missing_segment_needs_a_copy() -> None:
    leader, follower = _filled(kinds=("chunk", "chunk", "roll", "messages"))
    follower.log.commit_to(leader.last)
    follower.run()
    disk = follower.disk.killed()
    name = next(name for name in disk.names() if name.endswith(".segment"))
    disk.remove(name)
    again = Follower(disk)
    assert again.scan.needs_copy
    assert name in again.scan.lost or "missing" in again.scan.lost
    assert disk.contents().keys() >= {log_name(2)}


@pytest.mark.parametrize("kind", ["crc", "number", "term", "kind"])
def test_block_that_is_not_sound_is_never_written(kind: str) -> None:
    leader, follower = _filled()
    good = leader.add_kind("messages")
    bad = Block.of(good.index, good.term, good.kind, good.data)
    if kind == "crc":
        bad.data = good.data[:-1] + bytes((good.data[-1] ^ 1,))
    elif kind == "number":
        bad.index += 1
    elif kind == "term":
        bad.term += 1
    else:
        bad.kind = ROLL_BLOCK if good.kind == NORMAL_BLOCK else NORMAL_BLOCK
    before = follower.disk.contents()
    told = follower.write([bad])
    follower.run()
    assert told == []
    assert isinstance(follower.faults[0], CorruptionError)
    assert follower.disk.contents() == before


def test_full_disk_stops_the_answers_until_there_is_room() -> None:
    leader, follower = _filled()
    follower.disk.fail_write(1, errno.ENOSPC)
    told = follower.write([leader.add_kind("chunk"), leader.add_kind("roll")])
    later = follower.write([leader.add_kind("messages")])
    follower.run()
    assert (told, later, len(follower.fulls), follower.rooms) == ([], [], 1, 0)
    follower.disk.fail_write(2, errno.ENOSPC)  # the head of the next file
    follower.run_timers()
    follower.disk.fail_write(2, errno.ENOSPC)  # its ROLL block
    follower.run_timers()
    assert (told, later) == ([], [])
    follower.run_timers()
    assert told
    assert later
    assert (len(follower.fulls), follower.rooms, follower.faults) == (1, 1, [])
    follower.disk.fail_write(1, errno.ENOSPC)  # a chunk for its segment
    follower.log.commit_to(leader.last)
    follower.run()
    follower.run_timers()
    contents = follower.disk.contents()
    logs = {name: data for name, data in contents.items() if name.endswith(".log")}
    assert logs == leader.log_files(leader.last, leader.last)
    segments = {name: data for name, data in contents.items() if name.endswith(".segment")}
    assert segments == leader.segment_files(leader.last)


def test_failed_sync_ends_the_log_and_nothing_is_acknowledged() -> None:
    leader, follower = _filled()
    follower.disk.fail_sync(1, errno.ENOSPC)  # not even a full disk makes a second sync safe
    told = follower.write([leader.add_kind("messages")])
    follower.run()
    follower.run_timers()
    assert told == []
    assert len(follower.faults) == 1


def test_removed_directory_ends_the_log_and_nothing_is_acknowledged() -> None:
    """The leader would count a block that is lost with the process."""
    leader, follower = _filled()
    follower.disk.has_folder = False
    told = follower.write([leader.add_kind("messages")])
    later = follower.write([leader.add_kind("messages")])
    follower.run()
    assert (told, later) == ([], [])
    assert [system_reason(fault) for fault in follower.faults] == [
        "the data directory was removed or replaced: bring it back and restart the node"
    ]


def test_directory_that_is_removed_while_no_block_comes_ends_the_log_once() -> None:
    leader, follower = _filled()
    follower.log.check_directory()
    assert follower.faults == []
    follower.disk.has_folder = False
    follower.log.check_directory()
    follower.log.check_directory()
    assert len(follower.faults) == 1
    assert follower.write([leader.add_kind("messages")]) == []
    follower.run()
    assert len(follower.faults) == 1


def test_blocks_that_a_restart_finds_after_a_failed_sync_survive_a_power_loss() -> None:
    """A restarted follower acknowledges them, so they must be on disk and not only in memory."""
    leader, follower = _filled()
    follower.disk.fail_sync()
    follower.write([leader.add_kind("messages")])
    follower.run()
    again = Follower(follower.disk.killed())
    assert again.acked == leader.last
    for seed in range(8):
        assert Follower(again.disk.crash(Random(seed))).acked == leader.last


def test_state_is_on_disk_before_it_is_answered() -> None:
    _, follower = _filled()
    state = RaftState("test", 2, "uid-2")
    state.term, state.vote, state.members = 7, 3, b"members"
    told = follower.write([], state=state)
    follower.run()
    assert told
    lost = follower.disk.crash(Random(3))
    found = read_raft_state(lost)
    assert found is not None
    assert (found.term, found.vote, found.members, found.uid) == (7, 3, b"members", "uid-2")


def test_state_that_a_start_has_read_is_not_forgotten_after_a_power_loss() -> None:
    disk = HandDisk()
    state = RaftState("test", 2, "uid-2")
    write_raft_state(disk, state)
    state.term = 5
    before = disk.moment
    write_raft_state(disk, state)
    for moment in range(before, disk.moment):
        killed = disk.killed(moment)
        found = read_raft_state(killed)
        assert found is not None
        for seed in range(6):
            later = read_raft_state(killed.crash(Random(seed)))
            assert later is not None
            assert later.term == found.term


def test_cut_is_synced_before_anything_is_written_behind_it() -> None:
    leader, follower = _filled()
    leader.begin_term(4)
    before = follower.disk.moment
    follower.write(leader.blocks[4:], cut_from=5)
    follower.run()
    changes = follower.disk.changes[before:]
    (cut,) = [change for change in changes if change.kind == TRUNCATE]
    log = [change.kind for change in changes if change.number == cut.number]
    assert log == [TRUNCATE, SYNC, WRITE, SYNC]


def test_nothing_is_removed_before_the_roll_block_is_committed() -> None:
    seed = 9
    kinds = ("messages", "roll", "messages", "roll", "roll")
    while True:  # until the last ROLL block lets a file go
        leader, follower = _filled(seed, kinds)
        before = set(leader.log_files(leader.last, leader.last - 1))
        after = set(leader.log_files(leader.last, leader.last))
        if before != after:
            break
        seed += 1
    assert len([name for name in follower.disk.names() if name.endswith(".log")]) == 4
    for committed, kept in ((leader.last - 1, before), (leader.last, after)):
        follower.log.commit_to(committed)
        follower.run()
        assert {name for name in follower.disk.names() if name.endswith(".log")} == kept


def test_close_finishes_the_writes_and_answers_them() -> None:
    leader, follower = _filled()
    told = follower.write([leader.add_kind("messages")])
    follower.log.close()
    follower.run()
    assert told
    assert _again(follower).scan.last_index == leader.last


def test_reads_of_blocks_over_several_files() -> None:
    leader, follower = _filled(kinds=("messages", "roll", "messages", "roll", "messages"))
    expected = [(b.term, b.kind, b.data) for b in leader.blocks]
    for first in range(1, leader.last + 1):
        for size in (1, 400, 1 << 20):
            found: list[tuple[int, int, bytes]] = []
            while more := follower.read(first + len(found), leader.last, size):
                assert len(more) == 1 or sum(len(data) for _, _, data in more) <= size
                found += more
            assert found == expected[first - 1 :]
    assert follower.read(3, 3) == expected[2:3]
    assert follower.read(leader.last + 1, leader.last + 9) == []
    follower.disk.remove(log_name(1))
    assert follower.read(1, leader.last) == []


def test_blocks_of_a_node_alone_have_term_0() -> None:
    disk = HandDisk()
    data = encode_block_head([bytes(5)], 1) + bytes(5)
    disk.put(log_name(1), encode_head(1) + data)
    follower = Follower(disk)
    assert (follower.scan.last_index, follower.scan.terms) == (1, [(0, 0)])
    assert follower.scan.base_index == 1  # a new follower needs the checkpoint, too


def test_state_that_cannot_be_read_is_refused_with_the_reason() -> None:
    disk = FakeDisk()
    assert read_raft_state(disk) is None
    write_raft_state(disk, RaftState("c", 1, "u"))
    disk.flip(RAFT, 8 * 50)
    with pytest.raises(CorruptionError, match="raft is damaged: remove this node"):
        read_raft_state(disk)
    write_whole(disk, RAFT, 0, [(9).to_bytes(4, "big") + bytes(100)])
    with pytest.raises(NewerFormatError, match="format 9"):
        read_raft_state(disk)
