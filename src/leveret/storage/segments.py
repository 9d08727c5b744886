"""Segments of streams, read from disk.

    segment = head chunk*          the head of every file, see `leveret.storage.blocks`

The positions of chunks are found by reading the chunk heads, when a segment is used for the first
time. Every chunk that is read from disk is verified. This module opens no files: the storage passes
in a function that reads bytes.
"""

from collections.abc import Callable
from typing import Final

from librt.strings import read_i64_le
from mypy_extensions import i64

from leveret.engine.streams.chunk import Chunk, chunk_bytes, read_chunk
from leveret.engine.streams.segments import Segment, SegmentIndex, Segments, SegmentStore
from leveret.errors import CorruptionError
from leveret.journal.chunks import CHUNK_HEAD_BYTES, WrittenChunk
from leveret.storage.blocks import HEAD_BYTES
from leveret.storage.file_names import segment_name

INDEXES_MAX: Final = 64  # indexes kept in memory for one stream
_AHEAD_BYTES: Final = 64 * 1024  # read at a position of unknown size

# Stream, first offset of the segment, offset in the file, size -> bytes.
Read = Callable[[int, int, int, int], bytes]


class DiskSegments(Segments):
    """The segments of one stream on disk."""

    def __init__(self, stream: i64, read: Read) -> None:
        super().__init__(HEAD_BYTES)
        self._stream = stream
        self._read = read
        self._indexes: dict[int, SegmentIndex] = {}  # by segment, in order of last use
        # The bytes that were read last, for small chunks that follow each other.
        self._ahead = b""
        self._ahead_segment: i64 = -1
        self._ahead_at: i64 = 0
        self._ahead_end: i64 = 0

    def read(self, segment: Segment, at: i64) -> Chunk:
        size = chunk_bytes(self._bytes(segment, at, CHUNK_HEAD_BYTES))
        size = max(min(size, segment.end - at), 0)
        data = self._bytes(segment, at, size)
        try:
            return read_chunk(data, segment.first_offset, at)
        except CorruptionError as fault:
            name = segment_name(self._stream, segment.first_offset)
            raise CorruptionError(f"{name} is damaged at byte {at}: {fault}") from fault

    def _bytes(self, segment: Segment, at: i64, size: i64) -> bytes:
        """Return bytes of a segment. One read serves all chunks that stand close together."""
        first = segment.first_offset
        start = at - self._ahead_at
        if first == self._ahead_segment and start >= 0 and at + size <= self._ahead_end:
            return self._ahead[start : start + size]
        data = self._read(self._stream, first, at, max(size, _AHEAD_BYTES))
        if size <= _AHEAD_BYTES:
            self._ahead = data
            self._ahead_segment = first
            self._ahead_at = at
            # Bytes after the end are still being written.
            self._ahead_end = min(at + len(data), segment.end)
        return data[:size]

    def release(self) -> None:
        self._ahead = b""
        self._ahead_segment = -1

    def index(self, segment: Segment) -> SegmentIndex:
        found = self._indexes.pop(segment.first_offset, None)
        if found is None:
            found = self._scan(segment)
        self._indexes[segment.first_offset] = found
        if len(self._indexes) > INDEXES_MAX:
            del self._indexes[next(iter(self._indexes))]
        return found

    def _scan(self, segment: Segment) -> SegmentIndex:
        """Read the heads of all chunks, up to the first head that is invalid."""
        index = SegmentIndex()
        at: i64 = HEAD_BYTES
        start: i64 = 0  # position of `data` in the file
        data = b""
        offset = segment.first_offset
        last_ms: i64 = 0  # heads have no checksum, but their times must ascend
        while at < segment.end:
            if at + CHUNK_HEAD_BYTES > start + len(data):
                start = at
                data = self._read(self._stream, segment.first_offset, at, _AHEAD_BYTES)
            head = data[at - start : at - start + CHUNK_HEAD_BYTES]
            size = chunk_bytes(head)
            first_ms = read_i64_le(head, 16) if size != 0 else -1
            if first_ms < last_ms or read_i64_le(head, 8) != offset:
                break
            last_ms = first_ms
            index.note(offset, first_ms, at)
            offset += read_i64_le(head, 32) & 0x7FFFFFFF
            at += size
        if not index.places:
            index.note(segment.first_offset, 0, HEAD_BYTES)
        return index

    def keep(self, written: WrittenChunk) -> None:
        index = self._indexes.get(written.segment)
        if index is None:
            if written.at != HEAD_BYTES:
                return  # the index is made at the first use
            index = SegmentIndex()
            self._indexes[written.segment] = index
        index.note(written.first_offset, written.first_ms, written.at)

    def drop_first(self) -> Segment:
        segment = super().drop_first()
        self._indexes.pop(segment.first_offset, None)
        return segment


class DiskSegmentStore(SegmentStore):
    """The streams of one data directory."""

    def __init__(self, read: Read) -> None:
        self._read = read

    def open(self, stream: i64) -> Segments:
        return DiskSegments(stream, self._read)
