"""The mark `synced`: the number of the last block that is known to be on disk.

A log that was cut exactly between two blocks looks whole. So the log's thread writes the number of
each block to a small file of its own, after the sync of the block. A start that does not find the
block knows that the end of the log is missing. The mark is a head and one block (number 0) with the
record BLOCK, overwritten in place.

A stop in order counts only if the mark names its block. A node that starts on a full disk cannot
write that it has started, but it can empty the mark.

The mark is not synced with each block, only when the node stops. It never names a block that is not
on disk, so a mark that a power loss has taken back does no harm. A mark that cannot be written is
left alone: a start may then miss a cut, and marks every message as redelivered.
"""

import contextlib
from typing import Final

from leveret.checksum import crc32
from leveret.errors import CorruptionError
from leveret.journal.records import BLOCK, RECORD_HEAD_BYTES
from leveret.storage.blocks import encode_head
from leveret.storage.checkpoint import ONLY_BLOCK, read_file, read_whole
from leveret.storage.disk import Disk, DiskFile
from leveret.storage.file_names import SYNCED

_FILE: Final = 0  # the number in the head
_NUMBER_BYTES: Final = 8
_RECORD_HEAD: Final = bytes((BLOCK,)) + _NUMBER_BYTES.to_bytes(4, "big")
# The parts of the mark that are the same for each block that it names.
_SIZE: Final = RECORD_HEAD_BYTES + _NUMBER_BYTES
_HEAD_AND_SIZE: Final = encode_head(_FILE) + _SIZE.to_bytes(4, "big")
_CHECKED: Final = ONLY_BLOCK.to_bytes(8, "big") + _RECORD_HEAD


class SyncedMark:
    """The mark of a running node, written in the log's thread."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._file: DiskFile | None = None

    def open(self) -> None:
        """Open the file, or create it."""
        if self._file is not None:
            return
        try:
            if SYNCED in self._disk.names():
                self._file = self._disk.open(SYNCED)
            else:
                self._file = self._disk.create(SYNCED)
        except OSError:  # tried again with the next log file
            self._file = None

    def note(self, block: int) -> None:
        """Write the number of a block that is on disk."""
        if self._file is not None:
            checked = _CHECKED + block.to_bytes(_NUMBER_BYTES, "big")
            self._file.write_hint(_HEAD_AND_SIZE + crc32(checked).to_bytes(4, "big") + checked)

    def clear(self) -> None:
        """Name no block. This needs no space on the disk."""
        self.open()
        if self._file is not None:
            self._file.truncate(0)
            self._file.sync()

    def close(self) -> None:
        """Sync the mark, so that it also survives a power loss, and close the file."""
        if self._file is not None:
            with contextlib.suppress(OSError):
                self._file.sync()
                self._disk.sync_folder()
            self._file.close()
            self._file = None


def read_mark(disk: Disk) -> int | None:
    """Return the block that the mark names, 0 if there is no mark, None if it is damaged."""
    if SYNCED not in disk.names():
        return 0  # a directory of an older version, or a restored backup
    if not read_file(disk, SYNCED):
        return 0  # it was created, and the node ended before its first block
    try:
        records = read_whole(disk, SYNCED, _FILE)
    except CorruptionError:
        return None
    if records is None or not records.startswith(_RECORD_HEAD):
        return None
    return int.from_bytes(records[RECORD_HEAD_BYTES : RECORD_HEAD_BYTES + _NUMBER_BYTES], "big")
