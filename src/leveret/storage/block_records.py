"""Walks over blocks of a log file, and over the records in them, without decoding messages.

A follower needs three things of a block: its term, its kind, and its effects. An effect is a record
that changes files or members when the block is committed. A full log file also gets an index of its
messages. This module is compiled, because it looks at each record.
"""

from typing import Final

from librt.strings import BytesWriter, read_i32_be, read_i64_be
from mypy_extensions import i64

from leveret.checksum import crc32
from leveret.journal.index import write_entry
from leveret.journal.records import (
    CHUNK,
    COPY,
    DEFINE,
    MEMBERS,
    MEMBERS_BLOCK,
    MESSAGE,
    NORMAL_BLOCK,
    RECORD_HEAD_BYTES,
    ROLL_BLOCK,
    SPILLED,
    STAMP,
    STAMP_BYTES,
    TRIM,
    record_end,
)
from leveret.storage.blocks import BLOCK_HEAD_BYTES
from leveret.storage.replay import body_size, require_message_size

ROLL_EFFECT: Final = -1  # a whole ROLL block
_STREAM_WORD: Final = b"stream"  # the definition of a stream contains it
_DELETION_WORD: Final = b"queue-"  # the deletion of a queue or stream contains it


class Effect:
    """A record that changes files, or the members, when its block is committed."""

    def __init__(self, index: i64, kind: i64, file: i64, at: i64, size: i64) -> None:
        self.index: i64 = index  # number of its block
        self.kind: i64 = kind  # kind of the record, or ROLL_EFFECT
        self.file: i64 = file
        self.at: i64 = at  # offset in the file of the payload, or of the records of a ROLL block
        self.size: i64 = size


class BlockWalk:
    """Reads the blocks of a log file one after the other, from slices of the file."""

    def __init__(self, file: i64, next_index: i64, term: i64) -> None:
        self.file: i64 = file
        self.next_index: i64 = next_index
        self.term: i64 = term  # term of the last block
        self.last_ms: i64 = 0  # time of the last block
        self.terms: list[tuple[int, int]] = []  # each further term, and its first block
        self.effects: list[Effect] = []

    def read(self, data: bytes, start: i64) -> i64:
        """Read the whole blocks at the beginning of a slice, which is at offset `start`.

        Return how many bytes they have. After them there is nothing, an incomplete block, or bytes
        that are not the next block.
        """
        at: i64 = 0
        end: i64 = len(data)
        while end - at > BLOCK_HEAD_BYTES:
            size = i64(read_i32_be(data, at)) & 0xFFFFFFFF
            stop = at + BLOCK_HEAD_BYTES + size
            if size == 0 or stop > end or read_i64_be(data, at + 8) != self.next_index:
                break
            crc = i64(read_i32_be(data, at + 4)) & 0xFFFFFFFF
            if crc32(data[at + 8 : stop]) != crc:
                break
            term = stamped_term(data, at, stop)
            self.last_ms = max(self.last_ms, stamped_ms(data, at, stop))
            if term < self.term:
                break  # a block of an older leader, left over from before a cut
            if term > self.term:
                self.term = term
                self.terms.append((term, self.next_index))
            note_effects(data, at, self.next_index, self.file, start + at, self.effects)
            self.next_index += 1
            at = stop
        return at


def stamped_term(data: bytes, at: i64, end: i64) -> i64:
    """Return the term of the block at `at`; 0 if it has no STAMP."""
    records = at + BLOCK_HEAD_BYTES
    if end - records < STAMP_BYTES or i64(data[records]) != STAMP:
        return 0
    return read_i64_be(data, records + RECORD_HEAD_BYTES + 8)


def stamped_ms(data: bytes, at: i64, end: i64) -> i64:
    """Return when the block at `at` was made; 0 if it has no STAMP."""
    records = at + BLOCK_HEAD_BYTES
    if end - records < STAMP_BYTES or i64(data[records]) != STAMP:
        return 0
    return read_i64_be(data, records + RECORD_HEAD_BYTES)


