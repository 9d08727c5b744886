"""Syncs on a real disk: names of new directories, and the final content of files."""

import io
import os
from pathlib import Path

import pytest

from leveret.storage.backup import NodeBackup, restore_node
from leveret.storage.disk import Disk
from leveret.testing.disk import FakeDisk
from tests.simulation.storage_stage import Client, StorageStage


class Syncs:
    """Every synced path, with its size at the last sync."""

    def __init__(self) -> None:
        self.sizes: dict[Path, int] = {}
        self._sync = os.fsync

    def sync(self, fd: int) -> None:
        self._sync(fd)
        self.sizes[Path(os.readlink(f"/proc/self/fd/{fd}"))] = os.fstat(fd).st_size


@pytest.fixture
def syncs(monkeypatch: pytest.MonkeyPatch) -> Syncs:
    if not os.path.isdir("/proc/self/fd"):
        pytest.skip("open files have no names here")
    made = Syncs()
    monkeypatch.setattr(os, "fsync", made.sync)
    return made


def test_names_of_new_directories_are_synced(tmp_path: Path, syncs: Syncs) -> None:
    """Otherwise a power loss may take the whole data directory, with all confirmed messages."""
    disk = Disk(tmp_path / "new" / "data")
    disk.prepare()
    disk.release()
    assert set(syncs.sizes) == {tmp_path, tmp_path / "new"}
    syncs.sizes.clear()
    disk.prepare()
    disk.release()
    assert syncs.sizes == {}


def test_durability_os_syncs_no_directory(tmp_path: Path, syncs: Syncs) -> None:
    disk = Disk(tmp_path / "data")
    disk.syncs = False
    disk.prepare()
    disk.release()
    assert syncs.sizes == {}


def archive() -> bytes:
    """The backup of a node with a message."""
    stage = StorageStage(FakeDisk())
    client = Client(stage)
    client.declare("q")
    client.publish("q", b"m")
    backups: list[NodeBackup] = []
    stage.store.log.roll(lambda number: backups.append(stage.store.backup(number, {})))
    stage.sync()
    (backup,) = backups
    data = b"".join(backup.pieces())
    backup.close()
    stage.stop()
    return data


def test_every_file_that_is_restored_is_synced_whole(tmp_path: Path, syncs: Syncs) -> None:
    root = tmp_path / "new" / "data"
    restore_node(io.BytesIO(archive()), root)
    synced = {path.name: size for path, size in syncs.sizes.items()}
    files = {path.name: path.stat().st_size for path in root.iterdir()}
    assert len(files) > 2
    assert {name: synced.get(name) for name in files} == files
    assert {tmp_path, root.parent} <= set(syncs.sizes)
