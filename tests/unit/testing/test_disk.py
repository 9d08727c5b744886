"""The faults of the fake disk."""

import errno
from collections.abc import Callable
from random import Random

import pytest

from leveret.storage.disk import DiskFile
from leveret.testing.disk import CREATE, PAGE_BYTES, RENAME, SYNC, SYNC_FOLDER, WRITE, FakeDisk


def made(disk: FakeDisk, name: str = "a", content: bytes = b"") -> DiskFile:
    """A file that is safe with what it holds."""
    file = disk.create(name)
    if content:
        file.write([content], 0)
    file.sync()
    disk.sync_folder()
    return file


def crashes(disk: FakeDisk, moment: int | None = None) -> list[dict[str, bytes]]:
    """Return the disks that a power loss may leave, for many seeds."""
    return [disk.crash(Random(seed), moment).contents() for seed in range(60)]


# What a crash leaves


def test_crash_keeps_what_was_synced() -> None:
    disk = FakeDisk()
    made(disk, "a", b"safe")
    assert all(left == {"a": b"safe"} for left in crashes(disk))


def test_crash_may_lose_keep_or_tear_what_was_not_synced() -> None:
    disk = FakeDisk()
    file = made(disk, "a", b"safe")
    file.write([b"0123456789"], 4)
    left = {contents["a"] for contents in crashes(disk)}
    assert {b"safe", b"safe0123456789"} <= left
    torn = [content for content in left if 4 < len(content) < 14]
    assert torn
    assert all(content.startswith(b"safe") for content in left)
    zeros = [content for content in left if len(content) == 14 and content.endswith(b"\0")]
    assert zeros  # the size reached the disk, the bytes did not


def test_crash_may_keep_some_pages_of_a_write() -> None:
    disk = FakeDisk()
    file = made(disk)
    file.write([b"x" * (3 * PAGE_BYTES)], 0)
    left = {contents["a"] for contents in crashes(disk)}
    assert any(bytes(PAGE_BYTES) in content and b"x" in content for content in left)


def test_crash_may_undo_names_until_the_folder_is_synced() -> None:
    disk = FakeDisk()
    made(disk, "old", b"o")
    disk.rename("old", "new")
    disk.create("more").close()
    names = {tuple(sorted(left)) for left in crashes(disk)}
    assert {("old",), ("more", "new")} <= names
    assert disk.unsynced() == [RENAME, CREATE]
    disk.sync_folder()
    assert all(sorted(left) == ["more", "new"] for left in crashes(disk))


def test_crash_may_undo_a_removal() -> None:
    disk = FakeDisk()
    made(disk, "a", b"back")
    disk.remove("a")
    assert {b"back"} == {left["a"] for left in crashes(disk) if left}
    assert {} in crashes(disk)


def test_crash_at_an_earlier_moment_knows_nothing_of_later_ones() -> None:
    disk = FakeDisk()
    file = made(disk, "a", b"one")
    moment = disk.moment
    file.write([b"two"], 0)
    file.sync()
    assert all(left == {"a": b"one"} for left in crashes(disk, moment))
    assert all(left == {"a": b"two"} for left in crashes(disk))


def test_kill_loses_nothing_that_was_written() -> None:
    disk = FakeDisk()
    moment = disk.moment
    disk.create("a").write([b"unsynced"], 0)
    assert disk.killed().contents() == {"a": b"unsynced"}
    assert disk.killed(moment).contents() == {}


def test_crash_is_the_same_for_the_same_seed() -> None:
    disk = FakeDisk()
    made(disk).write([b"0123456789" * 100], 0)
    assert crashes(disk) == crashes(disk)


# Operations that fail


def test_failed_write_may_have_written_a_part() -> None:
    disk = FakeDisk()
    file = made(disk, "a", b"....")
    disk.fail_write(2, errno.EIO)
    file.write([b"12"], 0)
    with pytest.raises(OSError, match="Input/output") as caught:
        file.write([b"abcd"], 0)
    assert caught.value.errno == errno.EIO
    assert file.read(4, 0) == b"ab.."
    file.write([b"abcd"], 0)
    assert file.read(4, 0) == b"abcd"


