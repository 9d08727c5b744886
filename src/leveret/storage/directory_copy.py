"""A copy of the leader's directory, for a member that cannot be caught up from log files.

The leader holds its files, begins a new log file, and waits until its ROLL block is committed. A
node that is elected, but cannot commit its first block without a member that needs a copy, takes
the newest ROLL block that it knows to be committed. The copy is the directory as of that block: all
older log files with their indexes, and the segments up to where the ROLL block says that they
ended. The file of the ROLL block comes with its later blocks: retention and deletions among them
may have removed segments that the ROLL block lists. `CopySource` lists these files and reads slices
of them. The copy ends with the ROLL block for Raft, as the later blocks may not be committed.

`CopyTarget` receives them under names that end in `.copy`, beside the old directory. A file counts
when all of it is there and its checksum is right. So a transfer that broke off goes on with the
next file, from the same leader or another one.

Then the copy is installed:

    1  write the file `install`: number of the ROLL block; names, sizes and checksums of all files
    2  let the mark `synced` name the ROLL block: no start accepts a directory without that block
    3  remove the old files; rename the copied ones, the file of the ROLL block last
    4  write the mark `.settled` of that file, and the file `raft` with term and vote as they were
    5  remove `install`

Before step 1 the old directory is valid. After it, `finish_install` does or repeats the other steps
at the next start.
"""

import contextlib
import errno
from typing import Final

from leveret.checksum import crc32
from leveret.errors import CorruptionError
from leveret.journal.records import STREAM
from leveret.storage.block_records import find_records
from leveret.storage.blocks import BLOCK_HEAD_BYTES, HEAD_BYTES
from leveret.storage.checkpoint import read_whole, write_whole
from leveret.storage.disk import Disk, DiskFile
from leveret.storage.file_names import (
    COPY_ENDING,
    INSTALL,
    index_name,
    log_name,
    removal_marker_name,
    removed_logs,
    segment_name,
    segments_by_stream,
    settled_name,
)
from leveret.storage.file_records import decode_stream, listed_files
from leveret.storage.raft_state import RaftState, write_raft_state
from leveret.storage.synced_mark import SyncedMark, read_mark

SLICE_BYTES: Final = 1024 * 1024
_FILE: Final = 0  # the number in the head of `install`
# Endings of the files that a copy replaces.
_ENDINGS: Final = (".log", ".checkpoint", ".settled", ".index", ".gone", ".segment")


class CopiedFile:
    """A file of a copy: its name, and how many of its bytes belong to the copy."""

    def __init__(self, name: str, size: int) -> None:
        self.name = name
        self.size = size


