"""The local write-ahead log: jobs that this node accepted and PostgreSQL may not have yet.

docs/formats/jobs-wal.md describes the files. A batch is one record, so it is replayed whole or not
at all. Each job of a record has a state byte outside the checksum. Taking a job back overwrites
that byte in place, which needs no space and cannot be torn. A job is *outstanding* until it is
known to be in its table, or taken back there too. A full file is deleted when none of its jobs is
outstanding.

Appending writes to the file at once; `sync` decides when it is on disk. Syncs run in a thread, so a
slow disk does not stop the node. After a write error the record is cut off again. Where that fails
too, or a sync failed, the log is broken and accepts nothing until a restart.
"""

import asyncio
import errno
import fcntl
import logging
import os
import struct
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from leveret.checksum import crc32
from leveret.errors import (
    CorruptionError,
    JobsUnavailableError,
    NewerFormatError,
    StorageError,
    public_reason,
)
from leveret.job_service.shards.buffered_job import BufferedJob, decode_job

MAGIC: Final = b"LVJW"
VERSION: Final = 2
_HEADER: Final = struct.Struct(">4sI16sI")  # magic, version, origin, checksum of the fields before
_FOLLOWS_BYTES: Final = 1  # behind the header, from version 2 on: how the files before may end
UNSYNCED: Final = 0  # their last records may be missing or damaged
SYNCED: Final = 1
# Bytes after this head, checksum of the jobs, number of jobs.
_RECORD: Final = struct.Struct(">III")
_LENGTH: Final = struct.Struct(">I")
RECORD_BYTES_MAX: Final = 64 * 1024 * 1024
LIVE: Final = 0
UNDONE: Final = 1

log = logging.getLogger(__name__)


class JobPosition(NamedTuple):
    """The position of a job in the log."""

    segment: int
    offset: int  # of the record's head
    number: int  # of the job in its record
    added_s: float  # by the clock of the event loop


class _Header(NamedTuple):
    """The header of a file."""

    origin: uuid.UUID
    follows_synced: bool
    size: int


