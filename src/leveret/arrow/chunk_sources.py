"""Sources of chunks for the worker: segment files, or the broker.

Both yield the chunks of a range in order. Each chunk is verified, and must follow the one before. A
file that no longer exists was removed by retention: `RetentionPassedError`.
"""

import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Final

from leveret.arrow.requests import RetentionPassedError, SegmentPart
from leveret.engine.streams.chunk import Chunk, chunk_bytes, read_chunk
from leveret.engine.streams.segments import SegmentIndex
from leveret.errors import CorruptionError
from leveret.journal.chunks import CHUNK_HEAD_BYTES
from leveret.storage.blocks import HEAD_BYTES, check_head

INDEXES_MAX: Final = 256
_READ_BYTES: Final = 2 * 1024 * 1024  # bytes of chunks read at once
_HEADS_BYTES: Final = 4096  # read at once if only chunk heads are needed


class ChunkPositions:
    """Known positions of chunks in segment files, shared by all threads."""

    def __init__(self) -> None:
        self._indexes: OrderedDict[str, SegmentIndex] = OrderedDict()
        self._guard = threading.Lock()

    def place(self, path: str, offset: int) -> int:
        """Return the last known position in a segment at or before a message offset."""
        with self._guard:
            index = self._indexes.get(path)
            if index is None or offset < index.offsets[0]:
                return HEAD_BYTES
            return int(index.by_offset(offset))

    def note(self, path: str, offset: int, at: int) -> None:
        """Note that the chunk with this first offset begins at `at`."""
        with self._guard:
            index = self._indexes.setdefault(path, SegmentIndex())
            self._indexes.move_to_end(path)
            if not index.places or at > index.places[-1]:
                index.note(offset, 0, at)
            if len(self._indexes) > INDEXES_MAX:
                self._indexes.popitem(last=False)


def chunks_from_files(
    parts: list[SegmentPart], number: int, first: int, end: int, indexes: ChunkPositions
) -> Iterator[Chunk]:
    """Yield the chunks of a range; raise RetentionPassedError, CorruptionError or OSError."""
    if first >= end:
        return
    expected = first
    for part in parts:
        chunks = _chunks_of_file(part, number, expected, indexes)
        while True:
            try:
                chunk = next(chunks, None)
            except CorruptionError as fault:
                raise CorruptionError(f"offset {expected} cannot be read: {fault}") from fault
            if chunk is None:
                break
            _require_next(chunk, expected)
            yield chunk
            expected = chunk.end_offset
            if expected >= end:
                return
    if expected < end:
        raise CorruptionError(f"offsets {expected} to {end - 1} are missing")


def chunks_from_broker(receive: Callable[[], bytes], first: int, end: int) -> Iterator[Chunk]:
    """Yield the chunks of a range that the broker sends. `receive` raises EOFError."""
    expected = first
    while expected < end:
        chunk = read_chunk(receive(), 0, 0)
        _require_next(chunk, expected)
        yield chunk
        expected = chunk.end_offset


def _require_next(chunk: Chunk, expected: int) -> None:
    if not chunk.first_offset <= expected < chunk.end_offset:
        raise CorruptionError(f"offset {expected} is missing or out of order")


def _chunks_of_file(
    part: SegmentPart, number: int, first: int, indexes: ChunkPositions
) -> Iterator[Chunk]:
    name = os.path.basename(part.path)
    try:
        fd = os.open(part.path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError as fault:
        raise RetentionPassedError(f"{name} has been removed") from fault
    try:
        check_head(os.pread(fd, HEAD_BYTES, 0), number, name)
        window = _Window(fd, part.end, name)
        at = _find(window, part, max(first, part.first_offset), indexes)
        window.ahead = _READ_BYTES
        while at < part.end:
            data = window.bytes_at(at, chunk_bytes(window.bytes_at(at, CHUNK_HEAD_BYTES)))
            try:
                chunk = read_chunk(data, part.first_offset, at)
            except CorruptionError as fault:
                raise CorruptionError(f"{name} is damaged at byte {at}: {fault}") from fault
            if window.start == at:
                indexes.note(part.path, chunk.first_offset, at)
            yield chunk
            at += len(data)
    finally:
        os.close(fd)


def _find(window: "_Window", part: SegmentPart, offset: int, indexes: ChunkPositions) -> int:
    """Return the position of the chunk that holds an offset, by reading the heads before it."""
    at = indexes.place(part.path, offset)
    while at < part.end:
        head = window.bytes_at(at, CHUNK_HEAD_BYTES)
        first, count = int.from_bytes(head[8:16], "little"), int.from_bytes(head[32:36], "little")
        if offset < first + count:
            break
        indexes.note(part.path, first, at)
        at += chunk_bytes(head)
    return at


class _Window:
    """A window of a file in memory that moves forward."""

    def __init__(self, fd: int, end: int, name: str) -> None:
        self.start = 0
        self.ahead = _HEADS_BYTES  # bytes to read at once
        self._fd = fd
        self._end = end  # end of the readable part
        self._name = name
        self._data = b""

    def bytes_at(self, at: int, size: int) -> bytes:
        """Return bytes of the file; raise CorruptionError if the file is too short."""
        if at + size > self._end:
            raise CorruptionError(f"{self._name} is cut short")
        if at < self.start or at + size > self.start + len(self._data):
            wanted = min(max(size, self.ahead), self._end - at)
            self.start = at
            self._data = os.pread(self._fd, wanted, at)
            if len(self._data) < size:
                raise CorruptionError(f"{self._name} is cut short")
        return self._data[at - self.start : at - self.start + size]
