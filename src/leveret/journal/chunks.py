"""A chunk: the messages that a stream got in one block of the log, as columns.

    chunk      = head times which ends envelope_ends envelopes bodies
    head       = size:u32 crc:u32 first_offset:u64 first_ms:u64 last_ms:u64
                 count:u32 envelope_count:u32                                      40 bytes
    times      = u32 * count                  milliseconds after `first_ms`
    which      = u32 * count                  number of the envelope of each message
    ends       = u32 * (count + 1)            0, then where each body ends
    envelope_ends = u32 * (envelope_count + 1)
    envelope   = address properties           `address` as in `leveret.journal.records`

Numbers are little-endian and the columns are in the format of Apache Arrow, so that a chunk becomes
a table without a look at its messages. `size` counts the bytes after the head. The checksum covers
everything after itself. An envelope is address and properties. Publishers send few distinct
envelopes, so each is stored once. `properties` is the content header from its flags on, without
class and body size.
"""

from typing import Final

from librt.strings import BytesWriter, write_i32_le, write_i64_le
from mypy_extensions import i32, i64

from leveret.checksum import crc32

CHUNK_HEAD_BYTES: Final = 40
# A chunk with this many bytes of bodies and envelopes, or this many messages, is full.
CHUNK_BYTES_MAX: Final = 1024 * 1024
CHUNK_COUNT_MAX: Final = 65_536
PROPERTIES_AT: Final = 12  # in a content header: after class, weight and body size


class WrittenChunk:
    """A complete chunk that is to be copied to its segment."""

    def __init__(
        self,
        owner: "ChunkWriter",
        segment: i64,
        at: i64,
        data: bytes,
        first_offset: i64,
        count: i64,
        first_ms: i64,
    ) -> None:
        self.owner = owner
        self.segment = segment  # first offset in its segment, which names the segment
        self.at = at  # byte offset of the chunk in the segment
        self.data = data
        self.first_offset = first_offset
        self.count = count
        self.first_ms = first_ms


class WritePosition:
    """The end of a stream: its last segment, and the place of the next chunk in it.

    A segment is closed by its size, or by its age if the stream has a maximum age. This depends on
    the chunks alone: placing the same chunks again gives the same segments.
    """

    def __init__(self, segment_bytes: i64, segment_ms: i64, head_bytes: i64) -> None:
        self.segment: i64 = 0
        self.at: i64 = head_bytes
        self.began_ms: i64 = 0  # time of the first message in the segment; 0 = it is empty
        self._segment_bytes = segment_bytes
        self._segment_ms = segment_ms  # 0 = no maximum age
        self._head_bytes = head_bytes

    def begin_segment(self, first_offset: i64) -> None:
        """Begin a new segment with the next chunk."""
        self.resume_at(first_offset, self._head_bytes, 0)

    def resume_at(self, segment: i64, at: i64, began_ms: i64) -> None:
        """Continue in an existing segment, at a byte offset."""
        self.segment = segment
        self.at = at
        self.began_ms = began_ms

    def place_chunk(self, first_offset: i64, first_ms: i64, size: i64) -> i64:
        """Return the byte offset of a chunk in `segment`, which may be a new segment."""
        is_old = self._segment_ms != 0 and first_ms - self.began_ms >= self._segment_ms
        if self.began_ms != 0 and (is_old or self.at + size > self._segment_bytes):
            self.begin_segment(first_offset)
        if self.began_ms == 0:
            self.began_ms = max(first_ms, 1)
        at = self.at
        self.at = at + size
        return at