class Wal:
    """The log of one node, in a directory of its own."""

    def __init__(self, directory: Path, sync: str, segment_bytes: int) -> None:
        self._directory = directory
        self._policy = sync
        self._segment_bytes = segment_bytes
        self.origin = uuid.uuid4()  # identifies this log in the shards; kept in its files
        self.outstanding: dict[int, JobPosition] = {}  # in the order of writing
        self.undone: dict[int, JobPosition] = {}  # taken back here, but not yet in the shards
        # Jobs of calls that may still fail, or whose keys may be known.
        self.unanswered: set[int] = set()
        self.appended = 0  # jobs since the start of the node
        self._counts: Counter[int] = Counter()  # of outstanding and undone jobs, by segment
        self._files: dict[int, int] = {}  # file descriptors by segment
        self._last = 0  # the segment that is written
        self._size = 0  # of that one
        self._fault = ""
        self._writes = 0  # to all files
        self._synced = 0  # how many of them are on disk
        self._dirty: set[int] = set()  # segments with writes that no sync has begun to cover
        self._is_listed = False  # the directory on disk has the last segment
        self._follows_unsynced: list[int] = []  # segments whose header says so
        self._syncing: asyncio.Future[None] | None = None
        self._lock = -1

    def open(self) -> None:
        """Read the files, cut off a torn end, and begin a new file."""
        self._directory.mkdir(parents=True, exist_ok=True)
        self._take_lock()
        headers = self._read_headers()
        for number, (header, may_be_torn) in headers.items():
            self._read_segment(number, header.size, may_be_torn)
            self.origin = header.origin
            if not header.follows_synced:
                self._follows_unsynced.append(number)
        self._begin(max(headers, default=0) + 1)
        _sync_directory(self._directory)
        self._is_listed = True
        self._drop_settled()

    def _take_lock(self) -> None:
        self._lock = os.open(self._directory / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._lock)
            raise StorageError(f"another process uses {self._directory}") from error

    def _path(self, segment: int) -> Path:
        return self._directory / f"{segment:012}.wal"

    def _read_headers(self) -> dict[int, tuple[_Header, bool]]:
        """Return the header of each file, and whether its end may be torn."""
        found: dict[int, tuple[_Header, bool]] = {}
        may_be_torn = True
        for path in sorted(self._directory.glob("*.wal"), reverse=True):
            header = _read_header(path)
            if header is None:
                path.unlink()  # the node died before the file had a record
                continue
            found[int(path.stem)] = header, may_be_torn
            may_be_torn = not header.follows_synced
        return dict(sorted(found.items()))

    def _read_segment(self, segment: int, start: int, may_be_torn: bool) -> None:
        path = self._path(segment)
        data = path.read_bytes()
        self._files[segment] = os.open(path, os.O_RDWR)
        end = start
        for offset, states, record_end in _records(data, start):
            self._load(segment, offset, states, data)
            end = record_end
        if end < len(data):
            if not may_be_torn and _has_more(data, end):
                raise CorruptionError(
                    f"{path} is damaged at byte {end}; set it aside to start without it"
                )
            text = "the last write to %s was not complete: its %d bytes were removed"
            log.warning(text, path, len(data) - end)
            os.ftruncate(self._files[segment], end)
        self._note_write(segment)  # a run that was killed may not have synced it

    def _load(self, segment: int, offset: int, states: bytes, data: bytes) -> None:
        for index, raw in enumerate(_jobs(data, offset)):
            where = self.outstanding if states[index] == LIVE else self.undone
            where[decode_job(raw).id] = JobPosition(segment, offset, index, 0.0)
            self._counts[segment] += 1

    def _begin(self, segment: int) -> None:
        path = self._path(segment)
        head = _HEADER.pack(MAGIC, VERSION, self.origin.bytes, 0)[:-4]
        head += _LENGTH.pack(crc32(head)) + bytes([UNSYNCED])
        self._files[segment] = _create(path, head)
        self._last, self._size = segment, len(head)
        self._is_listed = False
        self._follows_unsynced.append(segment)
        self._counts[segment] += 0

    def append(self, jobs: list[BufferedJob], raw: list[bytes], now_s: float) -> None:
        """Write a batch as one record; JobsUnavailableError where nothing of it was written.

        `raw` has the bytes of each job.
        """
        self._require()
        record = _record(raw)
        try:
            is_empty = self._size == _HEADER.size + _FOLLOWS_BYTES
            if self._size + len(record) > self._segment_bytes and not is_empty:
                self._begin(self._last + 1)
                self._drop_settled()
            self._write(record)
        except OSError as error:
            raise JobsUnavailableError(
                f"the local log of jobs cannot be written: {public_reason(error)}"
            ) from error
        for index, job in enumerate(jobs):
            self.outstanding[job.id] = JobPosition(self._last, self._size, index, now_s)
        self._counts[self._last] += len(jobs)
        self.appended += len(jobs)
        self._size += len(record)
        self._note_write(self._last)

    def _note_write(self, segment: int) -> None:
        self._writes += 1
        self._dirty.add(segment)

    def _require(self) -> None:
        if self._fault:
            raise JobsUnavailableError(f"the local log of jobs is broken: {self._fault}")

    def _write(self, record: bytes) -> None:
        descriptor = self._files[self._last]
        try:
            done = os.pwrite(descriptor, record, self._size)
            while done < len(record):
                done += os.pwrite(descriptor, record[done:], self._size + done)
        except OSError:
            self._cut(descriptor)
            raise

    def _cut(self, descriptor: int) -> None:
        try:
            os.ftruncate(descriptor, self._size)
        except OSError as error:
            self._fault = public_reason(error)

    def undo(self, ids: Iterable[int]) -> None:
        """Take jobs back, so that no replay inserts them."""
        for id in ids:
            position = self.outstanding.pop(id, None)
            if position is None:
                continue
            self.undone[id] = position
            self._mark(position)

    def _mark(self, position: JobPosition) -> None:
        offset = position.offset + _RECORD.size + position.number
        try:
            os.pwrite(self._files[position.segment], bytes([UNDONE]), offset)
        except OSError as error:
            self._fault = f"a job could not be taken back: {public_reason(error)}"
            log.error("%s", self._fault)
        self._note_write(position.segment)

    def settle(self, ids: Iterable[int]) -> None:
        """Forget jobs that their tables know of."""
        for id in ids:
            position = self.outstanding.pop(id, None) or self.undone.pop(id, None)
            if position is not None:
                self._counts[position.segment] -= 1
                if position.segment != self._last and self._counts[position.segment] == 0:
                    self._drop(position.segment)

    def _drop_settled(self) -> None:
        for segment in [s for s in self._files if s != self._last and not self._counts[s]]:
            self._drop(segment)

    def _drop(self, segment: int) -> None:
        os.close(self._files.pop(segment))
        self._counts.pop(segment, None)
        self._dirty.discard(segment)
        self._path(segment).unlink(missing_ok=True)

    @property
    def is_synced_first(self) -> bool:
        """Return whether an answer waits for the disk."""
        return self._policy == "always"

    async def synced(self) -> None:
        """Return when the appended jobs are as safe as the policy asks for."""
        if self.is_synced_first:
            await self._sync()

    async def _sync(self) -> None:
        """Return when everything that is written now is on disk."""
        writes = self._writes
        while self._synced < writes:
            self._require()
            await asyncio.wait([self._syncing or self._begin_sync()])

    def _begin_sync(self) -> "asyncio.Future[None]":
        # Duplicates, so that deleting a file meanwhile does not close it under the thread.
        copies: list[int] = []
        try:
            copies.extend(os.dup(self._files[segment]) for segment in sorted(self._dirty))
        except OSError as error:
            _close_all(copies)
            raise JobsUnavailableError(
                f"the local log of jobs cannot be synced: {public_reason(error)}"
            ) from error
        self._dirty.clear()
        directory = None if self._is_listed else self._directory
        loop = asyncio.get_running_loop()
        self._syncing = loop.run_in_executor(None, _sync_and_close, copies, directory)
        self._syncing.add_done_callback(partial(self._on_synced, self._writes, self._last))
        return self._syncing

    def _on_synced(self, writes: int, last: int, done: "asyncio.Future[None]") -> None:
        """Note what a sync has covered: all writes before it, when `last` was the last segment."""
        self._syncing = None
        if done.cancelled():
            self._fault = "a sync was cancelled"
        elif error := done.exception():
            self._fault = f"a sync failed: {public_reason(error)}"
        else:
            self._synced = writes
            self._is_listed |= last == self._last
            self._note_synced_before(last)

    def _note_synced_before(self, last: int) -> None:
        """Write to the headers up to that of `last` that the files before are on disk."""
        while self._follows_unsynced and self._follows_unsynced[0] <= last:
            descriptor = self._files.get(self._follows_unsynced.pop(0))
            if descriptor is not None:
                try:
                    os.pwrite(descriptor, bytes([SYNCED]), _HEADER.size)
                except OSError as error:  # a start takes damage in the files before for a torn end
                    log.warning("the header of a file of jobs cannot be written: %s", error)

    async def run(self, interval_s: float) -> None:
        """Sync at an interval until cancelled, if the policy asks for that."""
        while True:
            await asyncio.sleep(interval_s)
            if self._dirty and self._policy == "interval" and not self._fault:
                try:
                    await self._sync()
                    self._require()
                except JobsUnavailableError as error:
                    log.error("%s", error)

    def read(self, ids: Iterable[int]) -> list[BufferedJob]:
        """Read jobs from the files."""
        found = []
        for id in ids:
            position = self.outstanding.get(id) or self.undone.get(id)
            if position is not None:
                found.append(self._read_job(position))
        return found

    def _read_job(self, position: JobPosition) -> BufferedJob:
        descriptor = self._files[position.segment]
        head = os.pread(descriptor, _RECORD.size, position.offset)
        length, _, count = _RECORD.unpack(head)
        offset, end = (
            position.offset + _RECORD.size + count,
            position.offset + _RECORD.size + length,
        )
        for _ in range(position.number):
            offset += _LENGTH.size + _LENGTH.unpack(os.pread(descriptor, 4, offset))[0]
        (size,) = _LENGTH.unpack(os.pread(descriptor, 4, offset))
        assert offset + _LENGTH.size + size <= end
        return decode_job(os.pread(descriptor, size, offset + _LENGTH.size))

    def low(self) -> int | None:
        """Return the lowest id that is outstanding or undone."""
        return min((*self.outstanding, *self.undone), default=None)

    def close(self) -> None:
        """Close the files; delete files without outstanding jobs."""
        for segment, descriptor in list(self._files.items()):
            os.close(descriptor)
            if not self._counts[segment]:
                self._path(segment).unlink(missing_ok=True)
        self._files.clear()
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


