"""The local write-ahead log: what this node took and PostgreSQL may not have yet.

docs/formats/jobs-wal.md draws the files. A batch is one record, so it is replayed whole or not at
all. Each of its jobs has a state byte beside the record's checksum: taking a job back overwrites
that byte in place, which needs no space and cannot be torn. A job is *outstanding* until it is
known to be in its table (or taken back there too); a full file goes when none of its jobs is.

Appending writes to the file at once, in the caller's turn; `sync` decides when the disk has it. An
error while writing cuts the record off again; where that fails too, or a sync failed, the log is
broken and takes nothing more until a restart.
"""

import asyncio
import fcntl
import logging
import os
import struct
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

from leveret.checksum import crc32
from leveret.errors import CorruptionError, JobsUnavailableError, NewerFormatError, StorageError
from leveret.job_service.shards import entries
from leveret.job_service.shards.entries import Entry

MAGIC: Final = b"LVJW"
VERSION: Final = 1
_HEADER: Final = struct.Struct(">4sI16sI")  # magic, version, origin, checksum of what is before
_RECORD: Final = struct.Struct(">III")  # bytes after this head, checksum, number of jobs
_LENGTH: Final = struct.Struct(">I")
RECORD_BYTES_MAX: Final = 64 * 1024 * 1024
LIVE: Final = 0
UNDONE: Final = 1

log = logging.getLogger(__name__)


class Place(NamedTuple):
    """Where the log has a job."""

    segment: int
    offset: int  # of the record's head
    number: int  # of the job in its record
    added_s: float  # by the loop's clock


class Wal:
    """The log of one node, in a directory that belongs to it alone."""

    def __init__(self, directory: Path, sync: str, segment_bytes: int) -> None:
        self._directory = directory
        self._policy = sync
        self._segment_bytes = segment_bytes
        self.origin = uuid.uuid4()  # of this log, told to the shards; kept in its files
        self.outstanding: dict[int, Place] = {}  # in the order in which they were written
        self.undone: dict[int, Place] = {}  # taken back here, and not yet there
        self.unanswered: set[int] = set()  # of calls that may still find them known, or fail
        self._counts: Counter[int] = Counter()  # of both, by segment
        self._files: dict[int, int] = {}  # descriptors by segment
        self._last = 0  # the segment that is written
        self._size = 0  # of that one
        self._fault = ""
        self._is_dirty = False
        self._syncing: asyncio.Future[None] | None = None
        self._lock = -1

    # ---- opening

    def open(self) -> None:
        """Read what is there, cut off a torn end, and begin a new file."""
        self._directory.mkdir(parents=True, exist_ok=True)
        self._take_lock()
        numbers = sorted(int(path.stem) for path in self._directory.glob("*.wal"))
        for number in numbers:
            self._read_segment(number, is_last=number == numbers[-1])
        self._begin((numbers or [0])[-1] + 1)
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

    def _read_segment(self, segment: int, is_last: bool) -> None:
        path = self._path(segment)
        data = path.read_bytes()
        if not self._read_header(path, data):
            path.unlink()  # the start ended before the first record of it
            return
        self._files[segment] = os.open(path, os.O_RDWR)
        offset = _HEADER.size
        for offset, states, _ in _records(data):
            self._load(segment, offset, states, data)
        end = _end_of(data)
        if end < len(data):
            if not is_last and _has_more(data, end):
                raise CorruptionError(
                    f"{path} is damaged at byte {end}; set it aside to start without it"
                )
            log.warning("cut %d bytes of a torn end off %s", len(data) - end, path.name)
            os.ftruncate(self._files[segment], end)

    def _read_header(self, path: Path, data: bytes) -> bool:
        if len(data) < _HEADER.size:
            return False
        magic, version, origin, checksum = _HEADER.unpack_from(data)
        if magic != MAGIC or checksum != crc32(data[: _HEADER.size - 4]):
            raise CorruptionError(f"{path} does not begin as a log of jobs")
        if version > VERSION:
            raise NewerFormatError(f"{path} was written by a later version")
        self.origin = uuid.UUID(bytes=origin)
        return True

    def _load(self, segment: int, offset: int, states: bytes, data: bytes) -> None:
        for index, raw in enumerate(_jobs(data, offset)):
            where = self.outstanding if states[index] == LIVE else self.undone
            where[entries.decode(raw).id] = Place(segment, offset, index, 0.0)
            self._counts[segment] += 1

    def _begin(self, segment: int) -> None:
        path = self._path(segment)
        head = _HEADER.pack(MAGIC, VERSION, self.origin.bytes, 0)[:-4]
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        self._files[segment] = descriptor
        os.write(descriptor, head + _LENGTH.pack(crc32(head)))
        self._last, self._size = segment, _HEADER.size
        self._counts[segment] += 0
        _sync_directory(self._directory)

    # ---- writing

    def append(self, jobs: list[Entry], raw: list[bytes], now_s: float) -> None:
        """Write a batch as one record, or nothing of it and raise JobsUnavailableError.

        `raw` has the bytes of each job.
        """
        self._require()
        record = _record(raw)
        try:
            if self._size + len(record) > self._segment_bytes and self._size > _HEADER.size:
                self._roll()
            self._write(record)
        except OSError as error:
            raise JobsUnavailableError(
                f"the local log of jobs cannot be written: {error}"
            ) from error
        for index, job in enumerate(jobs):
            self.outstanding[job.id] = Place(self._last, self._size, index, now_s)
        self._counts[self._last] += len(jobs)
        self._size += len(record)
        self._is_dirty = True

    def _require(self) -> None:
        if self._fault:
            raise JobsUnavailableError(f"the local log of jobs is broken: {self._fault}")

    def _roll(self) -> None:
        os.fsync(self._files[self._last])
        self._begin(self._last + 1)
        self._drop_settled()

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
            self._fault = str(error)

    def undo(self, ids: Iterable[int]) -> None:
        """Take jobs back, so that no replay brings them."""
        for id in ids:
            place = self.outstanding.pop(id, None)
            if place is None:
                continue
            self.undone[id] = place
            self._mark(place)

    def _mark(self, place: Place) -> None:
        offset = place.offset + _RECORD.size + place.number
        try:
            os.pwrite(self._files[place.segment], bytes([UNDONE]), offset)
        except OSError as error:
            self._fault = f"a job could not be taken back: {error}"
            log.error("%s", self._fault)
        self._is_dirty = True

    def settle(self, ids: Iterable[int]) -> None:
        """Jobs that their tables know of: they need no replay."""
        for id in ids:
            place = self.outstanding.pop(id, None) or self.undone.pop(id, None)
            if place is not None:
                self._counts[place.segment] -= 1
                if place.segment != self._last and self._counts[place.segment] == 0:
                    self._drop(place.segment)

    def _drop_settled(self) -> None:
        for segment in [s for s in self._files if s != self._last and not self._counts[s]]:
            self._drop(segment)

    def _drop(self, segment: int) -> None:
        os.close(self._files.pop(segment))
        self._counts.pop(segment, None)
        self._path(segment).unlink(missing_ok=True)

    # ---- the disk

    @property
    def is_synced_first(self) -> bool:
        """Whether an answer waits for the disk."""
        return self._policy == "always"

    async def synced(self) -> None:
        """Return when what was appended is as safe as the policy asks for."""
        if self.is_synced_first:
            await self._sync()

    async def _sync(self) -> None:
        while self._syncing is not None:  # began before our bytes were written
            await asyncio.wait([self._syncing])
            await asyncio.sleep(0)  # who began it must hear of its end
        self._require()
        if not self._is_dirty:
            return
        self._is_dirty = False
        loop = asyncio.get_running_loop()
        # Opened anew, so that a file that is dropped meanwhile cannot close it under the thread.
        copy = os.dup(self._files[self._last])
        self._syncing = loop.run_in_executor(None, _sync_and_close, copy)
        try:
            await asyncio.shield(self._syncing)
        except OSError as error:
            self._fault = f"a sync failed: {error}"
            raise JobsUnavailableError(f"the local log of jobs is broken: {error}") from error
        finally:
            self._syncing = None

    async def run(self, interval_s: float) -> None:
        """Sync every now and then, as long as the node lives."""
        while True:
            await asyncio.sleep(interval_s)
            if self._is_dirty and self._policy == "interval" and not self._fault:
                try:
                    await self._sync()
                except JobsUnavailableError as error:
                    log.error("%s", error)

    # ---- reading back

    def read(self, ids: Iterable[int]) -> list[Entry]:
        """The jobs of these ids, from the files."""
        found = []
        for id in ids:
            place = self.outstanding.get(id) or self.undone.get(id)
            if place is not None:
                found.append(self._entry(place))
        return found

    def _entry(self, place: Place) -> Entry:
        descriptor = self._files[place.segment]
        head = os.pread(descriptor, _RECORD.size, place.offset)
        length, _, count = _RECORD.unpack(head)
        offset, end = place.offset + _RECORD.size + count, place.offset + _RECORD.size + length
        for _ in range(place.number):
            offset += _LENGTH.size + _LENGTH.unpack(os.pread(descriptor, 4, offset))[0]
        (size,) = _LENGTH.unpack(os.pread(descriptor, 4, offset))
        assert offset + _LENGTH.size + size <= end
        return entries.decode(os.pread(descriptor, size, offset + _LENGTH.size))

    def low(self) -> int | None:
        """The smallest id that is not settled."""
        return min((*self.outstanding, *self.undone), default=None)

    def close(self) -> None:
        """Let go of the files; those without outstanding jobs are removed."""
        for segment, descriptor in list(self._files.items()):
            os.close(descriptor)
            if not self._counts[segment]:
                self._path(segment).unlink(missing_ok=True)
        self._files.clear()
        os.close(self._lock)