class CopySource:
    """The directory of a leader as of a committed ROLL block.

    The owner lets the log remove no file until `close`. The files are open from the beginning, so
    that segments which retention removes meanwhile can still be read.
    """

    def __init__(self, disk: Disk, number: int, *, has_later_blocks: bool) -> None:
        """Open all files as of the ROLL block that begins log file `number`.

        Raise FileNotFoundError if a segment was removed since, unless the blocks after the ROLL
        block are copied, too: one of them says so.
        """
        self.number = number
        self.files: list[CopiedFile] = []
        self._open: list[DiskFile] = []
        try:
            roll = self._open_file(disk, log_name(number))
            size = int.from_bytes(roll.read(4, HEAD_BYTES), "big")
            self.files[0].size = HEAD_BYTES + BLOCK_HEAD_BYTES + size
            self.index = int.from_bytes(roll.read(8, HEAD_BYTES + 8), "big")
            records = roll.read(size, HEAD_BYTES + BLOCK_HEAD_BYTES)
            names = disk.names()
            kept = listed_files(records)
            removed = {older for older, _ in removed_logs(names)}
            for older in sorted(kept):
                if older in removed and log_name(older) not in names:
                    continue  # its marker is copied
                self._open_file(disk, log_name(older))  # without it the copy could not be recovered
                if index_name(older) in names:
                    self._open_file(disk, index_name(older))
            self._add_markers(disk, names, kept)
            self._add_segments(disk, names, records, is_complete=not has_later_blocks)
            if has_later_blocks:
                # A block is on disk before it removes a segment. Its end may still be written: the
                # member cuts a torn block off.
                self.files[0].size = roll.size()
                if settled_name(number) not in disk.names():
                    raise FileNotFoundError(errno.ENOENT, "a newer log file has been settled")
        except OSError:
            self.close()
            raise

    def _open_file(self, disk: Disk, name: str) -> DiskFile:
        file = disk.open(name)
        self._open.append(file)
        self.files.append(CopiedFile(name, file.size()))
        return file

    def _add_markers(self, disk: Disk, names: list[str], kept: dict[int, int]) -> None:
        """Add markers of listed files that were removed since. They name the block of the copy."""
        for number, block in removed_logs(names):
            if number in kept and log_name(number) not in names:
                self._open_file(disk, removal_marker_name(number, block))
                self.files[-1].name = removal_marker_name(number, self.index)
                self.files[-1].size = 0

    def _add_segments(
        self, disk: Disk, names: list[str], records: bytes, *, is_complete: bool
    ) -> None:
        """Add the segments that a ROLL block lists; raise if one is gone and all are wanted."""
        found = segments_by_stream(names)
        for payload in find_records(records, STREAM):
            stream, first_offset, segment, end, _, next_offset = decode_stream(payload)
            if is_complete and next_offset and segment >= first_offset:
                firsts = found.get(stream, [])
                if segment not in firsts or firsts[0] > first_offset:
                    raise FileNotFoundError(errno.ENOENT, f"stream {stream} was trimmed since")
            for first in found.get(stream, []):
                if first_offset <= first <= segment and next_offset:
                    with contextlib.suppress(FileNotFoundError):  # retention has dropped it
                        self._open_file(disk, segment_name(stream, first))
                        if first == segment:
                            self.files[-1].size = end

    def take_files(self) -> list[tuple[CopiedFile, DiskFile]]:
        """Return all open files, which the caller closes from now on."""
        opened, self._open = self._open, []
        return list(zip(self.files, opened, strict=True))

    def total_bytes(self) -> int:
        return sum(file.size for file in self.files)

    def read(self, place: int, offset: int, size: int = SLICE_BYTES) -> bytes:
        """Return a slice of `files[place]`; empty at its end.

        The call reads the disk: make it in a thread.
        """
        wanted = min(size, self.files[place].size - offset)
        if wanted <= 0:
            return b""
        data = self._open[place].read(wanted, offset)
        if len(data) < wanted:
            raise CorruptionError(f"{self.files[place].name} became shorter while it was copied")
        return data

    def checksum(self, place: int) -> int:
        """Return the checksum of a whole file, to compare it with the follower's."""
        offset, crc = 0, 0
        while data := self.read(place, offset):
            crc = crc32(data, crc)
            offset += len(data)
        return crc

    def close(self) -> None:
        for file in self._open:
            file.close()
        self._open = []