def _create(path: Path, head: bytes) -> int:
    """Return the descriptor of a new file; leave none behind if the disk is full."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        done = os.write(descriptor, head)
        if done < len(head):  # there was room for a part of it
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    except OSError:
        os.close(descriptor)
        path.unlink(missing_ok=True)
        raise
    return descriptor


def _record(raw: list[bytes]) -> bytes:
    states = bytes([LIVE]) * len(raw)
    body = b"".join([part for data in raw for part in (_LENGTH.pack(len(data)), data)])
    return b"".join((_RECORD.pack(len(states) + len(body), crc32(body), len(raw)), states, body))


def _read_header(path: Path) -> _Header | None:
    """Return the header of a file; None if it is not whole."""
    with path.open("rb") as file:
        data = file.read(_HEADER.size + _FOLLOWS_BYTES)
    if len(data) < _HEADER.size or not any(data):
        return None
    magic, version, origin, checksum = _HEADER.unpack_from(data)
    if magic != MAGIC or checksum != crc32(data[: _HEADER.size - 4]):
        raise CorruptionError(f"{path} is not a log of jobs")
    if version > VERSION:
        raise NewerFormatError(f"{path} was written by a later version")
    if version == 1:
        return _Header(uuid.UUID(bytes=origin), True, _HEADER.size)
    if len(data) < _HEADER.size + _FOLLOWS_BYTES:
        return None
    return _Header(uuid.UUID(bytes=origin), data[_HEADER.size] == SYNCED, len(data))


def _records(data: bytes, start: int) -> Iterator[tuple[int, bytes, int]]:
    """Return offset, states and end of each whole record."""
    offset = start
    while offset + _RECORD.size <= len(data):
        length, checksum, count = _RECORD.unpack_from(data, offset)
        start, end = offset + _RECORD.size, offset + _RECORD.size + length
        if not 0 < count < length <= RECORD_BYTES_MAX or end > len(data):
            return
        if crc32(data[start + count : end]) != checksum:
            return
        yield offset, data[start : start + count], end
        offset = end


def _has_more(data: bytes, end: int) -> bool:
    """Return whether the bytes beyond the end hold more than zeros."""
    return any(data[end:])


def _jobs(data: bytes, offset: int) -> Iterator[bytes]:
    length, _, count = _RECORD.unpack_from(data, offset)
    at, end = offset + _RECORD.size + count, offset + _RECORD.size + length
    while at < end:
        (size,) = _LENGTH.unpack_from(data, at)
        yield data[at + _LENGTH.size : at + _LENGTH.size + size]
        at += _LENGTH.size + size


def _sync_and_close(descriptors: list[int], directory: Path | None) -> None:
    """Sync files, and the directory unless it is None."""
    try:
        for descriptor in descriptors:
            os.fsync(descriptor)
        if directory is not None:
            _sync_directory(directory)
    finally:
        _close_all(descriptors)


def _close_all(descriptors: list[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
