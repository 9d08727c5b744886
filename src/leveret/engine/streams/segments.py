"""Where the chunks of a stream are, and how they are found by offset and by time.

A stream is a list of segments; chunks stand in each one behind the other. An `Index` knows some of
the chunks of a segment, one for every `INDEX_STRIDE_BYTES`; what lies between is read through.

`Segments` finds; reading is left to a subclass: `MemorySegments` for a node without a data
directory, and the storage's for all others.
"""

from array import array
from bisect import bisect_right
from typing import Final

from mypy_extensions import i64

from leveret.engine.streams.chunk import Chunk
from leveret.errors import CorruptionError
from leveret.journal.chunks import WrittenChunk

INDEX_STRIDE_BYTES: Final = 64 * 1024
FAR_MS: Final = 1 << 62  # a time that never comes


class Segment:
    """A stretch of chunks that is forgotten as a whole."""

    def __init__(self, first_offset: i64, first_ms: i64, head_bytes: i64) -> None:
        self.first_offset = first_offset  # names it
        self.first_ms = first_ms  # time of its first message; -1 = nobody has read it yet
        self.end: i64 = head_bytes  # where its last chunk ends


class Index:
    """Some of the chunks of a segment, by offset and by time."""

    def __init__(self) -> None:
        self.offsets: array[int] = array("Q")
        self.times: array[int] = array("Q")
        self.places: array[int] = array("Q")

    def note(self, first_offset: i64, first_ms: i64, at: i64) -> None:
        """A chunk stands at a place; not every one is kept."""
        if not self.places or at - i64(self.places[-1]) >= INDEX_STRIDE_BYTES:
            self.offsets.append(first_offset)
            self.times.append(first_ms)
            self.places.append(at)

    def by_offset(self, offset: i64) -> i64:
        """The place of the last known chunk that does not begin after an offset."""
        return self.places[max(bisect_right(self.offsets, offset) - 1, 0)]

    def by_time(self, time_ms: i64) -> i64:
        """The place of the last known chunk that begins before a time."""
        return self.places[max(bisect_right(self.times, time_ms - 1) - 1, 0)]

    def after(self, at: i64) -> i64:
        """The first known place behind this one; -1 = there is none."""
        index = bisect_right(self.places, at)
        return self.places[index] if index < len(self.places) else -1


class Segments:
    """The chunks of one stream."""

    def __init__(self, head_bytes: i64) -> None:
        self.head_bytes = head_bytes  # of a segment, before its first chunk
        self.segments: list[Segment] = []  # oldest first

    def read(self, segment: Segment, at: i64) -> Chunk:
        """The chunk at a place; raises Corrupt."""
        raise NotImplementedError

    def index(self, segment: Segment) -> Index:
        """Some chunks of a segment, at least the first."""
        raise NotImplementedError

    def keep(self, written: WrittenChunk) -> None:
        """A chunk has come in its place."""
        raise NotImplementedError

    def release(self) -> None:
        """Nobody reads any more: what is in memory for readers can go."""

    def drop_first(self) -> Segment:
        """Forget the oldest segment."""
        return self.segments.pop(0)

    def add(self, written: WrittenChunk) -> bool:
        """Take a chunk in; whether it began a new segment."""
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
        """The chunk that holds an offset, which exists. Raises Corrupt."""
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
        """The chunk behind another one; there is one. Raises Corrupt.

        It does not follow closely where a segment is missing.
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
        """The first offset that is not older than a time; `end_offset` where all are."""
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
        """The time of a segment's first message; where it cannot be read, that of the next one.

        That is not older: what goes by age stays too long rather than too short.
        """
        while number < len(self.segments):
            segment = self.segments[number]
            if segment.first_ms >= 0:
                return segment.first_ms
            try:
                segment.first_ms = self.read(segment, self.head_bytes).first_ms
            except CorruptionError:  # whoever reads its messages is told
                number += 1
        return FAR_MS

    def _number_before(self, time_ms: i64) -> i64:
        """The number of the last segment that begins before a time, or of the first one."""
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
        """The first offset behind one that cannot be read from which reading can go on."""
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
        """The number of the segment that an offset is in, or would be."""
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
    """Chunks that live as long as the process."""

    def __init__(self) -> None:
        super().__init__(0)
        self._chunks: dict[int, dict[int, Chunk]] = {}  # by segment and place
        self._indexes: dict[int, Index] = {}

    def read(self, segment: Segment, at: i64) -> Chunk:
        return self._chunks[segment.first_offset][at]

    def index(self, segment: Segment) -> Index:
        return self._indexes[segment.first_offset]

    def keep(self, written: WrittenChunk) -> None:
        chunk = Chunk(written.data, written.segment, written.at)
        self._chunks.setdefault(written.segment, {})[written.at] = chunk
        index = self._indexes.setdefault(written.segment, Index())
        index.note(written.first_offset, written.first_ms, written.at)

    def drop_first(self) -> Segment:
        segment = super().drop_first()
        del self._chunks[segment.first_offset]
        del self._indexes[segment.first_offset]
        return segment


class SegmentStore:
    """Where streams that survive keep their segments. Storage subclasses it."""

    def open(self, stream: i64) -> Segments:
        """The segments of a new stream."""
        raise NotImplementedError
