"""A stream: a queue whose messages stay, each with an offset.

Messages are collected in a chunk, written to the log with the block of the turn, and copied into
the stream's segments. Only then do consumers see them (`end_offset`). Every consumer reads at its
own position, from the offset that it asked for. An ack gives it room for more messages and moves
its cursor, if it has one.

Old segments are deleted by size and by age (`_retain`), but never the last one.

Invariant: `first_offset` <= offsets that can be read < `end_offset` <= `writer.next_offset`.
"""

from typing import Final

from mypy_extensions import i64

from leveret.engine.arguments.queue_arguments import QueueSettings
from leveret.engine.arguments.rules import age_ms
from leveret.engine.backlog.ledger import Ledger
from leveret.engine.backlog.page_reader import PageReader
from leveret.engine.message import Address, Holder, Message
from leveret.engine.queues.queue import Queue
from leveret.engine.streams.chunk import Chunk
from leveret.engine.streams.cursor_room import CursorRoom
from leveret.engine.streams.reader import Reader
from leveret.engine.streams.segments import FAR_MS, MemorySegments, Segments
from leveret.engine.timer_queue import NEVER
from leveret.engine.turns.events import CONSUMER_CREATED, CONSUMER_DELETED
from leveret.engine.turns.outcomes import IN_LOG, QUEUED
from leveret.engine.turns.session import Consumer
from leveret.engine.turns.turn import Turn
from leveret.errors import CorruptionError, UnsupportedError
from leveret.journal.chunks import ChunkWriter, WritePosition, WrittenChunk
from leveret.journal.journal import Journal
from leveret.wire.scan import TIMESTAMP
from leveret.wire.tables import Field, Table

RECENT_BYTES: Final = 4 * 1024 * 1024  # newest chunks kept in memory, for readers at the end
PASSED_MAX: Final = 10_000  # messages that all filters together may pass over in one turn
TIME_S_MAX: Final = 1 << 40  # largest timestamp: 35 thousand years
OFFSET_MAX: Final = 1 << 62  # largest offset that a reader may ask for, or wait for
SEGMENT_AGES: Final = 4  # segments within a maximum age


class StreamWriter(ChunkWriter):
    """Reports chunks that are on disk to its stream."""

    def __init__(self, stream: "Stream", place: WritePosition) -> None:
        super().__init__(place)
        self._stream = stream

    def on_written(self, written: WrittenChunk) -> None:
        self._stream.on_written(written)


class StreamLedger(Ledger):
    """The ledger of a stream: it keeps cursors, and nothing of single messages."""

    def __init__(self, turn: Turn) -> None:
        super().__init__(turn.journal, True, turn.unlogged)
        self.cursors: dict[str, int] = {}  # the next offset of each cursor
        self._moved: dict[str, None] = {}
        self.room = CursorRoom("")  # of the vhost, when the stream belongs to one

    def load(self, cursors: dict[str, int]) -> None:
        """Take the cursors that the log has, whatever the limit."""
        self.room.cursors += len(cursors) - len(self.cursors)
        self.cursors = cursors

    def end(self) -> None:
        """Forget the cursors: the stream is deleted."""
        self.closed = True
        self.load({})
        self.room = CursorRoom("")  # messages that are settled later do not count

    def require_room(self, name: str) -> None:
        """Raise PreconditionFailedError if a cursor of this name is new and has no room."""
        if name not in self.cursors:
            self.room.require()

    def forget(self, message: Message) -> None:
        reader = message.holder
        if isinstance(reader, Reader) and reader.cursor:
            self.note_settled(reader, message)

    def hand_over(self, message: Message) -> None:
        self.forget(message)

    def note_settled(self, reader: Reader, message: Message) -> None:
        """Move the cursor of a reader over the messages that are settled without a gap."""
        offset = reader.note_settled(message)
        if offset > self.cursors.get(reader.cursor, -1):
            self.move(reader.cursor, offset)

    def move(self, name: str, offset: i64) -> None:
        """Set the offset of a cursor; -1 deletes the cursor."""
        before = len(self.cursors)
        if offset < 0:
            self.cursors.pop(name, None)
        else:
            self.cursors[name] = offset
        self.room.cursors += len(self.cursors) - before
        self._moved[name] = None
        if not self._is_listed:
            self._list()

    def write(self) -> None:
        self._is_listed = False
        journal = self.journal
        if journal is not None and not self.closed:
            for name in self._moved:
                journal.write_cursor(
                    self.id, self.cursors.get(name, -1), name.encode("utf-8", "surrogateescape")
                )
        self._moved.clear()


