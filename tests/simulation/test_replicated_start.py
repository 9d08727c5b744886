"""Starts from the directory of a leader: where they begin, and what they do about damage."""

import pytest

from leveret.errors import CorruptionError
from leveret.journal.records import ROLL_BLOCK
from leveret.storage.blocks import BLOCK_HEAD_BYTES, HEAD_BYTES
from leveret.storage.file_names import log_name, numbers, settled_name
from leveret.storage.recovery_start import find_start
from leveret.storage.repair import repair
from leveret.testing.disk import FakeDisk
from tests.simulation.replicated_stage import InlineDisk, ReplicatedStage, blocks_of
from tests.simulation.storage_model import read_all
from tests.simulation.storage_stage import Client, StorageStage, bodies_in

FILE_BYTES = 3000


class _Leader:
    """A leader with messages in several files; the first `settled` of them are committed."""

    def __init__(self, *, settled: int, more: int) -> None:
        self.disk = InlineDisk()
        self.stage = ReplicatedStage(self.disk, file_bytes=FILE_BYTES)
        client = Client(self.stage)
        client.declare("q")
        client.declare("s", **{"x-queue-type": "stream"})
        self.stage.commit_all()
        self.stage.is_committing = False
        self.bodies: list[bytes] = []
        self._publish(client, settled)
        self.stage.is_committing = True
        self.stage.commit_all()
        self.stage.is_committing = False
        self._publish(client, more)
        self.stage.is_committing = True

    def _publish(self, client: Client, count: int) -> None:
        for _ in range(count):
            body = b"%d" % len(self.bodies) + bytes(500)
            self.bodies.append(body)
            client.publish("q", body)
            client.publish("s", body)

    def check(self, disk: FakeDisk) -> StorageStage:
        """Start, and check that everything is there."""
        stage = StorageStage(disk, file_bytes=FILE_BYTES)
        assert bodies_in(stage, "q") == self.bodies
        assert [body for _, body in read_all(stage, "s")] == self.bodies
        assert stage.broker.turn.faults == []
        return stage


def _roll_place(disk: FakeDisk, number: int) -> tuple[int, int]:
    """Return start and end of the ROLL block of a file."""
    places = [(start, end) for name, start, end, _ in blocks_of(disk) if name == log_name(number)]
    assert places[0][0] == HEAD_BYTES
    return places[0]


def test_start_goes_back_to_the_last_settled_file() -> None:
    leader = _Leader(settled=12, more=12)
    disk = leader.disk.killed()
    (settled,) = numbers(disk.names(), ".settled")
    assert numbers(disk.names(), ".log")[-1] > settled + 1
    assert find_start(disk, disk.names()).number == settled
    assert leader.check(disk).found.covered == settled


def test_start_without_the_mark_goes_back_to_the_first_file_without_a_gap() -> None:
    leader = _Leader(settled=12, more=4)
    disk = leader.disk.killed()
    for number in numbers(disk.names(), ".settled"):
        disk.remove(settled_name(number))
    start = find_start(disk, disk.names()).number
    assert start - 1 not in numbers(disk.names(), ".log")
    leader.check(disk)


def test_files_are_those_that_the_newest_roll_block_lists() -> None:
    leader = _Leader(settled=12, more=12)
    disk = leader.disk.killed()
    first = numbers(disk.names(), ".log")[0]
    disk.remove(log_name(first))
    stage = StorageStage(disk, file_bytes=FILE_BYTES)  # its index tells which messages are missing
    assert stage.found.missing == {first}
    assert any(log_name(first) in loss for loss in stage.found.losses)


@pytest.mark.parametrize("more", [0, 4])
def test_damaged_roll_block_is_refused_and_a_repair_keeps_the_messages(more: int) -> None:
    leader = _Leader(settled=12, more=more)
    disk = leader.disk.killed()
    (settled,) = numbers(disk.names(), ".settled")
    start, end = _roll_place(disk, settled)
    disk.flip(log_name(settled), 8 * ((start + end) // 2))
    with pytest.raises(CorruptionError, match="ctl repair"):
        StorageStage(disk.copy(), file_bytes=FILE_BYTES)
    report = repair(disk)
    assert list(report.ranges) == [log_name(settled)]
    assert numbers(disk.names(), ".checkpoint")
    leader.check(disk.copy())
    assert repair(disk, dry_run=True).is_sound


def test_damaged_roll_block_without_the_file_before_is_refused_and_repaired() -> None:
    leader = _Leader(settled=12, more=0)
    leader.stage.commit_all()
    client = Client(leader.stage)
    leader.stage.store.log.is_disk_short = True  # otherwise the newest full file stays
    client.drain("q")
    leader.stage.run_timers()
    leader.stage.commit_all()
    client.publish("q", b"last")
    leader.stage.commit_all()
    disk = leader.disk.killed()
    (settled,) = numbers(disk.names(), ".settled")
    assert settled - 1 not in numbers(disk.names(), ".log")
    _, end = _roll_place(disk, settled)
    disk.flip(log_name(settled), 8 * (end - 3))  # after the definitions
    with pytest.raises(CorruptionError, match=f"{log_name(settled)} is damaged"):
        StorageStage(disk.copy(), file_bytes=FILE_BYTES)
    report = repair(disk)
    assert any("checkpoint" in line for line in report.lines())
    assert bodies_in(StorageStage(disk, file_bytes=FILE_BYTES), "q") == [b"last"]


def test_roll_block_of_another_file_is_refused() -> None:
    leader = _Leader(settled=12, more=0)
    disk = leader.disk.killed()
    logs = numbers(disk.names(), ".log")
    other = disk.content(log_name(logs[-2]))
    head = disk.content(log_name(logs[-1]))[:HEAD_BYTES]
    disk.put(log_name(logs[-1]), head + other[HEAD_BYTES:])
    with pytest.raises(CorruptionError, match="another file"):
        StorageStage(disk, file_bytes=FILE_BYTES)


def test_sound_directory_of_a_leader_needs_no_repair() -> None:
    leader = _Leader(settled=12, more=12)
    disk = leader.disk.killed()
    before = disk.contents()
    assert repair(disk).is_whole
    assert disk.contents() == before


def test_torn_roll_block_is_a_torn_write_for_a_repair() -> None:
    leader = _Leader(settled=12, more=0)
    disk = leader.disk.killed()
    newest = numbers(disk.names(), ".log")[-1] + 1
    rolls = [block for block in leader.stage.followers.given if block.kind == ROLL_BLOCK]
    head = disk.content(log_name(newest - 1))[: HEAD_BYTES - 4]
    disk.put(log_name(newest), head + bytes(4) + rolls[-1].data[: BLOCK_HEAD_BYTES + 40])
    report = repair(disk, dry_run=True)
    assert report.is_sound, report.lines()
    leader.check(disk)
