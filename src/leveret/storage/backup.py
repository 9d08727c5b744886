"""Backup of a running node, and restore into an empty directory.

Full log files never change, and a checkpoint holds the state at the moment when the next file
began. So a backup makes the log begin a new file (`Log.roll`) and consists of that checkpoint with
every older log file and its index: exactly the state at that moment. The log removes no file until
the backup is closed (`Log.hold_files`). A node that dies during a backup leaves nothing behind.

Segments of streams only grow at their ends. Just after the log has begun a new file, they end where
the checkpoint says (`Member.size`). Later chunks are not in the backup.

The log of a cluster's leader has no checkpoint files: its ROLL blocks hold the checkpoints. A
backup of a leader turns the ROLL block into a checkpoint file. So it restores to a single node,
which can found a cluster of its own.
"""

import contextlib
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, Final, Protocol

from leveret.errors import CorruptionError, StorageError
from leveret.storage.archive import ArchiveReader, ArchiveWriter, MemberPiece
from leveret.storage.blocks import encode_head
from leveret.storage.checkpoint import whole_file
from leveret.storage.directory_copy import CopySource
from leveret.storage.disk import Disk, make_folder, sync_folder
from leveret.storage.file_names import (
    checkpoint_name,
    index_name,
    log_name,
    segment_name,
    segments_by_stream,
)
from leveret.storage.recovery_start import read_roll

NODE: Final = "node"
PIECE_BYTES: Final = 1024 * 1024

_HALFWAY: Final = ".restoring"  # ending of the directory until everything is in it


class _Readable(Protocol):
    """The bytes of one file of a backup."""

    def read(self, size: int, offset: int) -> bytes: ...

    def close(self) -> None: ...


class _MemoryFile:
    """A file of a backup whose bytes are in memory, because it does not exist on the disk."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def read(self, size: int, offset: int) -> bytes:
        return self._data[offset : offset + size]

    def close(self) -> None:
        self._data = b""


class Member:
    """An open file of a backup, and how many of its bytes belong to the backup."""

    def __init__(self, name: str, file: _Readable, size: int) -> None:
        self.name = name
        self.file = file
        self.size = size


class NodeBackup:
    """The files of a node as of the beginning of log file `number`."""

    def __init__(
        self,
        number: int,
        members: list[Member],
        facts: dict[str, object],
        on_closed: Callable[[], None],
    ) -> None:
        self._on_closed = on_closed
        self._facts = {"kind": NODE, "checkpoint": number, **facts}
        self._members = members

    def pieces(self) -> Iterator[bytes]:
        """Yield the archive piece by piece. A piece is read when the caller asks for it."""
        writer = ArchiveWriter()
        yield writer.first(self._facts)
        for member in self._members:
            yield writer.begin(member.name, member.size)
            at = 0
            while at < member.size:
                piece = member.file.read(min(PIECE_BYTES, member.size - at), at)
                if not piece:
                    raise CorruptionError(f"{member.name} became shorter while it was backed up")
                at += len(piece)
                yield writer.data(piece)
            yield writer.end(member.name)
        yield writer.last({})

    def close(self) -> None:
        for member in self._members:
            member.file.close()
        self._members = []
        self._on_closed()


def open_members(disk: Disk, number: int, files: list[int]) -> list[Member]:
    """Open the files of a single node, whose log has just begun file `number`."""
    members: list[Member] = []
    try:
        _open(disk, checkpoint_name(number), members)
        for older in files:
            if older < number:
                _open(disk, log_name(older), members)
                with contextlib.suppress(FileNotFoundError):
                    _open(disk, index_name(older), members)
        for stream, firsts in segments_by_stream(disk.names()).items():
            for first in firsts:
                _open(disk, segment_name(stream, first), members)
    except OSError:
        for member in members:
            member.file.close()
        raise
    return members


def _open(disk: Disk, name: str, members: list[Member]) -> None:
    file = disk.open(name)
    members.append(Member(name, file, file.size()))


def open_replicated_members(disk: Disk, number: int) -> list[Member]:
    """Open the files of a leader, whose log has just begun file `number`.

    The checkpoint is in the ROLL block of that file. The backup holds it as the checkpoint file
    that a single node would have, so that every node can start from it.
    """
    source = CopySource(disk, number, has_later_blocks=False)
    try:
        content = b"".join(whole_file(number, [read_roll(disk, number)]))
    except (OSError, CorruptionError):
        source.close()
        raise
    members = [Member(checkpoint_name(number), _MemoryFile(content), len(content))]
    opened = source.take_files()
    opened[0][1].close()  # the log file with the ROLL block itself
    return members + [Member(one.name, file, one.size) for one, file in opened[1:]]


def restore_node(backup: BinaryIO, root: Path) -> dict[str, object]:
    """Make a data directory from a backup, and return the facts from its backup.json.

    The directory appears when all files are in it, or not at all.
    """
    _require_empty(root)
    halfway = root.with_name(root.name + _HALFWAY)
    shutil.rmtree(halfway, ignore_errors=True)
    make_folder(halfway)
    try:
        reader = ArchiveReader()
        _unpack(reader, iter(lambda: backup.read(PIECE_BYTES), b""), halfway)
        reader.finish()
        _complete(halfway, reader)
        sync_folder(halfway)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(root / "lock")
        os.rename(halfway, root)
        sync_folder(root.parent)
    except BaseException:
        shutil.rmtree(halfway, ignore_errors=True)
        raise
    return reader.facts


def _require_empty(root: Path) -> None:
    if not root.exists():
        return
    if not root.is_dir():
        raise StorageError(f"{root} is not a directory")
    names = set(os.listdir(root))
    if "lock" in names:
        disk = Disk(root)
        try:
            disk.prepare()  # raises StorageError if a node uses it
        finally:
            disk.release()
    if names - {"lock"}:
        raise StorageError(f"the directory {root} is not empty")


def _unpack(reader: ArchiveReader, pieces: Iterable[bytes], root: Path) -> None:
    file: BinaryIO | None = None
    try:
        for piece in pieces:
            for part in reader.feed(piece):
                file = _write_piece(part, root, file)
    finally:
        if file is not None:
            file.close()


def _write_piece(part: MemberPiece, root: Path, file: BinaryIO | None) -> BinaryIO | None:
    if part.is_first:
        file = _create(root / part.name)
    assert file is not None
    file.write(part.data)
    if not part.is_last:
        return file
    file.flush()
    os.fsync(file.fileno())
    file.close()
    return None


def _complete(root: Path, reader: ArchiveReader) -> None:
    """Create the log file that begins with the checkpoint: a start needs it."""
    number = reader.facts.get("checkpoint")
    if not isinstance(number, int):
        return  # the backup of a queue is a complete log, without a checkpoint
    if not (root / checkpoint_name(number)).exists():
        raise CorruptionError("the backup has no checkpoint")
    with _create(root / log_name(number)) as file:
        file.write(encode_head(number))
        file.flush()
        os.fsync(file.fileno())


def _create(path: Path) -> BinaryIO:
    return os.fdopen(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb")
