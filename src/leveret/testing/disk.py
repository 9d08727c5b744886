"""A disk in memory that loses unsynced data in a crash, and fails when a test wants it to.

`FakeDisk` has the interface of `leveret.storage.disk.Disk`. It keeps two states: the files as the
broker sees them, and the files that would survive a power loss. Writes and truncations survive
after the sync of their file, names after the sync of the folder. All changes are kept in order, so
that a test can make the disk as it may look after a crash at any moment of a run:

    disk = FakeDisk()
    ...                                    # run a broker on it
    for moment in range(disk.moment + 1):
        survivor = disk.crash(Random(seed), moment)

Faults: `fail_write`, `fail_sync`, `capacity_bytes`, `lies` (a sync that does nothing), `flip`,
`short_writes`, `unplug`. `counts` has the number of calls of each operation.
"""

import errno
import os
import threading
from collections import Counter
from pathlib import Path
from random import Random
from typing import Final, Self

from leveret.errors import StorageError
from leveret.storage.disk import Disk, DiskFile

PAGE_BYTES: Final = 4096
LOCK: Final = "lock"

# Kinds of changes. A change names a file by a number, which stays the same after a rename.
WRITE: Final = "write"
HINT: Final = "hint"  # a write that never fails and is not counted as one
TRUNCATE: Final = "truncate"
SYNC: Final = "sync"
# A failed sync: the state on disk is unknown, and a later sync does not repair it.
LOST_SYNC: Final = "lost sync"
CREATE: Final = "create"
RENAME: Final = "rename"
REMOVE: Final = "remove"
SYNC_FOLDER: Final = "sync folder"


class Change:
    """One change of the disk."""

    def __init__(self, kind: str, number: int = 0, offset: int = 0, data: bytes = b"") -> None:
        self.kind = kind
        self.number = number
        self.offset = offset  # of a write; the size for a truncation
        self.data = data
        self.name = ""
        self.to = ""


