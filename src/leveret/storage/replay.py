"""Replays records: collects the remaining messages of every queue, by position in the log.

`Replay` is fed the records of a checkpoint, then those of the log files in order. For each queue it
keeps the positions of messages and the numbers of settled ones. It does not read bodies.
"""

import sys
from array import array

from librt.strings import (
    BytesWriter,
    read_i32_be,
    read_i64_be,
    write_i32_be,
    write_i64_be,
)
from mypy_extensions import i32, i64

from leveret.engine.backlog.arrival_times import ArrivalTimes
from leveret.engine.backlog.settled_numbers import SettledNumbers
from leveret.engine.deduplication.recent_keys import PAGE_KEYS
from leveret.errors import CorruptionError
from leveret.journal.index import ENTRY_BYTES, signed32, write_entry
from leveret.journal.records import (
    BLOCK,
    CAME,
    CHUNK,
    COPY,
    COPY_BYTES,
    CURSOR,
    DEFINE,
    END,
    FILES,
    GONE,
    KEY_BYTES,
    KEYS,
    KEYS_HEAD_BYTES,
    MARK,
    MESSAGE,
    OFFSET_BITS,
    OFFSET_MASK,
    RECORD_HEAD_BYTES,
    RETURNED,
    SPILLED,
    STAMP,
    STREAM,
    TRIM,
    record_end,
)
from leveret.storage.blocks import HEAD_BYTES
from leveret.wire.tables import Table, decode_table


class FileMessages:
    """The messages of one queue in one log file, as columns, in file order."""

    def __init__(self, file: i64) -> None:
        self.file = file
        self.first: i64 = -1  # sequence numbers of the first and the last message
        self.last: i64 = -1
        self.is_ascending = True  # False if messages were copied from an older file
        self.is_scheduled = False  # at least one message was scheduled
        self._seqs = BytesWriter()
        self._offsets = BytesWriter()
        self._sizes = BytesWriter()
        self._priorities = BytesWriter()
        self._dues = BytesWriter()  # empty until the first scheduled message

    def add(self, seq: i64, offset: i64, size: i64, priority: i64, due_ms: i64) -> None:
        if seq <= self.last:
            self.is_ascending = False
        if self.first < 0:
            self.first = seq
        self.last = seq
        if due_ms != 0 and not self.is_scheduled:
            self.is_scheduled = True
            self._dues.write(bytes(len(self._seqs)))
        if self.is_scheduled:
            write_i64_be(self._dues, due_ms)
        write_i64_be(self._seqs, seq)
        write_i32_be(self._offsets, signed32(offset))
        write_i32_be(self._sizes, signed32(size))
        write_i32_be(self._priorities, i32(priority))

    def seqs(self) -> "array[int]":
        return _column("Q", self._seqs)

    def offsets(self) -> "array[int]":
        return _column("I", self._offsets)

    def sizes(self) -> "array[int]":
        """Return the body sizes."""
        return _column("I", self._sizes)

    def priorities(self) -> "array[int]":
        return _column("i", self._priorities)

    def dues(self) -> "array[int]":
        """Return due times, 0 for messages that are not scheduled; empty if none is."""
        return _column("Q", self._dues)


def _column(kind: str, writer: BytesWriter) -> "array[int]":
    """Convert big-endian bytes to an array: a million numbers take a millisecond."""
    column: array[int] = array(kind)
    column.frombytes(writer.getvalue())
    if sys.byteorder == "little":
        column.byteswap()
    return column


class QueueLog:
    """The messages of one queue in the log, and which of them are settled or returned."""

    def __init__(self) -> None:
        self.by_file: list[FileMessages] = []  # one for each log file
        self.gone = SettledNumbers()
        self.delivered_seq: i64 = -1
        self.next_seq: i64 = 0
        self.returned: dict[int, tuple[int, int, int]] = {}  # returns, failures, due_ms
        self.damaged: dict[int, tuple[int, int]] = {}  # file and offset of unreadable messages
        self.ages = ArrivalTimes()

    def add(self, file: i64, seq: i64, offset: i64, size: i64, priority: i64, due_ms: i64) -> None:
        """Note the position of a message."""
        if seq >= self.next_seq:
            self.next_seq = seq + 1
        if not self.by_file or self.by_file[-1].file != file:
            self.by_file.append(FileMessages(file))
        self.by_file[-1].add(seq, offset, size, priority, due_ms)


class StreamLog:
    """The state of one stream at the checkpoint, and its cursors."""

    def __init__(self) -> None:
        self.first_offset: i64 = 0
        self.segment: i64 = 0
        self.at: i64 = HEAD_BYTES
        self.began_ms: i64 = 0
        self.next_offset: i64 = 0
        self.last_ms: i64 = 0
        self.cursors: dict[str, int] = {}


