"""A chunk: the messages that a stream took in one block of the log, as columns.

    chunk      = head times which ends envelope_ends envelopes bodies
    head       = size:u32 crc:u32 first_offset:u64 first_ms:u64 last_ms:u64
                 count:u32 envelope_count:u32                                      40 bytes
    times      = u32 * count                  milliseconds after `first_ms`
    which      = u32 * count                  the envelope of each message
    ends       = u32 * (count + 1)            0, then where each body ends
    envelope_ends = u32 * (envelope_count + 1)
    envelope   = address properties           `address` as in `leveret.journal.records`

Numbers are little-endian and the columns those of Apache Arrow, so that a table can be made of a
chunk without looking at its messages. `size` counts what follows the head; the checksum covers
everything after itself. Publishers send few distinct envelopes (address and properties), so each
stands once; `properties` is the content header from its flags on, without class and body size.
"""

from typing import Final

from librt.strings import BytesWriter, write_i32_le, write_i64_le
from mypy_extensions import i32, i64

from leveret.checksum import crc32

CHUNK_HEAD_BYTES: Final = 40
CHUNK_BYTES_MAX: Final = (
    1024 * 1024
)  # of bodies and envelopes, before the next message starts a new chunk
CHUNK_COUNT_MAX: Final = 65_536
PROPERTIES_AT: Final = 12  # in a content header: behind class, weight and body size


class WrittenChunk:
    """A chunk on its way to its segment."""

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
        self.segment = segment  # first offset in that segment
        self.at = at  # where the chunk stands in it
        self.data = data
        self.first_offset = first_offset
        self.count = count
        self.first_ms = first_ms


class WritePosition:
    """Where a stream ends: its last segment, and where the next chunk goes.

    A segment is closed by its size, or by its age where the stream forgets by age. That depends on
    the chunks alone: whoever places the same chunks again gets the same segments.
    """

    def __init__(self, segment_bytes: i64, segment_ms: i64, head_bytes: i64) -> None:
        self.segment: i64 = 0
        self.at: i64 = head_bytes
        self.began_ms: i64 = 0  # time of the first message in the segment; 0 = it is empty
        self._segment_bytes = segment_bytes
        self._segment_ms = segment_ms  # 0 = for ever
        self._head_bytes = head_bytes

    def begin(self, first_offset: i64) -> None:
        """The next chunk begins a segment."""
        self.go_on(first_offset, self._head_bytes, 0)

    def go_on(self, segment: i64, at: i64, began_ms: i64) -> None:
        """The next chunk goes here, if there is room."""
        self.segment = segment
        self.at = at
        self.began_ms = began_ms

    def put(self, first_offset: i64, first_ms: i64, size: i64) -> i64:
        """Where a chunk goes in `segment`, which may be a new one."""
        is_old = self._segment_ms != 0 and first_ms - self.began_ms >= self._segment_ms
        if self.began_ms != 0 and (is_old or self.at + size > self._segment_bytes):
            self.begin(first_offset)
        if self.began_ms == 0:
            self.began_ms = max(first_ms, 1)
        at = self.at
        self.at = at + size
        return at


class ChunkWriter:
    """Messages on their way into a chunk of one stream."""

    def __init__(self, place: WritePosition) -> None:
        self.place = place
        self.stream: i64 = 0  # number of the stream in the log
        self.next_offset: i64 = 0  # of the next message
        self.count: i64 = 0  # messages in the chunk that is being written
        self.last_ms: i64 = 0  # time of the last message: no later one is older
        self.is_open = False  # the journal knows that there is something to write
        self._first_ms: i64 = 0
        self._times = BytesWriter()
        self._which = BytesWriter()
        self._ends = BytesWriter()
        self._envelope_ends = BytesWriter()
        self._envelopes = BytesWriter()
        self._bodies = BytesWriter()
        self._known: dict[bytes, int] = {}  # envelopes of this chunk
        # The last message, whose envelope the next one often shares.
        self._address: bytes = b""
        self._header: bytes = b""
        self._envelope: i64 = -1

    def add(self, address: bytes, header: bytes, body: bytes, now_ms: i64) -> i64:
        """Add a message; its offset."""
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
        known = self._known.get(envelope)
        if known is not None:
            return known
        number = len(self._known)
        self._known[envelope] = number
        self._envelopes.write(envelope)
        write_i32_le(self._envelope_ends, i32(len(self._envelopes)))
        return number

    def is_full(self) -> bool:
        """Whether the next message belongs into another chunk."""
        size = len(self._bodies) + len(self._envelopes)
        return size >= CHUNK_BYTES_MAX or self.count >= CHUNK_COUNT_MAX

    def size(self) -> i64:
        """Bytes so far, about."""
        return len(self._bodies) + len(self._envelopes) + 12 * self.count

    def close(self) -> WrittenChunk:
        """The chunk, and its place; the next one starts empty."""
        first_offset = self.next_offset - self.count
        columns = (
            self._times.getvalue()
            + self._which.getvalue()
            + self._ends.getvalue()
            + self._envelope_ends.getvalue()
            + self._envelopes.getvalue()
        )
        bodies = self._bodies.getvalue()
        shown = BytesWriter()
        write_i64_le(shown, first_offset)
        write_i64_le(shown, self._first_ms)
        write_i64_le(shown, self.last_ms)
        write_i32_le(shown, i32(self.count))
        write_i32_le(shown, i32(len(self._known)))
        head = shown.getvalue()
        crc = crc32(bodies, crc32(columns, crc32(head)))
        size = len(columns) + len(bodies)
        sums = size.to_bytes(4, "little") + crc.to_bytes(4, "little")
        data = b"".join([sums, head, columns, bodies])
        at = self.place.put(first_offset, self._first_ms, len(data))
        written = WrittenChunk(
            self, self.place.segment, at, data, first_offset, self.count, self._first_ms
        )
        self._clear()
        return written

    def _clear(self) -> None:
        self.count = 0
        self._envelope = -1
        self._known = {}
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
        """A chunk is on disk, and in its segment."""
        raise NotImplementedError
