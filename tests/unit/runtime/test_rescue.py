"""A rescue makes a stopped member a cluster of one, and refuses every other directory."""

import asyncio
from pathlib import Path

import pytest

from leveret.cluster.raft.members import Member, Members, decode_members, encode_members
from leveret.errors import LeveretError
from leveret.journal.records import TERM_BLOCK
from leveret.runtime.rescue import Rescue
from leveret.storage.block_scan import scan_blocks
from leveret.storage.disk import Disk
from leveret.storage.follower_log import open_follower
from leveret.storage.raft_state import RaftState, read_raft_state, write_raft_state

CLUSTER = "c0" * 16
TIME_MS = 1_700_000_000_000
MEMBERS = Members([Member(n, name, name.encode() * 16) for n, name in enumerate("abc", 1)], [], 7)


def make_member(folder: Path, *, number: int = 2, blocks: int = 3) -> None:
    """Make the directory of a member that has followed for some blocks."""
    disk = Disk(folder)
    disk.prepare()
    state = RaftState(CLUSTER, number, "uid")
    state.term = 5
    state.vote = 3
    state.members = encode_members(MEMBERS)
    write_raft_state(disk, state)
    asyncio.run(_write(disk, state, blocks))
    disk.release()


async def _write(disk: Disk, state: RaftState, blocks: int) -> None:
    log, _ = open_follower(disk, asyncio.get_running_loop(), state)
    log.now_ms = lambda: TIME_MS
    for index in range(1, blocks + 1):
        written = asyncio.Event()
        block = log.make_block(index, 4, TERM_BLOCK, b"")
        log.write(None, 0, [(index, 4, TERM_BLOCK, block)], written.set)
        await written.wait()
    log.close()


def test_a_member_becomes_a_cluster_of_one_with_a_new_id(tmp_path: Path) -> None:
    make_member(tmp_path)
    rescue = Rescue(tmp_path)
    assert (rescue.report.node, rescue.report.others) == ("b", ["a", "c"])
    assert (rescue.report.last_block, rescue.report.last_term) == (3, 4)
    assert rescue.report.last_ms == TIME_MS
    cluster = rescue.run()
    rescue.close()
    disk = Disk(tmp_path)
    state = read_raft_state(disk)
    assert state is not None
    assert state.cluster_id == cluster != CLUSTER
    assert (state.number, state.uid, state.term) == (2, "uid", 5)
    scan = scan_blocks(disk, 0)
    assert (scan.last_index, scan.lost) == (4, "")
    members = decode_members(scan.members[-1][1])
    assert (members.voters, members.next_number) == ([2], 7)


def test_a_rescue_can_be_repeated(tmp_path: Path) -> None:
    make_member(tmp_path)
    for others in (["a", "c"], []):
        rescue = Rescue(tmp_path)
        assert rescue.report.others == others
        rescue.run()
        rescue.close()
    assert scan_blocks(Disk(tmp_path), 0).last_index == 5


def test_a_report_alone_changes_no_file(tmp_path: Path) -> None:
    make_member(tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    Rescue(tmp_path).close()
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_directory_in_use_is_refused(tmp_path: Path) -> None:
    make_member(tmp_path)
    disk = Disk(tmp_path)
    disk.prepare()
    with pytest.raises(LeveretError, match="is in use"):
        Rescue(tmp_path)
    disk.release()
    Rescue(tmp_path).close()


def test_directories_that_cannot_be_rescued_are_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        Rescue(tmp_path / "missing")
    with pytest.raises(LeveretError, match="belongs to no cluster"):
        Rescue(tmp_path)
    make_member(tmp_path / "empty", blocks=0)
    with pytest.raises(LeveretError, match="it has no blocks"):
        Rescue(tmp_path / "empty")
    make_member(tmp_path / "removed", number=4)
    with pytest.raises(LeveretError, match="was removed from its cluster"):
        Rescue(tmp_path / "removed")