# ---- bytes


def _record(raw: list[bytes]) -> bytes:
    states = bytes([LIVE]) * len(raw)
    body = b"".join([part for data in raw for part in (_LENGTH.pack(len(data)), data)])
    return b"".join((_RECORD.pack(len(states) + len(body), crc32(body), len(raw)), states, body))


def _records(data: bytes) -> Iterator[tuple[int, bytes, int]]:
    """Offset, states and end of each whole record."""
    offset = _HEADER.size
    while offset + _RECORD.size <= len(data):
        length, checksum, count = _RECORD.unpack_from(data, offset)
        start, end = offset + _RECORD.size, offset + _RECORD.size + length
        if not 0 < count < length <= RECORD_BYTES_MAX or end > len(data):
            return
        if crc32(data[start + count : end]) != checksum:
            return
        yield offset, data[start : start + count], end
        offset = end


def _end_of(data: bytes) -> int:
    return max((end for _, _, end in _records(data)), default=_HEADER.size)


def _has_more(data: bytes, end: int) -> bool:
    """Whether bytes beyond the end are more than an unwritten tail."""
    return any(data[end:])


def _jobs(data: bytes, offset: int) -> Iterator[bytes]:
    length, _, count = _RECORD.unpack_from(data, offset)
    at, end = offset + _RECORD.size + count, offset + _RECORD.size + length
    while at < end:
        (size,) = _LENGTH.unpack_from(data, at)
        yield data[at + _LENGTH.size : at + _LENGTH.size + size]
        at += _LENGTH.size + size


def _sync_and_close(descriptor: int) -> None:
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
