"""Reads records back: what is left of every queue, by position in the log.

`Replay` is fed the records of a checkpoint and then those of the log files, in order. It keeps for
each queue which messages stand where; messages that are gone are dropped as soon as that is known.
Bodies are not looked at.
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

from leveret.checksum import crc32
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
    STREAM,
    TRIM,
)
from leveret.storage.blocks import HEAD_BYTES
from leveret.wire.tables import Table, decode_table


class Part:
    """The messages of one queue in one log file, as columns, in the order of the file."""

    def __init__(self, file: i64) -> None:
        self.file = file
        self.first: i64 = -1  # sequence numbers of its first and last message
        self.last: i64 = -1
        self.is_ascending = True  # not where messages were copied from an older file
        self.is_scheduled = False  # a message of it was to wait
        self._seqs = BytesWriter()
        self._offsets = BytesWriter()
        self._sizes = BytesWriter()
        self._priorities = BytesWriter()
        self._dues = BytesWriter()  # empty up to the first that was to wait

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
        """Of the bodies."""
        return _column("I", self._sizes)

    def priorities(self) -> "array[int]":
        return _column("i", self._priorities)

    def dues(self) -> "array[int]":
        """When messages are due, 0 for those that are not to wait; empty where none is."""
        return _column("Q", self._dues)


def _column(kind: str, writer: BytesWriter) -> "array[int]":
    """Big-endian bytes as an array: a million numbers in a millisecond."""
    column: array[int] = array(kind)
    column.frombytes(writer.getvalue())
    if sys.byteorder == "little":
        column.byteswap()
    return column


class QueueLog:
    """What the log says of one queue: its messages, and their fate."""

    def __init__(self) -> None:
        self.parts: list[Part] = []  # by file
        self.gone = SettledNumbers()
        self.delivered_seq: i64 = -1
        self.next_seq: i64 = 0
        self.returned: dict[int, tuple[int, int, int]] = {}  # returns, failures, due_ms
        self.damaged: dict[int, tuple[int, int]] = {}  # file and offset of what cannot be read
        self.ages = ArrivalTimes()

    def add(self, file: i64, seq: i64, offset: i64, size: i64, priority: i64, due_ms: i64) -> None:
        """A message stands in the log."""
        if seq >= self.next_seq:
            self.next_seq = seq + 1
        if not self.parts or self.parts[-1].file != file:
            self.parts.append(Part(file))
        self.parts[-1].add(seq, offset, size, priority, due_ms)


class StreamLog:
    """What the log says of one stream: where it was at the checkpoint, and its cursors."""

    def __init__(self) -> None:
        self.first_offset: i64 = 0
        self.segment: i64 = 0
        self.at: i64 = HEAD_BYTES
        self.began_ms: i64 = 0
        self.next_offset: i64 = 0
        self.last_ms: i64 = 0
        self.cursors: dict[str, int] = {}


class KeyLog:
    """Keys that one queue or exchange remembers, oldest first."""

    def __init__(self) -> None:
        self.pages: list[bytes] = []  # full ones, from a checkpoint
        self._rest = BytesWriter()  # what follows them, time and digest of each

    def add(self, data: bytes, at: i64, count: i64) -> None:
        """Take in so many times, and the digests that follow them."""
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
    """What the log says."""

    def __init__(self) -> None:
        self.queues: dict[int, QueueLog] = {}
        self.streams: dict[int, StreamLog] = {}
        self.chunks: list[tuple[int, int, int, int]] = []  # stream, file, offset and size of record
        self.keys: dict[int, KeyLog] = {}  # by queue or exchange
        self.definitions: list[Table] = []
        self.last_block: i64 = 0  # before the checkpoint
        self.files: dict[int, int] = {}  # sizes of older log files, as the checkpoint lists them
        self.has_ended = False  # the last record says that the node has stopped as it should
        self.index = BytesWriter()  # of the messages read since it was taken
        self._body_size: i64 = 0  # of the last message, for the copies that follow it

    def take_index(self) -> bytes:
        """The index of the file that was read last."""
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
        """Where a stream begins, as far as the log says."""
        found = self.streams.get(stream)
        return found.first_offset if found is not None else 0

    def read(self, data: bytes, at: i64, end: i64, file: i64, messages_only: bool) -> None:
        """Take in the records between two offsets of a file's bytes.

        Of files older than the checkpoint only the messages count: it knows the rest.
        """
        while at < end:
            if end - at < RECORD_HEAD_BYTES:
                raise CorruptionError("a record is cut short")
            kind: i64 = data[at]
            size = i64(read_i32_be(data, at + 1)) & 0xFFFFFFFF
            start = at + RECORD_HEAD_BYTES
            if size > end - start:
                raise CorruptionError("a record is cut short")
            if kind == MESSAGE or kind == COPY:
                if size < COPY_BYTES + (12 if kind == MESSAGE else 4):
                    raise CorruptionError("a message record is cut short")
                self._message(data, kind, start, size, file << OFFSET_BITS | at)
            elif messages_only:
                pass
            elif kind == CHUNK:
                self.chunks.append((read_i64_be(data, start), file, at, size))
            elif kind == STREAM or kind == TRIM or kind == CURSOR:
                self._stream(data, kind, start, size)
            elif kind == GONE:
                self._gone(data, start, start + size)
            elif kind == RETURNED:
                self._returned(data, start)
            elif kind == MARK:
                queue = self.queue(read_i64_be(data, start))
                queue.delivered_seq = max(queue.delivered_seq, read_i64_be(data, start + 8))
            elif kind == KEYS:
                self._keys(data, start, size)
            elif kind == CAME:
                self._came(data, start, start + size)
            elif kind == BLOCK:
                self.last_block = read_i64_be(data, start)
            elif kind == FILES:
                self._files(data, start, start + size)
            elif kind == DEFINE:
                self.definitions.append(decode_table(data, start + 4, start + size))
            self.has_ended = kind == END
            at = start + size

    def _message(self, data: bytes, kind: i64, start: i64, size: i64, position: i64) -> None:
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
        """Take in the messages of a file by its index."""
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

    def _stream(self, data: bytes, kind: i64, start: i64, size: i64) -> None:
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

    def _files(self, data: bytes, at: i64, end: i64) -> None:
        while end - at >= 16:
            self.files[read_i64_be(data, at)] = read_i64_be(data, at + 8)
            at += 16

    def _gone(self, data: bytes, at: i64, end: i64) -> None:
        queue = self.queue(read_i64_be(data, at))
        at += 8
        while end - at >= 16:
            first = read_i64_be(data, at)
            last = read_i64_be(data, at + 8)
            queue.gone.add_run(first, last)
            if last >= queue.next_seq:
                queue.next_seq = last + 1
            at += 16

    def _came(self, data: bytes, at: i64, end: i64) -> None:
        ages = self.queue(read_i64_be(data, at)).ages
        at += 8
        while end - at >= 16:
            seq = read_i64_be(data, at)
            time_ms = read_i64_be(data, at + 8)
            if time_ms > ages.last_ms and (not ages.seqs or seq > i64(ages.seqs[-1])):
                ages.add(seq, time_ms)
            at += 16

    def _returned(self, data: bytes, start: i64) -> None:
        queue = self.queue(read_i64_be(data, start))
        seq = read_i64_be(data, start + 8)
        returns = i64(read_i32_be(data, start + 16)) & 0xFFFFFFFF
        failures = i64(read_i32_be(data, start + 20)) & 0xFFFFFFFF
        queue.returned[seq] = (returns, failures, read_i64_be(data, start + 24))

    def _keys(self, data: bytes, start: i64, size: i64) -> None:
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


def body_size(data: bytes, start: i64, size: i64) -> i64:
    """Size of the body of a MESSAGE record."""
    end = start + size
    at = start + COPY_BYTES
    keys = i64(read_i32_be(data, at)) & 0xFFFFFFFF
    at = _over(data, _over(data, at + 8, 1, end), 1, end)
    while keys > 1:
        at = _over(data, at, 4, end)
        keys -= 1
    at = _over(data, at, 4, end)
    return end - at


def _over(data: bytes, at: i64, width: i64, end: i64) -> i64:
    """Where the octets behind a length end."""
    if width > end - at:
        raise CorruptionError("a message record is cut short")
    size: i64 = data[at]
    if width == 4:
        size = i64(read_i32_be(data, at)) & 0xFFFFFFFF
    if size > end - at - width:
        raise CorruptionError("a message record is cut short")
    return at + width + size


def later_block(data: bytes, at: i64, last_block: i64) -> bool:
    """Whether a whole block stands behind bytes that are none: then they are no torn end.

    A block has at least 17 bytes, which bounds its number.
    """
    return find_block(data, at, last_block, last_block + 1 + (len(data) - at) // 17) >= 0


def find_block(data: bytes, at: i64, after: i64, highest: i64) -> i64:
    """Where the next whole block starts; -1 where there is none.

    Its number lies above `after` and is not above `highest`. If the bytes at `at` look like a block
    whose size leads to a whole one, that one is it: what stands inside a message is never taken for
    a block of the log. Otherwise every offset is tried.
    """
    end: i64 = len(data)
    if end - at >= 17 and not _is_block(data, at, after, highest):
        stop = at + 16 + (i64(read_i32_be(data, at)) & 0xFFFFFFFF)
        if stop != at + 16 and _is_block(data, stop, after, highest):
            return stop
    while end - at >= 17:
        if _is_block(data, at, after, highest):
            return at
        at += 1
    return -1


def _is_block(data: bytes, at: i64, after: i64, highest: i64) -> bool:
    end: i64 = len(data)
    if end - at < 17:
        return False
    number = read_i64_be(data, at + 8)
    if number <= after or number > highest:
        return False
    size = i64(read_i32_be(data, at)) & 0xFFFFFFFF
    if size == 0 or size > end - at - 16:
        return False
    crc = i64(read_i32_be(data, at + 4)) & 0xFFFFFFFF
    return crc32(data[at + 8 : at + 16 + size]) == crc