class FakeDisk(Disk):
    """A data directory in memory. Its methods may be called from any thread."""

    def __init__(self, *, capacity_bytes: int | None = None) -> None:
        super().__init__(Path("memory"))
        self.capacity_bytes = capacity_bytes
        self.lies = False  # syncs return without effect
        self.has_folder = True  # False: somebody has removed or replaced the directory
        self.short_writes = False  # each write is two changes, with a possible crash between them
        self.counts: Counter[str] = Counter()
        self.changes: list[Change] = []
        self._numbers: dict[str, int] = {}  # number of the content, by file name
        self._contents: dict[int, bytearray] = {}
        self._next_number = 1
        self._is_claimed = False
        self._is_unplugged = False
        self._faults: dict[tuple[str, int], int] = {}  # (operation, its count) -> errno
        self._guard = threading.RLock()

    @property
    def folder(self) -> Path | None:
        return None

    def fail_write(self, nth: int = 1, code: int = errno.ENOSPC) -> None:
        """Fail the nth write from now, after a part of it was written."""
        self._faults[(WRITE, self.counts[WRITE] + nth)] = code

    def fail_sync(self, nth: int = 1, code: int = errno.EIO) -> None:
        """Fail the nth sync of a file from now."""
        self._faults[(SYNC, self.counts[SYNC] + nth)] = code

    def mend(self) -> None:
        """Take back the faults that `fail_write` and `fail_sync` have planned."""
        self._faults.clear()

    def unplug(self) -> None:
        """Let every operation fail from now on, without effect."""
        with self._guard:
            self._is_unplugged = True

    def flip(self, name: str, bit: int) -> None:
        """Flip one bit of a file."""
        content = self.content(name)
        at = bit // 8
        self.put(name, content[:at] + bytes((content[at] ^ 1 << bit % 8,)) + content[at + 1 :])

    @property
    def moment(self) -> int:
        """Return the number of changes so far."""
        return len(self.changes)

    def content(self, name: str) -> bytes:
        """Return the content of a file, synced or not."""
        with self._guard:
            return bytes(self._contents[self._numbers[name]])

    def contents(self) -> dict[str, bytes]:
        """Return the contents of all files except the lock."""
        return {name: self.content(name) for name in self.names() if name != LOCK}

    def put(self, name: str, content: bytes) -> None:
        """Write and sync a file with this content."""
        with self._guard:
            if name in self._numbers:
                self._apply(_named(REMOVE, name))
            number = self._new_number()
            self._apply(_named(CREATE, name, number))
            self._apply(Change(WRITE, number, 0, content))
            self._apply(Change(SYNC, number))
            self._apply(Change(SYNC_FOLDER))

    def used_bytes(self) -> int:
        return sum(len(self._contents[number]) for number in self._numbers.values())

    def unsynced(self, moment: int | None = None) -> list[str]:
        """Return the kinds of the changes that a crash could still undo."""
        return [change.kind for change in _unsynced(self.changes[:moment])]

    def copy(self) -> Self:
        """Return a disk with the same files, all synced and not in use."""
        made = type(self)(capacity_bytes=self.capacity_bytes)
        for name, content in self.contents().items():
            made.put(name, content)
        return made

    def crash(self, rng: Random, moment: int | None = None) -> Self:
        """Return the disk as it may look after a power loss at this moment."""
        made = type(self)(capacity_bytes=self.capacity_bytes)
        names, contents = _survivors(self.changes[:moment], rng)
        for name in sorted(names):
            made.put(name, bytes(contents[names[name]]))
        return made

    def killed(self, moment: int | None = None) -> Self:
        """Return the disk after the process was killed at this moment: no write is lost.

        Unsynced changes stay unsynced: a later power loss can undo them.
        """
        made = type(self)(capacity_bytes=self.capacity_bytes)
        for change in self.changes[:moment]:
            made._apply(change)
        made._next_number = self._next_number
        return made

    def prepare(self) -> None:
        with self._guard:
            self._begin("prepare")
            if self._is_claimed:
                raise StorageError("the data directory is in use")
            self._is_claimed = True
            if LOCK not in self._numbers:
                self._apply(_named(CREATE, LOCK, self._new_number()))

    def release(self) -> None:
        self._is_claimed = False

    def is_in_place(self) -> bool:
        return self.has_folder

    def names(self) -> list[str]:
        with self._guard:
            return sorted(self._numbers)

    def create(self, name: str) -> DiskFile:
        with self._guard:
            self._begin(CREATE)
            number = self._numbers.get(name)
            if number is None:
                number = self._new_number()
                self._apply(_named(CREATE, name, number))
            elif self._contents[number]:
                self._apply(Change(TRUNCATE, number, 0))
            return FakeFile(self, number, name)

    def open(self, name: str) -> DiskFile:
        with self._guard:
            self._begin("open")
            return FakeFile(self, self._number(name), name)

    def rename(self, name: str, to: str) -> None:
        with self._guard:
            self._begin(RENAME)
            change = _named(RENAME, name, self._number(name))
            change.to = to
            self._apply(change)

    def remove(self, name: str) -> None:
        with self._guard:
            self._begin(REMOVE)
            self._apply(_named(REMOVE, name, self._number(name)))

    def sync_folder(self) -> None:
        with self._guard:
            if not self.syncs:
                return
            self._begin(SYNC_FOLDER)
            if not self.lies:
                self._apply(Change(SYNC_FOLDER))

    def free_bytes(self) -> int:
        if self.capacity_bytes is None:
            return 1 << 40
        return max(0, self.capacity_bytes - self.used_bytes())

    def write_file(self, number: int, data: bytes, offset: int) -> None:
        with self._guard:
            self._begin(WRITE)
            room = self._room(number, len(data), offset)
            code = self._faults.pop((WRITE, self.counts[WRITE]), 0)
            if code:
                room = min(room, len(data) // 2)
            elif room < len(data):
                code = errno.ENOSPC
            self._write(number, data[:room], offset)
            if code:
                raise OSError(code, os.strerror(code))

    def write_hint(self, number: int, data: bytes) -> None:
        with self._guard:
            has_room = self._room(number, len(data), 0) == len(data)
            if has_room and not self._is_unplugged:
                self._apply(Change(HINT, number, 0, data))

    def _write(self, number: int, data: bytes, offset: int) -> None:
        half = len(data) // 2 if self.short_writes else 0
        if half:
            self._apply(Change(WRITE, number, offset, data[:half]))
        if data:
            self._apply(Change(WRITE, number, offset + half, data[half:]))

    def _room(self, number: int, size: int, offset: int) -> int:
        """Return how many of `size` bytes fit on the disk at this offset."""
        if self.capacity_bytes is None:
            return size
        have = len(self._contents[number])
        free = max(0, self.capacity_bytes - self.used_bytes())
        return max(0, min(size, have + free - offset))

    def sync_file(self, number: int) -> None:
        with self._guard:
            if not self.syncs:
                return
            self._begin(SYNC)
            code = self._faults.pop((SYNC, self.counts[SYNC]), 0)
            if code:
                self._apply(Change(LOST_SYNC, number))
                raise OSError(code, os.strerror(code))
            if not self.lies:
                self._apply(Change(SYNC, number))

    def read_file(self, number: int, size: int, offset: int) -> bytes:
        with self._guard:
            self._begin("read")
            return bytes(self._contents[number][offset : offset + size])

    def file_size(self, number: int) -> int:
        with self._guard:
            return len(self._contents[number])

    def truncate_file(self, number: int, size: int) -> None:
        with self._guard:
            self._begin(TRUNCATE)
            self._apply(Change(TRUNCATE, number, size))

    def _begin(self, operation: str) -> None:
        self.counts[operation] += 1
        if self._is_unplugged:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    def _number(self, name: str) -> int:
        if name not in self._numbers:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)
        return self._numbers[name]

    def _new_number(self) -> int:
        self._next_number += 1
        return self._next_number - 1

    def _apply(self, change: Change) -> None:
        self.changes.append(change)
        if change.kind in (WRITE, HINT, TRUNCATE):
            _change_content(self._contents[change.number], change)
        elif change.kind in (CREATE, RENAME, REMOVE):
            if change.kind == CREATE:
                self._contents[change.number] = bytearray()
            _change_names(self._numbers, change)