class KeyLog:
    """The deduplication keys of one queue or exchange, oldest first."""

    def __init__(self) -> None:
        self.pages: list[bytes] = []  # full pages from a checkpoint
        self._rest = BytesWriter()  # keys after these pages: time and digest of each

    def add(self, data: bytes, at: i64, count: i64) -> None:
        """Add `count` keys: `data` holds their times at `at`, followed by their digests."""
        if count == PAGE_KEYS and len(self._rest) == 0:
            self.pages.append(data[at : at + KEY_BYTES * count])
            return
        digests_at = at + 8 * count
        for place in range(count):
            self._rest.write(data[at + 8 * place : at + 8 * place + 8])
            self._rest.write(data[digests_at + 16 * place : digests_at + 16 * place + 16])

    def rest(self) -> bytes:
        return self._rest.getvalue()


class Replay:
    """The content of a checkpoint and the log files after it."""

    def __init__(self) -> None:
        self.queues: dict[int, QueueLog] = {}
        self.streams: dict[int, StreamLog] = {}
        # Stream, file, offset and size of each chunk record.
        self.chunks: list[tuple[int, int, int, int]] = []
        self.keys: dict[int, KeyLog] = {}  # by number of the queue or exchange
        self.definitions: list[Table] = []
        self.last_block: i64 = 0  # number of the last block before the checkpoint
        self.last_ms: i64 = 0  # time and term of the last block
        self.last_term: i64 = 0
        self.files: dict[int, int] = {}  # sizes of older log files, as the checkpoint lists them
        self.has_ended = False  # the last record is END: the node was stopped, not killed
        self.index = BytesWriter()  # index entries of the messages since the last `take_index`
        # Body size of the last MESSAGE record, for the COPY records after it.
        self._body_size: i64 = 0

    def take_index(self) -> bytes:
        """Return the index of the file that was replayed last."""
        index = self.index.getvalue()
        self.index = BytesWriter()
        return index

    def queue(self, number: i64) -> QueueLog:
        found = self.queues.get(number)
        if found is None:
            found = QueueLog()
            self.queues[number] = found
        return found

    def first_offset(self, stream: i64) -> i64:
        """Return the first offset of a stream, as far as the log knows it."""
        found = self.streams.get(stream)
        return found.first_offset if found is not None else 0

    def read(self, data: bytes, at: i64, end: i64, file: i64, messages_only: bool) -> None:
        """Replay the records between two offsets of a file's bytes.

        `messages_only` is for files older than the checkpoint, which holds everything else. An END
        in such a file is old: the node that wrote the checkpoint has run after it.
        """
        while at < end:
            kind: i64 = data[at]
            stop = record_end(data, at, end)
            start = at + RECORD_HEAD_BYTES
            size = stop - start
            if kind == MESSAGE or kind == COPY:
                require_message_size(kind, size)
                self._replay_message(data, kind, start, size, file << OFFSET_BITS | at)
            elif messages_only:
                pass
            elif kind == STAMP:
                self.last_ms = max(self.last_ms, read_i64_be(data, start))
                self.last_term = read_i64_be(data, start + 8)
            elif kind == CHUNK:
                self.chunks.append((read_i64_be(data, start), file, at, size))
            elif kind == STREAM or kind == TRIM or kind == CURSOR:
                self._replay_stream(data, kind, start, size)
            elif kind == GONE:
                self._replay_gone(data, start, start + size)
            elif kind == RETURNED:
                self._replay_returned(data, start)
            elif kind == MARK:
                queue = self.queue(read_i64_be(data, start))
                queue.delivered_seq = max(queue.delivered_seq, read_i64_be(data, start + 8))
            elif kind == KEYS:
                self._replay_keys(data, start, size)
            elif kind == CAME:
                self._replay_came(data, start, start + size)
            elif kind == BLOCK:
                self.last_block = read_i64_be(data, start)
            elif kind == FILES:
                self._replay_files(data, start, start + size)
            elif kind == DEFINE:
                self.definitions.append(decode_table(data, start + 4, start + size))
            if not messages_only:
                self.has_ended = kind == END
            at = stop

    def deleted_queues(self) -> list[int]:
        """Return the numbers of the queues whose deletion is in the log."""
        found: list[int] = []
        for table in self.definitions:
            op = table.get("op")
            number = table.get("id")
            if op is not None and op.value == "queue-" and number is not None:
                if isinstance(number.value, int):
                    found.append(number.value)
        return found

    def _replay_message(self, data: bytes, kind: i64, start: i64, size: i64, position: i64) -> None:
        if kind == MESSAGE:
            self._body_size = body_size(data, start, size)
        number = read_i64_be(data, start)
        if number == SPILLED:
            return
        seq = read_i64_be(data, start + 8)
        due_ms = read_i64_be(data, start + 24)
        priority = i64(read_i32_be(data, start + 32))
        offset = position & OFFSET_MASK
        size = self._body_size
        write_entry(self.index, number, offset, seq, priority, size, due_ms)
        file = position >> OFFSET_BITS
        self.queue(number).add(file, seq, offset, size, priority, due_ms)

    def read_index(self, data: bytes, file: i64) -> None:
        """Replay the messages of a file from its index."""
        at: i64 = 0
        end: i64 = len(data)
        number: i64 = -1
        queue = QueueLog()
        while end - at >= ENTRY_BYTES:
            owner = i64(read_i32_be(data, at)) & 0xFFFFFFFF
            if owner != number:
                number = owner
                queue = self.queue(number)
            queue.add(
                file,
                read_i64_be(data, at + 8),
                i64(read_i32_be(data, at + 4)) & 0xFFFFFFFF,
                i64(read_i32_be(data, at + 20)) & 0xFFFFFFFF,
                i64(read_i32_be(data, at + 16)),
                read_i64_be(data, at + 24),
            )
            at += ENTRY_BYTES

    def _replay_stream(self, data: bytes, kind: i64, start: i64, size: i64) -> None:
        if size < 16 or (kind == STREAM and size < 56):
            raise CorruptionError("a stream record is cut short")
        stream = self.streams.setdefault(read_i64_be(data, start), StreamLog())
        number = read_i64_be(data, start + 8)
        if kind == CURSOR:
            name = data[start + 16 : start + size].decode("utf-8", "surrogateescape")
            if number < 0:
                stream.cursors.pop(name, None)
            else:
                stream.cursors[name] = number
            return
        stream.first_offset = number
        if kind == STREAM:
            stream.segment = read_i64_be(data, start + 16)
            stream.at = read_i64_be(data, start + 24)
            stream.began_ms = read_i64_be(data, start + 32)
            stream.next_offset = read_i64_be(data, start + 40)
            stream.last_ms = read_i64_be(data, start + 48)

    def _replay_files(self, data: bytes, at: i64, end: i64) -> None:
        while end - at >= 16:
            self.files[read_i64_be(data, at)] = read_i64_be(data, at + 8)
            at += 16

    def _replay_gone(self, data: bytes, at: i64, end: i64) -> None:
        queue = self.queue(read_i64_be(data, at))
        at += 8
        while end - at >= 16:
            first = read_i64_be(data, at)
            last = read_i64_be(data, at + 8)
            queue.gone.add_run(first, last)
            if last >= queue.next_seq:
                queue.next_seq = last + 1
            at += 16

    def _replay_came(self, data: bytes, at: i64, end: i64) -> None:
        ages = self.queue(read_i64_be(data, at)).ages
        at += 8
        while end - at >= 16:
            seq = read_i64_be(data, at)
            time_ms = read_i64_be(data, at + 8)
            if time_ms > ages.last_ms and (not ages.seqs or seq > i64(ages.seqs[-1])):
                ages.add(seq, time_ms)
            at += 16

    def _replay_returned(self, data: bytes, start: i64) -> None:
        queue = self.queue(read_i64_be(data, start))
        seq = read_i64_be(data, start + 8)
        returns = i64(read_i32_be(data, start + 16)) & 0xFFFFFFFF
        failures = i64(read_i32_be(data, start + 20)) & 0xFFFFFFFF
        queue.returned[seq] = (returns, failures, read_i64_be(data, start + 24))

    def _replay_keys(self, data: bytes, start: i64, size: i64) -> None:
        at = start + KEYS_HEAD_BYTES
        count = i64(read_i32_be(data, at - 4)) & 0xFFFFFFFF if size >= KEYS_HEAD_BYTES else 1
        if size < KEYS_HEAD_BYTES + KEY_BYTES * count:
            raise CorruptionError("a record of keys is cut short")
        owner = read_i64_be(data, start)
        log = self.keys.get(owner)
        if log is None:
            log = KeyLog()
            self.keys[owner] = log
        log.add(data, at, count)


def require_message_size(kind: i64, size: i64) -> None:
    """Raise CorruptionError if a MESSAGE or COPY record is too small for its fixed fields."""
    if size < COPY_BYTES + (12 if kind == MESSAGE else 4):
        raise CorruptionError("a message record is cut short")


def body_size(data: bytes, start: i64, size: i64) -> i64:
    """Return the size of the body of a MESSAGE record."""
    end = start + size
    at = start + COPY_BYTES
    keys = i64(read_i32_be(data, at)) & 0xFFFFFFFF
    at = _field_end(data, _field_end(data, at + 8, 1, end), 1, end)
    while keys > 1:
        at = _field_end(data, at, 4, end)
        keys -= 1
    at = _field_end(data, at, 4, end)
    return end - at


def _field_end(data: bytes, at: i64, width: i64, end: i64) -> i64:
    """Return the end of a field that begins with its length in `width` bytes."""
    if width > end - at:
        raise CorruptionError("a message record is cut short")
    size: i64 = data[at]
    if width == 4:
        size = i64(read_i32_be(data, at)) & 0xFFFFFFFF
    if size > end - at - width:
        raise CorruptionError("a message record is cut short")
    return at + width + size