class CopyTarget:
    """The files that a member has received. Its methods use the disk: call them in a thread."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._file: DiskFile | None = None
        self._name = ""
        self._at = 0
        self._crc = 0
        self._sums: dict[str, tuple[int, int]] = {}  # size and checksum of files that are whole

    def received(self) -> dict[str, tuple[int, int]]:
        """Return size and checksum of each file that is whole. All of them are read."""
        for name in self._disk.names():
            stem = name.removesuffix(COPY_ENDING)
            if stem != name and stem not in self._sums:
                self._sums[stem] = _sum(self._disk, name)
        return dict(self._sums)

    def begin(self, name: str) -> None:
        """Begin to receive a file."""
        require_file_name(name)
        self.abandon()
        self._file = self._disk.create(_partial(name))
        self._name = name
        self._at = 0
        self._crc = 0

    def put(self, pieces: list[memoryview]) -> None:
        """Write the next bytes of the file."""
        assert self._file is not None
        self._file.write(pieces, self._at)
        for piece in pieces:
            self._at += len(piece)
            self._crc = crc32(piece, self._crc)

    def end(self, size: int, crc: int) -> bool:
        """Keep the file if size and checksum are right; otherwise drop it and return False."""
        file = self._file
        assert file is not None
        if (self._at, self._crc) != (size, crc):
            self.abandon()
            return False
        file.sync()
        file.close()
        self._file = None
        self._disk.rename(_partial(self._name), self._name + COPY_ENDING)
        self._disk.sync_folder()
        self._sums[self._name] = (size, crc)
        return True

    def abandon(self) -> None:
        """Stop in the middle of a file."""
        if self._file is not None:
            self._file.close()
            self._file = None
            self._disk.remove(_partial(self._name))

    def drop(self, names: list[str]) -> None:
        """Remove files that an earlier copy has left."""
        for name in names:
            self._disk.remove(name + COPY_ENDING)
            self._sums.pop(name, None)

    def install(self, number: int, index: int, names: list[str], state: RaftState) -> None:
        """Replace the directory by the received files, as of the ROLL block of log file `number`.

        The log of this member must be closed. Term and vote stay as `state` has them.
        """
        sums = self.received()
        missing = set(names).difference(sums)
        if missing or log_name(number) not in names:
            raise CorruptionError(f"the copy has no file {min(missing, default=log_name(number))}")
        ordered = [*sorted(set(names) - {log_name(number)}), log_name(number)]
        rows = [f"{name} {sums[name][0]} {sums[name][1]}" for name in ordered]
        write_whole(self._disk, INSTALL, _FILE, ["\n".join([str(index), *rows]).encode()])
        finish_install(self._disk, state)


def _sum(disk: Disk, name: str) -> tuple[int, int]:
    """Return size and checksum of a file."""
    file = disk.open(name)
    try:
        at, crc = 0, 0
        while data := file.read(SLICE_BYTES, at):
            crc = crc32(data, crc)
            at += len(data)
    finally:
        file.close()
    return at, crc


def _partial(name: str) -> str:
    return f"{name}{COPY_ENDING}.new"


def require_file_name(name: str) -> None:
    """Raise CorruptionError if a copy cannot have a file of this name."""
    stem, _, ending = name.rpartition(".")
    is_log = ending in ("log", "index") and len(stem) == 16 and stem.isdigit()
    if not is_log and not removed_logs([name]) and not segments_by_stream([name]):
        raise CorruptionError(f"a copy of a directory has no file {name!r}")


def finish_install(disk: Disk, state: RaftState) -> bool:
    """Finish an installation that has begun. Return False if there is none.

    Raise CorruptionError if a file of the copy is missing: the member needs another copy.
    """
    if INSTALL not in disk.names():
        return False
    content = read_whole(disk, INSTALL, _FILE)
    if content is None:
        raise CorruptionError(f"the file {INSTALL} is damaged: this member needs another copy")
    index, *rows = content.decode().split("\n")
    _set_mark(disk, int(index))
    present = set(disk.names())
    names: list[str] = []
    for row in rows:
        name, size, crc = row.split(" ")
        names.append(name)
        if name + COPY_ENDING not in present and (
            name not in present or _sum(disk, name) != (int(size), int(crc))
        ):
            raise CorruptionError(f"{name} of the copy is missing: this member needs another copy")
    is_moving = any(name + COPY_ENDING in present for name in names)
    if is_moving:
        _remove_old(disk, names)
        for name in names[:-1]:
            if name + COPY_ENDING in present:
                disk.rename(name + COPY_ENDING, name)
        disk.sync_folder()
        if names[-1] + COPY_ENDING in present:
            disk.rename(names[-1] + COPY_ENDING, names[-1])
        disk.sync_folder()
    disk.create(settled_name(int(names[-1].removesuffix(".log")))).close()
    disk.sync_folder()
    state.commit = int(index)
    write_raft_state(disk, state)
    for name in disk.names():
        if name.endswith(COPY_ENDING):
            disk.remove(name)
    disk.remove(INSTALL)
    disk.sync_folder()
    return True


def _set_mark(disk: Disk, index: int) -> None:
    """Let the mark `synced` name the ROLL block: no start accepts a directory without it."""
    mark = SyncedMark(disk)
    mark.open()
    mark.note(index)
    mark.close()
    if read_mark(disk) != index:
        raise OSError(errno.ENOSPC, "the mark of the last block cannot be written")


def _remove_old(disk: Disk, names: list[str]) -> None:
    """Remove the files of the old directory that the copy does not replace by a rename."""
    present = set(disk.names())
    for name in sorted(present, reverse=True):
        is_new = name in names and name + COPY_ENDING not in present
        if name.endswith(_ENDINGS) and not is_new:
            disk.remove(name)
    disk.sync_folder()
