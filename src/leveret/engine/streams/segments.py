"""The segments of a stream, and finding chunks by offset and by time.

A stream is a list of segments, and a segment is a sequence of chunks. A `SegmentIndex` knows some
chunks of a segment, one for every `INDEX_STRIDE_BYTES`. Chunks between two of them are found by
reading on.

`Segments` finds chunks. Subclasses read them: `MemorySegments` for a node without a data directory,
and the class of the storage for all others.
"""

from array import array
from bisect import bisect_right
from typing import Final

from mypy_extensions import i64

from leveret.engine.streams.chunk import Chunk
from leveret.errors import CorruptionError
from leveret.journal.chunks import WrittenChunk

INDEX_STRIDE_BYTES: Final = 64 * 1024
FAR_MS: Final = 1 << 62  # later than every time


class Segment:
    """A range of chunks that is deleted as a whole."""

    def __init__(self, first_offset: i64, first_ms: i64, head_bytes: i64) -> None:
        self.first_offset = first_offset  # also its name
        self.first_ms = first_ms  # time of its first message; -1: not read yet
        self.end: i64 = head_bytes  # end of its last chunk, in bytes


class SegmentIndex:
    """Some of the chunks of a segment, by offset and by time."""

    def __init__(self) -> None:
        self.offsets: array[int] = array("Q")
        self.times: array[int] = array("Q")
        self.places: array[int] = array("Q")

    def note(self, first_offset: i64, first_ms: i64, at: i64) -> None:
        """Add a chunk, unless it is close to the last one in the index."""
        if not self.places or at - i64(self.places[-1]) >= INDEX_STRIDE_BYTES:
            self.offsets.append(first_offset)
            self.times.append(first_ms)
            self.places.append(at)

    def by_offset(self, offset: i64) -> i64:
        """Return the position of the last indexed chunk that does not begin after an offset."""
        return self.places[max(bisect_right(self.offsets, offset) - 1, 0)]

    def by_time(self, time_ms: i64) -> i64:
        """Return the position of the last indexed chunk that begins before a time."""
        return self.places[max(bisect_right(self.times, time_ms - 1) - 1, 0)]


