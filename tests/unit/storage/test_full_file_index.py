"""The index of a full log file, as a node that only follows writes it."""

import errno
from random import Random

import pytest

from leveret.storage import full_file_index
from leveret.storage.blocks import first_block
from leveret.storage.file_names import index_name, log_name
from leveret.storage.full_file_index import index_full_file
from leveret.testing.disk import WRITE, FakeDisk
from tests.simulation.storage_model import Load
from tests.simulation.storage_stage import StorageStage

PART_BYTES = 200  # about five entries


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> FakeDisk:
    """Return a directory with full log files, each of which has an index."""
    monkeypatch.setattr(full_file_index, "PART_BYTES", PART_BYTES)
    load = Load(Random(5))
    load.begin(StorageStage(FakeDisk(), file_bytes=4000))
    load.define()
    load.run(400)
    return load.stage.stop()


def indexed(disk: FakeDisk) -> list[int]:
    """Return the numbers of the log files that have an index."""
    numbers = [int(name.removesuffix(".index")) for name in disk.names() if name.endswith(".index")]
    assert numbers
    return numbers


def make_index(disk: FakeDisk, number: int) -> None:
    index_full_file(disk, number, first_block(disk.content(log_name(number))))


def largest_index(disk: FakeDisk) -> int:
    return max(indexed(disk), key=lambda number: len(disk.content(index_name(number))))


def test_index_is_the_one_that_the_leader_writes(disk: FakeDisk) -> None:
    for number in indexed(disk):
        expected = disk.content(index_name(number))
        disk.remove(index_name(number))
        make_index(disk, number)
        assert disk.content(index_name(number)) == expected


def test_index_is_written_in_parts(disk: FakeDisk) -> None:
    number = largest_index(disk)
    size = len(disk.content(index_name(number)))
    disk.remove(index_name(number))
    before = disk.moment
    make_index(disk, number)
    writes = [len(change.data) for change in disk.changes[before:] if change.kind == WRITE]
    assert len(writes) > 4
    assert max(writes) < size / 2


def test_damaged_file_gets_no_index(disk: FakeDisk) -> None:
    number = largest_index(disk)
    disk.remove(index_name(number))
    content = disk.content(log_name(number))
    disk.put(log_name(number), content[:-1] + bytes((content[-1] ^ 1,)))
    names = disk.names()
    make_index(disk, number)
    assert disk.names() == names


@pytest.mark.parametrize("nth", [1, 2, 5])
def test_full_disk_leaves_no_part_of_an_index(disk: FakeDisk, nth: int) -> None:
    number = largest_index(disk)
    disk.remove(index_name(number))
    names = disk.names()
    disk.fail_write(nth, errno.ENOSPC)
    make_index(disk, number)
    assert disk.names() == names
    make_index(disk, number)
    assert index_name(number) in disk.names()
