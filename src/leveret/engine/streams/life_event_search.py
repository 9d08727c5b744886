"""Search a chronicle stream for the life events of one message, in slices.

The events of a copy come after its `queued` event, and those of a publish after its `published`
event. So one pass from the oldest message to the newest finds all. `published` and `queued` carry
the properties of the message: they are found by its message id, or by their own number. From then
on every event whose body names that number belongs to the message. See docs/remember.md.

Chunks that contain neither the id nor a known number are skipped without a look at their messages.
If the stream itself holds the message (it is no event), the search reports its offset.
"""

from typing import Final

from mypy_extensions import i64

from leveret.engine.history.life_events import PUBLISHED, QUEUED
from leveret.engine.streams.chunk import Chunk
from leveret.engine.streams.stream import Stream
from leveret.errors import CorruptionError
from leveret.wire.properties import Properties, decode_properties
from leveret.wire.tables import Table

NUMBERS_MAX: Final = 256  # copies and publishes of one message that are tracked
_STEP: Final = 4096  # messages examined in one step
_NUMBER_BYTES_MAX: Final = 41  # two numbers of 20 digits
_HEAD: Final = b"\x00\x3c" + bytes(10)  # the part of a content header before the properties


class LifeEvent:
    """One event of a message."""

    def __init__(self, time_ms: i64, event: str, number: i64, offset: i64) -> None:
        self.time_ms = time_ms
        self.event = event
        self.number = number  # of the copy or the publish
        self.offset = offset  # of the event in the stream
        self.queue = ""
        self.reason = ""
        self.consumer = ""
        self.exchange = ""
        self.routing_key = ""


class LifeEventSearch:
    """One pass over one stream."""

    def __init__(self, stream: Stream, message_id: str, number: i64, offset: i64) -> None:
        self.stream = stream
        self.offset = max(offset, stream.first_offset)  # next message to examine
        self.end = stream.end_offset
        self.numbers: list[int] = []  # numbers of the copies and publishes found so far
        self.events: list[LifeEvent] = []
        self.places: list[int] = []  # offsets of the message itself, in the stream
        self.scanned: i64 = 0
        self._message_id = message_id
        self._number = number  # of the wanted copy; 0: search by message id
        self._needle = message_id.encode("utf-8", "surrogateescape")
        if not message_id:
            self._needle = int(number).to_bytes(8, "big")
        if number != 0:
            self.numbers.append(int(number))
        self._chunk: Chunk | None = None

    def is_done(self) -> bool:
        return self.offset >= min(self.end, self.stream.end_offset) or self.stream.deleted

    def step(self) -> None:
        """Examine the next messages of a chunk."""
        stream = self.stream
        self.offset = max(self.offset, stream.first_offset)
        if self.is_done():
            return
        try:
            chunk = self._read()
            self._chunk = chunk
            before = self.offset
            self._examine_chunk(chunk)
            self.scanned += self.offset - before
        except CorruptionError:
            self._chunk = None
            self.offset = max(
                stream.segments.skip_damage(self.offset, stream.end_offset), self.offset + 1
            )

    def _read(self) -> Chunk:
        chunk = self._chunk
        if chunk is not None and chunk.first_offset <= self.offset < chunk.end_offset:
            return chunk
        if chunk is not None and chunk.end_offset == self.offset:
            chunk = self.stream.segments.next(chunk)
        else:
            chunk = self.stream.segments.find(self.offset)
        if not chunk.first_offset <= self.offset < chunk.end_offset:
            raise CorruptionError(f"offset {self.offset} is missing")
        return chunk

    def _examine_chunk(self, chunk: Chunk) -> None:
        hits = self._hits(chunk)
        if not hits and not self.numbers:
            self.offset = chunk.end_offset
            return
        index = self.offset - chunk.first_offset
        end = min(chunk.count, index + _STEP)
        self.offset = chunk.first_offset + end
        while index < end:
            if hits and chunk.which(index) in hits:
                self._examine_content(chunk, index)
            elif self.numbers:
                self._examine_event(chunk, index)
            index += 1

    def _hits(self, chunk: Chunk) -> set[int]:
        """Return the numbers of the envelopes that contain the needle."""
        hits: set[int] = set()
        data = chunk.data
        number: i64 = 0
        found: i64 = data.find(self._needle, chunk.envelopes_at, chunk.bodies_at)
        while found >= 0 and number < chunk.envelope_count:
            end = chunk.envelope_start(number + 1)
            if found < end:
                hits.add(int(number))
                found = data.find(self._needle, end, chunk.bodies_at)
            number += 1
        return hits

    def _examine_content(self, chunk: Chunk, index: i64) -> None:
        """Examine a message or event whose envelope contains the needle."""
        envelope = chunk.envelope(index)
        properties = decode_properties(_HEAD + envelope.properties)
        headers = properties.headers if properties.headers is not None else {}
        event = _text(headers, "x-event")
        number = _number(headers, "x-broker-id")
        if not self._is_wanted(properties, event, number):
            if self.numbers:
                self._examine_event(chunk, index)
            return
        if event == "":
            self.places.append(int(chunk.first_offset + index))
            return
        self._track(number)
        self._track(_number(headers, "x-publish-id"))
        self._note_event(chunk, index, event, number, headers)

    def _is_wanted(self, properties: Properties, event: str, number: i64) -> bool:
        if self._message_id:
            return properties.message_id == self._message_id
        return event in (PUBLISHED, QUEUED) and number == self._number

    def _track(self, number: i64) -> None:
        if number != 0 and number not in self.numbers and len(self.numbers) < NUMBERS_MAX:
            self.numbers.append(int(number))

    def _examine_event(self, chunk: Chunk, index: i64) -> None:
        """Examine an event without content. Its body is one number or a range of two."""
        size = chunk.body_start(index + 1) - chunk.body_start(index)
        if size == 0 or size > _NUMBER_BYTES_MAX:
            return
        number = self._known_number(chunk.body(index))
        if number == 0:
            return
        properties = decode_properties(_HEAD + chunk.envelope(index).properties)
        headers = properties.headers if properties.headers is not None else {}
        event = _text(headers, "x-event")
        if event not in ("", PUBLISHED, QUEUED):
            self._track(_number(headers, "x-next-id"))
            self._note_event(chunk, index, event, number, headers)

    def _known_number(self, body: bytes) -> i64:
        """Return the known number that a body names, or 0."""
        first, dash, last = body.partition(b"-")
        if not first.isdigit():
            return 0
        low = int(first)
        high = int(last) if dash and last.isdigit() else low
        for number in self.numbers:
            if low <= number <= high:
                return number
        return 0

    def _note_event(
        self, chunk: Chunk, index: i64, event: str, number: i64, headers: Table
    ) -> None:
        made = LifeEvent(chunk.time_ms(index), event, number, chunk.first_offset + index)
        made.queue = _text(headers, "x-queue")
        made.reason = _text(headers, "x-reason")
        made.consumer = _text(headers, "x-consumer")
        address = chunk.envelope(index).address
        made.exchange = address.exchange
        made.routing_key = address.routing_key
        self.events.append(made)


def _text(headers: Table, name: str) -> str:
    field = headers.get(name)
    return field.value if field is not None and isinstance(field.value, str) else ""


def _number(headers: Table, name: str) -> int:
    field = headers.get(name)
    return field.value if field is not None and isinstance(field.value, int) else 0