class Segments:
    """The chunks of one stream."""

    def __init__(self, head_bytes: i64) -> None:
        self.head_bytes = head_bytes  # bytes of a segment before its first chunk
        self.segments: list[Segment] = []  # oldest first

    def read(self, segment: Segment, at: i64) -> Chunk:
        """Return the chunk at a position. Raise CorruptionError if it cannot be read."""
        raise NotImplementedError

    def index(self, segment: Segment) -> SegmentIndex:
        """Return the index of a segment, with at least its first chunk."""
        raise NotImplementedError

    def keep(self, written: WrittenChunk) -> None:
        """Keep a new chunk."""
        raise NotImplementedError

    def release(self) -> None:
        """Free memory that is kept for readers, because there are none."""

    def drop_first(self) -> Segment:
        """Delete and return the oldest segment."""
        return self.segments.pop(0)

    def add(self, written: WrittenChunk) -> bool:
        """Add a chunk. Return True if it began a new segment."""
        is_new = not self.segments or self.segments[-1].first_offset != written.segment
        if is_new:
            self.segments.append(Segment(written.segment, written.first_ms, self.head_bytes))
        self.segments[-1].end = written.at + len(written.data)
        self.keep(written)
        return is_new

    def total_bytes(self) -> i64:
        total: i64 = 0
        for segment in self.segments:
            total += segment.end
        return total

    def find(self, offset: i64) -> Chunk:
        """Return the chunk that holds an existing offset, or raise CorruptionError."""
        if not self.segments:
            raise CorruptionError(f"offset {offset} is missing")
        number = self._number_of(offset)
        segment = self.segments[number]
        chunk = self.read(segment, self.index(segment).by_offset(offset))
        while chunk.end_offset <= offset:
            chunk = self.next(chunk)
        if chunk.first_offset > offset:
            raise CorruptionError(f"offset {offset} is not where it should be")
        return chunk

    def next(self, chunk: Chunk) -> Chunk:
        """Return the chunk after `chunk`, which is not the last one.

        Raise CorruptionError if it is missing or cannot be read.

        If a segment is missing, there is a gap between the two.
        """
        number = self._number_of(chunk.segment)
        segment = self.segments[number]
        at = chunk.at + chunk.size()
        if segment.first_offset == chunk.segment and at < segment.end:
            following = self.read(segment, at)
        else:
            if segment.first_offset == chunk.segment:
                number += 1
            if number >= len(self.segments):
                raise CorruptionError(f"offset {chunk.end_offset} is missing")
            segment = self.segments[number]
            following = self.read(segment, self.head_bytes)
        return following

    def find_time(self, time_ms: i64, end_offset: i64) -> i64:
        """Return the first offset that is not older than a time, or `end_offset`."""
        if not self.segments:
            return end_offset
        segment = self.segments[self._number_before(time_ms)]
        chunk = self.read(segment, self.index(segment).by_time(time_ms))
        while chunk.last_ms < time_ms:
            if chunk.end_offset >= end_offset:
                return end_offset
            chunk = self.next(chunk)
        return chunk.first_offset + chunk.index_at(time_ms)

    def first_ms(self, number: i64) -> i64:
        """Return the time of a segment's first message, or of the next readable segment.

        The next segment is younger, so messages are kept too long rather than too short.
        """
        while number < len(self.segments):
            segment = self.segments[number]
            if segment.first_ms >= 0:
                return segment.first_ms
            try:
                segment.first_ms = self.read(segment, self.head_bytes).first_ms
            except CorruptionError:  # readers of its messages get the error
                number += 1
        return FAR_MS

    def _number_before(self, time_ms: i64) -> i64:
        """Return the number of the last segment that begins before a time, or 0."""
        low: i64 = 0
        high: i64 = len(self.segments)
        while high - low > 1:
            middle = (low + high) // 2
            if self.first_ms(middle) < time_ms:
                low = middle
            else:
                high = middle
        return low

    def skip_damage(self, offset: i64, end_offset: i64) -> i64:
        """Return the first readable offset after one that cannot be read."""
        if not self.segments:
            return end_offset
        number = self._number_of(offset)
        try:
            index = self.index(self.segments[number])
            entry = bisect_right(index.offsets, offset)
            if entry < len(index.offsets):
                return index.offsets[entry]
        except CorruptionError:  # nothing of this segment can be read
            pass
        if number + 1 < len(self.segments):
            return self.segments[number + 1].first_offset
        return end_offset

    def _number_of(self, offset: i64) -> i64:
        """Return the number of the segment that an offset is in, or would be in."""
        low: i64 = 0
        high: i64 = len(self.segments)
        while high - low > 1:
            middle = (low + high) // 2
            if self.segments[middle].first_offset <= offset:
                low = middle
            else:
                high = middle
        return low


class MemorySegments(Segments):
    """Chunks in memory. They live as long as the process."""

    def __init__(self) -> None:
        super().__init__(0)
        self._chunks: dict[int, dict[int, Chunk]] = {}  # by segment and position
        self._indexes: dict[int, SegmentIndex] = {}

    def read(self, segment: Segment, at: i64) -> Chunk:
        return self._chunks[segment.first_offset][at]

    def index(self, segment: Segment) -> SegmentIndex:
        return self._indexes[segment.first_offset]

    def keep(self, written: WrittenChunk) -> None:
        chunk = Chunk(written.data, written.segment, written.at)
        self._chunks.setdefault(written.segment, {})[written.at] = chunk
        index = self._indexes.setdefault(written.segment, SegmentIndex())
        index.note(written.first_offset, written.first_ms, written.at)

    def drop_first(self) -> Segment:
        segment = super().drop_first()
        del self._chunks[segment.first_offset]
        del self._indexes[segment.first_offset]
        return segment


class SegmentStore:
    """Opens the segments of durable streams. The storage implements it."""

    def open(self, stream: i64) -> Segments:
        """Return the segments of a new stream."""
        raise NotImplementedError
