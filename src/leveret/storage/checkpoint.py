"""Checkpoints, and the indexes of full log files.

A checkpoint is the state of the broker at the moment when a log file began. It is a file in the
format of the log, with one block (number 0) of records: definitions, and for every durable queue
the settled messages, the last delivered message, and the returned messages. Once a checkpoint
exists, older log files are needed only for the messages in them.

A checkpoint is written under another name, synced, and renamed. So a file with the name of a
checkpoint is always whole.

A checkpoint lists the existing log files, so that a start notices a missing one. Removing a log
file leaves an empty marker file (`.gone`) behind, until a checkpoint no longer lists the log file.
Whenever a crash happens, a listed file either exists or has a marker. The marker also names a block
that was on disk at the removal; a start that does not find this block knows that the log was cut.

In a replicated log a ROLL block, the first of its file, takes the place of the checkpoint. It can
be cut off until it is committed. Then `settle_roll` marks its file (`.settled`): from older files a
start needs only messages.
"""

import contextlib
from typing import Final, Self

from leveret.journal.records import FILES
from leveret.storage.blocks import (
    BLOCK_HEAD_BYTES,
    HEAD_BYTES,
    BlockHead,
    block_end,
    check_head,
    encode_block_head,
    encode_head,
)
from leveret.storage.disk import Disk
from leveret.storage.file_names import (
    checkpoint_name,
    index_name,
    log_name,
    numbers,
    removal_marker_name,
    removed_logs,
    settled_name,
)

ONLY_BLOCK: Final = 0
_NOTHING: Final = b"\x00\x00\x00\x00\x00"  # an empty record, because a block is never empty


def write_checkpoint(disk: Disk, number: int, files: dict[int, int], records: list[bytes]) -> None:
    """Write the checkpoint at the start of log file `number`, then remove the files it replaces.

    `files` are the existing older log files with their sizes (0 = not known).
    """
    write_whole(disk, checkpoint_name(number), number, [*records, files_record(files)])
    _remove_replaced(disk, number, files)


def settle_roll(disk: Disk, number: int, files: dict[int, int]) -> None:
    """Mark that the ROLL block of a file is committed, then remove the files it replaces.

    All chunks before it must be in their segments, and synced. `files` are the log files that the
    block lists.
    """
    disk.create(settled_name(number)).close()
    disk.sync_folder()
    _remove_replaced(disk, number, files)


def _remove_replaced(disk: Disk, number: int, files: dict[int, int]) -> None:
    """Remove the files that are not needed once a log file has its checkpoint."""
    names = disk.names()
    for older in numbers(names, ".checkpoint"):
        if older < number:
            disk.remove(checkpoint_name(older))
    for older in numbers(names, ".settled"):
        if older < number:
            disk.remove(settled_name(older))
    for index in numbers(names, ".index"):
        if index not in files:
            disk.remove(index_name(index))
    for gone, block in removed_logs(names):
        if gone not in files:
            disk.remove(removal_marker_name(gone, block))


def files_record(files: dict[int, int]) -> bytes:
    """Return the record FILES: the older log files with their sizes."""
    pairs = sorted(files.items())
    payload = b"".join(file.to_bytes(8, "big") + size.to_bytes(8, "big") for file, size in pairs)
    return bytes((FILES,)) + len(payload).to_bytes(4, "big") + payload


def remove_logs(disk: Disk, files: list[int], block: int) -> None:
    """Free the space of log files that are not needed once `block` is on disk.

    A second call for the same files has no effect.
    """
    for number in files:
        with contextlib.suppress(FileNotFoundError):
            disk.rename(log_name(number), removal_marker_name(number, block))
    if files:
        disk.sync_folder()  # make the renames durable before the files are emptied
    for number in files:
        disk.create(removal_marker_name(number, block)).close()
        with contextlib.suppress(FileNotFoundError):
            disk.remove(index_name(number))


def write_index(disk: Disk, number: int, index: bytes) -> None:
    """Write the index of a full log file: the positions of its messages."""
    if index:
        write_whole(disk, index_name(number), number, [index])


def write_whole(disk: Disk, name: str, number: int, pieces: list[bytes]) -> None:
    """Write a file atomically: after a crash it exists whole or not at all."""
    with WholeFile(disk, name, number) as file:
        file.add(pieces)
        file.finish()


class WholeFile:
    """Writes a file with one block atomically, in parts, so that no part must wait in memory."""

    def __init__(self, disk: Disk, name: str, number: int) -> None:
        self._disk = disk
        self._name = name
        self._number = number
        self._file = disk.create(name + ".new")
        self._block = BlockHead(ONLY_BLOCK)
        self._is_finished = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self._file.close()
        if not self._is_finished:
            with contextlib.suppress(OSError):
                self._disk.remove(self._name + ".new")

    @property
    def size(self) -> int:
        """The bytes that were added."""
        return self._block.size

    def add(self, pieces: list[bytes]) -> None:
        at = HEAD_BYTES + BLOCK_HEAD_BYTES + self._block.size
        self._block.add(pieces)
        self._file.write(pieces, at)

    def finish(self) -> None:
        """Make what was added a file of the data directory."""
        if self._block.size == 0:
            self.add([_NOTHING])
        self._file.write([encode_head(self._number), self._block.encode()], 0)
        self._file.sync()
        self._disk.rename(self._name + ".new", self._name)
        self._is_finished = True
        self._disk.sync_folder()


def whole_file(number: int, pieces: list[bytes]) -> list[bytes]:
    """Return the bytes of a file with one block, in pieces."""
    pieces = [piece for piece in pieces if piece] or [_NOTHING]
    return [encode_head(number), encode_block_head(pieces, ONLY_BLOCK), *pieces]


def read_whole(disk: Disk, name: str, number: int) -> bytes | None:
    """Return the content that `write_whole` wrote; None if it is damaged."""
    data = read_file(disk, name)
    check_head(data, number, name)
    end = block_end(data, HEAD_BYTES, ONLY_BLOCK)
    return data[HEAD_BYTES + BLOCK_HEAD_BYTES : end] if end else None


def read_file(disk: Disk, name: str) -> bytes:
    file = disk.open(name)
    try:
        return file.read(file.size(), 0)
    finally:
        file.close()
