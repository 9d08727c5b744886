"""A copy of the leader's directory: kills at every point leave the old directory or the new one."""

from __future__ import annotations

from random import Random

import pytest

from leveret.errors import CorruptionError
from leveret.storage.directory_copy import CopySource, CopyTarget, require_file_name
from leveret.storage.file_names import COPY_ENDING, INSTALL, log_name, numbers
from leveret.storage.raft_state import RaftState, read_raft_state, write_raft_state
from leveret.storage.synced_mark import read_mark
from leveret.testing.disk import FakeDisk
from tests.simulation.follower_stage import Follower, HandDisk, Leader, without_membership
from tests.simulation.replicated_stage import MEMBERS, InlineDisk, ReplicatedStage
from tests.simulation.storage_stage import Client, StorageStage, bodies_in

SEEDS = range(8)


def _leading(seed: int) -> tuple[Leader, Follower]:
    """Return a member with all blocks of a log with several files, all committed."""
    leader = Leader(Random(seed))
    for _ in range(25):
        leader.add()
    leader.add_kind("roll")
    member = Follower(HandDisk())
    member.write(leader.blocks)
    member.run()
    member.log.commit_to(leader.last)
    member.run()
    for kind in ("chunk", "chunk", "trim", "chunk", "trim", "chunk"):  # behind the ROLL block
        leader.add_kind(kind)
    member.write(leader.blocks[-6:])
    member.run()
    member.log.commit_to(leader.last)
    member.run()
    return leader, member


def _lagging(seed: int) -> HandDisk:
    """Return the disk of a member with an older log of its own."""
    leader = Leader(Random(seed))
    for _ in range(8):
        leader.add()
    member = Follower(HandDisk())
    state = RaftState("test", 2, "uid-2")
    state.term, state.vote = 9, 1
    member.write(leader.blocks, state=state)
    member.run()
    member.log.commit_to(leader.last - 2)
    member.run()
    member.log.close()
    return member.disk


def _receive(source: CopySource, target: CopyTarget, size: int) -> list[str]:
    """Copy all files that the target does not have; return their names."""
    sent: list[str] = []
    have = target.received()
    for place, file in enumerate(source.files):
        if have.get(file.name) == (file.size, source.checksum(place)):
            continue
        sent.append(file.name)
        target.begin(file.name)
        at = 0
        while data := source.read(place, at, size):
            target.put([memoryview(data)])
            at += len(data)
        assert target.end(file.size, source.checksum(place))
    return sent


def _roll_file(disk: FakeDisk) -> int:
    return numbers(disk.names(), ".log")[-1]


@pytest.mark.parametrize("seed", SEEDS)
def test_kill_at_any_point_leaves_the_old_directory_or_the_new_one(seed: int) -> None:
    print("seed", seed)
    rng = Random(seed)
    leader, member = _leading(seed)
    source = CopySource(member.disk, _roll_file(member.disk), has_later_blocks=True)
    disk = _lagging(seed + 1000)
    old = {n: c for n, c in disk.contents().items() if n.endswith((".log", ".segment"))}
    target = CopyTarget(disk)
    before = disk.moment
    _receive(source, target, 300)
    state = read_raft_state(disk)
    assert state is not None
    target.install(source.number, source.index, [f.name for f in source.files], state)
    for _ in range(25):
        moment = rng.randint(before, disk.moment)
        lost = disk.killed(moment)
        if rng.random() < 0.6:
            lost = lost.crash(rng)
        again = Follower(lost)
        found = read_raft_state(lost)
        assert found is not None
        assert (found.term, found.vote) == (9, 1)
        assert again.scan.lost == ""
        assert INSTALL not in lost.names()
        again.run()
        names = {n: c for n, c in lost.contents().items() if n.endswith((".log", ".segment"))}
        if again.scan.last_index < source.index:
            assert {n: c for n, c in names.items() if n.endswith(".log")} == {
                n: c for n, c in old.items() if n.endswith(".log")
            }
            continue
        assert again.scan.committed == source.index
        again.write(leader.blocks[again.scan.last_index :])
        again.run()
        again.log.commit_to(leader.last)
        again.run()
        assert again.faults == []
        copied = member.disk.contents()
        files = lost.contents()
        for name in names:
            assert files[name] == copied[name], name
        segments = {n: c for n, c in files.items() if n.endswith(".segment")}
        assert segments == leader.segment_files(leader.last)


def test_copy_that_begins_while_files_are_removed_can_be_recovered() -> None:
    stage = ReplicatedStage(InlineDisk(), file_bytes=4000)
    client = Client(stage)
    client.declare("q")
    for number in range(30):
        client.publish("q", b"%d" % number + bytes(500))
        stage.commit_all()
    log = stage.store.replicated
    assert log is not None
    log.hold_files()  # for another copy
    while client.get("q", no_ack=True) is not None:
        pass
    stage.run_timers()
    stage.commit_all()
    files = numbers(stage.disk.names(), ".log")
    log.release_files()  # the thread removes files, and has not reported it yet
    assert len(numbers(stage.disk.names(), ".log")) < len(files)
    sources: list[CopySource] = []

    def on_rolled(number: int) -> None:
        log.hold_files()
        sources.append(CopySource(stage.disk, number, has_later_blocks=True))

    log.roll(on_rolled)  # waits for the thread
    log.write_members(MEMBERS)  # does not, and the new file goes before it
    stage.commit_all()
    source = sources[0]
    disk = HandDisk()
    state = RaftState("test", 2, "uid")
    write_raft_state(disk, state)
    target = CopyTarget(disk)
    _receive(source, target, 1 << 20)
    target.install(source.number, source.index, [f.name for f in source.files], state)
    again = Follower(disk)
    assert (again.scan.lost, again.scan.committed) == ("", source.index)
    assert again.scan.last_index == log.taken_block