def stamped_kind(data: bytes, at: i64, end: i64) -> i64:
    """Return the kind of the block at `at`; it is NORMAL if it has no STAMP."""
    records = at + BLOCK_HEAD_BYTES
    if end - records < STAMP_BYTES or i64(data[records]) != STAMP:
        return NORMAL_BLOCK
    return data[records + RECORD_HEAD_BYTES + 16]


def note_effects(
    data: bytes, at: i64, index: i64, file: i64, offset: i64, effects: list[Effect]
) -> None:
    """Append the effects of the block at `at` of `data`, which is at `offset` of its file."""
    size = i64(read_i32_be(data, at)) & 0xFFFFFFFF
    start = at + BLOCK_HEAD_BYTES
    end = start + size
    shift = offset - at
    kind = stamped_kind(data, at, end)
    if kind == ROLL_BLOCK:
        effects.append(Effect(index, ROLL_EFFECT, file, start + shift, size))
        return
    if kind != NORMAL_BLOCK and kind != MEMBERS_BLOCK:
        return
    while end - start >= RECORD_HEAD_BYTES:
        record: i64 = data[start]
        stop = record_end(data, start, end)
        start += RECORD_HEAD_BYTES
        if (
            record == CHUNK
            or record == TRIM
            or record == MEMBERS
            or (record == DEFINE and is_about_stream(data, start, stop))
        ):
            effects.append(Effect(index, record, file, start + shift, stop - start))
        start = stop


def is_about_stream(data: bytes, start: i64, end: i64) -> bool:
    """Return True if a DEFINE record may make or delete a stream."""
    return data.find(_STREAM_WORD, start, end) >= 0 or data.find(_DELETION_WORD, start, end) >= 0


def find_records(data: bytes, kind: i64) -> list[bytes]:
    """Return the payloads of all records of a kind. `data` holds records and nothing else."""
    found: list[bytes] = []
    at: i64 = 0
    end: i64 = len(data)
    while end - at >= RECORD_HEAD_BYTES:
        record: i64 = data[at]
        stop = record_end(data, at, end)
        if record == kind:
            found.append(data[at + RECORD_HEAD_BYTES : stop])
        at = stop
    return found


def index_block(writer: BytesWriter, data: bytes, offset: i64) -> None:
    """Append the index entries of a block. `data` holds the block; `offset` is its place."""
    at: i64 = BLOCK_HEAD_BYTES
    end: i64 = len(data)
    body: i64 = 0  # size of the last body, for the copies that follow it
    while end - at >= RECORD_HEAD_BYTES:
        kind: i64 = data[at]
        stop = record_end(data, at, end)
        if kind == MESSAGE or kind == COPY:
            start = at + RECORD_HEAD_BYTES
            require_message_size(kind, stop - start)
            if kind == MESSAGE:
                body = body_size(data, start, stop - start)
            queue = read_i64_be(data, start)
            if queue != SPILLED:
                seq = read_i64_be(data, start + 8)
                due_ms = read_i64_be(data, start + 24)
                priority = i64(read_i32_be(data, start + 32))
                write_entry(writer, queue, offset + at, seq, priority, body, due_ms)
        at = stop


def skip_blocks(data: bytes, index: i64) -> i64:
    """Return the size of the blocks before block `index` at the beginning of `data`.

    The result ends before the first block that is incomplete, or not below `index`.
    """
    at: i64 = 0
    end: i64 = len(data)
    while end - at >= BLOCK_HEAD_BYTES:
        number = read_i64_be(data, at + 8)
        size = i64(read_i32_be(data, at)) & 0xFFFFFFFF
        if number >= index or size == 0 or size > end - at - BLOCK_HEAD_BYTES:
            break
        at += BLOCK_HEAD_BYTES + size
    return at