def test_failed_sync_leaves_the_writes_before_it_in_doubt_for_ever() -> None:
    disk = FakeDisk()
    file = made(disk, "a", b"safe")
    file.write([b"lost"], 0)
    disk.fail_sync()
    with pytest.raises(OSError, match="Input/output") as caught:
        file.sync()
    assert caught.value.errno == errno.EIO
    file.sync()
    assert b"safe" in {left["a"] for left in crashes(disk)}


def test_writes_after_a_failed_sync_can_be_synced() -> None:
    disk = FakeDisk()
    file = made(disk, "a")
    disk.fail_sync()
    with pytest.raises(OSError, match="Input/output"):
        file.sync()
    file.write([b"later"], 0)
    file.sync()
    assert all(left["a"] == b"later" for left in crashes(disk))


def test_full_disk_takes_what_fits() -> None:
    disk = FakeDisk(capacity_bytes=10)
    file = made(disk)
    assert disk.free_bytes() == 10
    with pytest.raises(OSError, match="No space") as caught:
        file.write([b"x" * 12], 0)
    assert caught.value.errno == errno.ENOSPC
    assert (file.size(), disk.free_bytes()) == (10, 0)
    file.write([b"y" * 10], 0)  # over what is there
    file.truncate(4)
    assert (disk.used_bytes(), disk.free_bytes()) == (4, 6)


def test_allocated_room_is_taken_and_must_be_there() -> None:
    disk = FakeDisk(capacity_bytes=10)
    file = made(disk)
    file.allocate(6)
    assert (file.size(), disk.free_bytes()) == (6, 4)
    with pytest.raises(OSError, match="No space"):
        made(disk, "b").allocate(5)


def test_lying_disk_syncs_nothing_and_says_that_it_did() -> None:
    disk = FakeDisk()
    file = made(disk, "a", b"safe")
    disk.lies = True
    file.write([b"told"], 0)
    file.sync()
    disk.create("b").close()
    disk.sync_folder()
    assert disk.counts[SYNC] == disk.counts[SYNC_FOLDER] == 2
    left = crashes(disk)
    assert {"a": b"safe"} in left
    assert {b"safe", b"told"} <= {contents["a"] for contents in left}


def test_disk_that_does_not_sync_counts_none() -> None:
    disk = FakeDisk()
    disk.syncs = False
    made(disk, "a", b"x")
    assert disk.counts[SYNC] == disk.counts[SYNC_FOLDER] == 0
    assert {} in crashes(disk)


def test_flipped_bit_is_the_only_one() -> None:
    disk = FakeDisk()
    made(disk, "a", b"\x00\x00\x00")
    disk.flip("a", 10)
    assert disk.content("a") == b"\x00\x04\x00"
    assert all(left == {"a": b"\x00\x04\x00"} for left in crashes(disk))


def test_short_writes_give_power_a_moment_between_two_halves() -> None:
    disk = FakeDisk()
    file = made(disk)
    disk.short_writes = True
    moment = disk.moment
    file.write([b"abcd"], 0)
    assert [change.kind for change in disk.changes[moment:]] == [WRITE, WRITE]
    assert disk.killed(moment + 1).content("a") == b"ab"
    assert file.read(4, 0) == b"abcd"


def test_unplugged_disk_fails_and_changes_nothing() -> None:
    disk = FakeDisk()
    file = made(disk, "a", b"x")
    moment = disk.moment
    disk.unplug()
    operations: list[Callable[[], object]] = [
        file.sync,
        disk.sync_folder,
        lambda: file.write([b"y"], 0),
        lambda: file.truncate(0),
        lambda: disk.create("b"),
        lambda: disk.rename("a", "b"),
        lambda: disk.remove("a"),
        lambda: disk.open("a"),
    ]
    for operation in operations:
        with pytest.raises(OSError, match="Input/output"):
            operation()
    assert disk.moment == moment
    assert disk.contents() == {"a": b"x"}


def test_copy_is_safe_and_free() -> None:
    disk = FakeDisk(capacity_bytes=100)
    disk.prepare()
    disk.create("a").write([b"x"], 0)
    copied = disk.copy()
    assert copied.capacity_bytes == 100
    assert all(left == {"a": b"x"} for left in crashes(copied))
    copied.prepare()