class Stream(Queue):
    """A queue that keeps its messages, by offset."""

    def __init__(
        self,
        vhost: str,
        name: str,
        slot: i64,
        settings: QueueSettings,
        arguments: Table,
        turn: Turn,
    ) -> None:
        super().__init__(
            vhost,
            name,
            slot,
            settings,
            durable=True,
            auto_delete=False,
            owner=None,
            arguments=arguments,
            turn=turn,
        )
        self.cursors = StreamLedger(turn)
        self.ledger = self.cursors
        self.segments: Segments = MemorySegments()
        self.writer = StreamWriter(self, self._new_place())
        self.first_offset: i64 = 0
        self.end_offset: i64 = 0  # messages before it can be read
        self._settling: Holder | None = None  # holder of the message that was settled last
        self._recent: list[Chunk] = []  # the newest chunks, while there are readers
        self._recent_bytes: i64 = 0
        self._first_served: i64 = 0  # index of the reader that the next turn serves first

    def _new_place(self) -> WritePosition:
        settings = self.settings
        age_ms: i64 = settings.max_age_ms // SEGMENT_AGES if settings.max_age_ms > 0 else 0
        return WritePosition(settings.segment_bytes, age_ms, self.segments.head_bytes)

    def open(self, segments: Segments) -> None:
        """Use these segments from now on. Their chunks can be read."""
        self.segments = segments
        self.writer.position = self._new_place()
        self.writer.stream = self.ledger.id

    def restore(self, next_offset: i64, last_ms: i64) -> None:
        """Continue after the chunks that `open` found on disk."""
        self.writer.next_offset = next_offset
        self.writer.last_ms = last_ms
        self.end_offset = next_offset
        found = self.segments.segments
        self.first_offset = found[0].first_offset if found else next_offset

    def attach(self, journal: Journal, pages: PageReader) -> None:
        self.ledger.journal = journal
        self.arm()

    def reconfigure(self, settings: QueueSettings) -> None:
        """Use other limits. RabbitMQ: the size of segments stays as declared."""
        settings.segment_bytes = self.settings.segment_bytes
        settings.filter_bytes = self.settings.filter_bytes
        self.settings = settings
        if self.segments.segments and not self.turn.is_restoring:
            self._retain()
        else:
            self.arm()

    def message_count(self) -> i64:
        return self.end_offset - self.first_offset

    def push(
        self,
        address: Address,
        header: bytes,
        body: bytes,
        *,
        ttl_ms: i64,
        priority: i64,
        flags: i64,
        delay_ms: i64,
    ) -> i64:
        """Append a message. It is kept whatever its delivery mode."""
        self.append(address.record(), header, body)
        journal = self.ledger.journal
        if journal is None:
            return QUEUED
        journal.must_sync = True
        return QUEUED | IN_LOG

    def append(self, address: bytes, header: bytes, body: bytes) -> None:
        """Append a message without asking for a sync, unless the stream has readers."""
        writer = self.writer
        journal = self.ledger.journal
        if writer.count != 0 and writer.is_full():
            self._close_chunk(journal)
        if journal is None:
            self.touch()
        elif not writer.is_open:
            journal.open_chunk(writer)
            if self.consumers:
                journal.must_sync = True
        writer.add(address, header, body, self.turn.now_ms)
        self.published += 1

    def _close_chunk(self, journal: Journal | None) -> None:
        if journal is not None:
            journal.write_chunk(self.writer)
        elif self.writer.count != 0:
            self.on_written(self.writer.close())

    def on_written(self, written: WrittenChunk) -> None:
        """Let consumers see a chunk that is on disk."""
        if self.deleted:  # while the chunk was written: its segment may be new
            self._drop(written.segment)
            return
        is_new = self.segments.add(written)
        self.end_offset = written.first_offset + written.count
        if self.consumers:
            self._recent.append(Chunk(written.data, written.segment, written.at))
            self._recent_bytes += len(written.data)
            while self._recent_bytes > RECENT_BYTES:
                self._recent_bytes -= self._recent.pop(0).size()
        if is_new:
            self._retain()
        self.touch()

    def _retain(self) -> None:
        """Delete the oldest segments that are over the limits of size and age."""
        segments = self.segments
        max_bytes = self.settings.max_bytes
        total = segments.total_bytes()
        while len(segments.segments) > 1:
            is_old = self._age_limit_ms() != NEVER and self._age_limit_ms() <= self.turn.now_ms
            if not is_old and (max_bytes < 0 or total <= max_bytes):
                break
            dropped = segments.drop_first()
            total -= dropped.end
            self._drop(dropped.first_offset)
        self._note_first(segments.segments[0].first_offset)
        self.arm()

    def _note_first(self, offset: i64) -> None:
        """Note that all messages before an offset are deleted."""
        if offset > self.first_offset:
            self.first_offset = offset
            journal = self.ledger.journal
            if journal is not None:
                journal.write_trim(self.ledger.id, offset)

    def _drop(self, segment: i64) -> None:
        journal = self.ledger.journal
        if journal is not None:
            journal.drop_segment(self.ledger.id, segment)

    def _age_limit_ms(self) -> i64:
        """Return when the oldest segment becomes too old. The next one dates its last message."""
        if self.settings.max_age_ms <= 0 or len(self.segments.segments) < 2:
            return NEVER
        first_ms = self.segments.first_ms(1)
        return first_ms + self.settings.max_age_ms if first_ms != FAR_MS else NEVER

    def add_consumer(self, consumer: Consumer) -> None:
        self.subscribers.members.append(consumer)
        self.note_consumer(CONSUMER_CREATED, consumer)
        self.touch()

    def remove_consumer(self, consumer: Consumer) -> None:
        self.remove_consumers([consumer])

    def remove_consumers(self, consumers: list[Consumer]) -> None:
        gone = set(consumers)
        members = self.subscribers.members
        self.subscribers.members = [consumer for consumer in members if consumer not in gone]
        for consumer in consumers:
            self.note_consumer(CONSUMER_DELETED, consumer)
            consumer.suspended = False
        if not self.consumers:
            self._recent = []
            self._recent_bytes = 0
            self.segments.release()

    def resume_consumer(self, consumer: Consumer) -> None:
        consumer.suspended = False
        self.touch()

    def pump(self) -> None:
        """Deliver to every reader that has room."""
        if self.ledger.journal is None:
            self._close_chunk(None)
        if self.paused:
            return
        readers = self.consumers
        count: i64 = len(readers)
        first = self._first_served if self._first_served < count else 0
        passes: i64 = PASSED_MAX
        is_cut = False
        for step in range(count):
            at = (first + step) % count
            reader = readers[at]
            if reader.suspended:
                continue
            assert isinstance(reader, Reader)
            before = passes
            passes = self._serve(reader, passes)
            if passes < 0:
                passes = 0
                if not is_cut:
                    is_cut = True
                    self._first_served = at + 1 if before > 0 else at

    def _serve(self, reader: Reader, passes: i64) -> i64:
        """Deliver what a reader has room for. Return how many messages filters may still pass over.

        Return -1 if the filter of this reader needs more. Others are served first then: there may
        be thousands of readers, and each may have to pass over the whole stream.
        """
        while reader.offset < self.end_offset:
            if reader.session.outlet.credit <= 0:
                reader.session.outlet.starved.append(reader)
                reader.suspended = True
                return passes
            if not reader.has_room():
                reader.suspended = True
                return passes
            if reader.filters and passes <= 0:
                self.turn.timers.arm(self.timer, self.turn.now_ms)
                return -1
            try:
                chunk = self._chunk(reader)
                index = reader.offset - chunk.first_offset
                if reader.filters and not reader.wants(chunk.envelope(index)):
                    reader.offset += 1
                    passes -= 1
                    continue
                message = chunk.message(index, self.slot)
            except CorruptionError as fault:
                self._skip_damage(reader, fault)
                continue
            reader.offset += 1
            if reader.cursor:
                reader.note_sent(message)
            self._deliver(reader, message)
        return passes

    def _chunk(self, reader: Reader) -> Chunk:
        """Return the chunk with the reader's next message."""
        offset = reader.offset
        chunk = reader.chunk
        if chunk is not None and chunk.first_offset <= offset < chunk.end_offset:
            return chunk
        if offset < self.first_offset:
            offset = self.first_offset  # the offset that it wanted is deleted
            reader.offset = offset
        recent = self._find_recent(offset)
        if recent is not None:
            reader.chunk = recent
            return recent
        if chunk is not None and chunk.end_offset == offset:
            chunk = self.segments.next(chunk)
        else:
            chunk = self.segments.find(offset)
        if chunk.first_offset > offset or chunk.end_offset <= offset:
            raise CorruptionError(f"offset {offset} is missing")
        reader.chunk = chunk
        return chunk

    def _find_recent(self, offset: i64) -> Chunk | None:
        """Return the chunk with an offset from the newest ones, which have no gaps, or None."""
        recent = self._recent
        low: i64 = 0
        high: i64 = len(recent)
        while low < high:
            middle = (low + high) // 2
            if recent[middle].end_offset <= offset:
                low = middle + 1
            else:
                high = middle
        if low == len(recent) or recent[low].first_offset > offset:
            return None
        return recent[low]

    def _skip_damage(self, reader: Reader, fault: CorruptionError) -> None:
        """Continue after a part that cannot be read, and note the damage."""
        offset = reader.offset
        reader.chunk = None
        reader.offset = max(self.segments.skip_damage(offset, self.end_offset), offset + 1)
        self.note_damage(CorruptionError(f"offsets {offset} to {reader.offset - 1}: {fault}"))

    def start(self, reader: Reader, wanted: Field | None) -> None:
        """Set the position of a reader: its cursor, or else the offset that it asks for."""
        offset = self.cursors.cursors.get(reader.cursor, -1) if reader.cursor else -1
        if offset < 0:
            offset = self.offset_of(wanted)
        reader.offset = max(offset, self.first_offset)

    def offset_of(self, wanted: Field | None) -> i64:
        """Return the offset that the argument `x-stream-offset` means now.

        It may be out of range: a reader beyond the end waits for its message.
        """
        value = wanted.value if wanted is not None else "next"
        if value == "next":
            return self.writer.next_offset
        if value == "first":
            return self.first_offset
        if value == "last":
            return self._last_chunk_offset()
        if isinstance(value, str):
            return self.offset_at(self.turn.now_ms - age_ms(value))
        assert wanted is not None
        assert isinstance(value, int)
        if wanted.kind == TIMESTAMP:
            return self.offset_at(min(value, TIME_S_MAX) * 1000)
        return min(max(value, 0), OFFSET_MAX)

    def _last_chunk_offset(self) -> i64:
        """Return the first offset of the newest chunk."""
        if self.end_offset == self.first_offset:
            return self.end_offset
        try:
            return self.segments.find(self.end_offset - 1).first_offset
        except CorruptionError as fault:
            self.note_damage(fault)
            return self.end_offset

    def offset_at(self, time_ms: i64) -> i64:
        """Return the offset of the first message that is not older than a time."""
        try:
            return self.segments.find_time(time_ms, self.end_offset)
        except CorruptionError as fault:
            # Too early is safe: the reader skips the messages that cannot be read.
            self.note_damage(fault)
            return self.first_offset

    def settle(self, message: Message) -> None:
        self._settling = message.holder
        super().settle(message)

    def put_back(self, message: Message, *, failed: bool) -> None:
        """Do nothing: the message stays, and the next reader of this cursor gets it again."""

    def discard(self, message: Message) -> None:
        reader = self._settling
        if isinstance(reader, Reader) and reader.cursor:
            self.cursors.note_settled(reader, message)

    def purge(self) -> int:
        raise self.unsupported("queue.purge")

    def unsupported(self, what: str) -> UnsupportedError:
        """Return the error for an operation that streams do not have."""
        return UnsupportedError(
            f"{what} not supported by stream queues queue '{self.name}' in vhost '{self.vhost}'"
        )

    def on_due(self, now_ms: i64) -> i64:
        if self._age_limit_ms() != NEVER and self._age_limit_ms() <= now_ms:
            self._retain()
        self.touch()
        return self._age_limit_ms()

    def arm(self) -> None:
        due = self._age_limit_ms()
        if due != NEVER:
            self.turn.timers.arm(self.timer, due)

    def catch_up(self) -> None:
        return

    def close(self) -> None:
        """Delete the stream with its segments."""
        self.cursors.end()
        self.deleted = True
        for segment in self.segments.segments:
            self._drop(segment.first_offset)
        if self.ledger.journal is not None:
            # A checkpoint without the stream may follow: it would not explain a new segment.
            self.ledger.journal.forget_chunks(self.writer)
        self.turn.timers.disarm(self.timer)
        self.end_consumers()
