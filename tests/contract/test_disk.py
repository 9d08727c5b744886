"""The contract of a disk, for the real one in a folder and the fake one in memory."""

import errno
import fcntl
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from leveret.errors import StorageError
from leveret.storage.disk import Disk
from leveret.testing.disk import FakeDisk

MakeDisk = Callable[[], Disk]


@pytest.fixture(params=["real", "fake"])
def make_disk(request: pytest.FixtureRequest, tmp_path: Path) -> MakeDisk:
    """Return a function that makes disks on one shared data directory."""
    fake = FakeDisk()
    return (lambda: Disk(tmp_path / "data")) if request.param == "real" else (lambda: fake)


@pytest.fixture
def disk(make_disk: MakeDisk) -> Disk:
    made = make_disk()
    made.prepare()
    return made


def files(disk: Disk) -> list[str]:
    return [name for name in disk.names() if name != "lock"]


def read_all(disk: Disk, name: str) -> bytes:
    file = disk.open(name)
    try:
        return file.read(file.size(), 0)
    finally:
        file.close()


def write_all(disk: Disk, name: str, content: bytes) -> None:
    file = disk.create(name)
    file.write([content], 0)
    file.sync()
    file.close()


def test_what_was_written_is_read(disk: Disk) -> None:
    file = disk.create("a")
    file.write([b"hello ", b"", b"world"], 0)
    assert file.read(100, 0) == b"hello world"
    assert file.read(5, 6) == b"world"
    assert file.read(5, 11) == b""
    assert file.size() == 11
    file.close()
    assert read_all(disk, "a") == b"hello world"


def test_many_pieces_are_written_in_order(disk: Disk) -> None:
    pieces = [bytes((number % 256,)) * (number % 7) for number in range(2000)]
    file = disk.create("a")
    file.write(pieces, 3)
    file.close()
    assert read_all(disk, "a") == bytes(3) + b"".join(pieces)


def test_write_goes_over_what_was_there(disk: Disk) -> None:
    file = disk.create("a")
    file.write([b"0123456789"], 0)
    file.write([b"ab"], 4)
    assert file.read(10, 0) == b"0123ab6789"
    file.close()


def test_write_behind_the_end_leaves_zeros(disk: Disk) -> None:
    file = disk.create("a")
    file.write([b"x"], 5)
    assert file.read(10, 0) == bytes(5) + b"x"
    file.close()


def test_truncate_cuts_and_a_later_write_goes_on_there(disk: Disk) -> None:
    file = disk.create("a")
    file.write([b"0123456789"], 0)
    file.truncate(4)
    assert file.size() == 4
    file.write([b"ab"], 4)
    file.sync()
    assert file.read(10, 0) == b"0123ab"
    file.close()


def test_truncate_beyond_the_end_fills_with_zeros(disk: Disk) -> None:
    file = disk.create("a")
    file.write([b"ab"], 0)
    file.truncate(4)
    assert file.read(10, 0) == b"ab\x00\x00"
    file.close()


def test_create_empties_a_file_that_exists(disk: Disk) -> None:
    write_all(disk, "a", b"old")
    disk.create("a").close()
    assert read_all(disk, "a") == b""
    assert files(disk) == ["a"]


def test_open_does_not_create(disk: Disk) -> None:
    with pytest.raises(FileNotFoundError) as caught:
        disk.open("a")
    assert caught.value.errno == errno.ENOENT
    assert files(disk) == []


def test_rename_takes_the_place_of_a_file(disk: Disk) -> None:
    write_all(disk, "a", b"new")
    write_all(disk, "b", b"old")
    disk.rename("a", "b")
    disk.sync_folder()
    assert files(disk) == ["b"]
    assert read_all(disk, "b") == b"new"


def test_open_file_follows_its_content_not_its_name(disk: Disk) -> None:
    file = disk.create("a")
    file.write([b"one"], 0)
    disk.rename("a", "b")
    file.write([b"two"], 0)
    file.close()
    assert read_all(disk, "b") == b"two"


def test_removed_file_can_be_read_while_it_is_open(disk: Disk) -> None:
    file = disk.create("a")
    file.write([b"still"], 0)
    disk.remove("a")
    assert files(disk) == []
    assert file.read(5, 0) == b"still"
    file.close()


@pytest.mark.parametrize("operation", ["rename", "remove"])
def test_file_that_is_not_there_cannot_be_changed(disk: Disk, operation: str) -> None:
    with pytest.raises(FileNotFoundError):
        if operation == "rename":
            disk.rename("a", "b")
        else:
            disk.remove("a")


def test_names_are_sorted(disk: Disk) -> None:
    for name in ("b", "c", "a"):
        disk.create(name).close()
    assert files(disk) == ["a", "b", "c"]


def test_directory_in_use_is_refused_and_can_be_used_after_release(make_disk: MakeDisk) -> None:
    first = make_disk()
    first.prepare()
    second = make_disk()
    with pytest.raises(StorageError, match="in use"):
        second.prepare()
    second.release()
    first.release()
    third = make_disk()
    third.prepare()
    third.release()


def test_free_bytes_is_plausible(disk: Disk) -> None:
    assert disk.free_bytes() > 0


def test_allocated_file_has_its_size_and_can_be_made_again(disk: Disk) -> None:
    for size in (100_000, 5000):
        file = disk.create("a")
        file.allocate(size)
        assert file.size() == size
        assert file.read(10, size - 10) == bytes(10)
        file.close()


def test_disk_without_syncs_works_the_same(disk: Disk) -> None:
    disk.syncs = False
    write_all(disk, "a", b"content")
    disk.sync_folder()
    assert read_all(disk, "a") == b"content"


def test_directory_in_use_is_refused_although_the_lock_was_deleted(tmp_path: Path) -> None:
    first = Disk(tmp_path)
    first.prepare()
    for name in ("lock", "other"):
        (tmp_path / name).unlink(missing_ok=True)
        second = Disk(tmp_path)
        with pytest.raises(StorageError, match=f"{tmp_path} is in use"):
            second.prepare()
        second.release()
    first.release()
    third = Disk(tmp_path)
    third.prepare()
    third.release()


def test_version_that_locks_the_file_alone_is_kept_out_too(tmp_path: Path) -> None:
    first = Disk(tmp_path)
    first.prepare()
    with (tmp_path / "lock").open() as file, pytest.raises(BlockingIOError):
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    first.release()


@pytest.mark.parametrize("is_replaced", [True, False])
def test_directory_that_was_removed_or_replaced_is_noticed(
    tmp_path: Path, is_replaced: bool
) -> None:
    root = tmp_path / "data"
    disk = Disk(root)
    disk.prepare()
    assert disk.is_in_place()
    root.rename(tmp_path / "elsewhere")
    if is_replaced:
        root.mkdir()
    assert not disk.is_in_place()
    disk.release()


def test_directory_that_cannot_be_looked_at_counts_as_in_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A parent without permissions, or a network file system that does not answer."""
    root = tmp_path / "data"
    disk = Disk(root)
    disk.prepare()
    stat = os.stat

    def refuse(path: Path, **options: bool) -> os.stat_result:
        if path == root:
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return stat(path, **options)

    with monkeypatch.context() as patched:
        patched.setattr(os, "stat", refuse)
        assert disk.is_in_place()
    disk.release()


def test_hint_is_written_at_the_beginning_and_never_raises(disk: Disk) -> None:
    file = disk.create("hint")
    file.write_hint(b"first hint")
    file.write_hint(b"second")
    assert read_all(disk, "hint") == b"secondhint"
    file.close()
