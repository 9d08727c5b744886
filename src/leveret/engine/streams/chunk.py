"""A chunk as it is read: it makes its messages when they are delivered.

Messages share envelopes (address and properties). An envelope is unpacked once for each chunk. A
delivery carries its offset in the header `x-stream-offset`: the envelope keeps the encoded
properties in two parts, and a delivery puts its offset between them.
"""

from typing import Final

from librt.strings import BytesWriter, read_i32_le, read_i64_le, write_i64_be
from mypy_extensions import i64

from leveret.checksum import crc32
from leveret.engine.message import NO_EXPIRY, Address, Message, read_address
from leveret.errors import CorruptionError
from leveret.journal.chunks import CHUNK_HEAD_BYTES, PROPERTIES_AT
from leveret.wire.properties import decode_properties, encode_header, parse_traits
from leveret.wire.tables import Field

OFFSET_HEADER: Final = "x-stream-offset"
FILTER_HEADER: Final = "x-stream-filter-value"

_LONG: Final = ord("l")
_CLASS: Final = b"\x00\x3c\x00\x00"  # class and weight of a content header
_NO_SIZE: Final = b"\x00\x00\x00\x00\x00\x00\x00\x00"


class Envelope:
    """Address and properties that messages of a chunk share."""

    def __init__(self, data: bytes) -> None:
        address, at = read_address(data, 0)
        self.address: Address = address
        self.properties: bytes = data[at:]  # as published
        decoded = decode_properties(_CLASS + _NO_SIZE + self.properties)
        headers = decoded.headers if decoded.headers is not None else {}
        found = headers.get(FILTER_HEADER)
        self.filter_value: str | None = None  # compared with the filters of consumers
        if found is not None and isinstance(found.value, str):
            self.filter_value = found.value
        headers.pop(OFFSET_HEADER, None)
        headers[OFFSET_HEADER] = Field(_LONG, 0)
        decoded.headers = headers
        shown = encode_header(decoded, 0)
        end = parse_traits(shown).headers_end
        self.before: bytes = shown[PROPERTIES_AT : end - 8]
        self.after: bytes = shown[end:]

    def header(self, offset: i64, body_bytes: i64) -> bytes:
        """Return the content header of a delivery."""
        writer = BytesWriter()
        writer.write(_CLASS)
        write_i64_be(writer, body_bytes)
        writer.write(self.before)
        write_i64_be(writer, offset)
        writer.write(self.after)
        return writer.getvalue()


class Chunk:
    """Messages of a stream."""

    def __init__(self, data: bytes, segment: i64, at: i64) -> None:
        self.data = data
        self.segment = segment  # first offset of its segment
        self.at = at  # position in its segment
        self.first_offset: i64 = read_i64_le(data, 8)
        self.first_ms: i64 = read_i64_le(data, 16)
        self.last_ms: i64 = read_i64_le(data, 24)
        self.count: i64 = i64(read_i32_le(data, 32))
        self.envelope_count: i64 = i64(read_i32_le(data, 36))
        self.end_offset: i64 = self.first_offset + self.count
        # Positions of the columns
        self.which_at: i64 = CHUNK_HEAD_BYTES + 4 * self.count
        self.ends_at: i64 = self.which_at + 4 * self.count
        self.envelope_ends_at: i64 = self.ends_at + 4 * (self.count + 1)
        self.envelopes_at: i64 = self.envelope_ends_at + 4 * (self.envelope_count + 1)
        self.bodies_at: i64 = self.envelopes_at + self._number(
            self.envelope_ends_at + 4 * self.envelope_count
        )
        self._envelopes: list[Envelope | None] = []

    def size(self) -> i64:
        return len(self.data)

    def _number(self, at: i64) -> i64:
        return i64(read_i32_le(self.data, at)) & 0xFFFFFFFF

    def envelope(self, index: i64) -> Envelope:
        """Return the envelope of the message at an index."""
        number = self._number(self.which_at + 4 * index)
        if number >= self.envelope_count:
            raise CorruptionError("a chunk names an envelope that it does not have")
        if not self._envelopes:
            self._envelopes = [None] * self.envelope_count
        found = self._envelopes[number]
        if found is None:
            at = self.envelope_ends_at + 4 * number
            start = self.envelopes_at + self._number(at)
            found = Envelope(self.data[start : self.envelopes_at + self._number(at + 4)])
            self._envelopes[number] = found
        return found

    def body(self, index: i64) -> bytes:
        at = self.ends_at + 4 * index
        start = self.bodies_at + self._number(at)
        return self.data[start : self.bodies_at + self._number(at + 4)]

    def body_start(self, index: i64) -> i64:
        """Return where a body begins, from the first body on. For `count`: where the last ends."""
        return self._number(self.ends_at + 4 * index)

    def envelope_start(self, number: i64) -> i64:
        """Return where an envelope begins. For `envelope_count`: where the last one ends."""
        return self.envelopes_at + self._number(self.envelope_ends_at + 4 * number)

    def which(self, index: i64) -> i64:
        """Return the number of the envelope of a message."""
        return self._number(self.which_at + 4 * index)

    def time_ms(self, index: i64) -> i64:
        """Return when the broker accepted the message."""
        return self.first_ms + self._number(CHUNK_HEAD_BYTES + 4 * index)

    def message(self, index: i64, slot: i64) -> Message:
        """Return a message for delivery."""
        envelope = self.envelope(index)
        body = self.body(index)
        offset = self.first_offset + index
        header = envelope.header(offset, len(body))
        return Message(envelope.address, header, body, offset, NO_EXPIRY, 0, 0, slot)

    def index_at(self, time_ms: i64) -> i64:
        """Return the index of the first message that is not older than a time, or `count`."""
        index: i64 = 0
        while index < self.count and self.time_ms(index) < time_ms:
            index += 1
        return index


def read_chunk(data: bytes, segment: i64, at: i64) -> Chunk:
    """Return the chunk in these bytes. Raise CorruptionError if they were changed."""
    size = chunk_bytes(data)
    if size == 0 or size > len(data):
        raise CorruptionError("a chunk is cut short")
    if len(data) > size:
        data = data[:size]
    if crc32(memoryview(data)[8:]) != i64(read_i32_le(data, 4)) & 0xFFFFFFFF:
        raise CorruptionError("a chunk has been changed")
    return Chunk(data, segment, at)


def chunk_bytes(head: bytes) -> i64:
    """Return the size of the chunk that begins with these bytes, or 0 if they are too few."""
    if len(head) < CHUNK_HEAD_BYTES:
        return 0
    return CHUNK_HEAD_BYTES + (i64(read_i32_le(head, 0)) & 0xFFFFFFFF)
