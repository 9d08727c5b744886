"""The files of the log: the only part of the store that touches a disk.

    0000000000000007.raft       see `blocks`
    0000000000000008.raft.new   incomplete file

`write` may run in another thread than all other methods, one block at a time. A file gets its name
when its head and first block are synced, so a named file was complete once. A failed write or sync
ends everything, because the content of the disk is unknown then, and nothing is tried again.
"""

import os
from typing import Final

from leveret.cluster.store.blocks import Block
from leveret.errors import StorageError
from leveret.storage.disk import Disk, DiskFile

_ENDING: Final = ".raft"
_NEW: Final = ".new"
_DIGITS: Final = 16
_SALT_BITS: Final = 62  # as numbers of this format


def file_name(file: int) -> str:
    return f"{file:0{_DIGITS}d}{_ENDING}"


class Files:
    """All files of one log, in a folder of a disk."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._open: dict[int, DiskFile] = {}
        self.has_failed = False

    def salt(self) -> int:
        """A random number for a new log."""
        return int.from_bytes(os.urandom(8), "big") >> (64 - _SALT_BITS)

    # At the start

    def numbers(self) -> list[int]:
        """The files that are there, ascending."""
        stems = [n[: -len(_ENDING)] for n in self._disk.names() if n.endswith(_ENDING)]
        return sorted(int(stem) for stem in stems if len(stem) == _DIGITS and stem.isdigit())

    def settle(self) -> None:
        """Remove what was never finished, and make all names safe: they are relied on from here."""
        for name in self._disk.names():
            if name.endswith(_ENDING + _NEW):
                self._disk.remove(name)
        self._disk.sync_folder()

    def cut(self, file: int, size: int) -> None:
        """Cut off what is torn, and make the rest safe: it may only be in memory so far."""
        opened = self._file(file)
        if opened.size() != size:
            opened.truncate(size)
        opened.sync()

    # Reading

    def size(self, file: int) -> int:
        return self._file(file).size()

    def read(self, file: int, offset: int, size: int) -> bytes:
        """These bytes, or as many of them as there are."""
        return self._file(file).read(size, offset)

    def _file(self, file: int) -> DiskFile:
        opened = self._open.get(file)
        if opened is None:
            opened = self._disk.open(file_name(file))
            self._open[file] = opened
        return opened

    # Writing

    def write(self, block: Block) -> None:
        """Write a block and sync it. An error is for good."""
        if self.has_failed:
            raise StorageError("a write has failed before: the log is closed")
        try:
            for file in block.removals:
                self.remove(file)
            if block.file_head:
                self._begin_file(block)
            else:
                opened = self._file(block.file)
                opened.write(block.pieces(), block.start())
                opened.sync()
        except OSError as fault:
            self.has_failed = True
            raise StorageError(f"the Raft log cannot be written: {fault}") from fault

    def _begin_file(self, block: Block) -> None:
        name = file_name(block.file)
        opened = self._disk.create(name + _NEW)
        opened.write(block.pieces(), block.start())
        opened.sync()
        self._disk.rename(name + _NEW, name)
        self._disk.sync_folder()
        self._open[block.file] = opened

    def remove(self, file: int) -> None:
        opened = self._open.pop(file, None)
        if opened is not None:
            opened.close()
        self._disk.remove(file_name(file))

    def close(self) -> None:
        for opened in self._open.values():
            opened.close()
        self._open.clear()
