"""File operations that the log needs, few enough for a test double to fail each of them.

Names are relative to the data directory. Every operation may raise OSError, and none retries. A
created or renamed file is durable after `sync_folder`. If `syncs` is False, sync operations do
nothing: the operating system writes at its own pace, and a power loss loses unwritten data.
"""

import errno
import fcntl
import os
import resource
from collections.abc import Callable
from pathlib import Path
from typing import Final

from mypy_extensions import mypyc_attr

from leveret.errors import StorageError
from leveret.storage.writer_thread import Job, JobThread, WriterThread

LOCK_FILE: Final = "lock"  # exists in every data directory
# The most pieces that one writev call takes on every system (IOV_MAX).
_PIECES_MAX: Final = 512
# Errors of file systems that cannot lock a directory. NFS locks only files open for writing.
_CANNOT_LOCK: Final = (errno.EBADF, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP)


def is_full(fault: OSError) -> bool:
    """Return True if the disk or the quota is full."""
    return fault.errno in (errno.ENOSPC, errno.EDQUOT)


def is_temporary(fault: OSError) -> bool:
    """Return True if the fault can pass by itself: a full disk, or too many open files."""
    return is_full(fault) or fault.errno in (errno.EMFILE, errno.ENFILE)


def removed_fault() -> OSError:
    """Return the fault of a data directory that is not in place: what is written would be lost."""
    text = "the data directory was removed or replaced: bring it back and restart the node"
    return OSError(errno.ESTALE, text)


def descriptors_max() -> int:
    """Return how many files this process may have open; 0 if there is no limit."""
    return max(0, resource.getrlimit(resource.RLIMIT_NOFILE)[0])


def make_folder(folder: Path, *, syncs: bool = True) -> None:
    """Make a directory and its missing parents, so that they survive a power loss."""
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    if syncs:
        for path in reversed(missing):
            sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make the names in a directory survive a power loss."""
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def lock_folder(folder: Path) -> list[int]:
    """Lock a directory and its file `lock`; return the descriptors that hold the locks.

    Raise BlockingIOError if another process holds a lock. The directory itself is locked, so that a
    second process is refused even if the file `lock` was deleted. The file is locked too, because
    older versions lock nothing else, and some network file systems cannot lock a directory.
    """
    held: list[int] = []
    try:
        held.append(os.open(folder, os.O_RDONLY | os.O_CLOEXEC))
        try:
            fcntl.flock(held[0], fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise
        except OSError as fault:
            if fault.errno not in _CANNOT_LOCK:
                raise
        flags = os.O_CREAT | os.O_RDWR | os.O_CLOEXEC
        held.append(os.open(folder / LOCK_FILE, flags, 0o600))
        fcntl.flock(held[1], fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        for fd in held:
            os.close(fd)
        raise
    return held


@mypyc_attr(allow_interpreted_subclasses=True)
class DiskFile:
    """An open file."""

    def __init__(self, fd: int, name: str, *, syncs: bool = True) -> None:
        self._fd = fd
        self.name = name
        self._syncs = syncs

    def write(self, pieces: list[bytes] | list[memoryview], offset: int) -> None:
        """Write all pieces one after the other, starting at `offset`."""
        for first in range(0, len(pieces), _PIECES_MAX):
            part = pieces[first : first + _PIECES_MAX]
            size = sum(map(len, part))
            done = os.pwritev(self._fd, part, offset)
            if done != size:
                self._write_rest(b"".join(part)[done:], offset + done)
            offset += size

    def write_hint(self, data: bytes) -> None:
        """Overwrite the beginning with bytes that only help to find faults. Ignore an error."""
        try:  # not `suppress`: three more calls for each block
            os.pwrite(self._fd, data, 0)
        except OSError:
            return

    def _write_rest(self, data: bytes, offset: int) -> None:
        while data:
            done = os.pwrite(self._fd, data, offset)
            data = data[done:]
            offset += done

    def sync(self) -> None:
        """Make everything written so far survive a power loss."""
        if self._syncs:
            os.fdatasync(self._fd)

    def read(self, size: int, offset: int) -> bytes:
        """Return up to `size` bytes; fewer only at the end of the file."""
        data = os.pread(self._fd, size, offset)
        while len(data) < size:
            more = os.pread(self._fd, size - len(data), offset + len(data))
            if not more:
                break
            data += more
        return data

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def truncate(self, size: int) -> None:
        os.ftruncate(self._fd, size)

    def allocate(self, size: int) -> None:
        """Make an empty file `size` bytes long, and allocate the space on the disk."""
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(self._fd, 0, size)
        else:  # macOS
            self.write([bytes(size)], 0)

    def close(self) -> None:
        os.close(self._fd)


@mypyc_attr(allow_interpreted_subclasses=True)
class Disk:
    """The data directory."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._locks: list[int] = []  # the directory and the file `lock`
        self.syncs = True

    def prepare(self) -> None:
        """Make and lock the directory; raise StorageError if another node uses it."""
        make_folder(self._root, syncs=self.syncs)
        try:
            self._locks = lock_folder(self._root)
        except BlockingIOError as fault:
            raise StorageError(
                f"the data directory {self._root} is in use by another process"
            ) from fault

    def release(self) -> None:
        for fd in self._locks:
            os.close(fd)
        self._locks = []

    def is_in_place(self) -> bool:
        """Return False if the directory was removed or replaced since `prepare`.

        One that cannot be looked at, because of permissions, counts as in place.
        """
        if not self._locks:
            return True
        locked = os.fstat(self._locks[0])
        try:
            current = os.stat(self._root)
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError:
            return True
        return (locked.st_dev, locked.st_ino) == (current.st_dev, current.st_ino)

    @property
    def folder(self) -> Path | None:
        """The path for other processes; None if the files are not in a real directory."""
        return self._root

    def make_thread(self, name: str, do: Callable[[Job], None]) -> JobThread[Job]:
        """Return a thread for jobs that write to this disk."""
        return WriterThread(name, do)

    def names(self) -> list[str]:
        return sorted(os.listdir(self._root))

    def create(self, name: str) -> DiskFile:
        """Create an empty file, or truncate an existing one."""
        flags = os.O_CREAT | os.O_RDWR | os.O_TRUNC | os.O_CLOEXEC
        return DiskFile(os.open(self._root / name, flags, 0o600), name, syncs=self.syncs)

    def open(self, name: str) -> DiskFile:
        flags = os.O_RDWR | os.O_CLOEXEC
        return DiskFile(os.open(self._root / name, flags), name, syncs=self.syncs)

    def rename(self, name: str, to: str) -> None:
        os.rename(self._root / name, self._root / to)

    def remove(self, name: str) -> None:
        os.unlink(self._root / name)

    def sync_folder(self) -> None:
        if self.syncs:
            sync_folder(self._root)

    def free_bytes(self) -> int:
        stat = os.statvfs(self._root)
        return stat.f_bavail * stat.f_frsize