class FakeFile(DiskFile):
    """An open file of a fake disk."""

    def __init__(self, disk: FakeDisk, number: int, name: str) -> None:
        super().__init__(-1, name)
        self._disk = disk
        self._number = number

    def write(self, pieces: list[bytes] | list[memoryview], offset: int) -> None:
        self._disk.write_file(self._number, b"".join(pieces), offset)

    def write_hint(self, data: bytes) -> None:
        self._disk.write_hint(self._number, data)

    def sync(self) -> None:
        self._disk.sync_file(self._number)

    def read(self, size: int, offset: int) -> bytes:
        return self._disk.read_file(self._number, size, offset)

    def size(self) -> int:
        return self._disk.file_size(self._number)

    def truncate(self, size: int) -> None:
        self._disk.truncate_file(self._number, size)

    def allocate(self, size: int) -> None:
        self.write([bytes(size)], 0)

    def close(self) -> None:
        self._disk.counts["close"] += 1


def _named(kind: str, name: str, number: int = 0) -> Change:
    change = Change(kind, number)
    change.name = name
    return change


def _change_content(content: bytearray, change: Change) -> None:
    if change.kind == TRUNCATE:
        del content[change.offset :]
        content.extend(bytes(change.offset - len(content)))
        return
    content.extend(bytes(max(0, change.offset - len(content))))
    content[change.offset : change.offset + len(change.data)] = change.data


def _change_names(numbers: dict[str, int], change: Change) -> None:
    if change.kind == CREATE:
        numbers[change.name] = change.number
        return
    numbers.pop(change.name, None)
    if change.kind == RENAME:
        numbers[change.to] = change.number


def _unsynced(changes: list[Change]) -> list[Change]:
    """Return the changes that no sync has made durable, in order."""
    safe: set[int] = set()  # contents whose earlier changes are durable, reading backwards
    folder_is_safe = False
    found: list[Change] = []
    for change in reversed(changes):
        if change.kind == SYNC:
            safe.add(change.number)
        elif change.kind == LOST_SYNC:
            # Changes between the previous sync and this one never become durable.
            safe.discard(change.number)
        elif change.kind == SYNC_FOLDER:
            folder_is_safe = True
        elif change.kind in (WRITE, HINT, TRUNCATE):
            if change.number not in safe:
                found.append(change)
        elif not folder_is_safe:
            found.append(change)
    found.reverse()
    return found


def _survivors(changes: list[Change], rng: Random) -> tuple[dict[str, int], dict[int, bytearray]]:
    """Return names and contents after a power loss, which may undo any unsynced change."""
    unsafe = {id(change) for change in _unsynced(changes)}
    names: dict[str, int] = {}
    contents: dict[int, bytearray] = {}
    mood = rng.choice(("all lost", "all kept", "any"))
    for change in changes:
        if change.number not in contents:
            contents[change.number] = bytearray()
        is_unsafe = id(change) in unsafe
        if change.kind in (WRITE, HINT, TRUNCATE):
            for part in _parts(change, rng, mood) if is_unsafe else [change]:
                _change_content(contents[change.number], part)
        elif change.kind in (CREATE, RENAME, REMOVE):
            if not is_unsafe or mood == "all kept" or (mood == "any" and rng.random() < 0.5):
                _change_names(names, change)
    return names, contents


def _parts(change: Change, rng: Random, mood: str) -> list[Change]:
    """Return what survives of an unsynced change: all, nothing, a torn part, or some pages."""
    if mood == "all lost":
        return []
    if mood == "all kept":
        return [change]
    fate = rng.choice(("kept", "lost", "torn", "zeros", "pages"))
    size = len(change.data)
    if fate == "lost":
        return []
    if fate == "kept" or change.kind == TRUNCATE:
        return [change]
    cut = rng.randrange(size + 1)
    if fate == "torn":
        return [Change(WRITE, change.number, change.offset, change.data[:cut])]
    if fate == "zeros":  # the size reached the disk, the rest of the data did not
        data = change.data[:cut] + bytes(size - cut)
        return [Change(WRITE, change.number, change.offset, data)]
    return _pages(change, rng)


def _pages(change: Change, rng: Random) -> list[Change]:
    """Return a random choice of the pages of a write."""
    found: list[Change] = []
    at = 0
    while at < len(change.data):
        end = at + PAGE_BYTES - (change.offset + at) % PAGE_BYTES
        if rng.random() < 0.5:
            part = change.data[at:end]
            found.append(Change(WRITE, change.number, change.offset + at, part))
        at = end
    return found