@pytest.mark.parametrize("ending", ["whole", "torn"])
@pytest.mark.parametrize("change", ["trim", "delete"])
def test_copy_of_a_directory_without_segments_that_its_roll_block_lists(
    change: str, ending: str
) -> None:
    leader = Leader(Random(1))
    for _ in range(12):
        leader.add_kind("chunk")
    leader.add_kind("roll")
    leader.add_kind("chunk")
    leader.add_kind(change)
    member = Follower(HandDisk())
    member.write(leader.blocks)
    member.run()
    member.log.commit_to(leader.last - 1)
    member.run()
    before = member.disk.names()
    member.log.commit_to(leader.last)
    member.run()
    assert any(n.endswith(".segment") for n in set(before).difference(member.disk.names()))
    leader.add_kind("messages")
    if ending == "torn":  # the source is being written
        name = log_name(_roll_file(member.disk))
        member.disk.put(name, member.disk.contents()[name] + leader.blocks[-1].data[:-1])
    else:
        member.write(leader.blocks[-1:])
        member.run()
    source = CopySource(member.disk, _roll_file(member.disk), has_later_blocks=True)
    disk = _lagging(2)
    target = CopyTarget(disk)
    _receive(source, target, 300)
    state = read_raft_state(disk)
    assert state is not None
    target.install(source.number, source.index, [f.name for f in source.files], state)
    again = Follower(disk)
    assert again.scan.lost == ""
    assert read_mark(disk) == again.scan.last_index == leader.last - (ending == "torn")
    again.write(leader.blocks[again.scan.last_index :])
    again.run()
    again.log.commit_to(leader.last)
    again.run()
    assert again.faults == []
    segments = {n: c for n, c in disk.contents().items() if n.endswith(".segment")}
    assert segments == leader.segment_files(leader.last)


def test_mixed_directory_is_refused_by_a_plain_start() -> None:
    """Try each point of an installation: a node that knows nothing of it must not start."""
    stage = ReplicatedStage(InlineDisk(), file_bytes=4000)
    client = Client(stage)
    client.declare("q")
    bodies = [b"%d" % number + bytes(500) for number in range(30)]
    for body in bodies:
        client.publish("q", body)
        stage.commit_all()
    source = CopySource(stage.disk, _roll_file(stage.disk), has_later_blocks=True)
    disk = HandDisk()
    target = CopyTarget(disk)
    write_raft_state(disk, RaftState("test", 2, "uid"))
    _receive(source, target, 1 << 20)
    began = disk.moment
    target.install(
        source.number, source.index, [f.name for f in source.files], RaftState("test", 2, "uid")
    )
    expected = bodies_in(StorageStage(without_membership(disk)), "q")
    assert len(expected) > 10
    whole = 0
    for moment in range(began, disk.moment + 1):
        plain = without_membership(disk.killed(moment))
        has_log = any(name.endswith(".log") for name in plain.names())
        try:
            started = StorageStage(plain)
        except CorruptionError:
            continue
        if has_log:
            assert bodies_in(started, "q") == expected
            whole += 1
        started.abandon()
    assert whole


def test_copy_goes_on_with_the_files_that_are_missing() -> None:
    _, member = _leading(3)
    source = CopySource(member.disk, _roll_file(member.disk), has_later_blocks=True)
    disk = HandDisk()
    target = CopyTarget(disk)
    target.begin(source.files[0].name)
    target.put([memoryview(source.read(0, 0))])
    assert target.end(source.files[0].size, source.checksum(0))
    target.begin(source.files[1].name)
    target.put([memoryview(b"half of it")])
    again = CopyTarget(disk.killed())
    assert list(again.received()) == [source.files[0].name]
    assert _receive(source, again, 100) == [file.name for file in source.files[1:]]


def test_file_with_a_wrong_checksum_is_dropped() -> None:
    _, member = _leading(3)
    source = CopySource(member.disk, _roll_file(member.disk), has_later_blocks=True)
    disk = HandDisk()
    target = CopyTarget(disk)
    target.begin(source.files[0].name)
    target.put([memoryview(source.read(0, 0)[:-1] + b"\x00")])
    assert not target.end(source.files[0].size, source.checksum(0) ^ 1)
    assert target.received() == {}
    with pytest.raises(CorruptionError, match="the copy has no file"):
        target.install(source.number, source.index, [source.files[0].name], RaftState("c", 1, "u"))
    assert disk.names() == []


@pytest.mark.parametrize(
    "name", ["raft", "../x.log", "lock", "synced", "install", "1.log", "a/0000000000000001.log", ""]
)
def test_name_of_another_file_is_refused(name: str) -> None:
    with pytest.raises(CorruptionError):
        require_file_name(name)
    with pytest.raises(CorruptionError):
        CopyTarget(HandDisk()).begin(name)


def test_installation_whose_files_are_missing_needs_another_copy() -> None:
    _, member = _leading(5)
    source = CopySource(member.disk, _roll_file(member.disk), has_later_blocks=True)
    disk = _lagging(6)
    target = CopyTarget(disk)
    _receive(source, target, 1 << 20)
    state = read_raft_state(disk)
    assert state is not None
    before = disk.moment
    target.install(source.number, source.index, [f.name for f in source.files], state)
    moment = next(m for m in range(before, disk.moment) if INSTALL in disk.killed(m).names())
    torn = disk.killed(moment)
    torn.remove(source.files[1].name + COPY_ENDING)
    again = Follower(torn)
    assert again.scan.needs_copy
    assert source.files[1].name in again.scan.lost
    assert not again.state.may_vote