class ChunkWriter:
    """Collects messages of one stream into a chunk."""

    def __init__(self, position: WritePosition) -> None:
        self.position = position
        self.stream: i64 = 0  # number of the stream in the log
        self.next_offset: i64 = 0  # stream offset of the next message
        self.count: i64 = 0  # messages in the current chunk
        self.last_ms: i64 = 0  # time of the last message; times never go back
        self.is_open = False  # the journal's list of open chunks contains this one
        self._first_ms: i64 = 0
        self._times = BytesWriter()
        self._which = BytesWriter()
        self._ends = BytesWriter()
        self._envelope_ends = BytesWriter()
        self._envelopes = BytesWriter()
        self._bodies = BytesWriter()
        self._numbers: dict[bytes, int] = {}  # envelope -> its number in the current chunk
        # Address, header and envelope of the last message: the next one often has the same.
        self._address: bytes = b""
        self._header: bytes = b""
        self._envelope: i64 = -1

    def add(self, address: bytes, header: bytes, body: bytes, now_ms: i64) -> i64:
        """Add a message and return its stream offset."""
        if now_ms > self.last_ms:
            self.last_ms = now_ms
        if self.count == 0:
            self._first_ms = self.last_ms
            write_i32_le(self._ends, 0)
            write_i32_le(self._envelope_ends, 0)
        if self._envelope < 0 or header is not self._header or address is not self._address:
            self._envelope = self._find_envelope(address, header)
            self._address = address
            self._header = header
        write_i32_le(self._times, i32(min(self.last_ms - self._first_ms, 0x7FFFFFFF)))
        write_i32_le(self._which, i32(self._envelope))
        self._bodies.write(body)
        write_i32_le(self._ends, i32(len(self._bodies)))
        self.count += 1
        offset = self.next_offset
        self.next_offset = offset + 1
        return offset

    def _find_envelope(self, address: bytes, header: bytes) -> i64:
        envelope = address + header[PROPERTIES_AT:]
        known = self._numbers.get(envelope)
        if known is not None:
            return known
        number = len(self._numbers)
        self._numbers[envelope] = number
        self._envelopes.write(envelope)
        write_i32_le(self._envelope_ends, i32(len(self._envelopes)))
        return number

    def is_full(self) -> bool:
        """Return True if the next message belongs in another chunk."""
        size = len(self._bodies) + len(self._envelopes)
        return size >= CHUNK_BYTES_MAX or self.count >= CHUNK_COUNT_MAX

    def size(self) -> i64:
        """Estimate the bytes so far."""
        return len(self._bodies) + len(self._envelopes) + 12 * self.count

    def close(self) -> WrittenChunk:
        """Finish the chunk and give it a place in a segment; the next chunk starts empty."""
        first_offset = self.next_offset - self.count
        columns = (
            self._times.getvalue()
            + self._which.getvalue()
            + self._ends.getvalue()
            + self._envelope_ends.getvalue()
            + self._envelopes.getvalue()
        )
        bodies = self._bodies.getvalue()
        rest_of_head = BytesWriter()  # everything after the checksum
        write_i64_le(rest_of_head, first_offset)
        write_i64_le(rest_of_head, self._first_ms)
        write_i64_le(rest_of_head, self.last_ms)
        write_i32_le(rest_of_head, i32(self.count))
        write_i32_le(rest_of_head, i32(len(self._numbers)))
        head = rest_of_head.getvalue()
        crc = crc32(bodies, crc32(columns, crc32(head)))
        size = len(columns) + len(bodies)
        size_and_crc = size.to_bytes(4, "little") + crc.to_bytes(4, "little")
        data = b"".join([size_and_crc, head, columns, bodies])
        at = self.position.place_chunk(first_offset, self._first_ms, len(data))
        written = WrittenChunk(
            self, self.position.segment, at, data, first_offset, self.count, self._first_ms
        )
        self._clear()
        return written

    def _clear(self) -> None:
        self.count = 0
        self._envelope = -1
        self._numbers = {}
        for writer in (
            self._times,
            self._which,
            self._ends,
            self._envelope_ends,
            self._envelopes,
            self._bodies,
        ):
            writer.truncate(0)

    def on_written(self, written: WrittenChunk) -> None:
        """Handle the event that a chunk is on disk, and in its segment."""
        raise NotImplementedError
